"""What every answer carries, and what is refused before anything is read."""

from __future__ import annotations

import pytest

from app.main import create_app
from app.settings import WrongSettings
from app.web.health import head_revision
from app.web.security import BODY_LIMIT, UPLOAD_LIMIT, body_limit, content_policy
from tests.accounts.world import World

PLACES = ["/sign-in", "/nothing-here", "/api/v1/me", "/api/v1/nothing", "/healthz", "/static/css/tokens.css"]


@pytest.mark.parametrize("path", PLACES)
def test_every_answer_is_strict(world: World, path: str) -> None:
    headers = world.browser().get(path).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["form-action"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert len(headers["x-request-id"]) >= 8
    assert "strict-transport-security" not in headers  # plain http on loopback


def test_forms_may_lead_to_the_provider_that_signs_out() -> None:
    assert "form-action 'self' https://sso.example;" in content_policy(("https://sso.example",))


def test_a_request_id_from_a_proxy_is_kept_and_nonsense_is_not(world: World) -> None:
    browser = world.browser()
    assert (
        browser.get("/healthz", headers={"X-Request-Id": "abcdef-12345678"}).headers["x-request-id"]
        == "abcdef-12345678"
    )
    assert browser.get("/healthz", headers={"X-Request-Id": 'a b"c'}).headers["x-request-id"] != 'a b"c'


def test_answers_are_not_kept_but_files_with_a_digest_are(world: World) -> None:
    browser = world.browser()
    assert browser.get("/sign-in").headers["cache-control"] == "no-store"
    assert "immutable" in browser.get("/static/css/tokens.css?v=123456789012").headers["cache-control"]
    plain = browser.get("/static/css/tokens.css")
    assert plain.headers["cache-control"] == "no-cache"
    again = browser.get("/static/css/tokens.css", headers={"If-None-Match": plain.headers["etag"]})
    assert again.status_code == 304
    assert browser.get("/static/../pyproject.toml").status_code == 404
    assert browser.get("/static/%2e%2e/pyproject.toml").status_code == 404


def test_a_large_body_is_refused_unread(world: World) -> None:
    member = world.tenants["acme"].people["member"]
    api = world.api(world.token(member, "acme", "admin", "read"))
    answer = api.post("/api/v1/tokens", content=b"[" + b" " * BODY_LIMIT, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "too_large"

    def endless():
        for _ in range(40):
            yield b" " * (BODY_LIMIT // 32)

    assert api.post("/api/v1/tokens", content=endless()).status_code == 413  # and without a length, once it shows


def test_only_imports_take_files() -> None:
    assert body_limit("/api/v1/nodes/import") == UPLOAD_LIMIT == 8 * BODY_LIMIT
    assert body_limit("/api/v1/bookings") == BODY_LIMIT == 1024 * 1024


def test_people_never_sign_in_over_open_http(world: World) -> None:
    from dataclasses import replace

    open_http = replace(world.plumbing, settings=world.settings.with_values(base_url="http://berth.example"))
    with pytest.raises(WrongSettings, match="unencrypted"):
        create_app(plumbing=open_http)


def test_a_group_map_that_cannot_work_stops_the_start(world: World) -> None:
    from dataclasses import replace

    wrong = replace(world.plumbing, settings=world.settings.with_values(oidc_group_map={"g": "acme/plasma:king"}))
    with pytest.raises(WrongSettings, match="'acme/plasma:king'"):
        create_app(plumbing=wrong)


def test_ready_says_what_is_missing(world: World) -> None:
    browser = world.browser()
    found = browser.get("/readyz")
    assert found.status_code == 200
    assert found.json()["checks"]["database"]["role"] == "berth_app"
    import psycopg

    with psycopg.connect(world.database.owner_url) as owner:
        owner.execute("UPDATE alembic_version SET version_num = 'older'")
    found = browser.get("/readyz")
    assert found.status_code == 503
    assert "older" in found.json()["checks"]["database"]["why"]
    with psycopg.connect(world.database.owner_url) as owner:
        owner.execute("UPDATE alembic_version SET version_num = %s", [head_revision()])


def test_metrics_name_routes_and_no_addresses(world: World) -> None:
    browser = world.browser()
    browser.get("/me/sessions/abcdef/end")
    browser.get("/secret-address-of-somebody")
    text = browser.get("/metrics").text
    assert 'berth_requests_total{method="GET",route="/me/sessions/{session}/end",status="405"}' in text
    assert "secret-address" not in text


def test_rate_limits_count_and_let_all_pass_when_the_broker_is_away(world: World) -> None:
    import redis

    from app.web import deps

    member = world.tenants["acme"].people["member"]
    api = world.api(world.token(member, "acme", "admin", "read"))
    body = {"label": "x", "scopes": ["read"], "days": 1}
    answers = [api.post("/api/v1/tokens", json=body).status_code for _ in range(31)]
    assert answers[:30] == [201] * 30
    assert answers[30] == 429
    limited = api.post("/api/v1/tokens", json=body)
    assert limited.json()["code"] == "rate_limit"
    assert 0 < int(limited.headers["retry-after"]) <= 60
    other = world.api(world.token(world.tenants["acme"].people["lead"], "acme", "admin", "read"))
    assert other.post("/api/v1/tokens", json=body).status_code == 201  # somebody else is not held up
    world.app.state.plumbing = _with_redis(world, redis.Redis(host="127.0.0.1", port=1))
    try:
        assert api.post("/api/v1/tokens", json=body).status_code == 201
    finally:
        world.app.state.plumbing = world.plumbing
        deps._silent_until[0] = 0.0


def _with_redis(world: World, client):
    from dataclasses import replace

    return replace(world.plumbing, redis=client)
