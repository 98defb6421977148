"""Rules of a pool, of tenants and of projects over it: who may book what, and whom a change would touch."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from app.bookings import actions, shrinking
from app.bookings import actions_policies as policies
from app.bookings import policies as counting
from app.bookings.facts import Booking
from app.bookings.queries_policies import load_of
from app.bookings.rules_load import Load
from app.bookings.schemas import Ask, BookingIn
from app.inventory import queries as inventory
from app.kernel.actor import Actor
from app.kernel.clock import monotonic
from app.kernel.errors import Conflict, Forbidden, Invalid, NotFound, Reason, Refused
from app.kernel.window import Window
from tests.world import H100, OPERATOR, START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
AUDITOR = Actor(None, "Ada Auditor", platform_roles=frozenset({"auditor"}))


@pytest.fixture(scope="module")
def built(module_database, tmp_path_factory) -> Iterator[World]:
    made = make_world(module_database, tmp_path_factory.mktemp("policies"), csv=nodes_csv(4))
    yield made
    made.close()


@pytest.fixture
def world(built: World) -> Iterator[World]:
    """The one world of this module, as it was before."""
    yield built
    with psycopg.connect(built.owner_url, autocommit=True) as owner:
        owner.execute("UPDATE holds SET live = false WHERE live")
        owner.execute("DELETE FROM due")
        owner.execute("UPDATE bookings SET state = 'CANCELLED', outcome = NULL")
        for table in ("commitments", "scopes", "policy_overrides"):
            owner.execute(f"DELETE FROM {table}")
    built.set_clock(START)
    built.set_policy(H100)


def at(hours: float) -> str:
    return (START + timedelta(hours=hours)).isoformat()


def reasons(ask: Any) -> dict[str, Reason]:
    """The reasons of a refusal by code."""
    with pytest.raises(Refused) as refused:
        ask()
    return {r.code: r for r in refused.value.refusal.reasons}


def say(world: World, words: dict[str, Any], tenant: str | None = "physics", project: str | None = None, **more: Any):
    with world.work() as work:
        return policies.set_policy(work, OPERATOR, world.cluster, H100, words, None, tenant, project, **more)


def look(world: World, words: dict[str, Any], tenant: str | None = None, project: str | None = None):
    with world.work() as work:
        return policies.preview(work, OPERATOR, world.cluster, H100, words, None, tenant, project)


def extend(world: World, booking: Booking, end: float) -> Booking:
    return world.do("extend", booking, by=None, end=START + timedelta(hours=end))


# --- layers -------------------------------------------------------------------------------------------------------------


def test_a_projects_words_lie_over_its_tenants_and_those_over_the_pools(world: World) -> None:
    world.set_policy(H100, max_length=4 * 3600)
    four = reasons(lambda: world.book(duration="PT5H"))["too_long"]
    assert (four.limit, four.asked) == ("4 h", "5 h")
    say(world, {"max_length": 8 * 3600, "min_length": 1800})
    world.book(start=at(30), duration="PT8H")
    assert reasons(lambda: world.book(duration="PT9H"))["too_long"].limit == "8 h"
    say(world, {"max_length": 3600}, project="plasma")
    found = reasons(lambda: world.quote(duration="PT2H"))
    assert (found["too_long"].limit, found["too_long"].asked) == ("1 h", "2 h")
    assert reasons(lambda: world.book(duration="PT15M"))["too_short"].limit == "30 min"  # the tenant's still counts
    # others keep the pool's
    assert reasons(lambda: world.book("bio-member", project="atlas", duration="PT5H"))["too_long"].limit == "4 h"
    world.book("bio-member", project="atlas", start=at(50), duration="PT15M")
    say(world, {}, project="plasma")
    world.book(start=at(60), duration="PT8H")


def test_an_extension_is_judged_by_the_projects_words_and_worked_by_them(world: World) -> None:
    booking = world.book(start=at(0), duration="PT2H")
    say(world, {"max_length": 3 * 3600, "made_ahead": 7200}, project="plasma")
    assert reasons(lambda: extend(world, booking, 4))["too_long"].limit == "3 h"
    assert extend(world, booking, 3).ends_at == START + 3 * HOUR
    with world.work("physics") as work:
        assert counting.pool_of(work, world.look(booking)).policy.made_ahead == 2 * HOUR
        plain = inventory.pools_for(work)[0]
        assert counting.effective(work, plain, None).policy == plain.policy
    later = world.book(start=at(20), duration="PT1H")
    with world.work() as work:
        (due,) = work.pg.execute(
            "SELECT next_at FROM due d JOIN holds h ON h.allocation_id = d.subject WHERE h.booking_id = %s", [later.id]
        ).fetchone()
    assert due == START + 18 * HOUR


def test_a_pool_that_is_open_to_named_ones_takes_only_theirs(world: World) -> None:
    world.set_policy(H100, who="named")
    closed = reasons(lambda: world.book(duration="PT200H"))
    assert {"not_open", "too_long"} <= set(closed)  # all reasons at once
    say(world, {"open": True})
    booking = world.book()
    assert "not_open" in reasons(lambda: world.book("bio-member", project="atlas"))
    say(world, {"open": False}, project="plasma")
    assert "not_open" in reasons(lambda: world.quote(duration="PT2H"))
    assert world.look(booking).state == "BOOKED"
    assert "not_open" in reasons(lambda: extend(world, booking, 3))


def test_case_49_create_and_edit_keep_to_one_rule(world: World) -> None:
    world.set_policy(H100, max_length=8 * 3600, max_extension=4 * 3600, horizon=14 * 86400)
    assert reasons(lambda: world.book(duration="PT9H"))["too_long"].limit == "8 h"
    booking = world.book(start=at(1), duration="PT6H")
    longer = reasons(lambda: extend(world, booking, 10))
    assert (longer["too_long"].limit, longer["too_long"].asked) == ("8 h", "9 h")
    assert extend(world, booking, 9).ends_at == START + 9 * HOUR


def test_report_2_a_rule_that_became_shorter_refuses_only_what_lengthens(world: World) -> None:
    booking = world.book(start=at(1), duration="PT72H")
    world.set_policy(H100, max_length=8 * 3600)
    with pytest.raises(Refused) as refused:
        extend(world, booking, 74)
    assert refused.value.status == 422
    shorter = world.do(shrinking.shrink, booking, kept=shrinking.Kept(end=START + 72 * HOUR))
    assert shorter.ends_at == START + 72 * HOUR


def test_case_47_an_extension_over_a_limit_leaves_the_end_and_says_why_before_it_comes(world: World) -> None:
    world.set_limit("physics", hours=9, project_id=world.projects["plasma"])
    booking = world.book(start=at(1), units=2, duration="PT4H")
    before = world.look(booking)
    found = reasons(lambda: extend(world, booking, 6))
    assert (found["quota_hours"].limit, found["quota_hours"].asked) == ("1 GPU-hours available", "2 GPU-hours")
    assert world.look(booking) == before
    # the window and the sum of all extensions
    world.set_limit("physics", hours=900, project_id=world.projects["plasma"])
    world.set_policy(H100, extend_within=3600, max_extension=2 * 3600)
    early = reasons(lambda: extend(world, booking, 9))
    assert (early["extended_too_early"].limit, early["extended_too_early"].asked) == ("1 h", "5 h")
    assert (early["extended_too_often"].limit, early["extended_too_often"].asked) == ("2 h", "4 h")
    world.set_clock(START + 4 * HOUR)
    assert extend(world, booking, 6).ends_at == START + 6 * HOUR
    assert world.look(booking).ends_at == START + 6 * HOUR


# --- how much -----------------------------------------------------------------------------------------------------------


def test_units_at_once_of_a_person_and_of_a_project(world: World) -> None:
    world.set_policy(H100, max_units_user=8, max_units_project=12)
    world.book(start=at(5), units=6, duration="PT4H")
    own = reasons(lambda: world.book(start=at(8), units=3, duration="PT4H"))
    assert set(own) == {"too_many_at_once"}
    assert (own["too_many_at_once"].limit, own["too_many_at_once"].asked) == ("8 units", "9 units")
    world.book(start=at(9), units=8, duration="PT1H")  # it begins when the other ends
    both = reasons(lambda: world.book("physics-lead", start=at(5), units=9, duration="PT1H"))
    assert set(both) == {"too_many_at_once", "project_too_many_at_once"}
    assert both["project_too_many_at_once"].asked == "15 units"
    world.book("physics-lead", start=at(5), units=6, duration="PT1H")
    world.book("bio-member", project="atlas", start=at(5), units=8, duration="PT1H")
    say(world, {"max_units_user": None})
    assert "too_many_at_once" not in reasons(lambda: world.quote(start=at(8), units=9, duration="PT4H"))


def test_case_83_hours_within_the_free_near_term_do_not_count_against_what_is_ahead(world: World) -> None:
    world.set_policy(H100, ahead_hours_user=40, ahead_free=6 * 3600)
    world.book(start=at(24), units=4, duration="PT10H")  # 40 GPU-hours ahead
    assert set(reasons(lambda: world.book(start=at(40)))) == {"too_far_ahead"}
    world.book(units=1, duration="PT6H")  # from now, all of it inside the next six hours
    over = reasons(lambda: world.book(units=1, duration="PT7H"))["too_far_ahead"]
    assert (over.limit, over.asked) == ("40 GPU-hours", "41 GPU-hours")
    assert "those of the next 6 h are not counted" in over.message
    world.book("physics-lead", start=at(24), units=4, duration="PT10H")  # another person has a cap of their own
    world.set_policy(H100, ahead_hours_tenant=80)
    assert set(reasons(lambda: world.book("physics-lead", start=at(40)))) == {"tenant_too_far_ahead"}
    world.book("bio-member", project="atlas", start=at(40))


def test_case_85_and_43_every_limit_that_is_passed_is_said_at_once_in_the_units_asked(world: World) -> None:
    world.set_policy(H100, max_length=3600, max_units_user=4, ahead_hours_user=4, horizon=2 * 86400)
    world.set_limit("physics", units=3, hours=5, money=Decimal(10), project_id=world.projects["plasma"])
    found = reasons(lambda: world.book(start=at(47), units=8, duration="PT2H"))
    assert {code: (r.limit, r.asked) for code, r in found.items()} == {
        "too_long": ("1 h", "2 h"),
        "beyond_horizon": ("2026-12-02T12:00:00Z", "2026-12-02T13:00:00Z"),
        "quota_units": ("3 units", "8 units"),
        "quota_hours": ("5 GPU-hours available", "16 GPU-hours"),
        "quota_money": ("10.00 CHF available", "38.40 CHF"),
        "too_many_at_once": ("4 units", "8 units"),
        "too_far_ahead": ("4 GPU-hours", "16 GPU-hours"),
    }
    with pytest.raises(Refused) as refused:
        world.quote(start=at(47), units=8, duration="PT2H")
    alternatives = refused.value.refusal.alternatives
    assert alternatives
    for offered in alternatives:  # each passes every rule, as offered
        asked = Ask.of(BookingIn.model_validate(offered.request))
        with world.work("physics") as work:
            actions.quote(work, world.actor("physics-member"), asked)


def test_report_25_at_most_so_many_of_one_person_whoever_races(world: World) -> None:
    world.set_policy(H100, max_units_user=3, max_units_project=5)
    gate, refused, booked = threading.Barrier(10), [], []

    def one(person: str) -> None:
        gate.wait(60)
        try:
            booked.append(world.book(person, start=at(10)))
        except Refused as no:
            refused.append({r.code for r in no.refusal.reasons})

    people = ["physics-member"] * 5 + ["physics-lead"] * 5
    threads = [threading.Thread(target=one, args=(person,)) for person in people]
    [t.start() for t in threads]
    [t.join(120) for t in threads]
    assert len(booked) == 5
    by = [b.booked_by for b in booked]
    assert max(by.count(p) for p in set(by)) <= 3
    assert len(refused) == 5
    assert all(codes <= {"too_many_at_once", "project_too_many_at_once"} for codes in refused)


def test_report_1_the_past_is_refused_and_nothing_kept(world: World) -> None:
    found = reasons(lambda: world.book(start=at(-5), end=at(-2)))
    assert found["start_in_past"].in_request
    with world.work("physics") as work:
        assert work.pg.execute("SELECT count(*) FROM bookings WHERE state = 'BOOKED'").fetchone() == (0,)


ALLEN = {
    "before": (0, 4), "meets": (4, 10), "overlaps": (8, 12), "starts": (10, 12), "during": (12, 14), "finishes": (16, 20),
    "equals": (10, 20), "contains": (8, 22), "started by": (10, 22), "finished by": (8, 20), "overlapped by": (18, 22),
    "met by": (20, 24), "after": (22, 26),
}  # fmt: skip


@pytest.mark.parametrize("relation", ALLEN)
def test_report_7_only_windows_that_do_not_overlap_fit_on_the_same_units(world: World, relation: str) -> None:
    first, last = ALLEN[relation]
    world.book(start=at(10), end=at(20), units=32)
    if relation in ("before", "meets", "met by", "after"):
        world.quote("bio-member", project="atlas", start=at(first), end=at(last), units=32)
    else:
        found = reasons(lambda: world.quote("bio-member", project="atlas", start=at(first), end=at(last), units=32))
        assert set(found) == {"no_units_free"}


# --- approval as a fact -------------------------------------------------------------------------------------------------


def test_a_quote_says_when_somebody_has_to_approve(world: World) -> None:
    world.set_policy(H100, approval_hours=16, approval_money="30")
    assert world.quote(start=at(5), units=2, duration="PT6H").offer.approval is None
    both = world.quote(start=at(5), units=4, duration="PT6H").offer.approval
    assert both is not None
    assert (both.approver, [r.code for r in both.reasons]) == ("operator", ["approval_hours", "approval_money"])
    assert [(r.limit, r.asked) for r in both.reasons] == [("16 GPU-hours", "24 GPU-hours"), ("30 CHF", "57.60 CHF")]
    say(world, {"approval_hours": None, "approver": "lead", "approval_for": 3600})
    one = world.quote(start=at(5), units=4, duration="PT6H").offer.approval
    assert one is not None
    assert (one.approver, len(one.reasons), one.lasts, one.holds) == ("lead", 1, HOUR, True)
    assert world.quote("physics-lead", start=at(5), units=4, duration="PT6H").offer.approval is None


# --- what a change would touch ------------------------------------------------------------------------------------------


def test_a_dry_run_names_the_bookings_and_changes_nothing(world: World) -> None:
    long = world.book(start=at(10), duration="PT12H", units=2)
    first = world.book(start=at(30), units=3, duration="PT2H")
    last = world.book(start=at(31), units=3, duration="PT2H")
    theirs = world.book("bio-member", project="atlas", start=at(50), units=8, duration="PT4H")
    words = {"max_length": 8 * 3600, "max_units_user": 4, "approval_hours": 30, "no_show": 3600, "who": "named"}
    before = world.quote(start=at(60)).offer.pool.policy
    found = look(world, {k: v for k, v in words.items() if k != "who"})
    assert {n: (b, a) for n, b, a in found.changes} == {
        "max_length": (604_800, 28_800), "max_units_user": (None, 4), "approval_hours": (None, 30), "no_show": (1800, 3600),
    }  # fmt: skip
    touched = {t.booking.number: {r.code for r in t.reasons} for t in found.refused}
    assert touched == {
        long.number: {"too_long"},
        last.number: {"too_many_at_once"},  # the one that was made later
        theirs.number: {"too_many_at_once"},
    }
    assert first.number not in touched
    assert (found.looked_at, found.more, found.followed, found.closed) == (4, False, 4, ())
    approval = look(world, {"approval_hours": 30})
    assert [t.booking.number for t in approval.asked] == [theirs.number]
    assert not approval.refused
    assert look(world, words).closed == ("Bio Lab, Atlas", "Institute of Physics, Plasma")
    assert world.quote(start=at(60)).offer.pool.policy == before
    # one tenant's words touch only that tenant
    ours = look(world, {"max_length": 3600}, "physics")
    assert {t.booking.tenant for t in ours.refused} == {"physics"}
    assert len(ours.refused) == 3
    say(world, {"max_length": 86_400}, "physics")
    assert look(world, {"max_length": 3600}).refused[0].booking.id == theirs.id  # physics has said otherwise
    assert look(world, {"min_length": 2 * 86_400, "max_length": 4 * 86_400}).contradicts == (
        "Institute of Physics: min_length is longer than max_length.",
    )
    assert {world.look(b).state for b in (long, first, last)} == {"BOOKED"}
    with psycopg.connect(world.owner_url) as owner:
        seen = owner.execute("SELECT count(*) FROM platform_audit WHERE action = 'preview policy'").fetchone()
    assert seen[0] >= 5


def test_who_may_say_what_and_from_which_version(world: World) -> None:
    with world.work() as work:
        seen = policies.said(work, AUDITOR, world.cluster, H100, "physics")
    assert seen.words == {}
    changed = say(world, {"max_length": 7200}, etag=seen.etag)
    assert changed.words == {"max_length": 7200}
    with pytest.raises(Conflict):
        say(world, {"max_length": 3600}, etag=seen.etag)
    with pytest.raises(Invalid) as wrong:
        say(world, {"max_length": "long", "who": "all", "colour": 1})
    assert len(wrong.value.reasons) == 3
    for tenant, project in (("nobody", None), ("physics", "atlas")):
        with pytest.raises(NotFound):
            say(world, {}, tenant, project)
    lead = world.actor("physics-lead")
    for verb in (policies.set_policy, policies.preview):
        with world.work() as work, pytest.raises(Forbidden):
            verb(work, lead, world.cluster, H100, {}, None, "physics", None)
    with world.work("bio") as work:
        assert work.pg.execute("SELECT count(*) FROM policy_overrides").fetchone() == (0,)


def test_whoever_books_while_a_rule_is_being_said_keeps_to_it(world: World) -> None:
    """The pool's lock is what both take: a booking decided before is judged again by what is said then."""
    gate, done = threading.Event(), threading.Event()
    results: list[Any] = []

    def book() -> None:
        gate.wait(30)
        try:
            results.append(world.book(start=at(5), duration="PT4H"))
        except Refused as refused:
            results.append({r.code for r in refused.refusal.reasons})
        done.set()

    thread = threading.Thread(target=book)
    thread.start()
    with world.work() as work:
        policies.set_policy(work, OPERATOR, world.cluster, H100, {"max_length": 3600}, None, "physics", "plasma")
        gate.set()
        _until_somebody_waits(world)
        assert not done.is_set()
    thread.join(60)
    assert results == [{"too_long"}]


def _until_somebody_waits(world: World) -> None:
    limit = monotonic() + 60
    with psycopg.connect(world.owner_url, autocommit=True) as owner:
        while monotonic() < limit:
            waiting = owner.execute(
                """SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
                    WHERE NOT l.granted AND a.datname = current_database()"""
            ).fetchone()[0]
            if waiting:
                return
    raise AssertionError("nobody came to the lock")


# --- time between bookings ----------------------------------------------------------------------------------------------


def test_case_84_no_gaps_are_left_that_nobody_may_book(world: World) -> None:
    world.set_policy(H100, min_gap=2 * 3600)
    world.book(start=at(10), end=at(14), units=32)
    world.book("bio-member", project="atlas", start=at(20), end=at(24), units=32)
    late = reasons(lambda: world.book(start=at(15), end=at(17), units=32))["gap_too_short"]
    assert (late.limit, late.asked, late.fix) == (
        "2 h",
        "1 h",
        "Start at 2026-12-01T02:00:00Z, or from 2026-12-01T04:00:00Z on.",
    )
    early = reasons(lambda: world.quote(start=at(16), end=at(19), units=32))["gap_too_short"]
    assert (early.asked, early.fix) == ("1 h", "End at 2026-12-01T08:00:00Z, or by 2026-12-01T06:00:00Z.")
    with pytest.raises(Refused) as refused:
        world.quote(start=at(15), end=at(17), units=32)
    offered = {a.kind_of_change: a for a in refused.value.refusal.alternatives}
    assert offered["time"].request["start"] == at(14)
    for one in offered.values():  # each snaps to an edge, or leaves enough, and is booked as offered
        asked = Ask.of(BookingIn.model_validate(one.request))
        with world.work("physics") as work:
            quote = actions.quote(work, world.actor("physics-member"), asked)
        _leaves_no_sliver(world, quote)
    # touching, or far enough: no gap that is too short
    world.book(start=at(14), end=at(16), units=32)
    extended = reasons(lambda: world.do("extend", world.book(start=at(4), end=at(6), units=32), by=None,
                                        end=START + 9 * HOUR))  # fmt: skip
    assert extended["gap_too_short"].field == "end"
    with pytest.raises(Refused):
        world.quote(start=at(17), end=at(18), units=32)
    world.book(start=at(16), end=at(20), units=32)


def test_case_84_other_units_are_taken_where_no_sliver_is_left(world: World) -> None:
    world.set_policy(H100, min_gap=2 * 3600)
    for _ in range(3):  # three of four nodes are held until an hour before
        world.book(start=at(10), end=at(14), units=8, within="node")
    quote = world.quote(start=at(15), end=at(17), units=8, within="node")
    assert len(quote.node_names) == 1
    _leaves_no_sliver(world, quote)
    assert set(reasons(lambda: world.quote(start=at(15), end=at(17), units=16))) == {"gap_too_short"}
    soonest = world.quote(duration="PT11H", units=32)  # from now on it would end in the middle of the others
    assert soonest.offer.window.start == START + 14 * HOUR
    _leaves_no_sliver(world, soonest)
    # a start "now" leaves nothing behind that could have been booked
    world.set_clock(START + 15 * HOUR)
    now = world.quote(duration="PT1H", units=32)
    assert now.offer.window.start == START + 15 * HOUR


def _leaves_no_sliver(world: World, quote: Any) -> None:
    """Brute force over the rows: no hold on the same units ends or begins within two hours of it without touching."""
    window = quote.offer.window
    units = {lower for part in quote.offer.placement.parts for lower, _ in part.units}
    with world.work() as work:
        rows = work.pg.execute(
            "SELECT lower(r), upper(r), lower(during), upper(during) FROM holds, unnest(units) r WHERE live"
        ).fetchall()
    for lower, upper, start, end in rows:
        if any(lower <= unit < upper for unit in units):
            for gap in (window.start - end, start - window.end):
                between = [
                    other for lo, up, s, e in rows for other in [(s, e)]
                    if any(lo <= u < up and lower <= u < upper for u in units)
                    and ((end <= s and e <= window.start) or (window.end <= s and e <= start))
                ]  # fmt: skip
                assert not timedelta(0) < gap < 2 * HOUR or between, (window, start, end)


def test_case_15_a_booking_of_eight_days_is_too_long_even_where_all_units_are_free(world: World) -> None:
    found = reasons(lambda: world.quote(start=at(1), duration="P8D"))
    assert (found["too_long"].limit, found["too_long"].asked) == ("7 days", "8 days")


def test_what_is_booked_is_counted_as_minute_by_minute(world: World) -> None:
    """The one statement behind the pool's limits against a count of every quarter of an hour by itself."""
    chance = random.Random(11)
    rows: list[tuple[str, int, int, int]] = []  # person, units, first quarter, quarters
    for _ in range(14):
        person = chance.choice(["physics-member", "physics-lead"])
        units, first, quarters = chance.randint(1, 3), chance.randint(0, 60), chance.randint(1, 40)
        length = f"PT{15 * quarters}M"
        world.book(person, start=at(first / 4) if first else "asap", units=units, duration=length)
        rows.append((person, units, first, quarters))
    world.book("bio-member", project="atlas", start=at(2), units=4, duration="PT20H")  # nobody's here

    def units_at(quarter: int, person: str | None) -> int:
        return sum(u for p, u, first, n in rows if person in (None, p) and first <= quarter < first + n)

    for first, last, free in ((0, 8, 0), (10, 30, 24), (40, 41, 50), (90, 99, 24)):
        window = Window(START + first * HOUR / 4, START + last * HOUR / 4)
        with world.work("physics") as work:
            (pool,) = inventory.pools_for(work)
            account, project = world.people["physics-member"], world.projects["plasma"]
            load = load_of(work, pool.id, project, account, window, START + free * HOUR / 4)
        assert load == Load(
            840 * max(units_at(q, "physics-member") for q in range(first, last)),
            840 * max(units_at(q, None) for q in range(first, last)),
            840 * 900 * sum(units_at(q, "physics-member") for q in range(free, 110)),
            840 * 900 * sum(units_at(q, None) for q in range(free, 110)),
        )


def test_report_24_what_runs_is_given_back_although_its_project_has_ended_and_its_limit_is_passed(world: World) -> None:
    project = world.projects["plasma"]
    booking = world.book(units=4, duration="PT10H")
    world.settle()
    world.set_limit("physics", hours=1, project_id=project)
    world.set_policy(H100, who="named", max_length=3600)
    with psycopg.connect(world.owner_url, autocommit=True) as owner:
        owner.execute("UPDATE projects SET ended_at = %s WHERE id = %s", [START + HOUR, project])
    world.set_clock(START + 2 * HOUR)
    try:
        released = world.do("release", booking)
        world.settle()
        assert (released.released_at, world.look(booking).state) == (START + 2 * HOUR, "ENDED")
        assert "project_ended" in reasons(lambda: world.quote())
    finally:
        with psycopg.connect(world.owner_url, autocommit=True) as owner:
            owner.execute("UPDATE projects SET ended_at = NULL WHERE id = %s", [project])
