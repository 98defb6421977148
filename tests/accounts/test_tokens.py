"""API tokens: shown once, kept as a hash, never more than who made them."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from app.accounts import actions
from app.accounts.secrets import digest
from app.kernel.actor import SYSTEM
from app.kernel.ids import TOKEN, public
from tests.accounts.world import World


@pytest.fixture
def member(world: World):
    """A member of acme's plasma."""
    return world.tenants["acme"].people["member"]


def test_a_token_is_shown_once_and_kept_as_a_hash(world: World, member) -> None:
    browser = world.browser(member)
    browser.see("/me")
    page = browser.submit("/me/tokens", name="nightly", scope="read", project="plasma", days="30")
    assert page.status_code == 201
    secret = re.search(r"berth_pat_[A-Za-z0-9_-]{20,}", page.text)[0]
    assert secret not in browser.get("/me").text
    api = world.api(secret)
    me = api.get("/api/v1/me").json()
    assert (me["tenant"]["slug"], me["project"], me["scopes"], me["projects"]) == (
        "acme", "plasma", ["read"], {"plasma": "member"}
    )  # fmt: skip
    with world.work() as work:
        rows = work.pg.execute("SELECT secret_hash, expires_at - created_at FROM tokens").fetchall()
        told = work.pg.execute("SELECT after::text FROM audit WHERE action = 'create token'").fetchall()
    assert rows == [(digest(secret), timedelta(days=30))]
    assert not any(secret in text for (text,) in told)


def test_what_is_wrong_stands_at_its_field(world: World, member) -> None:
    browser = world.browser(member)
    browser.see("/me")
    page = browser.submit("/me/tokens", name="", days="4000")
    assert page.status_code == 422
    for words in ("1 to 120 printable characters", "Scopes are some of", "1 to 365 days"):
        assert words in page.text


def test_a_token_ends_when_revoked_expired_or_its_owner_is_shut_out(world: World, member) -> None:
    revoked, expiring, disabled = (world.token(member, "acme", "read", days=d) for d in (9, 1, 9))
    apis = [world.api(t) for t in (revoked, expiring, disabled)]
    assert [a.get("/api/v1/me").status_code for a in apis] == [200, 200, 200]
    keeper = world.api(world.token(member, "acme", "admin", "read"))
    with world.work() as work:
        (revoked_id,) = work.pg.execute("SELECT id FROM tokens WHERE secret_hash = %s", [digest(revoked)]).fetchone()
    handle = public(TOKEN, revoked_id)
    assert keeper.delete(f"/api/v1/tokens/{handle}").status_code == 204
    assert keeper.delete(f"/api/v1/tokens/{handle}").status_code == 404
    assert apis[0].get("/api/v1/me").status_code == 401
    world.clock.forward(days=1, seconds=1)
    assert [a.get("/api/v1/me").status_code for a in apis] == [401, 401, 200]
    with world.work() as work:
        actions.disable_account(work, SYSTEM, member)
    assert apis[2].get("/api/v1/me").status_code == 401


def test_a_token_bound_to_a_project_lists_and_ends_those_of_that_project_alone(world: World, member) -> None:
    with world.work("acme") as work:
        actions.add_member(work, SYSTEM, member, "member", world.tenants["acme"].projects["vision"].id)
    whole = world.token(member, "acme", "read", "admin")
    world.token(member, "acme", "read", project="vision")
    bound = world.api(world.token(member, "acme", "read", "admin", project="plasma"))
    listed = bound.get("/api/v1/tokens").json()["items"]
    assert [(t["project"], t["tenant"]) for t in listed] == [("Plasma", "Acme Research")]
    every = world.api(whole).get("/api/v1/tokens").json()["items"]
    assert sorted(t["project"] or "" for t in every) == ["", "Plasma", "Vision"]
    for token in sorted(every, key=lambda t: t["project"] == "Plasma"):  # itself last
        ended = bound.delete(f"/api/v1/tokens/{token['id']}").status_code
        assert ended == (204 if token["project"] == "Plasma" else 404), token
    assert world.api(whole).get("/api/v1/me").status_code == 200


def test_nobody_revokes_anothers_token(world: World, member) -> None:
    token = world.token(member, "acme", "read", "admin")
    handle = world.api(token).get("/api/v1/tokens").json()["items"][0]["id"]
    other = world.api(world.token(world.tenants["acme"].people["tenant-admin"], "acme", "admin"))
    assert other.delete(f"/api/v1/tokens/{handle}").status_code == 404
    assert world.api(token).get("/api/v1/me").status_code == 200


def test_a_token_makes_none_that_may_more(world: World, member) -> None:
    api = world.api(world.token(member, "acme", "admin", "read", project="plasma"))
    more = api.post("/api/v1/tokens", json={"label": "x", "scopes": ["read", "book"]})
    assert (more.status_code, more.json()["code"]) == (403, "scope")
    made = api.post("/api/v1/tokens", json={"label": "x", "scopes": ["read"]}).json()["token"]
    assert world.api(made).get("/api/v1/me").json()["project"] == "plasma"  # bound as its maker is
    unseen = api.post("/api/v1/tokens", json={"label": "x", "scopes": ["read"], "project": "vision"})
    assert unseen.status_code == 404


def test_a_token_is_worth_no_more_than_its_owners_roles(world: World, member) -> None:
    api = world.api(world.token(member, "acme", "read"))
    assert api.get("/api/v1/projects").status_code == 200
    with world.work("acme") as work:
        actions.remove_member(work, SYSTEM, member, "member", world.tenants["acme"].projects["plasma"].id)
    left = api.get("/api/v1/projects")
    assert (left.status_code, left.json()["code"]) == (403, "no_tenant")
    assert api.get("/api/v1/me").json()["tenant"] is None


def test_a_tenants_token_carries_no_platform_role(world: World) -> None:
    operator = world.platform["operator"]
    with world.work("acme") as work:
        actions.add_member(work, SYSTEM, operator, "admin")
    assert world.api(world.token(operator, "acme", "read")).get("/api/v1/me").json()["roles"] == ["tenant:admin"]
    assert world.api(world.token(operator, None, "read")).get("/api/v1/me").json()["roles"] == ["platform:operator"]


def test_projects_are_those_one_sees(world: World) -> None:
    people = world.tenants["acme"].people
    for who, slugs in (("member", ["plasma"]), ("tenant-auditor", ["plasma", "vision"])):
        found = world.api(world.token(people[who], "acme")).get("/api/v1/projects").json()
        assert [p["slug"] for p in found["items"]] == slugs
        assert found["next"] is None
        assert {"id", "slug", "name", "cost_center", "role", "created_at", "ended_at"} == set(found["items"][0])


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Bearer nonsense", "Basic abc", "berth_pat_x", "Bearer berth_pat_é"]
)
def test_whatever_is_no_token_is_unauthenticated(world: World, header: str) -> None:
    answer = world.api().get("/api/v1/me", headers={"Authorization": header.encode("utf-8")})
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"


def test_last_use_is_seen_to_the_minute_and_holds_nobody_up(world: World, member) -> None:
    token = world.token(member, "acme", "read", "admin")
    api = world.api(token)
    first = api.get("/api/v1/tokens").json()["items"][0]["used_at"]
    assert first is not None
    world.clock.forward(seconds=30)
    assert api.get("/api/v1/tokens").json()["items"][0]["used_at"] == first
    world.clock.forward(seconds=31)
    with world.work() as work:  # somebody's request that is not over yet
        work.pg.execute("SELECT 1 FROM tokens WHERE secret_hash = %s FOR NO KEY UPDATE", [digest(token)])
        assert api.get("/api/v1/tokens").json()["items"][0]["used_at"] == first
    assert api.get("/api/v1/tokens").json()["items"][0]["used_at"] > first
