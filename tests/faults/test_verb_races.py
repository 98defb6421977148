"""Verbs that meet the worker in the same instant, on a real database: whoever comes first, the promises hold afterwards.

Two threads, each with connections of its own, start together, round after round; the product clock stands still in
each, so that what comes of it is known to the second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest

from app.backends.contract import Ref
from app.bookings import queries
from app.bookings.facts import Booking
from app.bookings.reconcile import work_off
from app.kernel.errors import Conflict, Problem
from app.plumbing.db import Database, make_engine
from tests.servers import TestDatabase
from tests.world import START, World, make_world, nodes_csv

ROUNDS = 12
HOUR = timedelta(hours=1)
pytestmark = [pytest.mark.xdist_group("faults-verbs"), pytest.mark.timeout(600)]


@pytest.fixture
def world(database: TestDatabase, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(4))
    yield made
    made.close()


def together(*acts: Callable[[], object]) -> list[object]:
    """Do these at once, each in a thread; what each returned or raised, a Problem being an answer."""
    gate = threading.Barrier(len(acts))
    answers: list[object] = [None] * len(acts)

    def one(number: int) -> None:
        gate.wait(30)
        try:
            answers[number] = acts[number]()
        except Problem as refused:
            answers[number] = refused
        except BaseException as error:
            answers[number] = error

    threads = [threading.Thread(target=one, args=(n,)) for n in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "they wait for each other"
    for answer in answers:
        assert not isinstance(answer, BaseException) or isinstance(answer, Problem), answer
    return answers


def worker(world: World, delay: float = 0) -> Callable[[], int]:
    """The reconciler's round, a little later if said: both orders come up."""

    def work() -> int:
        threading.Event().wait(delay)
        return work_off(world.plumbing, world.cluster_id)

    return work


def acts(world: World, booking: Booking) -> list[str]:
    return [e.command for e in world.backend.entries(ref_of(world, booking)) if e.acted]


def ref_of(world: World, booking: Booking):
    with world.work("physics") as work:
        allocation = queries.allocation_of(work, booking.id)
    assert allocation is not None
    return Ref(allocation.name)


def on_cluster(world: World, booking: Booking) -> str:
    """What the cluster has of it now."""
    return world.backend.observe(ref_of(world, booking)).state


def finish(world: World, until: datetime) -> None:
    """Whatever is still to do at `until` gets done."""
    world.set_clock(until)
    world.settle()


def check_all(world: World) -> None:
    """What holds for every booking at any moment: units, due rows and cluster agree with its state."""
    with world.plumbing.database.work() as work, work.read_all():
        live = dict(work.pg.execute("SELECT booking_id, count(*) FROM holds WHERE live GROUP BY 1").fetchall())
        rows = work.pg.execute("SELECT id, state, left_by, provided_at, released_at FROM bookings").fetchall()
        due = work.pg.execute("SELECT h.booking_id FROM due d JOIN holds h ON h.allocation_id = d.subject").fetchall()
        doubles = work.pg.execute(
            "SELECT booking_id, event FROM history WHERE event <> 'extend' GROUP BY 1, 2 HAVING count(*) > 1"
        ).fetchall()
    assert doubles == [], "a move was written twice"
    waiting = {b for (b,) in due}
    for booking_id, state, left_by, provided_at, released_at in rows:
        final = state in ("ENDED", "CANCELLED")
        assert (booking_id in live) != final, (state, left_by)
        assert (booking_id in waiting) != final, (state, left_by)
        if left_by == "withdraw":
            assert provided_at is None
        if released_at is not None and provided_at is not None:
            assert released_at >= provided_at


@pytest.mark.parametrize("slow", [0.0, 0.01, 0.03])
def test_case_25_cancelled_while_its_start_runs_it_is_gone_or_active_and_never_both(world: World, slow: float) -> None:
    seen = set()
    for turn in range(ROUNDS):
        booking = world.book(units=8)
        cancelled, _ = together(lambda b=booking: world.do("cancel", b), worker(world, slow * turn / ROUNDS))
        check_all(world)
        if isinstance(cancelled, Conflict):
            assert cancelled.code == "too_late_to_cancel"
            assert world.look(booking).state == "ACTIVE"
            assert on_cluster(world, booking) == "ready"
            world.do("release", booking)
        finish(world, world.now() + timedelta(minutes=1))
        ended = world.look(booking)
        seen.add((ended.state, ended.outcome))
        if isinstance(cancelled, Conflict):
            assert (ended.state, ended.outcome) == ("ENDED", "released")
        else:
            assert ended.outcome in (None, "cancelled")
            assert ended.provided_at is None
        assert on_cluster(world, booking) in ("absent", "gone"), "cancelled but running"
        assert acts(world, booking) in ([], ["ensure", "release"])
        check_all(world)
    assert seen


def test_case_25_cancelled_in_the_middle_of_the_call_itself(world: World) -> None:
    """The cluster has made it, its answer is on the way, and only then comes the cancel."""
    backend = world.backend
    plain = type(backend).ensure
    for _ in range(3):
        booking = world.book(units=8)
        made, may_answer = threading.Event(), threading.Event()

        def answers_late(order, made=made, may_answer=may_answer):
            answer = plain(backend, order)
            made.set()
            assert may_answer.wait(30), "nobody has cancelled it"
            return answer

        def cancel_late(booking: Booking = booking, made=made, may_answer=may_answer) -> Booking:
            assert made.wait(30)
            try:
                return world.do("cancel", booking)
            finally:
                may_answer.set()

        backend.ensure = answers_late
        together(cancel_late, worker(world))
        backend.ensure = lambda order: plain(backend, order)
        assert world.look(booking).state in ("ENDING", "ENDED")  # the worker may have looked again at once
        check_all(world)
        finish(world, world.now() + timedelta(minutes=1))
        ended = world.look(booking)
        assert (ended.state, ended.outcome, ended.provided_at) == ("ENDED", "cancelled", None)
        assert acts(world, booking) == ["ensure", "release"]
        assert on_cluster(world, booking) == "gone"


@pytest.mark.parametrize("slow", [0.0, 0.02])
def test_case_26_extended_in_the_instant_of_its_end_it_goes_on_or_is_told_that_it_ended(
    world: World, slow: float
) -> None:
    """The clock is at the end to the second: the extension commits before the worker reads, or the other way round."""
    answers = set()
    for turn in range(ROUNDS):
        begun = world.now()
        booking = world.book(units=8, duration="PT1H")
        world.settle()
        finish(world, begun + timedelta(minutes=59, seconds=59))
        assert world.look(booking).state == "ACTIVE"
        # before the end nothing is late; at the end the two meet
        early = turn % 2 == 0
        if not early:
            world.set_clock(begun + HOUR)
        extended, _ = together(
            lambda b=booking: world.do("extend", b, by=HOUR, end=None), worker(world, slow * turn / ROUNDS)
        )
        check_all(world)
        answers.add(type(extended).__name__)
        if early:
            assert isinstance(extended, Booking), extended
        if isinstance(extended, Booking):
            assert extended.ends_at == begun + 2 * HOUR
            world.set_clock(begun + HOUR + timedelta(seconds=1))
            world.settle()
            assert world.look(booking).state == "ACTIVE", "the end task ended it at the old end"
            assert on_cluster(world, booking) == "ready"
            finish(world, begun + 3 * HOUR)
            assert world.look(booking).released_at == begun + 2 * HOUR
        else:
            assert isinstance(extended, Conflict)
            assert extended.code == "wrong_state"
            finish(world, begun + 2 * HOUR)
            ended = world.look(booking)
            assert (ended.state, ended.ends_at, ended.released_at) == ("ENDED", begun + HOUR, begun + HOUR)
        check_all(world)
    assert answers == {"Booking", "Conflict"}


def test_extended_and_released_at_once_only_one_of_the_orders(world: World) -> None:
    for _ in range(ROUNDS):
        begun = world.now()
        booking = world.book(units=8, duration="PT1H")
        world.settle()
        world.set_clock(begun + timedelta(minutes=10))
        extended, released = together(
            lambda b=booking: world.do("extend", b, by=HOUR, end=None), lambda b=booking: world.do("release", b)
        )
        assert isinstance(released, Booking)
        assert isinstance(extended, Booking) or extended.code == "wrong_state"
        finish(world, begun + timedelta(minutes=20))
        ended = world.look(booking)
        assert (ended.state, ended.outcome) == ("ENDED", "released")
        assert ended.released_at == begun + timedelta(minutes=10)
        check_all(world)
        with world.plumbing.database.work(booking.tenant_id) as work:
            (left,) = work.pg.execute(
                "SELECT count(*) FROM commitments WHERE booking_id = %s AND ends_at > %s",
                [booking.id, ended.released_at],
            ).fetchone()
        assert left == 0, "quota that nobody gave back"


def test_case_28_many_workers_at_once_do_each_thing_once(world: World) -> None:
    for _ in range(6):
        bookings = [world.book(units=1) for _ in range(6)]
        together(*(worker(world) for _ in range(6)))
        world.settle()
        for booking in bookings:
            assert world.look(booking).state == "ACTIVE"
            assert acts(world, booking) == ["ensure"]
        together(*(lambda b=b: world.do("release", b) for b in bookings), *(worker(world) for _ in range(3)))
        finish(world, world.now() + timedelta(minutes=1))
        for booking in bookings:
            assert world.look(booking).outcome == "released"
            assert acts(world, booking) == ["ensure", "release"]
        check_all(world)


def test_an_answer_that_is_older_than_another_workers_look_is_thrown_away(world: World) -> None:
    """A worker that stood still holds "all is well"; meanwhile its lease has ended and another has seen a node die."""
    booking = world.book(units=8, duration="PT2H")
    world.settle()
    world.set_clock(world.now() + timedelta(seconds=61))
    backend = world.backend
    has_answer, may_answer = threading.Event(), threading.Event()
    plain = type(backend).observe

    def stands_still(ref):
        backend.observe = lambda ref: plain(backend, ref)
        answer = plain(backend, ref)
        has_answer.set()
        may_answer.wait(30)
        return answer

    backend.observe = stands_still
    slow = threading.Thread(target=worker(world))
    slow.start()
    assert has_answer.wait(30)
    with world.work() as work:
        work.pg.execute("UPDATE due SET leased_until = clock_timestamp() - interval '1 second'")
    with world.work("physics") as work:
        backend.faults.node_dies(queries.holds_of(work, booking.id)[0].node)
    world.settle()

    def stands() -> tuple[list[str], int]:
        with world.work("physics") as work:
            conditions = [c.type for c in queries.conditions_of(work, booking.id)]
            open_ones = "SELECT count(*) FROM outages WHERE booking_id = %s AND until IS NULL"
            return conditions, work.pg.execute(open_ones, [booking.id]).fetchone()[0]

    assert stands() == (["degraded"], 8)
    may_answer.set()
    slow.join(30)
    assert not slow.is_alive()
    assert stands() == (["degraded"], 8), "an old answer made lost units whole"


def test_no_more_than_two_calls_are_ever_in_flight_on_one_cluster(world: World) -> None:
    """Eight workers: the first two calls stay until they have met and each of the other six has gone away with nothing.
    A third call would be one of those six."""
    workers, patience = 8, 30
    inside, deepest, gone, slots = 0, 0, 0, []
    turn = threading.Condition()
    backend = world.backend
    plain = type(backend).ensure

    def stays(order):
        nonlocal inside, deepest
        with turn:
            inside += 1
            deepest = max(deepest, inside)
            turn.notify_all()
            met = turn.wait_for(lambda: deepest >= 2 and gone >= workers - 2, patience)
        try:
            assert met, f"{deepest} in flight, {gone} workers gone"
            with world.work() as work:
                slots.append(work.pg.execute("SELECT FROM due WHERE call_slot IS NOT NULL").rowcount)
            return plain(backend, order)
        finally:
            with turn:
                inside -= 1

    def work() -> int:
        nonlocal gone
        try:
            return work_off(world.plumbing, world.cluster_id)
        finally:
            with turn:
                gone += 1
                turn.notify_all()

    backend.ensure = stays
    bookings = [world.book(units=1) for _ in range(workers)]
    done = together(*[work] * workers)
    assert deepest == max(slots) == 2
    assert sum(1 for number in done if number) == 2, "two workers had everything to do"
    world.settle()
    assert {world.look(b).state for b in bookings} == {"ACTIVE"}
    assert all(acts(world, b) == ["ensure"] for b in bookings)


def test_one_object_that_cannot_be_worked_on_holds_up_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two broken ones, as many as there are call slots: the others become active all the same."""
    from app.bookings import reconcile

    broken = [world.book(name="broken", units=1) for _ in range(2)]
    sound = [world.book(units=1) for _ in range(3)]
    plain = reconcile._order

    def order(booking, *more):
        if booking.name == "broken":
            raise ZeroDivisionError("a fault of ours")
        return plain(booking, *more)

    monkeypatch.setattr(reconcile, "_order", order)
    with pytest.raises(ZeroDivisionError):
        work_off(world.plumbing, world.cluster_id)
    assert {world.look(b).state for b in sound} == {"ACTIVE"}
    with world.work() as work:
        (leased,) = work.pg.execute("SELECT count(*) FROM due WHERE lease_token IS NOT NULL").fetchone()
        assert leased == 0
    # mended, they are taken up again after their pause
    monkeypatch.setattr(reconcile, "_order", plain)
    world.pass_time(timedelta(minutes=2))
    assert {world.look(b).state for b in broken} == {"ACTIVE"}


def test_a_reader_of_another_process_sees_all_of_a_booking_or_nothing(world: World, database: TestDatabase) -> None:
    """Rows of one booking appear in one instant."""
    other = Database(make_engine(database.app_url), lambda: START)
    ends, halves = threading.Event(), []

    def look() -> None:
        while not ends.is_set():
            with other.work() as work, work.read_all():
                sql = """SELECT (SELECT count(*) FROM bookings), (SELECT count(DISTINCT booking_id) FROM holds),
                                (SELECT count(*) FROM allocations), (SELECT count(*) FROM history WHERE event = 'book')"""
                row = work.pg.execute(sql).fetchone()
            if len(set(row)) != 1:
                halves.append(row)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for number in range(25):
            world.book(units=1, start=(START + (number + 1) * HOUR).isoformat())
    finally:
        ends.set()
        reader.join()
        other.close()
    assert halves == []
