"""What the environment may say, and which values are refused outside development."""

import stat

import pytest

from app.settings import WrongSettings, load_settings

SECRET = "p9Zr-3mQ_x7LkV0sT4uW8yB2nC6dF1gH"
PRODUCTION = {
    "BERTH_ENVIRONMENT": "production",
    "DATABASE_URL": "postgresql://berth_app@db/berth",
    "REDIS_URL": "redis://broker",
    "SECRET_KEY": SECRET,
}


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in PRODUCTION:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BERTH_DATA", str(tmp_path / "data"))
    return monkeypatch


def test_a_secret_key_is_made_once_and_nobody_else_may_read_it(tmp_path):
    first = load_settings().secret_key.get_secret_value()
    assert load_settings().secret_key.get_secret_value() == first
    assert len(first) >= 32
    assert stat.S_IMODE((tmp_path / "data" / "secret-key").stat().st_mode) == 0o600


def test_production_takes_real_secrets_and_listens_to_others(environment):
    for name, value in PRODUCTION.items():
        environment.setenv(name, value)
    environment.setenv("BERTH_HOST", "0.0.0.0")
    environment.setenv("BERTH_BASE_URL", "https://berth.example.org/")
    settings = load_settings()
    assert settings.address == "https://berth.example.org"
    assert settings.secure_cookies


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SECRET_KEY", None),
        ("SECRET_KEY", "short"),
        ("SECRET_KEY", "a" * 40),
        ("SECRET_KEY", "please-change-me-" + SECRET),
        ("BERTH_OIDC_CLIENT_SECRET", "secret"),
        ("DATABASE_URL", None),
        ("REDIS_URL", None),
    ],
)
def test_production_refuses_placeholders_and_gaps(environment, name, value):
    for one, text in {**PRODUCTION, name: value}.items():
        if text is not None:
            environment.setenv(one, text)
    with pytest.raises(WrongSettings, match=name if value is not None else "in production"):
        load_settings()


def test_secrets_are_not_in_what_is_printed(environment):
    for name, value in PRODUCTION.items():
        environment.setenv(name, value)
    assert SECRET not in repr(load_settings())


def test_another_process_gets_the_same_settings_and_not_the_owner(environment):
    environment.setenv("DATABASE_URL", "postgresql://berth_app@db/berth")
    environment.setenv("DATABASE_OWNER_URL", "postgresql://berth_owner@db/berth")
    environment.setenv("BERTH_OIDC_GROUP_MAP", '{"gpu-admins": {"platform": ["operator"]}}')
    settings = load_settings(port=9000)
    handed = settings.as_environment()
    assert "DATABASE_OWNER_URL" not in handed
    environment.delenv("DATABASE_OWNER_URL")
    for name, value in handed.items():
        environment.setenv(name, value)
    assert load_settings() == settings.with_values(database_owner_url=None)


def test_a_group_map_in_a_file(environment, tmp_path):
    file = tmp_path / "groups.json"
    file.write_text('{"a": "b"}')
    environment.setenv("BERTH_OIDC_GROUP_MAP", str(file))
    assert load_settings().oidc_group_map == {"a": "b"}
    file.write_text("not json")
    with pytest.raises(WrongSettings):
        load_settings()
