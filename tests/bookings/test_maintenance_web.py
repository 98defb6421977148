"""Maintenance and power budgets as operators do them: on the page and by a program; and what others read of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from app.accounts import actions
from app.kernel.actor import SYSTEM
from app.plumbing import outbox
from tests.bookings.test_approvals_web import api
from tests.bookings.test_pages import People, text_of
from tests.world import START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path, valkey_url) -> Iterator[World]:
    made = make_world(database, tmp_path, valkey_url, csv=nodes_csv(2))
    with made.work() as work:
        made.people["operator"] = actions.create_account(work, SYSTEM, login="olga@example.test", name="Olga")
        actions.grant_platform_role(work, SYSTEM, made.people["operator"], "operator")
    yield made
    made.close()


@pytest.fixture
def browse(world: World) -> People:
    return People(world)


def at(hours: float) -> str:
    return (START + hours * HOUR).isoformat()


def body(**words: Any) -> dict[str, Any]:
    plan = {
        "cluster": "sim",
        "nodes": ["n0"],
        "start": at(12),
        "end": at(16),
        "name": "New fans",
        "why": "They are loud.",
    }
    return plan | words


def form(**words: str) -> dict[str, str]:
    """The form as typed in Zurich, an hour ahead of UTC."""
    typed = {"cluster": "sim", "level": "node", "nodes": "n0", "start": "2026-12-01T01:00", "end": "2026-12-01T05:00"}
    return typed | {"name": "New fans", "why": "They are loud.", "step": "preview"} | words


def test_a_program_looks_first_then_does_just_that_and_calls_it_off(world: World, browse: People) -> None:
    booking = world.book(start=at(13), units=8, within="node", duration="PT1H")
    operator = api(world, browse, "operator")
    seen = operator.post("/api/v1/maintenances?dry_run=true", json=body())
    assert seen.status_code == 200, seen.text
    (fate,) = seen.json()["bookings"]
    assert (fate["number"], fate["done"], fate["left"], fate["took"]) == (booking.label, "move", ["n0"], ["n1"])
    assert operator.get("/api/v1/maintenances").json()["items"] == []
    blind = operator.post("/api/v1/maintenances", json=body())
    assert (blind.status_code, blind.json()["code"]) == (409, "no_preview")
    other = operator.post("/api/v1/maintenances", json=body(digest=seen.json()["digest"], end=at(17)))
    assert (other.status_code, other.json()["code"]) == (409, "world_changed")
    done = operator.post("/api/v1/maintenances", json=body(digest=seen.json()["digest"]))
    assert done.status_code == 201, done.text
    one = done.json()["maintenance"]
    (listed,) = operator.get("/api/v1/maintenances").json()["items"]
    assert listed == one
    stale = operator.post(f"/api/v1/maintenances/{one['id']}/call-off", headers={"If-Match": '"7"'})
    assert (stale.status_code, stale.json()["code"]) == (409, "edited_meanwhile")
    off = operator.post(f"/api/v1/maintenances/{one['id']}/call-off", headers={"If-Match": f'"{one["version"]}"'})
    assert off.json()["called_off_at"]
    wrong = operator.post("/api/v1/maintenances?dry_run=true", json=body(nodes=["n9"]))
    assert wrong.status_code == 422
    assert "no node called n9" in wrong.text


def test_a_layout_by_program_and_in_the_preview_on_the_page(world: World, browse: People) -> None:
    operator = api(world, browse, "operator")
    wrong = operator.post("/api/v1/maintenances?dry_run=true", json=body(layout="4g.40gb*2"))
    assert (wrong.status_code, wrong.json()["code"]) == (422, "wrong_layout")
    seen = operator.post("/api/v1/maintenances?dry_run=true", json=body(layout="0-1:3g.40gb*2"))
    assert seen.json()["maintenance"]["layout"] == {"n0": "0-1:3g.40gb*2"}
    page = browse("operator").submit("/operator/maintenance", **form(layout="0:1g.10gb*7"))
    assert page.status_code == 200
    assert (
        "At its end GPUs are cut anew. What is booked on them afterwards is concerned too. n0 0:1g.10gb*7"
        in text_of(page)
    )
    page = browse("operator").submit("/operator/maintenance", **form(layout="0:9g.10gb"))
    assert page.status_code == 422
    assert "is no slice of h100-sxm-80gb" in text_of(page)


def test_on_the_page_what_it_would_do_is_seen_chosen_and_done(world: World, browse: People) -> None:
    booking = world.book(start=at(13), units=8, within="node", duration="PT1H")
    operator = browse("operator")
    seen = operator.submit("/operator/maintenance", **form())
    assert "1 booking concerned: 1 to other nodes at the same time." in text_of(seen)
    assert "n0 to n1" in text_of(seen)
    chosen = {f"choice:{booking.label}": "cancel"}
    again = operator.submit("/operator/maintenance", **form(**chosen))
    assert "1 cancelled" in text_of(again)
    digest = re.search(r'name="digest" value="([^"]+)"', again.text)[1]
    old = operator.submit("/operator/maintenance", **form(step="commit", digest="m1:0"))
    assert old.status_code == 409
    assert "have changed since the preview" in text_of(old)
    done = operator.submit("/operator/maintenance", **form(step="commit", digest=digest, **chosen))
    assert done.status_code == 303, text_of(done)
    assert world.look(booking).state == "CANCELLED"
    page = text_of(operator.see("/operator/maintenance"))
    assert "New fans" in page
    assert "Announced" in page
    off = re.search(r'action="(/operator/maintenance/\d+/call-off)"', operator.see("/operator/maintenance").text)[1]
    assert operator.submit(off, version="1").status_code == 303
    assert "Called off" in text_of(operator.see("/operator/maintenance"))


def test_whose_booking_it_is_and_the_lead_read_why_on_the_page_and_by_mail(world: World, browse: People) -> None:
    short = world.book(start=at(10), nodes=2, per_node=4, duration="PT4H", name="Long run")
    moves = world.book(start=at(14), units=1, duration="PT1H", name="Small run")
    operator = api(world, browse, "operator")
    seen = operator.post("/api/v1/maintenances?dry_run=true", json=body()).json()
    fates = {f["number"]: f["done"] for f in seen["bookings"]}
    assert fates[short.label] == "shorten"
    assert operator.post("/api/v1/maintenances", json=body(digest=seen["digest"])).status_code == 201
    for person in ("physics-member", "physics-lead"):
        page = text_of(browse(person).see("/notices"))
        assert "Olga made “Long run” end earlier" in page, person
        assert "New fans: They are loud." in page
        if moves.label in fates:
            assert "“Small run” is planned on other units" in page
            assert "It is planned on n1 now. Time and price stay as they were." in page
    assert {"booking_replanned", "booking_shortened", "booking_cancelled"} <= outbox.MAILED
    with world.work("physics") as work:
        mails = work.pg.execute(
            "SELECT count(*) FROM mail m JOIN outbox o ON o.id = m.notice_id WHERE o.kind = 'booking_shortened'"
        ).fetchone()[0]
    assert mails == 2


def test_bug_report_6_a_window_longer_than_the_view_is_drawn_clipped_and_nodes_say_so(
    world: World, browse: People
) -> None:
    operator = api(world, browse, "operator")
    plan = body(start=at(-0.01), end=at(24 * 9))
    seen = operator.post("/api/v1/maintenances?dry_run=true", json=plan).json()
    assert operator.post("/api/v1/maintenances", json=plan | {"digest": seen["digest"]}).status_code == 201
    for range_ in ("day", "3d", "week", "2w"):
        page = browse().see(f"/timeline?range={range_}")
        assert "Maintenance: New fans" in page.text, range_
    nodes = {n["name"]: n for n in operator.get("/api/v1/nodes").json()["items"]}
    assert (nodes["n0"]["free"], nodes["n1"]["free"]) == (0, 8)
    assert nodes["n0"]["maintenance"] == {
        "name": "New fans",
        "start": plan["start"][:19] + "Z",
        "end": at(24 * 9)[:19] + "Z",
    }
    assert nodes["n1"]["maintenance"] is None
    assert "In maintenance" in text_of(browse("operator").see("/operator/inventory"))


def test_power_budgets_by_program_and_on_the_page(world: World, browse: People) -> None:
    operator = api(world, browse, "operator")
    made = operator.put("/api/v1/power-budgets", json={"cluster": "sim", "level": "rack", "name": "r0", "watts": 5600})
    assert made.json()["items"] == [{"cluster": "sim", "level": "rack", "name": "r0", "watts": 5600}], made.text
    assert operator.get("/api/v1/power-budgets").json()["items"] == made.json()["items"]
    wrong = operator.put("/api/v1/power-budgets", json={"cluster": "sim", "level": "rack", "name": "r9", "watts": 1})
    assert (wrong.status_code, wrong.json()["reasons"][0]["field"]) == (422, "name")
    member = api(world, browse, "physics-member")
    ask = {"project": "plasma", "name": "x", "kind": "h100-sxm-80gb", "units": 9, "start": at(10), "duration": "PT1H"}
    refused = member.post("/api/v1/bookings", json=ask)
    assert (refused.status_code, refused.json()["reasons"][0]["code"]) == (409, "power_short")
    assert (refused.json()["reasons"][0]["limit"], refused.json()["reasons"][0]["asked"]) == ("5600 W", "6300 W")
    page = browse("operator")
    assert "Rack r0 sim 5,600 W" in text_of(page.see("/operator/maintenance"))
    assert (
        page.submit("/operator/power-budgets", cluster="sim", level="cluster", name="", watts="10,000").status_code
        == 303
    )
    assert "All of it sim 10,000 W" in text_of(page.see("/operator/maintenance"))
    page.submit("/operator/power-budgets", cluster="sim", level="rack", name="r0", watts="")
    assert "Rack r0 sim" not in text_of(page.see("/operator/maintenance"))
    page.submit("/operator/power-budgets", cluster="sim", level="rack", name="r0", watts="much")
    assert "whole number" in text_of(page.see("/operator/maintenance"))
