"""The first limit of a tenant, project or person is made while somebody books: the booking is counted, or it sees the limit.

Two real connections each; where one stops is held by events, and that the other waits is asked of the database.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from app.billing import actions as billing
from app.bookings import approvals, queries_requests
from app.bookings import queries as bookings
from app.bookings.facts import Booking
from app.kernel.actor import Actor
from app.kernel.clock import monotonic
from app.kernel.errors import Refused
from app.kernel.money import SCALE
from app.plumbing.db import Work
from app.plumbing.queue import NoQueue
from tests.servers import TestDatabase
from tests.world import H100, OPERATOR, START, World, make_world

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database: TestDatabase, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path)
    yield made
    made.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3) as pool:
        yield pool


class Stop:
    """Holds up whoever calls a function, once, until told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        plain, self.reached, self._go = getattr(module, name), threading.Event(), threading.Event()

        def stops(*args: Any, **words: Any) -> Any:
            self.reached.set()
            assert self._go.wait(30)
            return plain(*args, **words)

        monkeypatch.setattr(module, name, stops)

    def wait(self) -> None:
        assert self.reached.wait(30)

    def go(self) -> None:
        self._go.set()


def set_limit(work: Work, world: World, **words: Any) -> None:
    admin = Actor(None, "Ada", world.tenants["physics"], frozenset({"admin"}), frozenset({"operator"}))
    billing.set_limit(work, admin, **{"units": None, "hours": None, **words})


def limit(world: World, **words: Any) -> None:
    with world.work("physics") as work:
        set_limit(work, world, **words)


def until_it_waits(world: World, act: Future[Any], others: int = 0) -> None:
    """Come back when `act` waits for a lock in the database (beside so many others), or is done without."""
    sql = """SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
              WHERE NOT l.granted AND d.datname = current_database()"""
    until = monotonic() + 30
    while not act.done():
        with world.work() as work:
            if work.pg.execute(sql).rowcount > others:
                return
        assert monotonic() < until
        threading.Event().wait(0.01)


def held_hours(world: World) -> list[tuple[str, int]]:
    with world.work("physics") as work:
        return work.pg.execute(
            """SELECT s.subject, coalesce(sum(c.quantity), 0) / %s FROM scopes s
                 LEFT JOIN commitments c ON c.scope_id = s.id GROUP BY s.id ORDER BY s.id""",
            [SCALE],
        ).fetchall()


@pytest.mark.parametrize("subject", ["tenant", "project", "user"])
def test_a_booking_that_is_being_written_when_the_first_limit_is_made_is_counted(
    world: World, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, subject: str
) -> None:
    of = {"project": {"project_id": world.projects["plasma"]}, "user": {"account_id": world.people["physics-member"]}}
    stop = Stop(monkeypatch, bookings, "insert_booking")
    booked = threads.submit(world.book, units=8, duration="PT2H")
    stop.wait()
    made = threads.submit(limit, world, hours=100, kind=H100, **of.get(subject, {}))
    until_it_waits(world, made)
    stop.go()
    booked.result(30)
    made.result(30)
    assert held_hours(world) == [(subject, 16)]


def test_an_extension_that_is_being_written_when_the_first_limit_is_made_is_counted(
    world: World, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = world.book(units=8, start=(START + HOUR).isoformat(), duration="PT2H")
    stop = Stop(monkeypatch, bookings, "extend_booking")
    extended = threads.submit(lambda: world.do("extend", booking, by=HOUR, end=None))
    stop.wait()
    made = threads.submit(limit, world, hours=100)
    until_it_waits(world, made)
    stop.go()
    extended.result(30)
    made.result(30)
    assert held_hours(world) == [("tenant", 24)]


def test_whoever_books_while_the_first_limit_is_being_made_is_judged_by_it(
    world: World, threads: ThreadPoolExecutor
) -> None:
    """Nobody commits between the counting and the limit's commit: each is either counted or judged."""
    world.book(units=6, start=(START + HOUR).isoformat())
    with world.work("physics") as work:
        set_limit(work, world, units=8)
        asks = [threads.submit(world.book, units=n, start=(START + HOUR).isoformat()) for n in (8, 2)]
        until_it_waits(world, asks[0])
        assert not asks[0].done()
        until_it_waits(world, asks[1], others=1)
        assert not asks[1].done()
    with pytest.raises(Refused) as refused:
        asks[0].result(30)
    assert [r.code for r in refused.value.refusal.reasons] == ["quota_units"]
    assert asks[1].result(30).units == 2
    assert held_hours(world) == [("tenant", 8)]


def approve(world: World, booking: Booking) -> Booking:
    with world.work("physics") as work:
        request = queries_requests.last_request(work, booking.id)
    with world.work() as work:
        return approvals.approve(work, NoQueue(), OPERATOR, request.id)


def test_what_is_asked_for_is_counted_as_it_is_held_and_again_when_it_is_granted(world: World) -> None:
    world.set_policy(H100, approval_hours=10)
    asked = world.book(units=8, start=(START + 5 * HOUR).isoformat(), duration="PT2H")
    booked = world.book(units=8, start=(START + 20 * HOUR).isoformat())
    world.do("extend", booked, by=HOUR, end=None)
    assert (world.look(asked).state, world.look(booked).ends_at) == ("REQUESTED", START + 21 * HOUR)
    limit(world, hours=100)
    assert held_hours(world) == [("tenant", 16 + 8 + 8)]
    assert approve(world, asked).state == "BOOKED"
    assert approve(world, booked).ends_at == START + 22 * HOUR
    assert held_hours(world) == [("tenant", 16 + 8 + 8)]


def test_a_request_that_holds_nothing_counts_once_it_is_granted(world: World) -> None:
    world.set_policy(H100, approval_hours=10, requests_hold=False)
    asked = world.book(units=8, start=(START + 5 * HOUR).isoformat(), duration="PT2H")
    limit(world, hours=100)
    assert held_hours(world) == [("tenant", 0)]
    assert approve(world, asked).state == "BOOKED"
    assert held_hours(world) == [("tenant", 16)]


def test_limits_of_one_tenant_hold_up_no_other(world: World, threads: ThreadPoolExecutor) -> None:
    with world.work("physics") as work:
        set_limit(work, world, units=8)
        assert threads.submit(world.book, "bio-member", project="atlas").result(30).units == 1
