"""Requests for approval on a real database: who is asked, what is held meanwhile, what each answer does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from app.bookings import approvals, queries_requests
from app.bookings.facts import Booking
from app.bookings.queries_requests import Request
from app.bookings.shrinking import Kept, shrink
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Forbidden, Invalid, NotFound, Refused
from app.plumbing.queue import NoQueue
from tests.world import H100, OPERATOR, START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    """One node of eight units; more than ten GPU-hours have to be approved."""
    made = make_world(database, tmp_path, csv=nodes_csv(1))
    made.set_policy(H100, approval_hours=10)
    yield made
    made.close()


def at(hours: float) -> str:
    return (START + hours * HOUR).isoformat()


def request(world: World, booking: Booking) -> Request:
    with world.plumbing.database.work(booking.tenant_id) as work:
        found = queries_requests.last_request(work, booking.id)
    assert found is not None
    return found


def answer(world: World, verb: str, booking: Booking, actor: Actor | str = OPERATOR, *words: Any) -> Booking:
    who = world.actor(actor) if isinstance(actor, str) else actor
    with world.plumbing.database.work(who.tenant_id) as work:
        return getattr(approvals, verb)(work, NoQueue(), who, request(world, booking).id, *words)


def events(world: World, booking: Booking) -> list[str]:
    with world.plumbing.database.work(booking.tenant_id) as work:
        rows = work.pg.execute("SELECT event FROM history WHERE booking_id = %s ORDER BY seq", [booking.id])
        return [row[0] for row in rows]


def notices(world: World, booking: Booking) -> list[tuple[str, UUID]]:
    with world.plumbing.database.work(booking.tenant_id) as work:
        return work.pg.execute(
            "SELECT kind, account_id FROM outbox WHERE booking_id = %s ORDER BY at, id", [booking.id]
        ).fetchall()


def held_hours(world: World) -> tuple[int, int]:
    """Live holds and commitments, whoever's."""
    with world.work() as work, work.read_all():
        return work.pg.execute(
            "SELECT (SELECT count(*) FROM holds WHERE live), (SELECT count(*) FROM commitments)"
        ).fetchone()


def test_below_the_threshold_nobody_is_asked(world: World) -> None:
    assert world.book(units=8, start=at(5)).state == "BOOKED"


def test_asked_for_it_holds_its_units_until_an_operator_says_yes(world: World) -> None:
    assert world.quote(units=8, start=at(5), duration="PT2H").offer.approval.approver == "operator"
    asked = world.book(units=8, start=at(5), duration="PT2H")
    assert asked.state == "REQUESTED"
    assert request(world, asked).expires_at == START + 4 * HOUR
    with pytest.raises(Refused):
        world.book(units=1, start=at(5))
    booked = answer(world, "approve", asked, OPERATOR, "fine")
    assert (booked.state, booked.quoted) == ("BOOKED", asked.quoted)
    assert answer(world, "approve", asked, OPERATOR) == booked  # twice by the same is once
    assert events(world, asked) == ["ask", "approve"]
    assert ("request_granted", world.people["physics-member"]) in notices(world, asked)
    world.pass_time(6 * HOUR)
    assert world.look(asked).state == "ACTIVE"


def test_rejected_with_a_reason_its_units_and_hours_are_free(world: World) -> None:
    world.set_limit("physics", hours=20, project_id=world.projects["plasma"])
    asked = world.book(units=8, start=at(5), duration="PT2H")
    with pytest.raises(Invalid):
        answer(world, "reject", asked, OPERATOR, "  ")
    rejected = answer(world, "reject", asked, OPERATOR, "Take fewer.")
    assert rejected.state == "REJECTED"
    assert held_hours(world) == (0, 0)
    assert request(world, asked).why == "Take fewer."
    with pytest.raises(Conflict):
        answer(world, "approve", asked)
    world.book(units=8, start=at(5))


def test_nobody_answers_it_lapses_an_hour_before_its_start(world: World) -> None:
    asked = world.book(units=8, start=at(5), duration="PT2H")
    world.pass_time(4 * HOUR - timedelta(seconds=1))
    assert world.look(asked).state == "REQUESTED"
    world.pass_time(timedelta(seconds=1))
    assert world.look(asked).state == "LAPSED"
    assert held_hours(world)[0] == 0
    with pytest.raises(Conflict):
        answer(world, "approve", asked)


def test_nobody_answers_it_lapses_after_three_days(world: World) -> None:
    asked = world.book(units=8, start=at(24 * 20), duration="PT2H")
    assert request(world, asked).expires_at == START + 72 * HOUR
    world.set_clock(START + 72 * HOUR)
    with pytest.raises(Conflict, match="has lapsed"):
        answer(world, "approve", asked)
    world.answer()
    assert world.look(asked).state == "LAPSED"


def test_taken_back_by_whoever_asked(world: World) -> None:
    asked = world.book(units=8, start=at(5), duration="PT2H")
    assert world.do(approvals.withdraw, asked).state == "CANCELLED"
    again = world.book(units=8, start=at(5), duration="PT2H")
    assert world.do("cancel", again).state == "CANCELLED"  # the same by its plain name
    assert request(world, again).outcome == "withdrawn"
    assert held_hours(world)[0] == 0


def test_as_soon_as_possible_leaves_time_to_answer(world: World) -> None:
    asked = world.book(units=8, start="asap", duration="PT2H")
    assert asked.starts_at == START + 2 * HOUR
    assert request(world, asked).expires_at == START + HOUR


def test_a_start_now_cannot_be_asked_for(world: World) -> None:
    with pytest.raises(Refused) as refused:
        world.book(units=8, start=at(0), duration="PT2H")
    assert {r.code for r in refused.value.refusal.reasons} == {"needs_approval_first"}
    for it in refused.value.refusal.alternatives:
        assert world.book(**it.request).state in ("BOOKED", "REQUESTED")
        break


def test_a_lead_answers_for_the_project_and_needs_no_one_for_the_own_request(world: World) -> None:
    world.set_policy(H100, approval_hours=10, approver="lead")
    asked = world.book(units=8, start=at(5), duration="PT2H")
    assert world.book("physics-lead", units=8, start=at(9), duration="PT2H").state == "BOOKED"
    for who in (OPERATOR, "bio-lead"):
        with pytest.raises(NotFound):
            answer(world, "approve", asked, who)
    with pytest.raises(Forbidden):
        answer(world, "approve", asked, "physics-member")
    assert answer(world, "approve", asked, "physics-lead").state == "BOOKED"
    assert ("approval_asked", world.people["physics-lead"]) in notices(world, asked)


def test_a_lead_does_not_answer_what_operators_are_asked(world: World) -> None:
    asked = world.book(units=8, start=at(5), duration="PT2H")
    with pytest.raises(Forbidden):
        answer(world, "approve", asked, "physics-lead")
    assert world.look(asked).state == "REQUESTED"


def test_nobody_answers_what_he_asked_an_operator_for(world: World) -> None:
    asked = world.book(units=8, start=at(5), duration="PT2H")
    own = Actor(world.people["physics-member"], "physics-member", platform_roles=frozenset({"operator"}))
    with pytest.raises(Forbidden):
        answer(world, "approve", asked, own)


def test_case_30_where_requests_hold_nothing_the_second_approval_finds_the_conflict_and_that_request_waits(
    world: World,
) -> None:
    world.set_policy(H100, approval_hours=10, requests_hold=False)
    one = world.book(units=8, start=at(5), duration="PT2H")
    two = world.book("bio-member", project="atlas", units=8, start=at(5), duration="PT2H")
    assert (one.state, two.state) == ("REQUESTED", "REQUESTED")
    assert held_hours(world) == (0, 0)
    assert answer(world, "approve", one).state == "BOOKED"
    with pytest.raises(Conflict, match="waiting list"):
        answer(world, "approve", two)
    assert world.look(two).state == "WAITING"
    world.do("cancel", one)
    world.settle()
    with world.work("bio") as work:
        assert queries_requests.open_request(work, two.id).waits_for == "answer"


def test_an_extension_that_passes_the_threshold_is_asked_for_and_the_booking_stays_as_it_was(world: World) -> None:
    booking = world.book(units=8)
    world.settle()
    before = world.look(booking)
    same = world.do("extend", booking, by=HOUR, end=None)
    assert (same.ends_at, same.quoted, same.version) == (before.ends_at, before.quoted, before.version)
    with pytest.raises(Refused):  # what would be added is held
        world.book("bio-member", project="atlas", units=1, start=at(1))
    longer = answer(world, "approve", booking)
    assert longer.ends_at == START + 2 * HOUR
    assert str(longer.quoted) == "38.40"
    assert events(world, booking)[-2:] == ["ask_extend", "extend"]
    world.pass_time(timedelta(minutes=90))
    assert world.look(booking).state == "ACTIVE"
    world.pass_time(HOUR)
    assert world.look(booking).outcome == "completed"


@pytest.mark.parametrize("how", ["reject", "lapse", "withdraw", "release"])
def test_an_extension_that_is_not_granted_leaves_the_booking_and_nothing_held(world: World, how: str) -> None:
    world.set_limit("physics", hours=100, project_id=world.projects["plasma"])
    booking = world.book(units=8)
    world.settle()
    world.do("extend", booking, by=HOUR, end=None)
    if how == "reject":
        answer(world, "reject", booking, OPERATOR, "No.")
    elif how == "withdraw":
        world.do(approvals.withdraw, booking)
    elif how == "release":
        world.do("release", booking)
        world.settle()
    else:
        world.pass_time(2 * HOUR)
    assert request(world, booking).outcome in ("rejected", "withdrawn", "lapsed")
    assert world.look(booking).ends_at == START + HOUR
    with world.work("physics") as work:
        assert work.pg.execute("SELECT count(*) FROM commitments WHERE request_id IS NOT NULL").fetchone() == (0,)
        live = work.pg.execute("SELECT count(*) FROM holds WHERE live AND request_id IS NOT NULL").fetchone()
    assert live == (0,)
    with pytest.raises(Conflict):
        answer(world, "approve", booking)
    world.book("bio-member", project="atlas", units=1, start=at(3))


def test_an_offer_that_needs_approval_is_asked_for_when_it_is_taken(world: World) -> None:
    from app.bookings import waitlist
    from tests.bookings.test_waitlist import place, wait

    taken = world.book("physics-lead", units=8, start=at(5))
    waiter = wait(world, units=8, start=at(5), duration="PT2H")
    world.do("cancel", taken, "physics-lead")
    world.settle()
    assert place(world, waiter).offer is not None
    assert world.do(waitlist.accept, waiter).state == "REQUESTED"
    assert answer(world, "approve", waiter).state == "BOOKED"


def test_a_request_to_extend_what_has_changed_since_lapses_when_it_is_answered(world: World) -> None:
    booking = world.book(units=8)
    world.settle()
    world.do("extend", booking, by=HOUR, end=None)
    world.do(shrink, booking, kept=Kept(units=4))
    with pytest.raises(Conflict, match="has changed since"):
        answer(world, "approve", booking)
    assert request(world, booking).outcome == "lapsed"
    assert world.look(booking).ends_at == START + HOUR
    with world.work() as work:
        held = work.pg.execute("SELECT count(*) FROM holds WHERE live AND request_id IS NOT NULL").fetchone()
    assert held == (0,)
