"""What becomes of a booking that is in place: nobody uses it, it stands idle, it comes to its end.

Pure, beside `lifecycle.py`, whose table it obeys. What was measured is told (`Use`); a gap in measurements is not
idleness, and what is not known releases nobody. It must not know where measurements come from, whom a warning reaches,
or what a unit costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.bookings.lifecycle import (
    BookingView,
    Change,
    Clear,
    Condition,
    Event,
    Pace,
    Raise,
    State,
    leave,
)
from app.inventory.policy import Policy
from app.kernel.window import Window


@dataclass(frozen=True, slots=True)
class Use:
    """What measurements say of a booking up to `until`, as far as they are complete. Instants of the product clock.

    `first`: when something first held a unit; None: never, as far as is known. `empty_since`: from when on, without a gap
    up to `until`, every unit was measured and nothing held any of them: no process, no session. `still_since`: the same
    for units that were held or not, and computed nothing (somebody may be loading data). None: the last measurement says
    otherwise, or says nothing.
    """

    until: datetime
    first: datetime | None = None
    empty_since: datetime | None = None
    still_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """What use brings. `changes` as lifecycle has them; `released`: the event by which it was given back, if it was."""

    changes: tuple[Change, ...] = ()
    released: Event | None = None


def pace_of(policy: Policy, pace: Pace | None = None) -> Pace:
    """How closely a booking under this policy is followed; `pace` says what no policy does."""
    return replace(pace or Pace(), ahead=policy.made_ahead, late_after=policy.late_after, give_up_after=policy.give_up)


def watch(view: BookingView, policy: Policy, use: Use, now: datetime, warned_at: datetime | None = None) -> Watched:
    """No-show, idleness and their end, by lengths and never by an exact minute: what was missed is found later.

    A booking is released only when it was warned of that before, in time to do something (`warned_at`: when, as far as
    somebody was told), and only while every unit is measured and empty. Time in which a unit was not there is not
    measured, so a dead node is no no-show.
    """
    if view.state is not State.ACTIVE or view.provided_at is None or now >= view.window.end:
        return Watched()
    warned = view.conditions.get(Condition.IDLE)
    if use.first is None:
        since, empty = use.empty_since, use.empty_since
        warn_after, release_after, event = policy.no_show_warn, policy.no_show, Event.NO_SHOW
    else:
        since, empty = use.still_since, use.empty_since
        warn_after, release_after, event = policy.idle_warn, policy.idle_release, Event.RELEASE
    if since is None:
        return Watched((Clear(Condition.IDLE, min(max(use.until, warned.since), now)),)) if warned else Watched()
    since = max(since, view.provided_at)
    in_time = warned_at is None or now >= warned_at + notice_of(release_after, warn_after)
    long_empty = empty is not None and release_after is not None and use.until - max(empty, since) >= release_after
    if warned and long_empty and in_time:
        return Watched(leave(view, event, now, _left(event, release_after)), event)
    at_once = event is Event.NO_SHOW and release_after is not None and warn_after is not None
    if at_once and warn_after >= release_after and empty is not None and use.until - since >= release_after:
        return Watched(leave(view, event, now, _left(event, release_after)), event)  # the pool asks for no warning
    if warned or warn_after is None or use.until - since < warn_after:
        return Watched()
    return Watched((Raise(Condition.IDLE, since, _why(use.first is None, release_after, since)),))


def notice_of(release_after: timedelta | None, warn_after: timedelta | None) -> timedelta:
    """How long a warning leaves at least until a release: half the time between the two, however late it was given."""
    if release_after is None or warn_after is None or release_after <= warn_after:
        return timedelta(0)
    return timedelta(seconds=(release_after - warn_after) // timedelta(seconds=2))


def _why(never: bool, release_after: timedelta | None, since: datetime) -> str:
    """The condition's reason: a sentence without times, which the reader's zone has to say."""
    what = "Nothing has used it yet." if never else "Its units compute nothing."
    if release_after is None:
        return what
    return f"{what} It is released when nothing holds its units for {_minutes(release_after)}."


def _left(event: Event, after: timedelta) -> str:
    if event is Event.NO_SHOW:
        return f"Nothing used it for {_minutes(after)} from its start on."
    return f"Nothing held its units for {_minutes(after)}."


def _minutes(length: timedelta) -> str:
    minutes, seconds = divmod(int(length.total_seconds()), 60)
    if seconds or not minutes:
        return f"{int(length.total_seconds())} seconds"
    return "a minute" if minutes == 1 else f"{minutes} minutes"


# --- the end ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EndWarning:
    """A word before the end: `name` tells which, `at` when it is due."""

    name: str
    at: datetime


def warnings(window: Window, policy: Policy) -> tuple[EndWarning, ...]:
    """The warnings before an end, earliest first. One that would come with the start, or before it, is left out."""
    found = [
        EndWarning(name, window.end - ahead)
        for name, ahead in (("soon", policy.end_warn), ("last", policy.end_warn_last), ("stop", policy.reclaim_lead))
        if ahead is not None and timedelta(0) < ahead < window.end - window.start
    ]
    return tuple(sorted(found, key=lambda w: w.at))


def warning_due(view: BookingView, policy: Policy, now: datetime) -> EndWarning | None:
    """The warning that holds now: the latest whose time has come. One that was missed is not made up for after the next."""
    if view.state is not State.ACTIVE or now >= view.window.end:
        return None
    return max((w for w in warnings(view.window, policy) if w.at <= now), key=lambda w: w.at, default=None)


def next_warning(view: BookingView, policy: Policy, now: datetime) -> datetime | None:
    """When the next one is due."""
    if view.state not in (State.STARTING, State.ACTIVE):
        return None
    return min((w.at for w in warnings(view.window, policy) if w.at > now), default=None)


def kept_until(end: datetime, policy: Policy, follows_at: datetime | None) -> datetime | None:
    """Until when what runs may go on after the end: `grace`, or until who follows needs the units. None: it may not."""
    until = end + policy.grace
    if follows_at is not None:
        until = min(until, follows_at - policy.reclaim_lead)
    return until if until > end else None


def worst_lost(
    view: BookingView, nodes: Iterable[tuple[int, tuple[int, ...]]], blip: timedelta, now: datetime
) -> tuple[int, ...]:
    """The nodes (id, its units of the booking) of which every unit is lost now, and has been for longer than a blip."""
    since = {o.unit: o.since for o in view.outages if o.until is None}
    return tuple(
        node
        for node, units in nodes
        if units and all(u in since for u in units) and now - max(since[u] for u in units) >= blip
    )
