"""Limits on the real database: read under the lock of their scope, given back at once, never passed by racers."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.kernel.actor import Actor
from app.kernel.errors import Forbidden, Invalid, NotFound
from app.kernel.money import SCALE, WHOLE
from app.kernel.window import Window
from app.pricing.rules import Segment
from app.quotas import actions, queries
from app.quotas.rules import check, months_of, pieces
from tests.billing.world import NOW, World, hours
from tests.quotas.reference import largest_overlap

UTC_ZONE = ZoneInfo("UTC")
MARCH = date(2026, 3, 1)
OPERATOR = Actor(None, "Olga O.", platform_roles=frozenset({"operator"}))
ADMIN = Actor(None, "Ada A.", tenant_roles=frozenset({"admin"}))


def ask(world: World, units: int, start: datetime, end: datetime, booking: UUID | None = None, **words):
    """What a booking does about quota: lock, read, check, write. Returns the reasons."""
    with world.work(words.get("tenant")) as work:
        tenant = words.get("tenant", world.tenant)
        project = words.get("project", world.project)
        scopes = queries.lock_scopes(work, tenant, project, world.account, ["h100"])
        asked = pieces([Segment(Window(start, end), world.price, Decimal("2"))], UTC_ZONE, units)
        now = work.product_now()
        stand = queries.standings(work, tenant, scopes, Window(start, end), months_of(asked), UTC_ZONE, now)
        reasons, _ = check(stand, asked)
        if not reasons:
            booking = booking or world.add_booking(start, end, units=units, tenant=tenant, project=project, held=False)
            queries.commit_pieces(work, tenant, scopes, asked, booking_id=booking)
        return reasons


def limit(world: World, units: int | None = None, limit_hours: int | None = None, **words):
    with world.work() as work:
        return actions.set_limit(work, words.pop("actor", OPERATOR), units=units, hours=limit_hours, **words)


def test_of_many_at_once_only_as_many_book_as_the_money_is_for(world):
    limit(world, money=Decimal(100), account_id=world.account, project_id=world.project)  # 2.00 an hour: 50 unit-hours
    gate, results = threading.Barrier(6), []

    def one(n: int) -> None:
        gate.wait()
        results.append(ask(world, 8, hours(100 * n), hours(100 * n + 2), booking=bookings[n]))

    bookings = [world.add_booking(hours(1), hours(2), held=False) for _ in range(6)]
    threads = [threading.Thread(target=one, args=(n,)) for n in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert sorted(len(r) for r in results) == [0, 0, 0, 1, 1, 1]
    refused = next(r[0] for r in results if r)
    assert (refused.code, refused.limit, refused.asked) == ("quota_money", "4.00 CHF available", "32.00 CHF")
    with world.work() as work:
        (scope,) = queries.all_scopes(work)
        spent = [queries.month_money(work, scope, month, NOW) for month in (MARCH, date(2026, 4, 1))]
    assert sum(s.total for s in spent) == 96 * SCALE


@pytest.fixture
def booked(world: World) -> World:
    """400 unit-hours used and 500 held in March, of 1,000: a booking that began 50 h ago, and one to come."""
    limit(world, limit_hours=1000)
    world.move_to(hours(-24))
    assert ask(world, 20, hours(-20), NOW) == ()
    assert ask(world, 100, hours(100), hours(105)) == ()
    world.move_to(NOW)
    return world


def taken(world: World, now: datetime = NOW):
    with world.work() as work:
        (scope,) = queries.all_scopes(work)
        found = queries.month_total(work, scope, MARCH, now)
    return found.used / SCALE, found.held / SCALE


def test_used_held_and_available_are_told_apart(booked):
    assert taken(booked) == (400, 500)
    assert ask(booked, 8, hours(200), hours(212)) == ()
    (reason,) = ask(booked, 1, hours(300), hours(305))
    assert (reason.code, reason.limit, reason.asked) == ("quota_hours", "4 GPU-hours available", "5 GPU-hours")
    assert "400 are used and 596 are held" in reason.message
    assert ask(booked, 1, hours(300), hours(304)) == ()


def test_time_turns_held_into_used_without_writing(booked):
    before = booked.rows("SELECT xmin, * FROM commitments ORDER BY starts_at")
    assert taken(booked, hours(102.5)) == (650, 250)
    assert taken(booked, hours(105)) == (900, 0)
    assert booked.rows("SELECT xmin, * FROM commitments ORDER BY starts_at") == before


def test_of_two_at_once_exactly_one_gets_the_last_hours(booked):
    gate, results = threading.Barrier(2), []

    def one(start: float) -> None:
        gate.wait()
        results.append(ask(booked, 8, hours(start), hours(start + 12)))

    threads = [threading.Thread(target=one, args=(start,)) for start in (200, 300)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert sorted(len(r) for r in results) == [0, 1]
    (refused,) = next(r for r in results if r)
    assert (refused.limit, refused.asked) == ("4 GPU-hours available", "96 GPU-hours")
    assert taken(booked) == (400, 596)


def test_an_extension_beyond_what_is_left_changes_nothing(booked):
    assert ask(booked, 12, hours(200), hours(205)) == ()  # 40 are left
    running = booked.add_booking(NOW, hours(12), units=8, held=False)
    (reason,) = ask(booked, 8, hours(12), hours(18), booking=running)
    assert (reason.limit, reason.asked) == ("40 GPU-hours available", "48 GPU-hours")
    assert ask(booked, 8, hours(12), hours(17), booking=running) == ()


def test_a_lowered_limit_cancels_nothing_and_refuses_the_next(booked):
    limit(booked, limit_hours=800)
    assert taken(booked) == (400, 500)
    (reason,) = ask(booked, 1, hours(300), hours(301))
    assert reason.limit == "-100 GPU-hours available"


def test_twenty_racers_never_pass_the_limit_of_units_at_once(world):
    limit(world, units=8)
    gate, results = threading.Barrier(20), []

    def one(n: int) -> None:
        gate.wait()
        results.append(ask(world, 1, hours(1), hours(2), booking=bookings[n]))

    bookings = [world.add_booking(hours(1), hours(2), held=False) for _ in range(20)]
    threads = [threading.Thread(target=one, args=(n,)) for n in range(20)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert sorted(len(r) for r in results) == [0] * 8 + [1] * 12
    assert world.rows("SELECT sum(rate) FROM commitments") == [(8 * WHOLE,)]


def test_a_released_booking_gives_back_what_it_did_not_use(world):
    limit(world, units=8, limit_hours=100)
    booking = world.add_booking(NOW, hours(48), units=2, held=False)
    assert ask(world, 2, NOW, hours(48), booking=booking) == ()
    assert taken(world, NOW) == (0, 96)
    with world.work() as work:
        queries.give_back(work, booking, hours(20))
    assert taken(world, hours(30)) == (40, 0)
    held = world.rows("SELECT starts_at, ends_at FROM commitments ORDER BY starts_at")
    assert held == [(NOW, hours(15)), (hours(15), hours(20))]
    with world.work() as work:
        queries.give_back_until(work, booking, hours(16))
    assert taken(world, hours(30)) == (8, 0)
    with world.work() as work:
        queries.give_back(work, booking, NOW)
    assert taken(world, hours(30)) == (0, 0)


def test_a_move_counts_without_what_it_gives_up(world):
    limit(world, units=8, limit_hours=96)
    booking = world.add_booking(NOW, hours(12), units=8, held=False)
    assert ask(world, 8, NOW, hours(12), booking=booking) == ()
    window = Window(hours(1), hours(13))
    asked = pieces([Segment(window, world.price, Decimal("2"))], UTC_ZONE, 8)
    with world.work() as work:
        scopes = queries.lock_scopes(work, world.tenant, world.project, world.account, ["h100"])
        values = (work, world.tenant, scopes, window, [MARCH], UTC_ZONE, NOW)
        assert len(check(queries.standings(*values), asked)[0]) == 2
        assert check(queries.standings(*values, leaving=booking), asked)[0] == ()


def test_scopes_are_those_of_tenant_project_person_and_kind(world):
    other = world.add_account("Somebody else")
    made = [
        limit(world, units=1),
        limit(world, units=2, kind="h100"),
        limit(world, units=3, kind="h200"),
        limit(world, units=4, project_id=world.project),
        limit(world, units=5, account_id=world.account),
        limit(world, units=6, account_id=other),
        limit(world, units=7, project_id=world.project, account_id=world.account),
    ]
    with world.work() as work:
        found = queries.scopes_for(work, world.tenant, world.project, world.account, ["h100"])
        assert [s.max_rate // WHOLE for s in found] == [1, 2, 4, 5, 7]
        assert [s.name for s in found] == ["Institute of Physics"] * 2 + ["Plasma"] + ["Robin K."] * 2
        assert len(queries.all_scopes(work)) == len(made)
    tenant, project = world.add_tenant("bio", "Bio Lab")
    with world.work(tenant) as work:
        assert queries.scopes_for(work, tenant, project, world.account, ["h100"]) == ()
        assert queries.scopes_for(work, world.tenant, world.project, world.account, ["h100"]) == ()


def test_who_may_set_which_limit(world):
    with pytest.raises(Forbidden):
        limit(world, units=1, actor=ADMIN)
    limit(world, units=1, project_id=world.project, actor=ADMIN)
    with pytest.raises(Forbidden):
        limit(world, units=1, project_id=world.project, actor=Actor(None, "Lea", project_roles={world.project: "lead"}))
    with pytest.raises(Invalid):
        limit(world, units=-1)
    with pytest.raises(NotFound):
        limit(world, units=1, project_id=world.tenant)
    assert world.rows("SELECT action, after->>'units' FROM audit") == [("set limit", "1")]


def test_a_limit_that_comes_later_counts_what_is_booked_already(world):
    booking = world.add_booking(NOW, hours(12), units=8, held=False)
    scope = limit(world, limit_hours=100)
    booked = pieces([Segment(Window(NOW, hours(12)), world.price, Decimal("2"))], UTC_ZONE, 8)
    for _ in range(2):
        with world.work() as work:
            actions.count_in(work, scope, [(booking, booked)])
    assert taken(world) == (0, 96)


SPANS = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 60), st.integers(1, 4)), min_size=1, max_size=6)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SPANS, st.integers(0, 100), st.integers(1, 60), st.integers(0, 200))
def test_sql_finds_the_same_peak_and_totals_as_the_rules(world, spans, start, length, passed):
    world.owner.execute("DELETE FROM commitments")
    scope = limit(world, units=1000, limit_hours=10**6, money=Decimal(10**9))
    now = hours(passed / 2)
    rows = []
    for first, count, units in spans:
        begin, end = hours(first / 2), hours((first + count) / 2)
        booking = world.add_booking(hours(1), hours(2), held=False)
        asked = pieces([Segment(Window(begin, end), world.price, Decimal("2"))], UTC_ZONE, units)
        with world.work() as work:
            queries.commit_pieces(work, world.tenant, [scope], asked, booking_id=booking)
        rows += [(begin, end, units * WHOLE)]
    window = Window(hours(start / 2), hours((start + length) / 2))
    with world.work() as work:
        (found,) = queries.standings(work, world.tenant, [scope], window, [MARCH], UTC_ZONE, now)
    assert found.peak == largest_overlap(rows, window)
    elapsed = timedelta()
    for begin, end, rate in rows:
        elapsed += max(timedelta(), min(end, now) - begin) * rate
    total = sum(int((end - begin).total_seconds()) * rate for begin, end, rate in rows)
    assert found.months[MARCH].used == int(elapsed.total_seconds())
    assert found.months[MARCH].total == total
    assert (found.money[MARCH].used, found.money[MARCH].total) == (2 * found.months[MARCH].used, 2 * total)


def test_the_month_of_a_piece_is_its_local_one(world):
    zurich = ZoneInfo("Europe/Zurich")
    window = Window(datetime(2026, 3, 31, 21, tzinfo=UTC), datetime(2026, 3, 31, 23, tzinfo=UTC))  # to 1 April 01:00
    scope = limit(world, limit_hours=10)
    booking = world.add_booking(hours(1), hours(2), held=False)
    asked = pieces([Segment(window, world.price, Decimal("2"))], zurich, 1)
    with world.work() as work:
        queries.commit_pieces(work, world.tenant, [scope], asked, booking_id=booking)
        (found,) = queries.standings(work, world.tenant, [scope], window, months_of(asked), zurich, NOW)
    assert {m.month: t.held // SCALE for m, t in found.months.items()} == {3: 1, 4: 1}
