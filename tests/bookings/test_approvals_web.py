"""Requests and the waiting list as people and programs meet them: pages, forms, routes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from app.accounts import actions
from app.kernel.actor import SCOPES, SYSTEM, Actor
from tests.accounts.world import ADDRESS
from tests.bookings.test_pages import FORM, People, text_of
from tests.world import H100, START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path, valkey_url) -> Iterator[World]:
    """One node of eight units, and somebody who operates the platform."""
    made = make_world(database, tmp_path, valkey_url, csv=nodes_csv(1))
    with made.work() as work:
        made.people["operator"] = actions.create_account(work, SYSTEM, login="olga@example.test", name="Olga")
        actions.grant_platform_role(work, SYSTEM, made.people["operator"], "operator")
    yield made
    made.close()


@pytest.fixture
def browse(world: World) -> People:
    return People(world)


def api(world: World, browse: People, person: str) -> TestClient:
    """A program with a token of this person."""
    tenant = next((t for t in world.tenants if person.startswith(t)), None)
    with world.work(tenant) as work:
        made = actions.create_token(work, Actor(world.people[person], person, work.tenant_id), label="t", scopes=SCOPES)
    headers = {"Authorization": f"Bearer {made.secret}"}
    return TestClient(browse.app, base_url=ADDRESS, headers=headers, raise_server_exceptions=False)


def at(hours: float) -> str:
    return (START + hours * HOUR).isoformat()


def test_an_operator_sees_what_is_asked_with_its_effect_and_says_yes_on_the_page(world: World, browse: People) -> None:
    world.set_policy(H100, approval_hours=10)
    world.set_limit("physics", hours=100, project_id=world.projects["plasma"])
    member, operator = browse(), browse("operator")
    quoted = member.submit("/book/quote", **FORM | {"hours": "2"})
    assert "An operator has to approve it." in text_of(quoted)
    assert "Ask for it: CHF 38.40" in text_of(quoted)
    sent = member.submit("/book", **FORM | {"hours": "2"})
    assert sent.status_code == 303
    page = member.see(sent.headers["location"])
    assert "Awaits the approval of an operator" in text_of(page)
    listed = operator.see("/approvals")
    said = text_of(listed)
    assert "1 request to answer." in said
    assert "Plasma, Institute of Physics" in said
    assert "16.00 GPU-hours, CHF 38.40" in said
    assert "GPU-hours in November 2026" in said
    (address,) = {
        part.split('"')[0]
        for part in listed.text.split('action="')[1:]
        if part.startswith("/approvals/") and "/approve" in part
    }
    answered = operator.submit(address)
    assert (answered.status_code, answered.headers["location"]) == (303, "/approvals")
    assert "is booked" in text_of(operator.see("/approvals"))
    assert "Approved by Olga" in text_of(member.see(sent.headers["location"]))
    with world.work("physics") as work:
        assert work.pg.execute("SELECT action FROM audit WHERE actor = 'Olga'").fetchall() == [("approve request",)]


def test_rejected_on_the_page_the_reason_is_read_by_whoever_asked(world: World, browse: People) -> None:
    world.set_policy(H100, approval_hours=10, approver="lead")
    booking = world.book(units=8, start=at(5), duration="PT2H")
    lead, member = browse("physics-lead"), browse()
    listed = lead.see("/approvals")
    (address,) = {part.split('"')[0] for part in listed.text.split('action="')[1:] if "/reject" in part.split('"')[0]}
    lead.submit(address, why="")
    assert "Say why" in text_of(lead.see("/approvals"))
    lead.submit(address, why="Take four.")
    assert "is rejected" in text_of(lead.see("/approvals"))
    page = text_of(member.see(f"/bookings/{booking.label}"))
    assert "rejected by physics-lead" in page
    assert "Take four." in page
    assert member.see("/approvals").status_code == 403


def test_requests_over_the_api(world: World, browse: People) -> None:
    world.set_policy(H100, approval_hours=10)
    world.set_limit("physics", units=8, hours=100, project_id=world.projects["plasma"])
    member, operator = api(world, browse, "physics-member"), api(world, browse, "operator")
    body = {"project": "plasma", "name": "Run", "kind": H100, "units": 8, "start": at(5), "duration": "PT2H"}
    assert member.post("/api/v1/quotes", json=body).json()["approval"]["approver"] == "operator"
    asked = member.post("/api/v1/bookings", json=body)
    assert (asked.status_code, asked.json()["state"]) == (201, "REQUESTED")
    (one,) = operator.get("/api/v1/approvals").json()["items"]
    assert (one["number"], one["tenant"], one["unit_hours"]) == (
        asked.json()["number"],
        "Institute of Physics",
        "16.00",
    )
    assert one["quota"] == [
        {"scope": "project Plasma", "what": "units at the same time", "before": "0", "after": "8", "limit": "8"},
        {"scope": "project Plasma", "what": "GPU-hours in November 2026", "before": "0", "after": "16", "limit": "100"},
    ]
    assert asked.json()["request"]["id"] == one["id"]
    assert member.post(f"/api/v1/approvals/{one['id']}/approve").status_code == 403
    assert operator.post(f"/api/v1/approvals/{one['id']}/reject", json={"why": ""}).status_code == 422
    yes = operator.post(f"/api/v1/approvals/{one['id']}/approve", json={"why": "go"})
    assert (yes.status_code, yes.json()["state"]) == (200, "BOOKED")
    assert operator.post(f"/api/v1/approvals/{one['id']}/reject", json={"why": "no"}).status_code == 409
    assert member.get(f"/api/v1/approvals/{one['id']}").json()["outcome"] == "granted"
    assert operator.get("/api/v1/approvals").json()["items"] == []


def test_wait_for_it_on_the_form_take_it_on_the_page(world: World, browse: People) -> None:
    taken = world.book("bio-member", project="atlas", units=8, start=at(2), duration="PT2H")
    member = browse()
    form = FORM | {"when": "exact", "start": "2026-11-30T15:00", "hours": "1"}
    refused = member.submit("/book", **form)
    assert refused.status_code == 409
    assert "Wait for it" in refused.text
    sent = member.submit("/book", **form, wait="yes")
    assert sent.status_code == 303
    address = sent.headers["location"]
    page = text_of(member.see(address))
    assert "You are 1st of 1 on the waiting list" in page
    assert "Stop waiting" in page
    world.do("cancel", taken, "bio-member")
    world.settle()
    page = text_of(member.see(address))
    assert "Held for you for 30 min" in page
    assert "Take it for CHF 19.20" in page
    world.set_clock(START + timedelta(minutes=10))
    assert "Held for you for 20 min" in text_of(member.see(f"{address}/live?seen=WAITING"))
    member.see(address)
    assert member.submit(f"{address}/accept").status_code == 303
    assert "Booked: " in text_of(member.see(address))
    again = member.submit(f"{address}/decline")
    assert again.status_code == 303
    assert "has no offer" in text_of(member.see(address))


def test_the_waiting_list_over_the_api(world: World, browse: People) -> None:
    taken = world.book("bio-member", project="atlas", units=8, start=at(2), duration="PT2H")
    member, other = api(world, browse, "physics-member"), api(world, browse, "bio-lead")
    body = {"project": "plasma", "name": "Run", "kind": H100, "units": 8, "start": at(2), "duration": "PT1H"}
    assert member.post("/api/v1/bookings", json=body).status_code == 409
    made = member.post("/api/v1/waitlist", json=body, headers={"Idempotency-Key": "w"})
    assert (made.status_code, made.json()["state"]) == (201, "WAITING")
    assert (
        member.post("/api/v1/waitlist", json=body, headers={"Idempotency-Key": "w"}).json()["id"] == made.json()["id"]
    )
    second = member.post("/api/v1/bookings", json=body | {"wait": True, "auto": True}).json()
    assert (second["waiting"]["place"], second["waiting"]["of"], second["waiting"]["auto"]) == (2, 2, True)
    assert len(member.get("/api/v1/waitlist").json()["items"]) == 2
    assert other.get("/api/v1/waitlist").json()["items"] == []
    world.do("cancel", taken, "bio-member")
    world.settle()
    one = member.get(f"/api/v1/bookings/{made.json()['id']}").json()
    assert one["waiting"]["offer"]["price"] == {"currency": "CHF", "amount": "19.20"}
    assert one["waiting"]["offer"]["until"] == "2026-11-30T12:30:00Z"
    assert other.post(f"/api/v1/bookings/{one['id']}/accept").status_code == 404
    gone = member.post(f"/api/v1/bookings/{one['id']}/decline")
    assert gone.json()["state"] == "CANCELLED"
    world.settle()
    assert member.get(f"/api/v1/bookings/{second['id']}").json()["state"] == "BOOKED"
