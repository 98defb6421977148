"""Any order of looks, failures, measurements and verbs: what holds at every moment of every booking. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from app.bookings.evidence import apply_failure, apply_observation
from app.bookings.lifecycle import (
    FINAL,
    BookingView,
    Clear,
    Condition,
    Event,
    Outage,
    Outcome,
    Raise,
    Seen,
    State,
    cancel_event,
    follow,
    leave,
    may,
    next_step,
    reserved,
    tick,
)
from app.bookings.watching import (
    Use,
    kept_until,
    next_warning,
    pace_of,
    warning_due,
    warnings,
    watch,
    worst_lost,
)
from app.inventory.policy import Policy
from app.kernel.window import Window

START = datetime(2026, 12, 1, 10, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WINDOW = Window(START, START + 60 * MINUTE)
POLICIES = (
    Policy(),
    Policy(no_show=None, idle_release=15 * MINUTE, grace=5 * MINUTE),
    Policy(no_show=10 * MINUTE, no_show_warn=5 * MINUTE, give_up=20 * MINUTE, blip=timedelta(0)),
    Policy(no_show=10 * MINUTE, no_show_warn=10 * MINUTE, idle_warn=None, end_warn=None),
)

minutes = st.integers(-15, 80)
instants = minutes.map(lambda m: START + m * MINUTE)
maybe = st.one_of(st.none(), instants)
losses = st.builds(
    lambda unit, since, length: Outage(unit, since, None if length is None else since + length * MINUTE, "x"),
    st.integers(0, 3),
    instants,
    st.one_of(st.none(), st.integers(1, 30)),
)
sights = st.builds(
    Seen,
    st.sampled_from(["absent", "preparing", "ready", "ready", "ready", "degraded", "blocked", "ending", "gone"]),
    maybe,
    maybe,
    maybe,
    st.lists(losses, max_size=3).map(tuple),
    st.sampled_from(["", "why"]),
)
acts = st.one_of(
    st.tuples(st.just("wait"), st.integers(1, 20)),
    st.tuples(st.just("see"), sights),
    st.tuples(st.just("fail"), st.booleans()),
    st.tuples(st.just("use"), st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 40))),
    st.tuples(st.just("use"), st.tuples(st.booleans(), st.none(), st.none())),
    st.tuples(st.just("risk"), st.booleans()),
    st.tuples(st.just("do"), st.sampled_from([Event.RELEASE, Event.WITHDRAW, Event.CANCEL, Event.FAIL])),
)


def check(view: BookingView, now: datetime, policy: Policy) -> None:
    if view.provided_at is not None:
        assert WINDOW.contains(view.provided_at)
        assert view.provided_at <= now
    charged = reserved(view, now)
    if view.provided_at is None:
        assert charged is None, "never charged when not provided"
    if charged is not None:
        assert WINDOW.start <= charged.start < charged.end <= min(WINDOW.end, view.left_at or WINDOW.end)
    if Condition.IDLE in view.conditions:
        assert view.state is State.ACTIVE
        assert view.conditions[Condition.IDLE].since >= view.provided_at
    if view.outcome is Outcome.NO_SHOW:
        assert view.provided_at is not None
    if view.outcome is Outcome.NOT_PROVIDED:
        assert charged is None
    if view.state in FINAL:
        assert view.conditions == {}
        assert next_warning(view, policy, now) is None
    else:
        step = next_step(view, now, pace_of(policy))
        assert step.next_at is not None, "nothing that is not over is forgotten"
        assert step.next_at >= now
    due = warning_due(view, policy, now)
    if due is not None:
        assert view.state is State.ACTIVE
        assert WINDOW.start < due.at <= now < WINDOW.end


def told(view: BookingView, what: tuple, now: datetime) -> Use:
    used, empty, still = what
    until = min(now, WINDOW.end)

    def since(back: int | None) -> datetime | None:
        return None if back is None or view.provided_at is None else max(view.provided_at, until - back * MINUTE)

    # what is empty computes nothing either
    longest = None if still is None else max(still, empty or 0)
    return Use(until, (view.provided_at or START) if used else None, since(empty), since(longest))


@settings(max_examples=400, deadline=None)
@given(st.lists(acts, max_size=30), st.sampled_from(POLICIES))
def test_no_story_breaks_a_promise(story, policy):
    pace = pace_of(policy)
    view, now = BookingView(State.BOOKED, WINDOW, units=(0, 1, 2, 3)), START - 15 * MINUTE
    path = [view.state]
    for act, what in story:
        if act == "wait":
            now += what * MINUTE
            changes = tick(view, now, pace)
        elif act == "see":
            changes = apply_observation(view, what, now, pace)
            view = replace(view, seen=what, failures=0, ensured=view.wanted)
        elif act == "fail":
            view = replace(view, failures=view.failures + 1)
            changes = apply_failure(view, "no answer", what, now, pace)
        elif act == "use":
            use = told(view, what, now)
            found = watch(view, policy, use, now)
            changes = found.changes
            assert view.state is State.ACTIVE or not changes
            if found.released is not None:
                assert use.empty_since is not None, (
                    "nobody is released on missing measurements, or while units are held"
                )
                at_once = policy.no_show_warn == policy.no_show and found.released is Event.NO_SHOW
                assert Condition.IDLE in view.conditions or at_once, "not without a warning"
                assert (found.released is Event.NO_SHOW) == (use.first is None)
            after = follow(view, changes)
            if found.released is None:
                assert watch(after, policy, use, now).changes == () or watch(after, policy, use, now).released, (
                    "said once"
                )
        elif act == "risk":
            if view.state in FINAL or view.state in (State.ACTIVE, State.ENDING):
                continue
            has = Condition.AT_RISK in view.conditions
            if what == has:
                continue
            changes = (Raise(Condition.AT_RISK, now, "x"),) if what else (Clear(Condition.AT_RISK, now),)
        else:
            view = follow(view, tick(view, now, pace))
            impossible = not may(view.state, what) or (what is Event.CANCEL and cancel_event(view) is Event.WITHDRAW)
            changes = () if impossible else leave(view, what, now)
        view = follow(view, changes)
        path.append(view.state)
        check(view, now, policy)
        if view.state is State.ACTIVE:
            nodes = [(1, (0, 1)), (2, (2, 3))]
            lost = {o.unit for o in view.outages if o.until is None}
            for node in worst_lost(view, nodes, policy.blip, now):
                assert set(dict(nodes)[node]) <= lost
    owned = any(s in (State.STARTING, State.ACTIVE) for s in path)
    now = max(now, WINDOW.end) + MINUTE
    for _ in range(3):
        view = follow(view, tick(view, now, pace))
        path.append(view.state)
        view = follow(view, apply_observation(view, Seen("gone", empty_since=now), now, pace))
        path.append(view.state)
        check(view, now, policy)
    assert view.state in FINAL
    assert not owned or State.ENDING in path, "every road that may own something leaves through ENDING"


@given(st.sampled_from([*FINAL, *State]), st.sampled_from([True, False]), st.booleans())
def test_bug_21_every_open_state_has_a_defined_step_when_its_end_has_passed(state, asked, provided):
    now = WINDOW.end + MINUTE
    view = BookingView(state, WINDOW, units=(0,), asked=asked)
    if state in (State.ACTIVE, State.ENDING):
        view = replace(view, provided_at=START, left_by=Event.END if state is State.ENDING else None)
    view = follow(view, tick(view, now))
    step = next_step(view, now)
    waits_for_people = view.state in (State.WAITING, State.REQUESTED)
    if view.state in FINAL or waits_for_people:
        assert (step.call, step.next_at) == (None, None), "requests have due rows of their own"
    else:
        assert step.call is not None
        assert step.next_at > now
    assert view.state is not State.ACTIVE


def test_grace_lasts_until_somebody_needs_the_units():
    policy = Policy(grace=10 * MINUTE, reclaim_lead=2 * MINUTE)
    end = WINDOW.end
    assert kept_until(end, policy, None) == end + 10 * MINUTE
    assert kept_until(end, policy, end + 60 * MINUTE) == end + 10 * MINUTE
    assert kept_until(end, policy, end + 7 * MINUTE) == end + 5 * MINUTE
    assert kept_until(end, policy, end) is None
    assert kept_until(end, Policy(), None) is None


def test_warnings_lie_inside_the_window_in_order():
    policy = Policy(reclaim_lead=2 * MINUTE)
    assert [(w.name, WINDOW.end - w.at) for w in warnings(WINDOW, policy)] == [
        ("soon", 30 * MINUTE),
        ("last", 5 * MINUTE),
        ("stop", 2 * MINUTE),
    ]
    short = Window(START, START + 20 * MINUTE)
    assert [w.name for w in warnings(short, Policy())] == ["last"]
    view = BookingView(State.ACTIVE, WINDOW, provided_at=START)
    assert next_warning(view, policy, START) == WINDOW.end - 30 * MINUTE
    assert warning_due(view, policy, START) is None
    assert warning_due(view, policy, WINDOW.end - 3 * MINUTE).name == "last"
    assert warning_due(view, policy, WINDOW.end) is None
