"""Pages and API for whoever keeps people and projects of a tenant."""

from __future__ import annotations

import re

import pytest

from app.kernel.ids import ACCOUNT, public
from tests.accounts.world import World


@pytest.fixture
def admin(world: World):
    """The browser of acme's admin, who has seen the page."""
    browser = world.browser(world.tenants["acme"].people["tenant-admin"])
    assert browser.see("/people").status_code == 200
    return browser


@pytest.fixture
def operator(world: World):
    browser = world.browser(world.platform["operator"])
    assert browser.see("/people").status_code == 200
    return browser


def test_an_admin_sees_the_people_of_the_tenant_and_of_no_other(world: World, admin) -> None:
    said = admin.get("/people").text
    assert "acme-member" in said
    assert "beta-member" not in said
    assert admin.get("/people?tenant=beta").status_code == 404
    assert "acme-lead" not in admin.get("/people?q=member").text
    # whose tenant a form is about is the session's, whatever the form says
    assert admin.submit("/people/projects", tenant="beta", slug="x", name="X", cost_center="1").status_code == 404


def test_somebody_new_gets_a_first_password_that_is_shown_once(world: World, admin) -> None:
    page = admin.submit("/people", login="Nora@acme.example", name="Nora", place="plasma", role="member")
    assert page.status_code == 201
    password = re.search(r"[a-z2-9]{5}(-[a-z2-9]{5}){3}", page.text)[0]
    assert password not in admin.get("/people").text
    nora = world.browser()
    nora.see("/sign-in")
    assert nora.submit("/sign-in", email="nora@acme.example", password=password).status_code == 303
    assert "Plasma: member" in nora.see("/me").text
    with world.work("acme") as work:
        rows = work.pg.execute("SELECT actor, subject, after FROM audit WHERE action = 'add member'").fetchall()
        told = work.pg.execute("SELECT count(*) FROM platform_audit WHERE after::text LIKE %s", [f"%{password}%"])
        assert told.fetchone() == (0,)
    assert ("acme-tenant-admin", "project plasma", {"person": "Nora", "role": "member"}) in rows


def test_who_is_there_already_gets_the_role_and_no_password(world: World, admin) -> None:
    lead = world.tenants["beta"].people["lead"]
    answer = admin.submit("/people", login=public(ACCOUNT, lead), place="", role="auditor")
    assert (answer.status_code, answer.headers["location"]) == (303, "/people")
    assert "beta-lead" in admin.get("/people").text
    answer = admin.submit("/people", login="ac_unknown", place="", role="auditor")
    assert answer.status_code == 404
    assert "There is no such account" in answer.text


def test_what_is_wrong_stands_at_its_field(world: World, admin) -> None:
    answer = admin.submit("/people", login="x@acme.example", place="", role="member")
    assert answer.status_code == 422
    assert "A role in a tenant is one of admin, finance, auditor" in answer.text
    assert 'value="x@acme.example"' in answer.text
    answer = admin.submit("/people/projects", slug="Not Short", name="", cost_center="")
    assert answer.status_code == 422
    for words in ("small letters, digits and hyphens", "The name has 1", "The cost centre has 1"):
        assert words in answer.text
    answer = admin.submit("/people/projects", slug="plasma", name="Again", cost_center="1")
    assert answer.status_code == 409
    assert "There is a project with the short name plasma already" in answer.text


def test_a_role_is_changed_and_taken_back(world: World, admin) -> None:
    viewer = world.tenants["acme"].people["viewer"]
    fields = {"account": public(ACCOUNT, viewer), "place": "plasma"}
    assert admin.submit("/people/role", **fields, role="viewer", new_role="member").status_code == 303
    api = world.api(world.token(viewer, "acme", "read"))
    assert api.get("/api/v1/me").json()["projects"] == {"plasma": "member"}
    assert admin.submit("/people/remove", **fields, role="member").status_code == 303
    assert api.get("/api/v1/me").json()["tenant"] is None
    assert admin.submit("/people/remove", **fields, role="member").status_code == 404


def test_a_role_by_a_group_is_not_for_the_page(world: World, admin) -> None:
    member = world.tenants["acme"].people["member"]
    with world.work("acme") as work:
        work.pg.execute("UPDATE memberships SET source = 'oidc' WHERE account_id = %s", [member])
    assert "by a group of the sign-in provider" in admin.get("/people").text
    fields = {"account": public(ACCOUNT, member), "place": "plasma", "role": "member"}
    assert admin.submit("/people/remove", **fields).status_code == 409


def test_an_ended_project_is_booked_in_no_more_until_it_is_opened_again(world: World, admin) -> None:
    member = world.api(world.token(world.tenants["acme"].people["member"], "acme", "read"))
    assert admin.submit("/people/projects/plasma/end", why="the grant is over").status_code == 303
    assert member.get("/api/v1/projects").json()["items"] == []
    assert "Ended" in admin.get("/people").text
    with world.work("acme") as work:
        ended = work.pg.execute("SELECT ended_at FROM projects WHERE slug = 'plasma'").fetchone()[0]
        why = work.pg.execute("SELECT why FROM audit WHERE action = 'end project'").fetchall()
        assert ended == work.pg.execute("SELECT ended_at FROM projects WHERE slug = 'plasma'").fetchone()[0]
    assert ended is not None
    assert why == [("the grant is over",)]
    admin.submit("/people/projects/plasma/end")  # once more: nothing
    with world.work("acme") as work:
        assert work.pg.execute("SELECT ended_at FROM projects WHERE slug = 'plasma'").fetchone()[0] == ended
    assert admin.submit("/people/projects/plasma/reopen").status_code == 303
    assert [p["slug"] for p in member.get("/api/v1/projects").json()["items"]] == ["plasma"]


def test_an_operator_makes_tenants_and_keeps_any(world: World, operator) -> None:
    wrong = operator.submit("/people/tenants", slug="acme", name="Acme", zone="UTC", currency="EUR", price_group="a")
    assert wrong.status_code == 409
    assert "short name acme already" in wrong.text
    made = operator.submit("/people/tenants", slug="gamma", name="Gamma", zone="UTC", currency="EUR", price_group="a")
    assert made.headers["location"] == "/people?tenant=gamma"
    assert "Gamma" in operator.see("/people?tenant=gamma").text
    new = {"tenant": "gamma", "slug": "first", "name": "First", "cost_center": "1"}
    assert operator.submit("/people/projects", **new).status_code == 303
    person = {"tenant": "gamma", "login": "g@gamma.example", "name": "G", "place": "", "role": "admin"}
    assert operator.submit("/people", **person).status_code == 201
    assert operator.submit("/people", **{**person, "tenant": "nowhere"}).status_code == 404
    assert operator.submit("/people", **{**person, "tenant": ""}).status_code == 422
    assert "acme-member" not in operator.get("/people?tenant=gamma").text


def test_the_same_by_api(world: World) -> None:
    api = world.api(world.token(world.tenants["acme"].people["tenant-admin"], "acme", "read", "admin"))
    made = api.post("/api/v1/projects", json={"slug": "third", "name": "Third", "cost_center": "9"})
    assert (made.status_code, made.json()["slug"]) == (201, "third")
    new = {"login": "q@acme.example", "name": "Q", "role": "lead", "project": "third"}
    added = api.post("/api/v1/people", json=new)
    assert added.status_code == 201
    assert len(added.json()["password"]) == 23
    assert api.post("/api/v1/people", json=new).json() == {"id": added.json()["id"], "password": None}
    (q,) = api.get("/api/v1/people?project=third").json()["items"]
    assert (q["name"], q["role"], q["project"], q["source"]) == ("Q", "project:lead", "third", "local")
    gone = api.delete(f"/api/v1/people/{q['id']}", params={"role": "lead", "project": "third"})
    assert gone.status_code == 204
    assert api.get("/api/v1/people?project=third").json()["items"] == []
    assert api.post("/api/v1/projects/third/end", json={"why": "done"}).json()["ended_at"] is not None
    assert api.post("/api/v1/projects/third/reopen").json()["ended_at"] is None
    assert api.get("/api/v1/people?tenant=beta").status_code == 404
    bound = world.api(world.token(world.tenants["acme"].people["tenant-admin"], "acme", "admin", project="plasma"))
    assert bound.get("/api/v1/people").json()["code"] == "bound_token"
    operator = world.api(world.token(world.platform["operator"], None, "read", "admin"))
    assert operator.post("/api/v1/tenants", json={"slug": "delta", "name": "Delta"}).status_code == 201
    assert [t["slug"] for t in operator.get("/api/v1/tenants").json()["items"]] == ["acme", "beta", "delta"]
    assert operator.get("/api/v1/people").status_code == 422
    assert len(operator.get("/api/v1/people?tenant=beta").json()["items"]) == 6
