"""Signing in by a real Keycloak: the whole way, and every way that must not lead in."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode, urlsplit

import pytest

from tests.accounts.world import World
from tests.keycloak.browser import Person, query_of
from tests.keycloak.server import Keycloak

pytestmark = [pytest.mark.xdist_group("keycloak"), pytest.mark.timeout(600)]


@pytest.fixture
def person(world: World) -> Iterator[Person]:
    """Somebody at a machine."""
    made = Person(world)
    yield made
    made.close()


def me(person: Person) -> dict:
    return person.portal.get("/api/v1/me").json()


def changed(address: str, **query: str) -> str:
    """The same address with other values in its query."""
    return f"{address.partition('?')[0]}?{urlencode({**query_of(address), **query})}"


def group_id(keycloak: Keycloak, path: str) -> str:
    with keycloak.admin() as admin:
        return admin.get(f"/group-by-path{path}").raise_for_status().json()["id"]


def user_id(keycloak: Keycloak, name: str) -> str:
    with keycloak.admin() as admin:
        return admin.get("/users", params={"username": name, "exact": "true"}).raise_for_status().json()[0]["id"]


def test_a_person_signs_in_and_the_page_knows_them(person: Person, world: World, keycloak: Keycloak) -> None:
    page = person.portal.see("/sign-in")
    assert "Company sign-in" in page.text
    answer = person.sign_in("lena", "/me")
    assert (answer.status_code, answer.headers["location"]) == (303, "/me")
    assert "Lena Lead" in person.portal.get("/me").text
    assert me(person)["projects"] == {"plasma": "lead"}
    assert me(person)["tenant"]["slug"] == "acme"
    with world.work() as work:
        issuer, subject, email = work.pg.execute(
            "SELECT issuer, subject, email FROM accounts WHERE name = 'Lena Lead'"
        ).fetchone()
    assert (issuer, email) == (keycloak.issuer, "lena@example.test")
    assert subject == user_id(keycloak, "lena")  # an identity is (issuer, subject), never an e-mail address


def test_the_request_is_made_as_it_should_be(person: Person) -> None:
    asked = query_of(person.start())
    assert asked["response_type"] == "code"
    assert asked["code_challenge_method"] == "S256"
    assert len(asked["code_challenge"]) == 43
    assert len(asked["state"]) == len(asked["nonce"]) == 43
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    assert asked["redirect_uri"] == "http://127.0.0.1:8000/auth/callback"
    assert "openid" in asked["scope"].split()
    assert query_of(person.start())["state"] != asked["state"]


def test_groups_give_roles_and_only_those_the_map_names(world: World, person: Person) -> None:
    person.sign_in("mika")
    assert me(person)["roles"] == ["project:member", "project:viewer", "tenant:admin"]
    assert me(person)["projects"] == {"plasma": "member", "vision": "viewer"}
    other = Person(world)
    other.sign_in("otto")
    assert me(other)["roles"] == ["platform:operator"]
    assert me(other)["tenant"] is None
    other.close()


def test_no_groups_is_a_plain_person_and_no_error(person: Person) -> None:
    answer = person.sign_in("nora")
    assert answer.status_code == 303
    found = me(person)
    assert (found["name"], found["roles"], found["projects"], found["tenant"]) == ("Nora Newcomer", [], {}, None)
    assert person.portal.get("/scope").status_code == 200


def test_a_group_taken_away_takes_its_role_at_the_next_sign_in(
    world: World, person: Person, keycloak: Keycloak
) -> None:
    person.sign_in("lena")
    with world.work("acme") as work:  # and a role given here stays
        account = work.pg.execute("SELECT id FROM accounts WHERE name = 'Lena Lead'").fetchone()[0]
        from app.accounts import actions
        from app.kernel.actor import SYSTEM

        actions.add_member(work, SYSTEM, account, "viewer", world.tenants["acme"].projects["vision"].id)
    lena, leads, members = (
        user_id(keycloak, "lena"), group_id(keycloak, "/acme/plasma/leads"), group_id(keycloak, "/acme/plasma/members")
    )  # fmt: skip
    with keycloak.admin() as admin:
        admin.delete(f"/users/{lena}/groups/{leads}").raise_for_status()
    try:
        again = Person(world)
        again.sign_in("lena")
        assert me(again)["projects"] == {"vision": "viewer"}
        assert me(person)["projects"] == {"vision": "viewer"}  # for the older session too
        with keycloak.admin() as admin:
            admin.put(f"/users/{lena}/groups/{members}").raise_for_status()
        again.sign_in("lena")
        assert me(again)["projects"] == {"plasma": "member", "vision": "viewer"}
        again.close()
    finally:
        with keycloak.admin() as admin:
            admin.delete(f"/users/{lena}/groups/{members}")
            admin.put(f"/users/{lena}/groups/{leads}").raise_for_status()
    with world.work("acme") as work:
        told = work.pg.execute("SELECT action FROM audit WHERE action = 'sync roles from groups'").fetchall()
    assert len(told) == 3


def test_a_callback_without_its_browser_leads_nowhere(world: World, person: Person) -> None:
    back = person.log_in(person.start(), "lena")
    thief = Person(world)
    answer = thief.come_back(back)  # the very answer, in another browser
    assert answer.status_code == 403
    assert "not begun in this browser" in answer.text
    assert "berth_session" not in thief.portal.cookies
    thief.close()


def test_a_wrong_state_leads_nowhere(person: Person) -> None:
    back = person.log_in(person.start(), "lena")
    answer = person.come_back(changed(back, state="x" + query_of(back)["state"][1:]))
    assert answer.status_code == 403
    assert "berth_session" not in person.portal.cookies


def test_a_code_is_good_once(person: Person, world: World) -> None:
    start = person.start()
    cookies = dict(person.portal.cookies)
    back = person.log_in(start, "lena")
    assert person.come_back(back).status_code == 303
    assert person.come_back(back).status_code == 403  # the attempt is over in this browser
    replayer = Person(world)
    for name, value in cookies.items():  # and with the attempt's cookie kept, the provider refuses the code
        replayer.portal.cookies.set(name, value)
    answer = replayer.come_back(back)
    assert answer.status_code == 403
    assert "did not take its own answer" in answer.text
    replayer.close()


def test_a_tampered_nonce_is_seen(person: Person) -> None:
    start = person.start()
    back = person.log_in(changed(start, nonce="another-nonce-that-was-not-ours"), "lena")
    answer = person.come_back(back)
    assert answer.status_code == 403
    assert "does not hold" in answer.text
    assert "berth_session" not in person.portal.cookies


def test_another_challenge_than_ours_is_refused_by_the_verifier(person: Person) -> None:
    back = person.log_in(changed(person.start(), code_challenge="E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"), "lena")
    assert person.come_back(back).status_code == 403


@pytest.mark.parametrize("method", ["plain", None])
def test_plain_or_no_pkce_is_refused(person: Person, method: str | None) -> None:
    asked = query_of(person.start())
    if method is None:
        del asked["code_challenge"], asked["code_challenge_method"]
    else:
        asked["code_challenge_method"] = method
    state = asked["state"]
    base = person.start().partition("?")[0]
    refused = person.keycloak.get(f"{base}?{urlencode(asked)}").headers["location"]
    assert query_of(refused)["error"] == "invalid_request"
    assert query_of(refused)["state"] == state
    answer = person.come_back(refused)
    assert answer.status_code == 403
    assert "invalid_request" in answer.text


def test_signing_out_ends_it_there_too(world: World, person: Person) -> None:
    person.sign_in("lena")
    assert urlsplit(person.log_in(person.start(), "lena")).path == "/auth/callback"  # known there: no form
    person.portal.see("/me")
    answer = person.portal.submit("/sign-out")
    assert answer.status_code == 303
    target = answer.headers["location"]
    assert "/protocol/openid-connect/logout?" in target
    assert query_of(target)["id_token_hint"].count(".") == 2
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(target))
    assert f"form-action 'self' {origin};" in answer.headers["content-security-policy"]  # or the browser would stop it
    out = person.keycloak.get(target)
    assert out.status_code == 302
    assert out.headers["location"] == "http://127.0.0.1:8000/sign-in"
    assert "<form" in person.keycloak.get(person.start()).text  # asked for the password again
    assert person.portal.get("/me").status_code == 303


def test_keys_that_were_changed_are_fetched_again(world: World, person: Person, keycloak: Keycloak) -> None:
    assert person.sign_in("lena").status_code == 303
    world.app.state.provider._keys_at -= 60  # fetched a minute ago, by its own ticks
    with keycloak.admin() as admin:
        realm = admin.get("").raise_for_status().json()["id"]
        added = admin.post("/components", json={
            "name": "newer", "providerId": "rsa-generated", "providerType": "org.keycloak.keys.KeyProvider",
            "parentId": realm, "config": {"priority": ["200"], "enabled": ["true"], "active": ["true"]},
        }).raise_for_status()  # fmt: skip
    try:
        other = Person(world)
        assert other.sign_in("mika").status_code == 303
        other.close()
    finally:
        with keycloak.admin() as admin:
            admin.delete("/components/" + added.headers["location"].rsplit("/", 1)[1])


def test_a_disabled_account_stays_out(world: World, person: Person) -> None:
    person.sign_in("nora")
    with world.work() as work:
        work.pg.execute("UPDATE accounts SET disabled = true WHERE name = 'Nora Newcomer'")
    assert person.portal.get("/me").status_code == 303
    answer = person.sign_in("nora")
    assert answer.status_code == 403
    assert "disabled" in answer.text


def test_a_local_account_with_the_same_address_is_somebody_else(world: World, person: Person) -> None:
    from app.accounts import actions
    from app.kernel.actor import SYSTEM

    with world.work("acme") as work:
        local = world.account(work, "lena")  # lena@example.test, as Keycloak's
        actions.add_member(work, SYSTEM, local, "admin")
    person.sign_in("lena")
    assert me(person)["roles"] == ["project:lead"]
    assert me(person)["projects"] == {"plasma": "lead"}
