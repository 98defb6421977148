"""Races of requests and of the waiting list: real PostgreSQL, a connection each, started together, many rounds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from app.bookings import actions, approvals, queries_requests, reconcile_requests, waitlist
from app.bookings.facts import Booking
from app.kernel.errors import Conflict, Problem, Refused
from app.plumbing.queue import NoQueue
from tests.world import H100, OPERATOR, START, World, make_world, nodes_csv

pytestmark = pytest.mark.timeout(300)
HOUR = timedelta(hours=1)
ROUNDS = 8


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    """One node of eight units."""
    made = make_world(database, tmp_path, csv=nodes_csv(1))
    yield made
    made.close()


def at(hours: float) -> str:
    return (START + hours * HOUR).isoformat()


def together(*acts: Callable[[], Any]) -> list[Any]:
    """Each in a thread of its own, begun at once; what it answered or the problem that it met. Anything else is a fault."""
    gate, answers, faults = threading.Barrier(len(acts)), [None] * len(acts), []

    def run(index: int, act: Callable[[], Any]) -> None:
        gate.wait()
        try:
            answers[index] = act()
        except Problem as problem:
            answers[index] = problem
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not faults, faults
    return answers


def answer(world: World, verb: str, booking: Booking, *words: Any) -> Callable[[], Booking]:
    with world.plumbing.database.work(booking.tenant_id) as work:
        request = queries_requests.last_request(work, booking.id)

    def act() -> Booking:
        with world.plumbing.database.work() as work:
            return getattr(approvals, verb)(work, NoQueue(), OPERATOR, request.id, *words)

    return act


def book(world: World, person: str = "physics-member", **words: Any) -> Callable[[], Booking]:
    actor, ask = world.actor(person), world.ask(**words)

    def act() -> Booking:
        with world.plumbing.database.work(actor.tenant_id) as work:
            return actions.book(work, NoQueue(), actor, ask)

    return act


def wait(world: World, person: str = "physics-member", auto: bool = False, **words: Any) -> Booking:
    actor = world.actor(person)
    with world.plumbing.database.work(actor.tenant_id) as work:
        return waitlist.book_or_wait(work, NoQueue(), actor, world.ask(**words), auto)


def look(world: World, tenant: Any, subject: Any) -> Callable[[], None]:
    return lambda: reconcile_requests.look(world.plumbing, str(tenant), str(subject))


def request_of(world: World, booking: Booking) -> queries_requests.Request:
    with world.plumbing.database.work(booking.tenant_id) as work:
        found = queries_requests.last_request(work, booking.id)
    assert found is not None
    return found


def open_offers(world: World) -> int:
    with world.work() as work, work.read_all():
        return work.pg.execute(
            "SELECT count(*) FROM requests WHERE waits_for = 'answer' AND outcome IS NULL"
        ).fetchone()[0]


def nothing_twice(world: World) -> None:
    """No unit is held twice, and whatever is held has a living owner."""
    with world.work() as work, work.read_all():
        twice = work.pg.execute(
            """SELECT count(*) FROM holds a JOIN holds b ON a.id < b.id AND a.live AND b.live AND a.units && b.units
                  AND a.during && b.during"""
        ).fetchone()
        orphans = work.pg.execute(
            """SELECT count(*) FROM holds h LEFT JOIN bookings b ON b.id = h.booking_id LEFT JOIN requests r ON r.id = h.request_id
                WHERE h.live AND (b.state IN ('WAITING', 'CANCELLED', 'REJECTED', 'LAPSED', 'ENDED') OR r.outcome IS NOT NULL)"""
        ).fetchone()
    assert (twice, orphans) == ((0,), (0,))


def test_approve_approve_of_two_that_hold_nothing_one_is_booked_and_one_waits(world: World) -> None:
    world.set_policy(H100, approval_hours=1, requests_hold=False)
    for number in range(ROUNDS):
        start = at(5 + 3 * number)
        one = world.book(units=8, start=start, duration="PT2H")
        two = world.book("bio-member", project="atlas", units=8, start=start, duration="PT2H")
        together(answer(world, "approve", one), answer(world, "approve", two))
        assert sorted([world.look(one).state, world.look(two).state]) == ["BOOKED", "WAITING"]
        nothing_twice(world)


def test_two_operators_approve_one_request_it_is_booked_once(world: World) -> None:
    world.set_policy(H100, approval_hours=1)
    for number in range(ROUNDS):
        asked = world.book(units=8, start=at(5 + 3 * number), duration="PT2H")
        together(answer(world, "approve", asked), answer(world, "approve", asked))
        assert world.look(asked).state == "BOOKED"
        with world.work("physics") as work:
            events = work.pg.execute("SELECT event FROM history WHERE booking_id = %s", [asked.id]).fetchall()
        assert events.count(("approve",)) == 1


def test_approve_and_reject_at_once_one_of_them_counts(world: World) -> None:
    world.set_policy(H100, approval_hours=1)
    for number in range(ROUNDS):
        asked = world.book(units=8, start=at(5 + 3 * number), duration="PT2H")
        yes, no = together(answer(world, "approve", asked), answer(world, "reject", asked, "No."))
        state = world.look(asked).state
        assert state in ("BOOKED", "REJECTED")
        assert isinstance(no if state == "BOOKED" else yes, Conflict)
        nothing_twice(world)


def test_approve_and_lapse_at_once_one_of_them_counts(world: World) -> None:
    world.set_policy(H100, approval_hours=1)
    for number in range(ROUNDS):
        asked = world.book(units=8, start=at(5 + 3 * number), duration="PT2H")
        request = request_of(world, asked)
        yes = answer(world, "approve", asked)
        world.set_clock(request.expires_at - timedelta(seconds=1 if number % 2 else 0))
        together(yes, look(world, asked.tenant_id, request.id))
        if number % 2:
            assert world.look(asked).state == "BOOKED"  # there was a second left
        else:
            assert world.look(asked).state == "LAPSED"
        nothing_twice(world)


def test_accept_and_expire_at_once_one_of_them_counts(world: World) -> None:
    for number in range(ROUNDS):
        start = at(5 + 3 * number)
        taken = world.book(units=8, start=start)
        waiter = wait(world, "bio-member", project="atlas", units=8, start=start)
        world.do("cancel", taken)
        world.answer()
        request = request_of(world, waiter)
        world.set_clock(request.expires_at - timedelta(seconds=1 if number % 2 else 0))
        accept = lambda waiter=waiter: world.do(waitlist.accept, waiter, "bio-member")  # noqa: E731
        answered, _ = together(accept, look(world, waiter.tenant_id, request.id))
        state = world.look(waiter).state
        if number % 2:
            assert (state, answered.state) == ("BOOKED", "BOOKED")
        else:
            assert state == "LAPSED"
            assert isinstance(answered, Conflict)
        nothing_twice(world)
        world.answer()


def test_freed_units_go_to_the_waiter_and_not_to_a_fresh_booking(world: World) -> None:
    for number in range(ROUNDS):
        start = at(5 + 3 * number)
        taken = world.book(units=8, start=start)
        waiter = wait(world, "bio-member", project="atlas", units=8, start=start)
        world.answer()
        cancel = lambda taken=taken: world.do("cancel", taken)  # noqa: E731
        _, *fresh = together(cancel, world.answer, *[book(world, units=8, start=start) for _ in range(4)])
        assert all(isinstance(a, Refused) for a in fresh[1:])
        world.answer()
        assert request_of(world, waiter).waits_for == "answer"
        booked = world.do(waitlist.accept, waiter, "bio-member")
        assert booked.state == "BOOKED"
        nothing_twice(world)


def test_two_release_at_once_what_one_waits_for_and_it_has_one_offer(world: World) -> None:
    for number in range(ROUNDS):
        start = at(5 + 3 * number)
        one, two = (world.book(units=4, start=start) for _ in range(2))
        waiter = wait(world, "bio-member", project="atlas", units=8, start=start)
        world.answer()
        give = [lambda b=b: world.do("cancel", b) for b in (one, two)]
        together(*give)
        with world.work() as work:
            due = work.pg.execute(queries_requests.DUE, {"now": world.now()}).fetchall()
        assert len(due) == 2
        together(*[look(world, tenant, subject) for tenant, subject in due])
        world.answer()
        assert open_offers(world) == 1
        assert world.do(waitlist.accept, waiter, "bio-member").units == 8
        nothing_twice(world)


def test_many_looks_at_once_serve_each_waiter_once(world: World) -> None:
    for number in range(ROUNDS):
        start = at(5 + 3 * number)
        taken = world.book(units=8, start=start)
        waiters = [wait(world, "bio-member", auto=bool(i % 2), project="atlas", units=2, start=start) for i in range(5)]
        world.answer()
        world.do("cancel", taken)
        with world.work() as work:
            ((tenant, subject),) = work.pg.execute(queries_requests.DUE, {"now": world.now()}).fetchall()
        together(*[look(world, tenant, subject) for _ in range(4)])
        world.answer()
        states = [world.look(w).state for w in waiters]
        assert states == ["WAITING", "BOOKED", "WAITING", "BOOKED", "WAITING"]
        assert [request_of(world, w).outcome for w in waiters[:4:2]] == [None, None]
        nothing_twice(world)
        for w in waiters[:4:2]:
            assert world.do(waitlist.accept, w, "bio-member").state == "BOOKED"


def test_an_extension_is_approved_while_the_booking_is_released(world: World) -> None:
    world.set_policy(H100, approval_hours=10)
    for _ in range(ROUNDS):
        booking = world.book(units=8)
        world.settle()
        world.do("extend", booking, by=HOUR, end=None)
        give = lambda booking=booking: world.do("release", booking)  # noqa: E731
        together(answer(world, "approve", booking), give)
        world.settle()
        ended = world.look(booking)
        assert (ended.state, ended.outcome) == ("ENDED", "released")
        assert request_of(world, booking).outcome in ("granted", "withdrawn")
        nothing_twice(world)
        world.set_clock(world.now() + timedelta(minutes=15))
