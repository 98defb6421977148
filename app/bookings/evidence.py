"""What a cluster's answer makes of a booking: provided from when, lost and back again, empty at last.

Pure, beside `lifecycle.py`, whose table it obeys. It reads `Seen` and proposes changes; it must not know which kind of
cluster answered, and it never takes silence for an answer.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from app.bookings.lifecycle import (
    DEFAULT_PACE,
    BookingView,
    Change,
    Clear,
    Condition,
    Event,
    Lose,
    Move,
    Outage,
    Pace,
    Raise,
    Regain,
    Seen,
    State,
    follow,
    leaving,
    tick,
)

S, E = State, Event
_OVER = "The cluster had ended it before: it never heard of the later end."


def apply_observation(view: BookingView, seen: Seen, now: datetime, pace: Pace = DEFAULT_PACE) -> tuple[Change, ...]:
    """What an observation changes. The caller also stores `seen`, sets `failures` to 0, and after an `ensure`
    `ensured`.

    Applies to the view as it is in the database now, which may have moved on since the call was made. What time alone
    brings is included, so an observation that comes after the end of the window still says first what was provided.
    """
    match view.state:
        case S.BOOKED | S.STARTING:
            return _apply_before(view, seen, now, pace)
        case S.ACTIVE:
            changes = _units(view, seen, now)
            return (*changes, *tick(follow(view, changes), now, pace))
        case S.ENDING:
            return _apply_ending(view, seen, now)
        case _:
            return ()


def apply_failure(
    view: BookingView, why: str, definite: bool, now: datetime, pace: Pace = DEFAULT_PACE
) -> tuple[Change, ...]:
    """What a call that raised changes. The caller also counts `failures`.

    `definite`: the cluster refused (permission, conflict, capacity, unsupported ...). Otherwise (timeout, unreachable)
    nothing is known, neither that it was done nor that it was not: then nothing is given up, since a reservation made
    ahead may begin by itself.
    """
    if view.state not in (S.BOOKED, S.STARTING):
        return tick(view, now, pace)
    ticked = tick(view, now, pace)
    if follow(view, ticked).state is S.ENDING:  # it never took anything, and its time is over
        return ticked
    changes = [c for c in ticked if not (isinstance(c, Raise) and c.condition is Condition.LATE)]
    if now > view.window.start:
        changes += standing(view, Condition.LATE, view.window.start, why)
    if definite:
        changes += standing(view, Condition.BLOCKED, now, why)
        if now >= _deadline(view, pace):
            changes += leaving(follow(view, changes), E.GIVE_UP, min(now, view.window.end), why)
    return tuple(changes)


def _apply_before(view: BookingView, seen: Seen, now: datetime, pace: Pace) -> tuple[Change, ...]:
    """BOOKED or STARTING: was it provided, and from when; else what keeps it."""
    start, end = view.window.start, view.window.end
    changes: list[Change] = []
    if view.state is S.BOOKED:
        if now < start - pace.ahead:  # made ahead: nothing more to decide before it begins
            return tuple(_blocked(view, seen, now))
        changes.append(Move(E.BEGIN, now))
    at = _provided_from(view, seen)
    # The cluster's evidence counts, also when Berth was away while it began, and even when the window is over by now.
    if at is not None and at <= now:
        over = (Condition.LATE, Condition.BLOCKED, Condition.AT_RISK)
        changes += [Clear(c, at) for c in over if c in view.conditions]
        changes.append(Move(E.PROVIDE, at))
        changes += _units(follow(view, changes), seen, now)
        return (*changes, *tick(follow(view, changes), now, pace))
    if now > start:
        why = seen.why or "The cluster has not said yet that the units are in place."
        changes += standing(view, Condition.LATE, start, why)
    changes += _blocked(view, seen, now)
    if now >= _deadline(view, pace):
        changes += leaving(follow(view, changes), E.GIVE_UP, min(now, end), seen.why)
    return tuple(changes)


def _blocked(view: BookingView, seen: Seen, now: datetime) -> list[Change]:
    """The condition as the cluster tells it, before anything was provided."""
    if seen.state == "blocked":
        return standing(view, Condition.BLOCKED, min(seen.since or now, now), seen.why)
    return [Clear(Condition.BLOCKED, now)] if Condition.BLOCKED in view.conditions else []


def _provided_from(view: BookingView, seen: Seen) -> datetime | None:
    """From when on the cluster's word says that it was provided, inside the window; None when it says no such thing."""
    if seen.in_place_since is None or seen.state == "absent":
        return None
    at = max(view.window.start, seen.in_place_since)
    if seen.state == "gone" and seen.since is not None and seen.since <= at:  # taken away before it began
        return None
    return at if at < view.window.end else None


def _apply_ending(view: BookingView, seen: Seen, now: datetime) -> tuple[Change, ...]:
    """ENDING: only evidence ends it. `absent` was never there; `gone` counts once the units were seen empty."""
    left = view.left_at or view.window.end
    changes = _told_outages(view, seen, left)
    changes += _over_before(follow(view, changes), seen, left)
    empty_at = left if seen.state == "absent" else seen.empty_since if seen.state == "gone" else None
    if seen.state == "gone" and empty_at is None and view.ensured == 0 and seen.in_place_since is None:
        empty_at = now  # the cluster never took it, so there is nothing of it to be seen on any unit
    if empty_at is not None:
        changes += [Clear(condition, now) for condition in sorted(view.conditions)]
        changes.append(Move(E.EMPTIED, max(left, min(empty_at, now))))
    elif seen.state in ("gone", "blocked"):
        why = seen.why or "The units have not been seen empty yet."
        changes += standing(view, Condition.BLOCKED, max(left, min(seen.since or now, now)), why)
    elif Condition.BLOCKED in view.conditions:
        changes.append(Clear(Condition.BLOCKED, now))
    return tuple(changes)


def _over_before(view: BookingView, seen: Seen, left: datetime) -> list[Change]:
    """The cluster never took the last order (an extension while it was away) and ended its object by the one before:
    from then on nothing was provided."""
    told = (seen.since, seen.empty_since) if seen.state == "gone" else (seen.since,) if seen.state == "ending" else ()
    over = min((i for i in told if i is not None), default=left)
    if view.provided_at is None or view.ensured >= view.wanted or over >= left:
        return []
    changes: list[Change] = []
    for unit in view.units:
        at = max(over, view.provided_at)
        for known in sorted((o for o in view.outages if o.unit == unit), key=lambda o: o.since):
            if at < known.since < left:
                changes.append(Lose(Outage(unit, at, known.since, _OVER)))
            at = max(at, known.until or left)
        if at < left:
            changes.append(Lose(Outage(unit, at, left, _OVER)))
    return changes


def _units(view: BookingView, seen: Seen, now: datetime) -> list[Change]:
    """ACTIVE: which units are lost and which are back."""
    assert view.provided_at is not None
    last = max(view.provided_at, min(now, view.window.end))
    changes = _told_outages(view, seen, view.window.end)
    outages = follow(view, changes).outages
    lost = {o.unit for o in seen.lost if o.until is None}
    if seen.state in ("absent", "gone"):  # taken away behind our back: nothing of it is there
        since = min(max(seen.since or last, view.provided_at), last)
        gone = sorted(set(view.units) - {o.unit for o in outages if o.until is None})
        if since < view.window.end:
            changes += [Lose(Outage(unit, since, None, seen.why)) for unit in gone]
        lost = set(view.units)
    told = {(o.unit, o.since) for o in _clipped(view, seen, view.window.end)}
    changes += [
        Regain(o.unit, o.since, _back_at(o, seen, last))
        for o in outages
        if o.until is None and o.unit not in lost and (o.unit, o.since) not in told
    ]
    return changes + degraded(follow(view, changes), last)


def _told_outages(view: BookingView, seen: Seen, last: datetime) -> list[Change]:
    """What the cluster says of outages, as far as it is new, cut to the time in which the units were provided."""
    changes: list[Change] = []
    for told in _clipped(view, seen, last):
        known = sorted((o for o in follow(view, changes).outages if o.unit == told.unit), key=lambda o: o.since)
        at: datetime | None = told.since  # up to here it is known; None: it is known to last
        for o in known:
            if at is None or (told.until is not None and o.since >= told.until):
                break
            if o.until is None and told.since <= o.since and told.until is not None:
                changes.append(Regain(o.unit, o.since, told.until))
            if at < o.since:
                changes.append(Lose(replace(told, since=at, until=o.since)))
            at = None if o.until is None else max(at, o.until)
        if at is not None and (told.until is None or at < told.until):
            changes.append(Lose(replace(told, since=at)))
    return changes


def _clipped(view: BookingView, seen: Seen, last: datetime) -> list[Outage]:
    """The told outages inside `[provided_at, last)`; one that lasts stays open only while the booking is active."""
    if view.provided_at is None:
        return []
    clipped = []
    for told in sorted(seen.lost, key=lambda o: (o.since, o.unit)):
        until = last if told.until is None and view.state is S.ENDING else told.until and min(told.until, last)
        since = max(told.since, view.provided_at)
        if since < (until or last) and told.unit in view.units:
            clipped.append(Outage(told.unit, since, until, told.why))
    return clipped


def _back_at(outage: Outage, seen: Seen, last: datetime) -> datetime:
    """When a unit came back of whose loss the cluster says nothing (any more): when its object was made anew, if that
    is told, else when it was seen."""
    anew = seen.in_place_since
    return min(anew, last) if anew is not None and anew > outage.since else max(last, outage.since)


def degraded(view: BookingView, at: datetime) -> list[Change]:
    """The condition that follows from the outages that last."""
    lost = [o for o in view.outages if o.until is None]
    if not lost:
        return [Clear(Condition.DEGRADED, at)] if Condition.DEGRADED in view.conditions else []
    reasons = sorted({o.why for o in lost if o.why})
    why = " ".join([f"{len(lost)} of {len(view.units)} units are lost.", *reasons])
    return standing(view, Condition.DEGRADED, min(o.since for o in lost), why)


def _deadline(view: BookingView, pace: Pace) -> datetime:
    """From when on a booking that is not in place is given up."""
    if pace.give_up_after is None:
        return view.window.end
    return min(view.window.start + pace.give_up_after, view.window.end)


def standing(view: BookingView, condition: Condition, since: datetime, why: str) -> list[Change]:
    """Nothing when it stands already for that reason; its beginning stays when only the reason changes."""
    standing = view.conditions.get(condition)
    if standing is None:
        return [Raise(condition, since, why)]
    return [] if standing.why == why or not why else [Raise(condition, standing.since, why)]
