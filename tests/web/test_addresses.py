"""From where a request came: what a proxy says is believed of the proxies that the settings name, and limits follow it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from app.settings import Settings, WrongSettings, load_settings
from app.web import deps
from app.web.serving import server_config
from tests.accounts.world import ADDRESS, World

PROXY = ("172.30.57.1", 40000)


@pytest.fixture
def world(database, valkey_url) -> Iterator[World]:
    """A fresh one for each test: limits are counted."""
    made = World(database, valkey_url)
    yield made
    made.close()


def served(world: World, trusted: str, **headers: str) -> TestClient:
    """A browser that comes by the proxy, before the application as the server carries it."""
    config = server_config(world.app, replace_settings(world.settings, trusted))
    config.load()
    return TestClient(config.loaded_app, base_url=ADDRESS, client=PROXY, headers=headers, follow_redirects=False)


def replace_settings(settings: Settings, trusted: str) -> Settings:
    return settings.with_values(trusted_proxies=trusted)


def fail_to_sign_in(client: TestClient, login: str) -> int:
    page = client.get("/sign-in").text
    token = page.partition('name="csrf_token" value="')[2].partition('"')[0]
    form = {"csrf_token": token, "email": login, "password": "wrong"}
    return client.post("/sign-in", data=form, headers={"Origin": ADDRESS}).status_code


def lock_out(world: World, address: str) -> None:
    """Sixty failures from one address."""
    from hashlib import sha256

    with world.work() as work:
        key = sha256(f"address:{address}".encode()).digest()
        work.pg.execute(
            "INSERT INTO sign_in_tries (key, at) SELECT %s, %s FROM generate_series(1, 60)", [key, work.wall]
        )


@pytest.mark.parametrize("trusted", ["172.30.57.1", "10.0.0.1, 172.30.57.0/24"])
def test_behind_a_proxy_one_address_that_is_locked_out_locks_out_no_other(world: World, trusted: str) -> None:
    lock_out(world, "203.0.113.9")
    bad = served(world, trusted, **{"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "http"})
    good = served(world, trusted, **{"X-Forwarded-For": "203.0.113.10", "X-Forwarded-Proto": "http"})
    assert fail_to_sign_in(bad, "a@example.test") == 429
    assert fail_to_sign_in(good, "b@example.test") == 401
    # whatever the asker wrote before the proxy's own word is not believed
    forged = served(world, trusted, **{"X-Forwarded-For": "198.51.100.1, 203.0.113.9"})
    assert fail_to_sign_in(forged, "c@example.test") == 429


@pytest.mark.parametrize("trusted", ["", "172.30.57.2"])
def test_nobody_else_says_where_a_request_came_from(world: World, trusted: str) -> None:
    lock_out(world, PROXY[0])
    forged = served(world, trusted, **{"X-Forwarded-For": "203.0.113.10"})
    assert fail_to_sign_in(forged, "b@example.test") == 429


def test_the_environment_of_the_server_library_opens_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    lock_out(world, PROXY[0])
    forged = served(world, "", **{"X-Forwarded-For": "203.0.113.10"})
    assert fail_to_sign_in(forged, "b@example.test") == 429


@pytest.mark.parametrize("value", ["*", "proxy.example", "10.0.0.0/99", "0.0.0.0/0", "::/0"])
def test_a_proxy_that_is_no_address_stops_the_start(value: str) -> None:
    with pytest.raises(WrongSettings, match=r"proxy|everybody"):
        load_settings(environment="test", secret_key="k" * 40, trusted_proxies=value)


def test_invented_tokens_share_the_limit_of_their_address(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deps, "UNKNOWN_TOKENS", 5)
    answers = [world.api(f"berth_pat_invented{n}").get("/api/v1/me").status_code for n in range(8)]
    assert answers == [401] * 5 + [429] * 3
    # who has a real one is not held up by a neighbour who guesses
    token = world.token(world.tenants["acme"].people["member"], "acme", "read")
    assert world.api(token).get("/api/v1/me").status_code == 200
    elsewhere = TestClient(world.app, base_url=ADDRESS, client=("203.0.113.4", 1))
    assert elsewhere.get("/api/v1/me", headers={"Authorization": "Bearer x"}).status_code == 401


def test_invented_cookies_open_no_new_limit_at_the_sign_in(world: World) -> None:
    """Sixty a minute from one address, whatever cookies come with them."""
    statuses = set()
    for n in range(62):
        client = TestClient(
            world.app, base_url=ADDRESS, cookies={"berth_session": f"invented-{n}"}, follow_redirects=False
        )
        statuses.add(client.post("/sign-in", data={"email": "x", "password": "y"}).status_code)
    assert statuses == {403, 429}


def test_people_at_one_address_have_limits_of_their_own(world: World) -> None:
    one, other = (world.browser(world.tenants["acme"].people[role]) for role in ("member", "lead"))
    one.see("/me"), other.see("/me")
    answers = [one.submit("/me/tokens", name=f"t{n}", scope="read", days="1").status_code for n in range(31)]
    assert answers == [201] * 30 + [429]
    assert other.submit("/me/tokens", name="t", scope="read", days="1").status_code == 201


def test_without_the_broker_a_wrong_token_is_still_wrong(world: World) -> None:
    import redis

    world.app.state.plumbing = replace(world.plumbing, redis=redis.Redis(host="127.0.0.1", port=1))
    try:
        assert world.api("berth_pat_x").get("/api/v1/me").status_code == 401
    finally:
        deps._silent_until[0] = 0.0
