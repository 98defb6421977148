"""Tenants, projects, roles, places to act, what groups bring, and the record of it all."""

from __future__ import annotations

import csv
import html
import io
import re
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from app.accounts import actions, audit, groups, queries
from app.accounts.groups import Identity
from app.accounts.rules import Grant
from app.kernel.actor import SYSTEM, Actor
from app.kernel.errors import Conflict, Forbidden, Invalid, NotFound
from tests.accounts.world import World
from tests.servers import Addresses, TestDatabase


@pytest.fixture(scope="module")
def world(module_database: TestDatabase, servers: Addresses):
    """Shared by the tests of this module, which leave each other's people alone."""
    made = World(module_database, servers.valkey_url)
    yield made
    made.close()


def actor_of(world: World, who: str, tenant: str = "acme") -> Actor:
    """Somebody of a tenant, as the database says."""
    secret = world.token(world.tenants[tenant].people[who], tenant, "read", "book", "manage", "bill", "admin")
    with world.work() as work:
        return queries.caller_by_token(work, secret).actor


def person(world: World, name: str):
    with world.work() as work:
        return world.account(work, name)


# --- who may give what ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "projects", "tenant"),
    [("viewer", False, False), ("member", False, False), ("lead", True, False), ("tenant-auditor", False, False),
     ("tenant-finance", False, False), ("tenant-admin", True, True)],
)  # fmt: skip
def test_roles_are_given_by_leads_and_admins(world: World, who: str, projects: bool, tenant: bool) -> None:
    actor, somebody = actor_of(world, who), person(world, f"given-by-{who}")
    plasma = world.tenants["acme"].projects["plasma"].id
    for allowed, words in ((projects, ("member", plasma)), (tenant, ("auditor", None))):
        with world.work("acme") as work:
            if allowed:
                actions.add_member(work, actor, somebody, *words)
                actions.add_member(work, actor, somebody, *words)  # held already: nothing
                assert (
                    len([m for m in queries.members(work, words[1]) if m.account_id == somebody and m.role == words[0]])
                    == 1
                )
                actions.remove_member(work, actor, somebody, *words)
                with pytest.raises(NotFound):
                    actions.remove_member(work, actor, somebody, *words)
            else:
                with pytest.raises((Forbidden, NotFound)):
                    actions.add_member(work, actor, somebody, *words)


def test_a_lead_gives_nothing_in_another_project(world: World) -> None:
    actor, somebody = actor_of(world, "lead"), person(world, "elsewhere")
    with world.work("acme") as work, pytest.raises(NotFound):
        actions.add_member(work, actor, somebody, "member", world.tenants["acme"].projects["vision"].id)


def test_a_project_of_another_tenant_is_unknown(world: World) -> None:
    somebody = person(world, "cross")
    with world.work("acme") as work, pytest.raises(NotFound):
        actions.add_member(work, SYSTEM, somebody, "member", world.tenants["beta"].projects["plasma"].id)


@pytest.mark.parametrize(("role", "in_project"), [("admin", True), ("lead", False), ("king", True), ("", False)])
def test_roles_are_those_that_exist(world: World, role: str, in_project: bool) -> None:
    project = world.tenants["acme"].projects["plasma"].id if in_project else None
    with world.work("acme") as work, pytest.raises(Invalid):
        actions.add_member(work, SYSTEM, world.platform["finance"], role, project)


def test_tenants_and_platform_roles_are_an_operators(world: World) -> None:
    with world.work("acme") as work:
        for words in ("member", "tenant-admin"):
            actor = actor_of(world, words)
            with pytest.raises(Forbidden):
                actions.create_tenant(work, actor, slug="mine", name="Mine")
            with pytest.raises(Forbidden):
                actions.grant_platform_role(work, actor, actor.account_id, "operator")
            with pytest.raises(Forbidden):
                actions.disable_account(work, actor, world.platform["operator"])


def test_short_names_are_taken_once(world: World) -> None:
    with pytest.raises(Conflict), world.work() as work:
        actions.create_tenant(work, SYSTEM, slug="acme", name="Another")
    with pytest.raises(Conflict), world.work("acme") as work:
        actions.create_project(work, SYSTEM, slug="plasma", name="Again", cost_centre="1")
    with pytest.raises(Conflict), world.work() as work:
        actions.create_account(work, SYSTEM, login="ACME-LEAD@example.test", name="Again")
    with pytest.raises(Invalid) as refused, world.work() as work:
        actions.create_tenant(work, SYSTEM, slug="A b", name="", zone="Mars", currency="x")
    assert {r.field for r in refused.value.reasons} == {"slug", "name", "zone", "currency"}


# --- where one acts ---------------------------------------------------------------------------------------------------


def test_a_person_of_two_tenants_chooses_and_sees_one_at_a_time(world: World) -> None:
    both = person(world, "both")
    for tenant, role in (("acme", "member"), ("beta", "lead")):
        with world.work(tenant) as work:
            actions.add_member(work, SYSTEM, both, role, world.tenants[tenant].projects["plasma"].id)
    browser = world.browser(both)
    page = browser.see("/scope")
    assert "acme/plasma" in page.text
    assert "beta/plasma" in page.text
    assert browser.get("/api/v1/me").json()["projects"] == {"plasma": "member"}
    assert browser.submit("/scope", scope="beta/plasma", next="/me").headers["location"] == "/me"
    me = browser.get("/api/v1/me").json()
    assert (me["tenant"]["slug"], me["projects"]) == ("beta", {"plasma": "lead"})
    browser.see("/me")
    for nowhere in ("acme/vision", "acme", "nothing", ""):
        assert browser.submit("/scope", scope=nowhere).status_code in (404, 422)
    assert browser.get("/api/v1/me").json()["tenant"]["slug"] == "beta"
    again = world.browser(both)  # and comes back to where he or she was
    assert again.get("/api/v1/me").json()["tenant"]["slug"] == "beta"


def test_a_place_that_was_lost_is_left(world: World) -> None:
    somebody = person(world, "leaver")
    plasma = world.tenants["acme"].projects["plasma"].id
    with world.work("acme") as work:
        actions.add_member(work, SYSTEM, somebody, "member", plasma)
    browser = world.browser(somebody)
    assert browser.get("/api/v1/projects").status_code == 200
    with world.work("acme") as work:
        actions.remove_member(work, SYSTEM, somebody, "member", plasma)
    assert browser.get("/api/v1/projects").json()["code"] == "no_tenant"
    assert browser.get("/projects").headers["location"] == "/scope?next=%2Fprojects"


# --- what groups bring ------------------------------------------------------------------------------------------------


def identity(subject: str, issuer: str = "https://sso.example") -> Identity:
    return Identity(issuer, subject, f"Person {subject}", f"{subject}@example.test", ())


def held(world: World, account) -> set[tuple[str, str | None, str, str]]:
    """(tenant, project, role, source) of an account, as the reader sees it."""
    with world.work() as work, work.read_all():
        return set(work.pg.execute(
            """SELECT t.slug, p.slug, m.role, m.source FROM memberships m JOIN tenants t USING (tenant_id)
                 LEFT JOIN projects p ON p.tenant_id = m.tenant_id AND p.id = m.project_id
                WHERE m.account_id = %s""",
            [account],
        ).fetchall())  # fmt: skip


def test_roles_follow_the_groups_at_every_sign_in(world: World) -> None:
    lead, admin = Grant("lead", "acme", "plasma"), Grant("admin", "beta")
    with world.work() as work:
        account = groups.account_of(work, identity("g1"), {lead, admin, Grant("operator")})
    assert held(world, account) == {("acme", "plasma", "lead", "oidc"), ("beta", None, "admin", "oidc")}
    with world.work("acme") as work:
        actions.add_member(work, SYSTEM, account, "viewer", world.tenants["acme"].projects["vision"].id)
    with world.work() as work:
        assert groups.account_of(work, identity("g1"), {admin}) == account
    assert held(world, account) == {("acme", "vision", "viewer", "local"), ("beta", None, "admin", "oidc")}
    with world.work() as work:
        assert work.pg.execute("SELECT count(*) FROM platform_roles WHERE account_id = %s", [account]).fetchone() == (
            0,
        )
        groups.account_of(work, identity("g1"), set())
    assert held(world, account) == {("acme", "vision", "viewer", "local")}


def test_names_that_nobody_made_give_nothing(world: World) -> None:
    with world.work() as work:
        account = groups.account_of(
            work,
            identity("g2"),
            {Grant("lead", "nowhere", "plasma"), Grant("lead", "acme", "nothing"), Grant("admin", "no")},
        )
    assert held(world, account) == set()


def test_a_role_given_here_is_not_doubled_nor_taken_by_groups(world: World) -> None:
    lead = Grant("lead", "acme", "plasma")
    with world.work() as work:
        account = groups.account_of(work, identity("g3"), set())
    with world.work("acme") as work:
        actions.add_member(work, SYSTEM, account, "lead", world.tenants["acme"].projects["plasma"].id)
    for grants in ({lead}, set()):
        with world.work() as work:
            groups.account_of(work, identity("g3"), grants)
        assert held(world, account) == {("acme", "plasma", "lead", "local")}


def test_a_role_that_a_group_gives_is_taken_back_there(world: World) -> None:
    with world.work() as work:
        account = groups.account_of(work, identity("g4"), {Grant("lead", "acme", "plasma")})
    with world.work("acme") as work, pytest.raises(Conflict, match="group"):
        actions.remove_member(work, SYSTEM, account, "lead", world.tenants["acme"].projects["plasma"].id)


def test_the_same_subject_of_another_issuer_is_another_person(world: World) -> None:
    with world.work() as work:
        one = groups.account_of(work, identity("same"), set())
        other = groups.account_of(work, identity("same", "https://other.example"), set())
        changed = groups.account_of(
            work, Identity("https://sso.example", "same", "New Name", "new@example.test", ()), set()
        )
    assert one != other
    assert changed == one


def test_a_disabled_person_stays_out_and_gains_nothing(world: World) -> None:
    with world.work() as work:
        account = groups.account_of(work, identity("g5"), set())
        actions.disable_account(work, SYSTEM, account)
    with pytest.raises(Forbidden, match="disabled"), world.work() as work:
        groups.account_of(work, identity("g5"), {Grant("admin", "acme")})
    assert held(world, account) == set()


# --- the record -------------------------------------------------------------------------------------------------------


def test_every_change_has_a_row(world: World) -> None:
    somebody = person(world, "recorded")
    lead = actor_of(world, "lead")
    with world.work("acme") as work:
        actions.add_member(work, lead, somebody, "member", world.tenants["acme"].projects["plasma"].id)
        row = queries.audit_rows(work, action="add member")[0]
        (account, product_at) = work.pg.execute(
            "SELECT account_id, product_at FROM audit WHERE seq = %s", [row.seq]
        ).fetchone()
    assert (row.actor, row.subject, row.after) == (
        "acme-lead",
        "project plasma",
        {"person": "recorded", "role": "member"},
    )
    assert row.at == world.clock.instant
    assert account == lead.account_id
    assert product_at.microsecond == 0  # the product clock's, beside the wall's


def test_values_of_every_kind_are_written_down(world: World) -> None:
    before = {
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "price": Decimal("2.40"),
        "who": SYSTEM.account_id,
        "list": (1, "a"),
    }
    with world.work("acme") as work:
        audit.record(work, SYSTEM, "test", "thing", before, {"deep": {"price": Decimal("0.1")}}, "because")
        row = queries.audit_rows(work, action="test")[0]
    assert row.before == {"at": "2026-01-01T00:00:00+00:00", "price": "2.40", "who": None, "list": [1, "a"]}
    assert row.after == {"deep": {"price": "0.1"}}
    assert row.why == "because"


def test_the_audit_page_filters_pages_and_exports(world: World) -> None:
    with world.work("beta") as work:
        for number in range(60):
            audit.record(work, SYSTEM, "count", f"thing {number}", None, {"=cmd": f"{number}"}, "=1+1")
    browser = world.browser(world.tenants["beta"].people["tenant-auditor"])
    first = browser.get("/audit", params={"action": "count"})
    assert first.status_code == 200
    assert "thing 59" in first.text
    assert "thing 9<" not in first.text
    following = html.unescape(re.search(r'href="(/audit\?[^"]*before=\d+)"', first.text)[1])
    assert "thing 9" in browser.get(following).text
    assert "thing 42" in browser.get("/audit", params={"q": "THING 42"}).text
    file = browser.get("/audit.csv", params={"action": "count"})
    rows = list(csv.reader(io.StringIO(file.text)))
    assert len(rows) == 61
    assert rows[1][-1] == "'=1+1"  # no cell is taken for a formula
    assert "acme" not in file.text


def test_platform_people_see_the_platforms_record(world: World) -> None:
    browser = world.browser(world.platform["auditor"])
    page = browser.get("/audit", params={"action": "create tenant"})
    assert "tenant acme" in page.text
    assert "tenant beta" in page.text


def test_who_one_is_takes_three_statements(world: World) -> None:
    """The path that runs on every call of the API: counted, so that nobody adds a fourth without noticing."""
    token = world.token(world.tenants["acme"].people["member"], "acme")
    with world.work() as work:
        queries.caller_by_token(work, token)
    with world.work() as work:
        sent: list[str] = []
        plain = work.pg.execute

        def counting(query, *words, **more):
            sent.append(str(query).split()[0])
            return plain(query, *words, **more)

        work.pg.execute = counting
        assert queries.caller_by_token(work, token).actor.project_roles
        del work.pg.execute
    assert len(sent) == 3
