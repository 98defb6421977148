"""A token that is bound to one project sees that project and nothing else, whatever its owner may see."""

from __future__ import annotations

from tests.dashboards.conftest import HOUR, START, Company


def book_in_both(company: Company) -> tuple[str, str]:
    """A booking in plasma and one in vision; their ids."""
    mine = company.book("acme", "In plasma", 2, START + HOUR)
    whole = company.people.token(company.person("acme", "tenant-admin"), "acme", "read", "book")
    body = {"project": "vision", "name": "In vision", "kind": "h100-sxm-80gb", "units": 2, "duration": "PT6H",
            "start": (START + HOUR).isoformat()}  # fmt: skip
    answer = company.people.api(whole).post("/api/v1/bookings", json=body)
    assert answer.status_code == 201, answer.text
    return mine["id"], answer.json()["id"]


def test_a_bound_token_lists_only_its_project(company: Company) -> None:
    plasma, vision = book_in_both(company)
    admin = company.person("acme", "tenant-admin")
    whole = company.people.api(company.people.token(admin, "acme", "read"))
    assert {b["id"] for b in whole.get("/api/v1/bookings").json()["items"]} == {plasma, vision}
    bound = company.people.api(company.people.token(admin, "acme", "read", project="plasma"))
    for query in ("", "?mine=true", "?project=plasma", "?text=In"):
        shown = {b["id"] for b in bound.get(f"/api/v1/bookings{query}").json()["items"]}
        assert shown <= {plasma}, query
    assert {b["id"] for b in bound.get("/api/v1/bookings").json()["items"]} == {plasma}
    assert [p["slug"] for p in bound.get("/api/v1/projects").json()["items"]] == ["plasma"]
    for path in ("/api/v1/bookings?project=vision", f"/api/v1/bookings/{vision}", f"/api/v1/bookings/{vision}/charges"):
        assert bound.get(path).status_code == 404, path


def test_a_token_bound_to_a_project_that_its_owner_has_left_lists_nothing(company: Company) -> None:
    """The owner still belongs to another project of the tenant."""
    book_in_both(company)
    member = company.person("acme")
    bound = company.people.api(company.people.token(member, "acme", "read", project="plasma"))
    assert len(bound.get("/api/v1/bookings").json()["items"]) == 1
    projects = company.people.tenants["acme"].projects
    with company.people.work("acme") as work:
        moved = work.pg.execute(
            "UPDATE memberships SET project_id = %s WHERE account_id = %s AND project_id = %s",
            [projects["vision"].id, member, projects["plasma"].id],
        )
        assert moved.rowcount == 1
    assert bound.get("/api/v1/bookings").json()["items"] == []


def test_a_bound_token_reads_no_audit_and_no_statement(company: Company) -> None:
    admin = company.person("acme", "tenant-admin")
    whole = company.people.api(company.people.token(admin, "acme", "read"))
    bound = company.people.api(company.people.token(admin, "acme", "read", project="plasma"))
    for path in ("/audit.csv", "/api/v1/statements", "/api/v1/limits"):
        assert whole.get(path).status_code == 200, path
        assert bound.get(path).status_code == 403, path
