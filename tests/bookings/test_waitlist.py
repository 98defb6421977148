"""The waiting list on a real database: who is offered what, in which order, until when; and what is never promised."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from app import rounds
from app.bookings import edits, queries, queries_requests, waitlist
from app.bookings.facts import Booking
from app.kernel.errors import Conflict, Forbidden, Refused
from app.plumbing.queue import NoQueue
from tests.world import H100, START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    """One node of eight units."""
    made = make_world(database, tmp_path, csv=nodes_csv(1))
    yield made
    made.close()


def wait(
    world: World, person: str = "physics-member", auto: bool = False, key: str | None = None, **words: Any
) -> Booking:
    """Book or wait."""
    actor = world.actor(person)
    with world.plumbing.database.work(actor.tenant_id) as work:
        made = edits.Key(key, repr(sorted(words.items())).encode()) if key else None
        return waitlist.book_or_wait(work, NoQueue(), actor, world.ask(**words), auto, made)


def bio(world: World, **words: Any) -> Booking:
    """The other tenant's person waits."""
    return wait(world, "bio-member", project="atlas", **words)


def place(world: World, booking: Booking) -> waitlist.Wait | None:
    with world.plumbing.database.work(booking.tenant_id) as work:
        return waitlist.wait_of(work, world.look(booking))


def offer(world: World, booking: Booking) -> waitlist.WaitOffer:
    found = place(world, booking)
    assert found is not None
    assert found.offer is not None
    return found.offer


def notices(world: World, booking: Booking, kind: str) -> list[dict]:
    with world.plumbing.database.work(booking.tenant_id) as work:
        rows = work.pg.execute(
            "SELECT payload FROM outbox WHERE booking_id = %s AND kind = %s ORDER BY at, id", [booking.id, kind]
        )
        return [row[0] for row in rows]


def at(hours: float) -> str:
    return (START + hours * HOUR).isoformat()


def test_a_request_that_fits_is_booked_although_it_would_have_waited(world: World) -> None:
    assert wait(world, units=8).state == "BOOKED"


def test_who_waits_holds_nothing_and_knows_the_place(world: World) -> None:
    world.book(units=8, start=at(1), duration="PT4H")
    first = wait(world, units=8, start=at(1), duration="PT2H")
    second = bio(world, units=2, start=at(1), duration="PT2H")
    assert (first.state, second.state) == ("WAITING", "WAITING")
    assert (place(world, first).place, place(world, first).of) == (1, 2)
    assert (place(world, second).place, place(world, second).of) == (2, 2)
    with world.work() as work:
        assert work.pg.execute("SELECT count(*) FROM holds WHERE live AND request_id IS NOT NULL").fetchone()[0] == 0
    assert [n["place"] for n in notices(world, second, "wait_place")] == [2]


def test_waiting_does_not_help_against_ones_own_limits_or_an_impossible_request(world: World) -> None:
    with pytest.raises(Refused):
        wait(world, units=9)
    world.set_limit("physics", units=4, project_id=world.projects["plasma"])
    world.book("bio-member", project="atlas", units=8, start=at(1))
    with pytest.raises(Refused) as refused:
        wait(world, units=5, start=at(1))
    assert {"quota_units", "no_units_free"} <= {r.code for r in refused.value.refusal.reasons}


def test_case_56_three_wait_the_first_has_half_an_hour_then_the_second_and_nobody_is_told_what_is_not(
    world: World,
) -> None:
    taken = world.book(units=8, start=at(5), duration="PT2H")
    one = wait(world, units=8, start=at(5), duration="PT2H")
    two = bio(world, units=8, start=at(5), duration="PT2H")
    three = wait(world, "physics-lead", units=8, start=at(5), duration="PT2H")
    world.do("cancel", taken)
    world.settle()
    assert offer(world, one).until == START + 30 * MINUTE
    assert place(world, two).offer is None
    assert notices(world, two, "offer_made") == []
    with pytest.raises(Refused):  # it is held: not available to anybody else
        world.book(units=1, start=at(5), duration="PT1H")
    world.pass_time(31 * MINUTE)
    assert world.look(one).state == "LAPSED"
    assert len(notices(world, one, "offer_lapsed")) == 1
    assert offer(world, two).until == START + 60 * MINUTE
    assert [n["place"] for n in notices(world, three, "wait_place")] == [3, 2]
    booked = world.do(waitlist.accept, two, "bio-member")
    assert (booked.state, booked.starts_at, booked.units) == ("BOOKED", START + 5 * HOUR, 8)
    assert str(booked.quoted) == "38.40"
    world.pass_time(5 * HOUR)
    assert world.look(three).state == "LAPSED"  # its start has gone by
    assert world.look(two).state == "ACTIVE"


def test_case_57_the_second_is_offered_what_is_too_little_for_the_first_who_keeps_the_place(world: World) -> None:
    some = world.book(units=2, start=at(3), duration="PT2H")
    world.book(units=6, start=at(3), duration="PT2H")
    large = wait(world, units=4, start=at(3), duration="PT2H")
    small = bio(world, units=2, start=at(3), duration="PT2H")
    world.do("cancel", some)
    world.settle()
    assert offer(world, small).window.start == START + 3 * HOUR
    assert place(world, large).place == 1
    assert place(world, large).skips == 1


def test_case_57_passed_over_too_often_what_comes_free_is_kept_until_it_is_enough(world: World) -> None:
    world.set_policy(H100, skips=1)
    parts = [world.book(units=2, start=at(3), duration="PT2H") for _ in range(4)]
    large = wait(world, units=4, start=at(3), duration="PT2H")
    small = [bio(world, units=2, start=at(3), duration="PT2H") for _ in range(3)]
    world.do("cancel", parts[0])
    world.settle()
    assert place(world, small[0]).offer is not None
    assert place(world, large).skips == 1
    world.do("cancel", parts[1])  # from now on it is kept for the large one
    world.settle()
    assert place(world, small[1]).offer is None
    assert place(world, large).offer is None
    with pytest.raises(Refused):
        world.book(units=1, start=at(3), duration="PT1H")
    world.do("cancel", parts[2])
    world.settle()
    assert offer(world, large).window.start == START + 3 * HOUR
    assert place(world, small[1]).offer is None
    assert world.do(waitlist.accept, large).state == "BOOKED"


def test_what_was_kept_for_somebody_who_leaves_goes_to_the_next(world: World) -> None:
    world.set_policy(H100, skips=0)
    parts = [world.book(units=4, start=at(3), duration="PT2H") for _ in range(2)]
    large = wait(world, units=8, start=at(3), duration="PT2H")
    small = bio(world, units=4, start=at(3), duration="PT2H")
    world.do("cancel", parts[0])
    world.settle()
    assert place(world, small).offer is None
    world.do("cancel", large)
    world.settle()
    assert world.look(large).state == "CANCELLED"
    assert place(world, small).offer is not None


def test_case_50_released_early_the_rest_is_offered_to_whoever_waits(world: World) -> None:
    early = world.book(units=8, duration="PT4H")
    world.settle()
    waiter = bio(world, units=8, start="asap", duration="PT2H", latest=at(4))
    world.set_clock(START + HOUR)
    world.do("release", early)
    world.settle()
    found = offer(world, waiter)
    assert found.window.start == START + HOUR
    assert found.window.end == START + 3 * HOUR
    booked = world.do(waitlist.accept, waiter, "bio-member")
    world.settle()
    assert world.look(booked).state == "ACTIVE"
    assert world.look(booked).provided_at == START + HOUR


def test_taken_late_it_lasts_until_the_end_that_was_offered_and_costs_what_is_left(world: World) -> None:
    early = world.book(units=8, duration="PT4H")
    world.settle()
    waiter = wait(world, units=8, start="asap", duration="PT2H", latest=at(4))
    world.do("release", early)
    world.settle()
    whole = offer(world, waiter)
    world.set_clock(START + 20 * MINUTE)
    booked = world.do(waitlist.accept, waiter)
    assert (booked.starts_at, booked.ends_at) == (START + 20 * MINUTE, whole.window.end)
    assert booked.quoted < whole.amount
    with world.plumbing.database.work(booked.tenant_id) as work:
        held = work.pg.execute("SELECT lower(during), upper(during) FROM holds WHERE booking_id = %s", [booked.id])
        assert held.fetchall() == [(booked.starts_at, booked.ends_at)]


def test_agreed_before_it_is_booked_at_once(world: World) -> None:
    taken = world.book(units=8, start=at(2), duration="PT2H")
    waiter = bio(world, auto=True, units=4, start=at(2), duration="PT1H")
    world.do("cancel", taken)
    world.settle()
    booked = world.look(waiter)
    assert (booked.state, booked.starts_at) == ("BOOKED", START + 2 * HOUR)
    assert len(notices(world, waiter, "wait_booked")) == 1
    world.book(units=4, start=at(2), duration="PT1H")  # what the waiter did not need is free for others


def test_declined_it_goes_to_the_next_and_who_declined_waits_no_more(world: World) -> None:
    taken = world.book(units=8, start=at(2))
    one = wait(world, units=8, start=at(2))
    two = bio(world, units=8, start=at(2))
    world.do("cancel", taken)
    world.settle()
    world.do(waitlist.decline, one)
    world.settle()
    assert world.look(one).state == "CANCELLED"
    assert place(world, two).offer is not None
    with pytest.raises(Conflict):
        world.do(waitlist.accept, one)


def test_nobody_takes_the_offer_of_somebody_else(world: World) -> None:
    taken = world.book(units=8, start=at(2))
    one = wait(world, "physics-lead", units=8, start=at(2))
    world.do("cancel", taken)
    world.settle()
    with pytest.raises(Forbidden):
        world.do(waitlist.accept, one, "physics-member")
    assert world.do(waitlist.accept, one, "physics-lead").state == "BOOKED"


def test_an_offer_is_over_to_the_second(world: World) -> None:
    taken = world.book(units=8, start=at(2))
    one = wait(world, units=8, start=at(2))
    world.do("cancel", taken)
    world.settle()
    world.set_clock(offer(world, one).until)
    with pytest.raises(Conflict, match="It is over"):
        world.do(waitlist.accept, one)


def test_a_limit_reached_meanwhile_lets_the_next_have_it_and_says_so_once(world: World) -> None:
    taken = world.book("bio-member", project="atlas", units=8, start=at(2))
    one = wait(world, units=8, start=at(2))
    two = bio(world, units=8, start=at(2))
    world.set_limit("physics", units=4, project_id=world.projects["plasma"])
    world.do("cancel", taken, "bio-member")
    world.settle()
    assert place(world, one).offer is None
    assert place(world, two).offer is not None
    world.answer()
    assert len(notices(world, one, "wait_limited")) == 1


def test_an_offer_counts_against_the_limits_and_gives_back_when_it_is_declined(world: World) -> None:
    world.set_limit("physics", hours=10, project_id=world.projects["plasma"])
    taken = world.book("bio-member", project="atlas", units=8, start=at(2))
    one = wait(world, units=8, start=at(2))
    world.do("cancel", taken, "bio-member")
    world.settle()
    assert place(world, one).offer is not None
    with pytest.raises(Refused) as refused:
        world.book(units=4, start=at(6))
    assert {r.code for r in refused.value.refusal.reasons} == {"quota_hours"}
    world.do(waitlist.decline, one)
    world.settle()
    world.book(units=4, start=at(6))


def test_units_that_nobody_who_waits_can_use_are_let_go_and_nothing_is_left_over(world: World) -> None:
    taken = world.book(units=4, start=at(2))
    world.book(units=4, start=at(2))
    large = wait(world, units=8, start=at(2))
    world.do("cancel", taken)
    with world.work() as work, work.read_all():
        kept = work.pg.execute(
            "SELECT count(*) FROM requests WHERE waits_for = 'waiter' AND outcome IS NULL"
        ).fetchone()
    assert kept == (1,)  # between the two transactions nobody else can have them
    with pytest.raises(Refused):
        world.book(units=4, start=at(2))
    world.settle()
    assert place(world, large).offer is None
    world.book(units=4, start=at(2))
    with world.work() as work, work.read_all():
        assert work.pg.execute("SELECT count(*) FROM requests WHERE outcome IS NULL").fetchone() == (0,)


def test_killed_between_the_two_transactions_nothing_is_lost(world: World) -> None:
    taken = world.book(units=8, start=at(2))
    one = bio(world, units=8, start=at(2))
    world.settle()
    world.do("cancel", taken)  # and nobody sends a message: the sweep finds the row
    with world.work() as work:
        due = work.pg.execute(queries_requests.DUE, {"now": world.now()}).fetchall()
    assert len(due) == 1
    world.answer()
    assert place(world, one).offer is not None


def test_the_same_key_waits_once(world: World) -> None:
    world.book(units=8, start=at(2))
    one = wait(world, key="k", units=8, start=at(2))
    again = wait(world, key="k", units=8, start=at(2))
    assert one == again
    assert place(world, one).of == 1


def test_what_is_offered_while_the_clock_passes_is_bookable_until_the_last_second(world: World) -> None:
    early = world.book(units=8, duration="PT1H")
    world.settle()
    waiter = wait(world, units=8, start="asap", duration="PT30M", latest=at(1))
    world.do("release", early)
    world.settle()
    found = offer(world, waiter)
    assert found.until == START + 15 * MINUTE  # the shortest booking of the pool is left then
    world.set_clock(found.until - timedelta(seconds=1))
    booked = world.do(waitlist.accept, waiter)
    assert isinstance(booked.starts_at, datetime)
    assert booked.ends_at - booked.starts_at >= 15 * MINUTE


def test_case_46_an_extension_that_others_stand_in_the_way_of_offers_the_waiting_list_for_the_time_elsewhere(
    world: World,
) -> None:
    world.set_policy(H100, made_ahead=0)
    booking = world.book(units=8, duration="PT2H")
    world.settle()
    other = world.book("bio-member", project="atlas", units=8, start=at(2))
    with pytest.raises(Refused) as refused:
        world.do("extend", booking, by=HOUR, end=None)
    assert "2026-11-30T14:00:00Z" in refused.value.refusal.reasons[0].message
    (instead,) = refused.value.refusal.alternatives
    assert instead.kind_of_change == "wait"
    waiting = wait(world, **{k: v for k, v in instead.request.items() if k != "wait"})
    assert waiting.state == "WAITING"
    world.do("cancel", other, "bio-member")
    world.settle()
    found = offer(world, waiting)
    assert (found.window.start, found.window.end) == (START + 2 * HOUR, START + 3 * HOUR)
    assert world.do(waitlist.accept, waiting).state == "BOOKED"


def test_units_on_two_nodes_serve_who_waits_for_one_node_since_others_give_way(database, tmp_path) -> None:
    world = make_world(database, tmp_path, csv=nodes_csv(2, gpus=4))
    try:
        parts = [world.book(units=2, start=at(3), within="node") for _ in range(4)]
        waiter = bio(world, units=4, start=at(3), within="node")
        nodes = {}
        with world.work("physics") as work:
            for part in parts:
                nodes.setdefault(queries.holds_of(work, part.id)[0].node, []).append(part)
        assert sorted(map(len, nodes.values())) == [2, 2]
        for one, _ in nodes.values():
            world.do("cancel", one)
            world.settle()
        found = offer(world, waiter)
        assert found.window.start == START + 3 * HOUR
        assert world.do(waitlist.accept, waiter, "bio-member").state == "BOOKED"
        for _, other in nodes.values():
            assert world.look(other).state == "BOOKED"
    finally:
        world.close()


def test_what_cannot_be_done_with_a_booking_that_waits_is_refused_in_words(world: World) -> None:
    world.book(units=8, start=at(2))
    waiting = wait(world, units=8, start=at(2))
    with pytest.raises(Conflict, match="cannot be extended"):
        world.do("extend", waiting, by=HOUR, end=None)
    with pytest.raises(Conflict, match="cannot be released"):
        world.do("release", waiting)
    assert world.look(waiting) == waiting


def test_the_sweep_finds_what_is_due_and_ends(world: World) -> None:
    taken = world.book(units=8, start=at(2))
    one = wait(world, units=8, start=at(2))
    haste = rounds.Haste(without=frozenset({"reconcile.look", "reconcile.usage"}))
    rounds.do_all(world.plumbing, haste)
    world.do("cancel", taken)
    hints = rounds.find_work(world.plumbing)
    assert [h.name for h in hints if h.name == waitlist.LOOK] == [waitlist.LOOK]
    rounds.do_all(world.plumbing, haste)
    assert place(world, one).offer is not None
    world.set_clock(rounds.next_instant(world.plumbing))
    assert world.now() <= START + 30 * MINUTE
