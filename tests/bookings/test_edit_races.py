"""Races of verbs with each other, with workers and with bookings: separate connections, a real PostgreSQL, one winner.

No test sleeps: both sides start at one barrier, and whatever order the database lets them through in has to be right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.bookings import moving, sharing, shrinking
from app.bookings.moving import To
from app.bookings.shrinking import Kept
from app.kernel.errors import Conflict, Problem, Refused
from tests.bookings.shelf import bill, rows
from tests.world import START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)
ROUNDS = 6


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(1, gpus=4))
    yield made
    made.close()


def together(*acts: Callable[[], Any]) -> list[Any]:
    """All at once, each on a thread and so on a connection of its own; what each answered, or the problem it raised."""
    gate, answers, faults = threading.Barrier(len(acts)), [None] * len(acts), []

    def run(place: int, act: Callable[[], Any]) -> None:
        gate.wait(30)
        try:
            answers[place] = act()
        except Problem as problem:
            answers[place] = problem
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not faults, faults
    assert not any(thread.is_alive() for thread in threads)
    return answers


def at(hours: float, after: datetime = START) -> str:
    return (after + hours * HOUR).isoformat()


def no_unit_twice(world: World) -> bool:
    return rows(
        world,
        """SELECT count(*) FROM holds a JOIN holds b ON a.id < b.id AND a.live AND b.live AND a.units && b.units
                                                   AND a.during && b.during""",
    ) == [(0,)]


def test_case_25_cancel_and_start_leave_it_cancelled_with_nothing_there_or_active(world: World) -> None:
    for n in range(ROUNDS):
        start = START + n * 2 * HOUR
        world.set_clock(start)
        a = world.book(units=4, duration="PT1H")
        together(lambda a=a: world.do("cancel", a), world.settle)
        world.settle()
        found = world.look(a)
        if found.state == "ACTIVE":
            assert any(s.ref for s in world.backend.strays())
            world.do("release", a)
            world.settle()
        else:
            assert (found.state, found.outcome) in (("ENDED", "cancelled"), ("CANCELLED", None))
            assert found.provided_at is None or found.released_at is not None
        assert world.backend.strays() == ()


def test_case_26_extend_and_end_the_one_that_comes_second_sees_the_first(world: World) -> None:
    for n in range(ROUNDS):
        start = START + n * 4 * HOUR
        world.set_clock(start)
        a = world.book(units=4, duration="PT1H")
        world.settle()
        world.set_clock(start + HOUR - timedelta(seconds=1))
        world.settle()

        def end() -> None:
            world.set_clock(start + HOUR)  # noqa: B023
            world.settle()

        extended, _ = together(lambda a=a: world.do("extend", a, by=HOUR, end=None), end)
        world.settle()
        found = world.look(a)
        if isinstance(extended, Problem):
            assert (found.state, found.ends_at) == ("ENDED", start + HOUR)
        else:
            assert (found.state, found.ends_at) == ("ACTIVE", start + 2 * HOUR)
            world.do("release", a)
            world.settle()


def test_extend_and_extend_both_count_or_one_is_refused(world: World) -> None:
    for n in range(ROUNDS):
        start = START + n * 8 * HOUR
        world.set_clock(start)
        world.set_limit("physics", units=4)
        a, b = (world.book(units=2, duration="PT1H") for _ in range(2))
        answers = together(
            lambda a=a: world.do("extend", a, by=HOUR, end=None),
            lambda a=a: world.do("extend", a, "physics-lead", by=HOUR, end=None),
            lambda b=b: world.do("extend", b, by=HOUR, end=None),
        )
        assert not any(isinstance(it, Problem) for it in answers)
        assert (world.look(a).ends_at, world.look(b).ends_at) == (start + 3 * HOUR, start + 2 * HOUR)
        lines = "SELECT count(*) FROM history WHERE event = 'extend' AND booking_id = %s"
        assert rows(world, lines, a.id) == [(2,)]
        for one in (a, b):
            world.do("cancel", one)
        assert no_unit_twice(world)


def test_edit_and_edit_of_one_version_only_one_is_made(world: World) -> None:
    for n in range(ROUNDS):
        a = world.book(start=at(2 + n * 4), units=4, duration="PT2H")
        version = a.version
        acts = [
            lambda a=a: world.do("extend", a, by=HOUR, end=None, version=version),  # noqa: B023
            lambda a=a: world.do(shrinking.shrink, a, kept=Kept(units=2), version=version),  # noqa: B023
            lambda a=a: world.do(moving.move, a, to=To(start=a.starts_at + HOUR), version=version),  # noqa: B023
            lambda a=a: world.do(sharing.share, a, shared=True, version=version),  # noqa: B023
        ]
        answers = together(*acts)
        made = [it for it in answers if not isinstance(it, Problem)]
        assert len(made) == 1, answers
        assert all(isinstance(it, Conflict) and it.code == "edited_meanwhile" for it in answers if it is not made[0])
        assert world.look(a).version == version + 1


def test_shrink_and_end_charge_what_was_booked_at_each_second(world: World) -> None:
    for n in range(ROUNDS):
        start = START + n * 4 * HOUR
        world.set_clock(start)
        a = world.book(units=4, duration="PT1H")
        world.settle()
        world.set_clock(start + HOUR / 2)
        world.settle()

        def end() -> None:
            world.set_clock(start + HOUR)  # noqa: B023
            world.settle()

        shrunk, _ = together(lambda a=a: world.do(shrinking.shrink, a, kept=Kept(units=1)), end)
        world.settle()
        assert world.look(a).state == "ENDED"
        bill(world, a)
        charged = rows(world, "SELECT sum(quantity) FROM charges WHERE booking_id = %s", a.id)[0][0]
        whole = 4 * 3600 * 840
        if isinstance(shrunk, Problem):
            assert charged == whole
        else:
            at_ = rows(world, "SELECT at FROM history WHERE event = 'shrink' AND booking_id = %s", a.id)[0][0]
            assert charged == whole - 3 * 840 * int((start + HOUR - at_).total_seconds())
        assert rows(world, "SELECT count(*) FROM interval_conflicts") == [(0,)]


def test_move_and_book_want_the_same_units_and_one_gets_them(world: World) -> None:
    for n in range(ROUNDS):
        first, second = START + (2 + 8 * n) * HOUR, START + (6 + 8 * n) * HOUR
        a = world.book(start=first.isoformat(), units=3, duration="PT1H")
        moved, booked = together(
            lambda a=a: world.do(moving.move, a, to=To(start=second)),  # noqa: B023
            lambda: world.book("bio-member", project="atlas", start=second.isoformat(), units=3, duration="PT1H"),  # noqa: B023
        )
        assert [isinstance(it, Refused) for it in (moved, booked)].count(True) == 1, (moved, booked)
        found = world.look(a)
        if isinstance(moved, Refused):
            assert (found.starts_at, found.version, found.quoted) == (first, a.version, a.quoted)
        else:
            assert found.starts_at == second
        assert no_unit_twice(world)


def test_two_that_swap_times_and_recolour_meet_in_no_deadlock(world: World) -> None:
    for n in range(ROUNDS):
        first, second = START + (2 + 8 * n) * HOUR, START + (5 + 8 * n) * HOUR
        a = world.book(start=first.isoformat(), units=2, duration="PT2H")
        b = world.book("bio-member", project="atlas", start=second.isoformat(), units=2, duration="PT2H")
        answers = together(
            lambda a=a: world.do(moving.move, a, to=To(start=second)),  # noqa: B023
            lambda b=b: world.do(moving.move, b, "bio-member", to=To(start=first)),  # noqa: B023
            lambda a=a: world.do("extend", a, "physics-lead", by=HOUR, end=None),
            lambda b=b: world.do(shrinking.shrink, b, "bio-lead", kept=Kept(units=1)),
        )
        for problem in answers:
            assert not isinstance(problem, Problem) or problem.code in ("edited_meanwhile", "refused"), problem
        assert no_unit_twice(world)
        quantities = rows(
            world,
            """SELECT b.units * extract(epoch FROM b.ends_at - b.starts_at)::int,
                      (SELECT sum((SELECT sum(upper(r) - lower(r)) FROM unnest(h.units) r) / 64)::int FROM holds h
                        WHERE h.booking_id = b.id AND h.live) * extract(epoch FROM b.ends_at - b.starts_at)::int
                 FROM bookings b WHERE state = 'BOOKED'""",
        )
        assert all(booked == held for booked, held in quantities)
