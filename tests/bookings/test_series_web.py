"""Series, classes and maintenance as people and programs meet them over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest

from app.accounts import actions
from app.kernel.actor import SYSTEM
from tests.bookings.test_approvals_web import api
from tests.bookings.test_pages import People, text_of
from tests.world import H100, START, World, make_world, nodes_csv

DAY = timedelta(days=1)
NINE = f"{START + 3 * DAY:%Y-%m-%d}T09:00"
TEN = f"{START + 3 * DAY:%Y-%m-%d}T11:00"
SERIES = {
    "project": "plasma", "name": "Seminar", "kind": H100, "units": 16, "rule": "FREQ=DAILY;COUNT=3", "zone": "Europe/Zurich",
    "local_start": NINE, "local_end": TEN,
}  # fmt: skip
FORM = {
    "project": "plasma", "name": "Seminar", "kind": H100, "units": "16", "within": "", "zone": "Europe/Zurich",
    "local_start": NINE, "local_end": TEN, "repeat": "DAILY", "count": "3", "on_conflict": "none",
}  # fmt: skip


@pytest.fixture(scope="module")
def browse(module_database, tmp_path_factory, servers) -> Iterator[People]:
    made = make_world(module_database, tmp_path_factory.mktemp("world"), servers.valkey_url, csv=nodes_csv(2))
    with made.work() as work:
        made.people["operator"] = actions.create_account(work, SYSTEM, login="olga@example.test", name="Olga")
        actions.grant_platform_role(work, SYSTEM, made.people["operator"], "operator")
    yield People(made)
    made.close()


@pytest.fixture
def world(browse: People) -> Iterator[World]:
    yield browse.world
    for person, project in (("physics-lead", "plasma"), ("bio-lead", "atlas")):
        client = api(browse.world, browse, person)
        for booking in client.get("/api/v1/bookings", params={"state": "BOOKED", "project": project}).json()["items"]:
            assert client.post(f"/api/v1/bookings/{booking['id']}/cancel").status_code == 200


def test_a_program_previews_books_changes_and_cancels_a_series(world: World, browse: People) -> None:
    client = api(world, browse, "physics-member")
    before = client.get("/api/v1/series").json()["items"]
    shown = client.post("/api/v1/series", json=SERIES, params={"dry_run": "true"})
    assert shown.status_code == 200
    assert client.get("/api/v1/series").json()["items"] == before
    made = client.post("/api/v1/series", json=SERIES, headers={"Idempotency-Key": "s1"})
    assert made.status_code == 201
    assert made.json()["price"] == shown.json()["price"]
    again = client.post("/api/v1/series", json=SERIES, headers={"Idempotency-Key": "s1"})
    assert again.json()["id"] == made.json()["id"]
    refused = client.post("/api/v1/series", json=SERIES | {"on_conflict": "none"})
    assert refused.status_code == 409
    assert len(refused.json()["reasons"]) == 3
    route = f"/api/v1/series/{made.json()['number']}"
    since = made.json()["occurrences"][1]["start"]
    change = SERIES | {"since": since, "units": 8, "rule": "FREQ=DAILY;COUNT=2", "name": "Smaller",
                       "local_start": made.json()["occurrences"][1]["local_start"],
                       "local_end": made.json()["occurrences"][1]["local_end"]}  # fmt: skip
    stale = client.post(f"{route}/change", json=change, headers={"If-Match": '"9"'})
    assert stale.status_code == 409
    changed = client.post(f"{route}/change", json=change, headers={"If-Match": made.headers["ETag"]})
    assert changed.status_code == 201
    assert len(changed.json()["dropped"]) == 2
    states = [o["booking"]["state"] for o in client.get(route).json()["occurrences"]]
    assert states == ["BOOKED", "CANCELLED", "CANCELLED"]
    ended = client.post(f"/api/v1/series/{changed.json()['id']}/cancel", json={})
    assert [o["booking"]["state"] for o in ended.json()["occurrences"]] == ["CANCELLED", "CANCELLED"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"rule": "every day"}, "RFC 5545"),
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"local_start": f"{NINE}+01:00"}, "without an offset"),
        ({"kind": "h1000"}, "h1000"),
        ({"units": 0}, "greater"),
        ({"local_end": NINE}, "at or before the start"),
    ],
)
def test_what_is_wrong_with_a_series_is_said(world: World, browse: People, words: dict, said: str) -> None:
    answer = api(world, browse, "physics-member").post("/api/v1/series", json=SERIES | words)
    assert answer.status_code == 422
    assert said in answer.text


def test_a_person_sees_what_a_series_would_book_and_books_it(world: World, browse: People) -> None:
    member = browse()
    shown = member.submit("/book/series", step="preview", **FORM)
    assert "3 occurrences can be booked." in text_of(shown)
    booked = member.submit("/book/series", step="book", idempotency_key="page-1", **FORM)
    assert booked.status_code == 303
    page = member.see(booked.headers["location"])
    assert text_of(page).count("Cancel from here on") >= 2
    since = re.search(r'name="since" value="([^"]+)"', page.text)[1].replace("&#43;", "+")
    conflict = member.submit("/book/series", step="book", idempotency_key="page-2", **FORM)
    assert conflict.status_code == 409
    assert "Nothing was booked" in text_of(conflict)
    wrong = member.submit("/book/series", step="preview", **FORM | {"units": "some", "count": "x"})
    assert wrong.status_code == 422
    assert "whole number" in text_of(wrong)
    member.submit(f"{booked.headers['location']}/cancel", since=since, idempotency_key="page-3")
    assert "Cancelled" in text_of(member.see(booked.headers["location"]))


def test_a_lead_books_for_a_class_and_a_member_does_not(world: World, browse: People) -> None:
    lead, member = browse("physics-lead"), browse()
    form = {"project": "plasma", "name": "Course", "kind": H100, "units": "1", "start": NINE, "hours": "1",
            "people": "member@physics.example\nlead@physics.example"}  # fmt: skip
    assert "There is room for all 2." in text_of(lead.submit("/book/class", step="preview", **form))
    strange = lead.submit("/book/class", step="book", **form | {"people": "nobody@physics.example"})
    assert strange.status_code == 422
    assert "nobody@physics.example" in text_of(strange)
    booked = lead.submit("/book/class", step="book", idempotency_key="class-1", **form)
    assert booked.status_code == 303
    assert "physics-member" in text_of(lead.see(booked.headers["location"]))
    assert member.see("/book/class").status_code == 403


def test_an_operator_previews_and_announces_maintenance(world: World, browse: People) -> None:
    booking = world.book(start=(START + 3 * DAY).isoformat(), units=8, within="node", duration="PT4H")
    operator = browse("operator")
    form = {"name": "New fans", "why": "Loud", "cluster": "sim", "level": "node", "nodes": "n0",
            "start": f"{START + 3 * DAY:%Y-%m-%d}T00:00", "end": f"{START + 4 * DAY:%Y-%m-%d}T23:00"}  # fmt: skip
    shown = operator.submit("/operator/maintenance", step="preview", **form)
    assert booking.label in text_of(shown)
    digest = re.search(r'name="digest" value="([^"]+)"', shown.text)[1]
    late = operator.submit("/operator/maintenance", step="commit", digest="m1:0", **form)
    assert late.status_code == 409
    assert "changed since the preview" in text_of(late)
    done = operator.submit("/operator/maintenance", step="commit", digest=digest, **form)
    assert done.status_code == 303
    page = operator.see("/operator/maintenance")
    assert "Announced" in text_of(page)
    wrong = operator.submit("/operator/maintenance", step="preview", **form | {"nodes": "n99", "name": ""})
    assert wrong.status_code == 422
    number = re.search(r"/operator/maintenance/(\d+)/call-off", page.text)[1]
    operator.submit(f"/operator/maintenance/{number}/call-off", version="1")
    assert "Called off" in text_of(operator.see("/operator/maintenance"))


def test_bug_report_24_whoever_has_only_an_ended_project_still_sees_and_releases_on_the_page(
    world: World, browse: People
) -> None:
    booking = world.book(units=1)
    world.settle()
    with world.work("physics") as work:
        work.pg.execute("UPDATE projects SET ended_at = berth_now() WHERE slug = 'plasma'")
    try:
        lead = browse("physics-lead")
        assert booking.label in text_of(lead.see(f"/bookings/{booking.label}"))
        assert lead.submit(f"/bookings/{booking.label}/release").status_code == 303
        assert world.look(booking).left_by == "release"
    finally:
        with world.work("physics") as work:
            work.pg.execute("UPDATE projects SET ended_at = NULL WHERE slug = 'plasma'")
