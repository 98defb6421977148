"""Signing in with a password, and what a session is worth."""

from __future__ import annotations

import pytest

from app.accounts import actions
from app.accounts.passwords import verify_password
from app.kernel.actor import SYSTEM
from tests.accounts.world import World

PASSWORD = "correct horse battery"


@pytest.fixture
def ada(world: World):
    """A member of acme's plasma who has a password."""
    with world.work("acme") as work:
        account = world.account(work, "ada", password=PASSWORD)
        actions.add_member(work, SYSTEM, account, "member", world.tenants["acme"].projects["plasma"].id)
    return account


def sign_in(world: World, password: str = PASSWORD, login: str = "ada@example.test", browser=None, **more):
    browser = browser or world.browser()
    assert browser.see("/sign-in").status_code == 200
    return browser, browser.submit("/sign-in", email=login, password=password, **more)


def test_the_right_password_leads_where_one_was(world: World, ada) -> None:
    browser, answer = sign_in(world, login="  ADA@example.test ", next="/me?x=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/me?x=1")
    page = browser.get("/me")
    assert page.status_code == 200
    assert "ada" in page.text
    assert "Acme Research" in page.text


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"]
)
def test_nobody_is_led_to_another_site(world: World, ada, target: str) -> None:
    _, answer = sign_in(world, next=target)
    assert answer.headers["location"] == "/"


def test_the_cookie_is_kept_from_scripts_and_other_sites(world: World, ada) -> None:
    _, answer = sign_in(world)
    cookie = next(c for c in answer.headers.get_list("set-cookie") if c.startswith("berth_session="))
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert "Secure" not in cookie  # loopback over plain http
    assert "Domain" not in cookie


def test_behind_tls_the_cookie_is_bound_to_the_host(database, valkey_url) -> None:
    world = World(database, valkey_url, people=False, base_url="https://berth.example")
    try:
        with world.work() as work:
            world.account(work, "ada", password=PASSWORD)
        browser = world.browser()
        browser.base_url = "https://berth.example"
        browser.see("/sign-in")
        answer = browser.post("/sign-in", data={"csrf_token": browser.form_token, "email": "ada@example.test",
                                                "password": PASSWORD})  # fmt: skip
        cookie = next(c for c in answer.headers.get_list("set-cookie") if "berth_session=" in c)
        assert cookie.startswith("__Host-berth_session=")
        assert "Secure" in cookie
        assert "max-age=31536000" in answer.headers["strict-transport-security"]
    finally:
        world.close()


@pytest.mark.parametrize(("login", "password"), [("ada@example.test", "wrong"), ("nobody@example.test", PASSWORD)])
def test_what_is_wrong_is_not_told(world: World, ada, login: str, password: str) -> None:
    browser, answer = sign_in(world, password, login)
    assert answer.status_code == 401
    assert "do not belong together" in answer.text
    assert "berth_session" not in browser.cookies


def test_an_account_without_password_and_a_disabled_one_stay_out(world: World, ada) -> None:
    _, answer = sign_in(world, PASSWORD, "acme-lead@example.test")
    assert answer.status_code == 401
    with world.work() as work:
        actions.disable_account(work, SYSTEM, ada)
    _, answer = sign_in(world)
    assert "disabled" in answer.text


def test_an_unknown_login_costs_the_same_work() -> None:
    assert verify_password("a password that nobody has", None) is False


def test_repeated_failures_shut_the_door_for_a_while(world: World, ada) -> None:
    for _ in range(8):
        _, answer = sign_in(world, "wrong")
        assert answer.status_code == 401
    _, answer = sign_in(world)  # the right one, too late
    assert answer.status_code == 429
    assert "Try again in 15 minutes" in answer.text
    assert 0 < int(answer.headers["retry-after"]) <= 901
    world.clock.forward(minutes=14)
    assert sign_in(world)[1].status_code == 429
    world.clock.forward(minutes=2)
    assert sign_in(world)[1].status_code == 303
    with world.work() as work:  # and the count begins anew
        assert work.pg.execute("SELECT count(*) FROM sign_in_tries WHERE at > %s", [work.wall]).fetchone()[0] == 0


def test_many_logins_from_one_address_shut_it_out(world: World, ada) -> None:
    with world.work() as work:
        import hashlib

        key = hashlib.sha256(b"address:testclient").digest()
        work.pg.execute(
            "INSERT INTO sign_in_tries (key, at) SELECT %s, %s FROM generate_series(1, 60)", [key, work.wall]
        )
    assert sign_in(world)[1].status_code == 429


def test_a_session_from_before_sign_in_is_worth_nothing_after_it(world: World, ada) -> None:
    browser, _ = sign_in(world)
    first = browser.cookies["berth_session"]
    browser.cookies.delete("berth_session")
    browser.see("/sign-in")
    browser.cookies.set("berth_session", first)
    token = browser.form_token
    answer = browser.submit("/sign-in", csrf_token=token, email="ada@example.test", password=PASSWORD)
    assert answer.status_code == 303
    thief = world.browser()
    thief.cookies.set("berth_session", first)
    assert thief.get("/me").headers["location"] == "/sign-in?next=%2Fme"


def test_signing_out_ends_the_session_itself(world: World, ada) -> None:
    browser, _ = sign_in(world)
    secret = browser.cookies["berth_session"]
    browser.see("/me")
    answer = browser.submit("/sign-out")
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    browser.cookies.set("berth_session", secret)
    assert browser.get("/me").status_code == 303


def test_sessions_end_when_idle_and_at_their_end(world: World, ada) -> None:
    browser, _ = sign_in(world)
    for _ in range(13):  # used every day
        world.clock.forward(days=1)
        assert browser.get("/me").status_code == 200
    world.clock.forward(days=1, minutes=1)
    assert browser.get("/me").status_code == 303
    browser, _ = sign_in(world)
    world.clock.forward(days=2, minutes=1)
    assert browser.get("/me").status_code == 303


def test_ones_sessions_are_listed_and_ended(world: World, ada) -> None:
    here, _ = sign_in(world)
    there, _ = sign_in(world)
    page = here.see("/me").text
    import re

    ends = re.findall(r"/me/sessions/([0-9a-f]{64})/end", page)
    assert len(ends) == 1  # not the one looked from
    assert there.get("/me").status_code == 200
    assert here.submit(f"/me/sessions/{ends[0]}/end").status_code == 303
    assert there.get("/me").status_code == 303
    assert here.get("/me").status_code == 200


def test_nobody_ends_anothers_session(world: World, ada) -> None:
    ada_browser, _ = sign_in(world)
    with world.work() as work:
        key = work.pg.execute("SELECT id_hash FROM sessions WHERE account_id = %s", [ada]).fetchone()[0].hex()
    other = world.browser(world.tenants["acme"].people["lead"])
    other.see("/me")
    assert other.submit(f"/me/sessions/{key}/end").status_code == 404
    assert ada_browser.get("/me").status_code == 200


def test_a_new_password_ends_every_session(world: World, ada) -> None:
    browser, _ = sign_in(world)
    with world.work() as work:
        actions.set_password(work, SYSTEM, ada, "another long password")
    assert browser.get("/me").status_code == 303
    assert sign_in(world, "another long password")[1].status_code == 303


def test_the_form_needs_its_token(world: World, ada) -> None:
    browser = world.browser()
    browser.see("/sign-in")
    answer = browser.post("/sign-in", data={"email": "ada@example.test", "password": PASSWORD})
    assert answer.status_code == 403
    assert "berth_session" not in browser.cookies
