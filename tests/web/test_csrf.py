"""A page of ours must be behind every change that a session makes."""

from __future__ import annotations

import pytest

from tests.accounts.world import ADDRESS, World


@pytest.fixture
def member(world: World):
    """A signed-in member who has seen a page."""
    with world.work() as work:
        work.pg.execute("UPDATE accounts SET zone = 'Europe/Zurich'")
    browser = world.browser(world.tenants["acme"].people["member"])
    assert browser.see("/me").status_code == 200
    assert browser.form_token
    return browser


def zone(world: World, person: str = "member") -> str:
    with world.work() as work:
        account = world.tenants["acme"].people[person]
        return work.pg.execute("SELECT zone FROM accounts WHERE id = %s", [account]).fetchone()[0]


def test_a_form_with_its_token_works(world: World, member) -> None:
    assert member.submit("/me", zone="Asia/Tokyo").status_code == 303
    assert zone(world) == "Asia/Tokyo"


def test_a_header_does_as_well(world: World, member) -> None:
    answer = member.post("/me", data={"zone": "Asia/Tokyo"}, headers={"X-CSRF-Token": member.form_token})
    assert answer.status_code == 303


@pytest.mark.parametrize("token", ["", "wrong", "é"])
def test_no_or_a_wrong_token_changes_nothing(world: World, member, token: str) -> None:
    answer = member.post("/me", data={"zone": "Asia/Tokyo", "csrf_token": token})
    assert answer.status_code == 403
    assert zone(world) == "Europe/Zurich"


def test_anothers_token_is_no_token(world: World, member) -> None:
    other = world.browser(world.tenants["acme"].people["lead"])
    other.see("/me")
    assert member.post("/me", data={"zone": "Asia/Tokyo", "csrf_token": other.form_token}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_another_site_is_refused_even_with_the_token(world: World, member, headers: dict[str, str]) -> None:
    answer = member.post("/me", data={"zone": "Asia/Tokyo", "csrf_token": member.form_token}, headers=headers)
    assert answer.status_code == 403
    assert zone(world) == "Europe/Zurich"


def test_the_api_with_a_cookie_needs_the_token_too(world: World, member) -> None:
    body = {"label": "x", "scopes": ["read"], "days": 1}
    refused = member.post("/api/v1/tokens", json=body)
    assert refused.status_code == 403
    assert refused.json()["code"] == "csrf"
    taken = member.post("/api/v1/tokens", json=body, headers={"X-CSRF-Token": member.form_token, "Origin": ADDRESS})
    assert taken.status_code == 201


def test_behind_a_proxy_the_address_that_people_use_is_ours(world: World, member) -> None:
    answer = member.post(
        "/me",
        data={"zone": "Asia/Tokyo", "csrf_token": member.form_token},
        headers={"Host": "inside:9000", "Origin": ADDRESS},
    )
    assert answer.status_code == 303


def test_the_api_with_a_token_needs_none(world: World) -> None:
    api = world.api(world.token(world.tenants["acme"].people["member"], "acme", "admin", "read"))
    assert api.post("/api/v1/tokens", json={"label": "x", "scopes": ["read"], "days": 1}).status_code == 201


def test_a_wrong_bearer_is_not_helped_by_a_cookie(world: World, member) -> None:
    answer = member.get("/api/v1/me", headers={"Authorization": "Bearer berth_pat_wrong"})
    assert answer.status_code == 401
