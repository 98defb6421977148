"""What time and a cluster's words make of a booking: each case a story, and then any story at all."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.bookings.evidence import apply_failure, apply_observation
from app.bookings.lifecycle import (
    FINAL,
    BookingView,
    Condition,
    Event,
    IllegalMove,
    Outage,
    Outcome,
    Pace,
    Seen,
    State,
    Step,
    cancel_event,
    follow,
    leave,
    may,
    next_step,
    reserved,
    tick,
)
from app.kernel.window import Window

DAY = datetime(2026, 12, 1, tzinfo=UTC)
PACE = Pace()


def clock(text: str) -> datetime:
    """'10:05' or '10:05:30' of the day."""
    hours, minutes, *seconds = map(int, text.split(":"))
    return DAY + timedelta(hours=hours, minutes=minutes, seconds=sum(seconds))


def booked(start="10:00", end="14:00", **more) -> BookingView:
    return BookingView(State.BOOKED, Window(clock(start), clock(end)), units=(0, 1, 2, 3), **more)


def after(view: BookingView, time: str) -> BookingView:
    return follow(view, tick(view, clock(time), PACE))


def seeing(view: BookingView, time: str, state, **words) -> BookingView:
    """The view after an observation, with its instants given as times of the day."""
    words = {k: clock(v) if k in ("since", "in_place_since", "empty_since") else v for k, v in words.items()}
    seen = Seen(state, **words)
    changes = apply_observation(view, seen, clock(time), PACE)
    return replace(follow(view, changes), seen=seen, ensured=view.wanted, failures=0)


def failing(view: BookingView, time: str, why: str, definite: bool, pace=PACE) -> BookingView:
    changes = apply_failure(view, why, definite, clock(time), pace)
    return replace(follow(view, changes), failures=view.failures + 1)


def active() -> BookingView:
    return seeing(after(booked(), "09:50"), "10:00:02", "ready", in_place_since="09:50:04")


def ended(view: BookingView, time: str) -> BookingView:
    return seeing(view, time, "gone", empty_since=time)


def charged(view: BookingView) -> tuple[datetime, datetime] | None:
    window = reserved(view, clock("23:00"))
    return (window.start, window.end) if window else None


def test_ten_minutes_ahead_the_cluster_is_asked_and_not_before():
    view = booked()
    assert tick(view, clock("09:49:59"), PACE) == ()
    assert next_step(view, clock("08:00"), PACE) == Step(None, clock("09:50"))
    view = after(view, "09:50")
    assert view.state is State.STARTING
    assert view.asked, "known before the first call: a crash between the two errs on the safe side"
    assert next_step(view, clock("09:50"), PACE).call == "ensure"


def test_what_was_made_ahead_is_provided_from_the_start_to_the_second():
    view = seeing(after(booked(), "09:50"), "09:50:05", "ready", in_place_since="09:50:04")
    assert view.state is State.STARTING, "in place is not yet active"
    assert next_step(view, clock("09:50:05"), PACE) == Step("observe", clock("10:00"))
    view = seeing(view, "10:00:03", "ready", in_place_since="09:50:04")
    assert (view.state, view.provided_at) == (State.ACTIVE, clock("10:00"))


def test_a_start_that_is_90_seconds_late_is_charged_90_seconds_less():
    view = seeing(after(booked(), "09:50"), "10:00:05", "preparing", why="waiting for alps-0101")
    assert view.conditions[Condition.LATE].since == clock("10:00")
    view = seeing(view, "10:01:33", "ready", in_place_since="10:01:30")
    assert (view.state, view.provided_at) == (State.ACTIVE, clock("10:01:30"))
    assert view.conditions == {}
    assert charged(ended(after(view, "14:00"), "14:00:04")) == (clock("10:01:30"), clock("14:00"))


def test_silence_is_called_late_after_a_minute_and_never_given_up():
    view = after(booked(), "10:00:59")
    assert view.conditions == {}
    view = after(view, "10:01")
    assert Condition.LATE in view.conditions
    view = failing(view, "14:00:30", "The cluster does not answer.", definite=False)
    assert view.state is State.STARTING, "it may have begun by itself"


def test_units_that_are_not_empty_block_the_start_and_are_not_charged():
    view = seeing(after(booked(), "09:50"), "10:00:05", "blocked", since="09:50:05", why="A process is still on GPU 2.")
    assert view.state is State.STARTING
    assert view.conditions[Condition.BLOCKED].why == "A process is still on GPU 2."
    view = seeing(view, "10:12:00", "ready", in_place_since="10:11:40")
    assert view.conditions == {}
    assert view.provided_at == clock("10:11:40")


def test_the_end_comes_by_the_clock_and_completes_when_empty():
    view = after(active(), "14:00:07")
    assert (view.state, view.left_at, view.outcome) == (State.ENDING, clock("14:00"), None)
    assert next_step(view, clock("14:00:07"), PACE).call == "release"
    view = seeing(view, "14:00:12", "ending")
    assert view.state is State.ENDING
    view = seeing(view, "14:00:40", "gone", empty_since="14:00:31")
    assert (view.state, view.outcome, view.freed_at) == (State.ENDED, Outcome.COMPLETED, clock("14:00:31"))
    assert charged(view) == (clock("10:00"), clock("14:00"))
    assert next_step(view, clock("14:01"), PACE) == Step(None, None)


def test_a_release_is_charged_to_its_second_and_frees_the_units_when_they_are_empty():
    view = active()
    view = follow(view, leave(view, Event.RELEASE, clock("11:00:30")))
    view = seeing(view, "11:02", "gone", empty_since="11:01:10")
    assert (view.outcome, view.freed_at) == (Outcome.RELEASED, clock("11:01:10"))
    assert charged(view) == (clock("10:00"), clock("11:00:30"))


def test_a_release_one_second_after_the_end_finds_it_ended():
    view = after(active(), "14:00:01")
    with pytest.raises(IllegalMove):
        leave(view, Event.RELEASE, clock("14:00:01"))


def test_units_that_are_gone_but_not_seen_empty_do_not_end_it():
    view = seeing(after(active(), "14:00"), "14:05", "gone", why="alps-0101 does not answer.")
    assert view.state is State.ENDING
    assert view.conditions[Condition.BLOCKED].why == "alps-0101 does not answer."
    view = seeing(view, "15:00", "gone", empty_since="14:58")
    assert (view.state, view.freed_at, view.conditions) == (State.ENDED, clock("14:58"), {})


def test_cancelled_while_booked_nothing_is_left_to_do():
    view = booked()
    assert cancel_event(view) is Event.CANCEL
    view = follow(view, leave(view, Event.CANCEL, clock("09:00")))
    assert (view.state, view.outcome) == (State.CANCELLED, None)
    assert next_step(view, clock("09:00"), PACE) == Step(None, None)


@pytest.mark.parametrize("view", [booked(asked=True), after(booked(), "09:55")], ids=["made ahead", "starting"])
def test_cancelled_when_something_may_stand_on_the_cluster_it_is_taken_down_first(view):
    assert cancel_event(view) is Event.WITHDRAW
    view = follow(view, leave(view, Event.WITHDRAW, clock("09:56")))
    assert view.state is State.ENDING
    assert next_step(view, clock("09:56"), PACE).call == "release"
    view = seeing(view, "09:57", "gone", empty_since="09:56:30")
    assert (view.state, view.outcome) == (State.ENDED, Outcome.CANCELLED)
    assert charged(view) is None


def test_withdrawn_after_its_window_while_the_cluster_was_silent_it_was_left_at_the_end():
    view = after(booked(), "14:30")
    assert view.state is State.STARTING
    assert follow(view, leave(view, Event.WITHDRAW, clock("14:30"))).left_at == clock("14:00")


def test_an_observation_that_arrives_after_a_cancel_does_not_make_it_active():
    view = after(booked(), "09:50")
    view = follow(view, leave(view, Event.WITHDRAW, clock("10:00:01")))
    view = seeing(view, "10:00:04", "ready", in_place_since="09:59")
    assert (view.state, view.provided_at) == (State.ENDING, None)


def test_never_provided_ends_so_and_costs_nothing():
    view = seeing(after(booked(), "09:50"), "10:00:05", "blocked", why="alps-0101 is down.")
    view = seeing(view, "14:00:02", "blocked", why="alps-0101 is down.")
    assert (view.state, view.left_by) == (State.ENDING, Event.GIVE_UP)
    view = seeing(view, "14:00:07", "absent")
    assert (view.outcome, charged(view), view.conditions) == (Outcome.NOT_PROVIDED, None, {})


def test_a_refusal_is_given_up_after_the_limit_of_the_pool():
    pace = Pace(give_up_after=timedelta(minutes=30))
    view = failing(after(booked(), "09:50"), "10:05", "The node is drained.", definite=True, pace=pace)
    assert set(view.conditions) == {Condition.LATE, Condition.BLOCKED}
    view = failing(view, "10:30", "The node is drained.", definite=True, pace=pace)
    assert (view.state, view.left_by, view.left_at) == (State.ENDING, Event.GIVE_UP, clock("10:30"))


def test_portal_down_from_9_to_12_where_the_cluster_needs_it_to_start():
    short = after(booked("10:00", "11:00"), "12:00")
    assert next_step(short, clock("12:00"), PACE).call == "observe", "the window is over: only the evidence is wanted"
    short = seeing(short, "12:00:01", "absent")
    short = seeing(short, "12:00:06", "absent")
    assert (short.state, short.outcome, charged(short)) == (State.ENDED, Outcome.NOT_PROVIDED, None)
    long = after(booked("11:00", "15:00"), "12:00")
    assert next_step(long, clock("12:00"), PACE).call == "ensure"
    long = seeing(long, "12:00:02", "ready", in_place_since="12:00:00")
    assert (long.state, long.provided_at, long.window.end) == (State.ACTIVE, clock("12:00"), clock("15:00"))
    assert charged(ended(after(long, "15:00"), "15:00:02")) == (clock("12:00"), clock("15:00"))


def test_portal_down_from_9_to_12_where_a_reservation_began_by_itself():
    short = booked("10:00", "11:00", asked=True, ensured=1)
    short = seeing(
        after(short, "12:00"), "12:00:01", "gone", in_place_since="10:00", since="11:00", empty_since="11:00:20"
    )
    assert (short.state, short.provided_at, short.left_by) == (State.ENDING, clock("10:00"), Event.END)
    assert short.outages == ()
    short = seeing(short, "12:00:06", "gone", in_place_since="10:00", since="11:00", empty_since="11:00:20")
    assert (short.outcome, charged(short)) == (Outcome.COMPLETED, (clock("10:00"), clock("11:00")))


def test_a_reservation_that_was_gone_before_its_start_was_not_provided():
    view = booked(asked=True, ensured=1)
    view = seeing(after(view, "10:00:05"), "10:00:05", "gone", in_place_since="08:00", since="09:30")
    assert (view.state, view.provided_at) == (State.STARTING, None)
    assert next_step(view, clock("10:00:05"), PACE).call == "ensure"


def test_a_reservation_that_was_taken_away_at_its_very_start_was_not_provided():
    view = seeing(after(booked(asked=True), "10:00:05"), "10:00:05", "gone", in_place_since="08:00", since="10:00")
    assert (view.state, view.provided_at) == (State.STARTING, None)


def test_in_place_only_after_its_end_is_not_provided():
    view = seeing(after(booked(), "14:00:01"), "14:00:02", "ready", in_place_since="14:00:00")
    assert (view.state, view.left_by, view.left_at) == (State.ENDING, Event.GIVE_UP, clock("14:00"))


def test_a_lost_node_degrades_and_its_outage_is_known_to_the_second():
    lost = Outage(2, clock("11:00:10"), None, "alps-0102 does not answer.")
    view = seeing(active(), "11:01", "degraded", lost=(lost,))
    assert view.conditions[Condition.DEGRADED].since == clock("11:00:10")
    assert view.conditions[Condition.DEGRADED].why == "1 of 4 units are lost. alps-0102 does not answer."
    assert view.outages == (lost,)
    back = replace(lost, until=clock("11:30:20"))
    view = seeing(view, "11:31", "ready", lost=(back,))
    assert (view.conditions, view.outages) == ({}, (back,))
    assert charged(ended(after(view, "14:00"), "14:00:03")) == (clock("10:00"), clock("14:00")), (
        "credited, not uncharged"
    )


def test_a_unit_lost_before_the_start_is_an_outage_from_the_start():
    lost = (Outage(3, clock("09:58")),)
    view = seeing(after(booked(), "09:50"), "10:00:02", "degraded", in_place_since="09:50", lost=lost)
    assert view.state is State.ACTIVE
    assert view.outages == (Outage(3, clock("10:00")),)


def test_lost_twice_between_two_looks_is_two_outages():
    told = (Outage(1, clock("11:00"), clock("11:05")), Outage(1, clock("11:08"), None))
    view = seeing(active(), "11:10", "degraded", lost=told)
    assert view.outages == told
    assert view.conditions[Condition.DEGRADED].since == clock("11:08")


def test_a_booking_taken_away_behind_its_back_shows_at_once_and_is_made_again():
    view = seeing(active(), "11:01", "absent")
    assert {o.unit for o in view.outages} == {0, 1, 2, 3}
    assert view.conditions[Condition.DEGRADED].why.startswith("4 of 4 units are lost.")
    assert next_step(view, clock("11:01"), PACE) == Step("ensure", clock("11:01:05"))
    view = seeing(view, "11:01:07", "ready", in_place_since="11:01:06")
    assert view.conditions == {}
    assert {(o.since, o.until) for o in view.outages} == {(clock("11:01"), clock("11:01:06"))}


def test_an_outage_in_the_last_minute_is_known_though_it_is_seen_after_the_end():
    view = after(active(), "14:00:05")
    view = seeing(view, "14:00:06", "ending", lost=(Outage(0, clock("13:59:30")),))
    assert view.outages == (Outage(0, clock("13:59:30"), clock("14:00")),)


def test_an_outage_that_lasts_ends_with_the_booking():
    view = seeing(active(), "11:00", "degraded", lost=(Outage(0, clock("10:30")),))
    view = follow(view, leave(view, Event.RELEASE, clock("11:30")))
    assert (view.outages, view.conditions) == ((Outage(0, clock("10:30"), clock("11:30")),), {})


def test_an_edit_is_brought_to_the_cluster():
    view = replace(active(), wanted=2)
    assert next_step(view, clock("11:00"), PACE).call == "ensure"
    view = seeing(view, "11:00:01", "ready", in_place_since="09:50:04")
    assert next_step(view, clock("11:00:01"), PACE) == Step("observe", clock("11:01:01"))


def test_the_look_at_an_active_booking_never_misses_its_end():
    assert next_step(active(), clock("13:59:30"), PACE).next_at == clock("14:00")


def test_failures_are_answered_with_longer_pauses_up_to_a_limit():
    view = after(booked(), "10:00:30")
    pauses = [next_step(replace(view, failures=n), clock("11:00"), PACE).next_at - clock("11:00") for n in range(8)]
    assert [p.total_seconds() for p in pauses] == [5, 10, 20, 40, 80, 120, 120, 120]


def test_a_reservation_made_at_confirmation_is_asked_for_read_back_and_left_alone():
    view = booked(asked=True)
    assert next_step(view, clock("08:00"), PACE) == Step("ensure", clock("08:00:05"))
    view = seeing(view, "08:00:01", "preparing")
    assert next_step(view, clock("08:00:01"), PACE) == Step("observe", clock("08:00:06"))
    view = seeing(view, "08:00:06", "ready", in_place_since="08:00:03")
    assert view.state is State.BOOKED
    assert next_step(view, clock("08:00:06"), PACE) == Step(None, clock("09:50"))


# --- any story at all -------------------------------------------------------------------------------------------------

WINDOW = Window(clock("10:00"), clock("10:10"))
times = st.integers(-300, 1200).map(lambda s: clock("10:00") + timedelta(seconds=s))
maybe = st.one_of(st.none(), times)
losses = st.builds(
    lambda unit, since, length: Outage(unit, since, None if length is None else since + timedelta(seconds=length), "x"),
    st.integers(0, 1),
    times,
    st.one_of(st.none(), st.integers(1, 400)),
)
sights = st.builds(
    Seen,
    st.sampled_from(["absent", "preparing", "ready", "degraded", "blocked", "ending", "gone"]),
    maybe,
    maybe,
    maybe,
    st.lists(losses, max_size=3).map(tuple),
    st.sampled_from(["", "why"]),
)
acts = st.one_of(
    st.tuples(st.just("wait"), st.integers(1, 400)),
    st.tuples(st.just("see"), sights),
    st.tuples(st.just("fail"), st.booleans()),
    st.tuples(st.just("do"), st.sampled_from([Event.RELEASE, Event.WITHDRAW, Event.CANCEL, Event.NO_SHOW, Event.FAIL])),
)


def check(view: BookingView, now: datetime) -> None:
    """What holds at every moment of every booking."""
    if view.state is State.ACTIVE:
        assert view.provided_at is not None
    if view.provided_at is not None:
        assert WINDOW.contains(view.provided_at)
        assert view.provided_at <= now
    assert (view.state is State.ENDED) == (view.outcome is not None)
    if view.outcome is Outcome.NOT_PROVIDED:
        assert view.provided_at is None
    if view.outcome in (Outcome.COMPLETED, Outcome.RELEASED, Outcome.NO_SHOW, Outcome.FAILED):
        assert view.provided_at is not None
    if view.state in (State.ENDING, State.ENDED):
        assert view.left_at <= WINDOW.end
        assert view.provided_at is None or view.provided_at <= view.left_at
    if view.state is State.ENDED:
        assert view.left_at <= view.freed_at
    if view.state in FINAL:
        assert view.conditions == {}
        assert next_step(view, now, PACE) == Step(None, None)
    else:
        assert next_step(view, now, PACE).next_at >= now
    last = view.left_at or WINDOW.end
    for unit in (0, 1):
        mine = sorted((o for o in view.outages if o.unit == unit), key=lambda o: o.since)
        for outage in mine:
            assert view.provided_at <= outage.since
            assert outage.until is None or outage.since <= outage.until <= last
            assert outage.until is not None or view.state is State.ACTIVE
        for one, other in pairwise(mine):
            assert one.until is not None
            assert one.until <= other.since
    if view.state is State.ACTIVE:
        assert (Condition.DEGRADED in view.conditions) == any(o.until is None for o in view.outages)


@settings(max_examples=250, deadline=None)
@given(st.lists(acts, max_size=25), st.sampled_from([None, timedelta(minutes=2)]))
def test_no_order_of_events_breaks_a_promise(story, limit):
    pace = Pace(give_up_after=limit)
    view, now = BookingView(State.BOOKED, WINDOW, units=(0, 1)), clock("09:45")
    path = [view.state]
    for act, what in story:
        if act == "wait":
            now += timedelta(seconds=what)
            changes = tick(view, now, pace)
        elif act == "see":
            changes = apply_observation(view, what, now, pace)
            again = follow(view, changes)
            assert follow(again, apply_observation(again, what, now, pace)).outages == again.outages, (
                "told twice is once"
            )
        elif act == "fail":
            changes = apply_failure(view, "refused", what, now, pace)
        else:
            view = follow(view, tick(view, now, pace))
            changes = (
                leave(view, what, now)
                if may(view.state, what) and not (what is Event.CANCEL and cancel_event(view) is Event.WITHDRAW)
                else ()
            )
        view = follow(view, changes)
        path.append(view.state)
        check(view, now)
    assert tick(follow(view, tick(view, now, pace)), now, pace) == (), "time brings the same thing once"
    owned = any(s in (State.STARTING, State.ACTIVE) for s in path)
    # Whatever happened: when its time is over and the cluster says that nothing is left, it comes to an end.
    now = max(now, WINDOW.end) + timedelta(seconds=1)
    gone = Seen("gone", empty_since=now)
    for _ in range(3):
        view = follow(view, tick(view, now, pace))
        path.append(view.state)
        view = follow(view, apply_observation(view, gone, now, pace))
        path.append(view.state)
        check(view, now)
    assert view.state in FINAL
    assert not owned or State.ENDING in path


@pytest.mark.parametrize("seed", range(40))
def test_followed_step_by_step_a_booking_with_lost_calls_still_gets_its_window(seed):
    """The worker's loop against a cluster of ten lines, whose answers are sometimes lost after the act."""
    chance = random.Random(seed)
    view, now, made, emptied = booked(), clock("08:00"), None, None
    for _ in range(600):
        view = follow(view, tick(view, now, PACE))
        step = next_step(view, now, PACE)
        if step.call == "ensure" and made is None:
            made = now + timedelta(seconds=2)
        if step.call == "release" and made is not None:
            made, emptied = None, now + timedelta(seconds=3)
        if step.call and chance.random() < 0.2:
            view = replace(follow(view, apply_failure(view, "no answer", False, now, PACE)), failures=view.failures + 1)
        elif step.call:
            if made is not None:
                seen = Seen("ready" if made <= now else "preparing", in_place_since=made if made <= now else None)
            elif emptied is not None:
                seen = Seen("gone" if emptied <= now else "ending", empty_since=emptied if emptied <= now else None)
            else:
                seen = Seen("absent")
            ensured = view.wanted if step.call == "ensure" else view.ensured
            changes = apply_observation(view, seen, now, PACE)
            view = replace(follow(view, changes), seen=seen, ensured=ensured, failures=0)
        step = next_step(view, now, PACE)
        if step.next_at is None:
            break
        assert step.next_at > now or view.state is State.BOOKED
        now = max(step.next_at, now)
    assert view.outcome is Outcome.COMPLETED
    assert charged(view) == (clock("10:00"), clock("14:00"))
