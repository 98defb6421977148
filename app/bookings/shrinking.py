"""Shrink: an earlier end, fewer units, or both. Takes no pool: it only gives back. A failed one changes nothing.

Units count as the booking's, and are charged, up to the second of the shrink. Where something may stand on them they stay
blocked until the cluster says that they are empty; what lies between is charged to nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

from app.bookings import queries, queries_edits, queries_requests, rules, schedule
from app.bookings.edits import (
    Key,
    allow,
    caught_up,
    change,
    look_now,
    not_in_state,
    pool_of,
    project_of,
    see,
    tell_owner,
    view_now,
)
from app.bookings.facts import Booking, PriceSegment
from app.bookings.giving_back import Leave, Smaller, choose, freed_effects, smaller
from app.bookings.lifecycle import BookingView, Change, Clear, Condition, Regain, State
from app.bookings.moves import write_changes
from app.bookings.queries_requests import Piece
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.kernel.actor import Actor
from app.kernel.errors import Reason, Refusal, Refused
from app.kernel.window import Window
from app.plumbing.db import Work
from app.plumbing.queue import Queue
from app.pricing.rules import Cost
from app.quotas import queries as quotas
from app.quotas.rules import QuotaEffect, months_of

OPEN = (State.BOOKED, State.STARTING, State.ACTIVE)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is asked: until when it lasts, how many units (or whole nodes) it keeps. At least one is said."""

    end: datetime | None = None
    units: int | None = None
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Shrink:
    """A smaller booking and what it means. `back`: how much less it costs. `leaves`: what each node gives back."""

    booking: Booking
    end: datetime
    to: Smaller
    leaves: tuple[Leave, ...]
    segments: tuple[PriceSegment, ...]
    total: Cost
    back: Decimal
    effects: tuple[QuotaEffect, ...]


def quote_shrink(work: Work, actor: Actor, booking_id: UUID, kept: Kept) -> Shrink:
    """What a shrink would give back, without making it. Raises what the shrink itself would."""
    booking = see(work, actor, booking_id)
    allow(actor, booking)
    now = work.product_now()
    view = view_now(work, booking, now)
    if view.state not in OPEN:
        raise not_in_state(booking, view.state, "shrunk")
    return _plan(work, booking, view, pool_of(work, booking), kept, now)


def shrink(
    work: Work,
    queue: Queue,
    actor: Actor,
    booking_id: UUID,
    kept: Kept,
    key: Key | None = None,
    version: int | None = None,
) -> Booking:
    """End earlier, or keep fewer units, from now on. What is given back goes to the project at once.

    Raises Refused with every reason, Conflict in a state that has nothing to give back.
    """

    def apply(booking: Booking, now: datetime) -> None:
        view, state = caught_up(work, booking, now)
        if state not in OPEN:
            raise not_in_state(booking, state, "shrunk")
        pool = pool_of(work, booking)
        plan = _plan(work, booking, view, pool, kept, now)
        _write(work, booking, view, plan, pool, actor, now)
        tell_owner(work, actor, booking, "booking_shrunk", now)
        allocation = queries.allocation_of(work, booking.id)
        assert allocation is not None
        if view.asked:
            queries.want_more(work, booking.id)
            look_now(work, queue, booking, allocation.id, now)

    return change(work, actor, booking_id, key, version, "shrink", apply)


def cut_short(
    work: Work, queue: Queue, actor: Actor, booking: Booking, view: BookingView, end: datetime, now: datetime
) -> Shrink:
    """An earlier end that is not its owner's wish: no rule of the pool is asked. Booking and holds are locked, and the
    window begins before `end`. The caller tells the owner."""
    pool = pool_of(work, booking)
    plan = _plan(work, booking, view, pool, Kept(end=end), now, by_rule=False)
    _write(work, booking, view, plan, pool, actor, now)
    allocation = queries.allocation_of(work, booking.id)
    assert allocation is not None
    if view.asked:
        queries.want_more(work, booking.id)
        look_now(work, queue, booking, allocation.id, now)
    return plan


def _plan(
    work: Work, booking: Booking, view: BookingView, pool: Pool, kept: Kept, now: datetime, *, by_rule: bool = True
) -> Shrink:
    end = kept.end if kept.end is not None else booking.ends_at
    to: Smaller | Reason = Smaller(booking.units, booking.nodes, booking.per_node)
    reasons = check_earlier(booking, end, pool, now) if kept.end is not None and by_rule else []
    if kept.units is not None or kept.nodes is not None or kept.end is None:
        to = smaller(booking.units, booking.nodes, booking.per_node, kept.units, kept.nodes)
        if view.asked and not _in_place(work, booking):
            reasons.append(_not_here(booking))
    if isinstance(to, Reason):
        reasons.append(to)
    if reasons or isinstance(to, Reason):
        raise Refused(Refusal(tuple(reasons)))
    held = queries.holds_of(work, booking.id)
    lost = frozenset(o.unit for o in view.outages if o.until is None)
    leaves = choose(held, booking.units, to, lost) if to.units < booking.units else ()
    before = queries.segments_of(work, booking.id)
    after = schedule.within(before, Window(booking.starts_at, end))
    if to.units < booking.units and now > booking.starts_at:
        after = schedule.shrunk(after, now, booking.units)
    old = schedule.cost_of(before, booking.units, booking.currency, booking.share840)
    total = schedule.cost_of(after, to.units, booking.currency, booking.share840)
    effects = _effects(work, booking, before, after, to.units, now)
    return Shrink(booking, end, to, leaves, after, total, old.amount - total.amount, effects)


def check_earlier(booking: Booking, end: datetime, pool: Pool, now: datetime) -> list[Reason]:
    """An earlier end. Never refused for being long: a rule that was set later holds nobody to what was booked before."""
    asked = rules.iso(end)
    if end >= booking.ends_at:
        return [
            Reason("not_earlier", "A booking that is shortened ends before its end.", rules.iso(booking.ends_at), asked,
                   "Choose an earlier end, or extend it.", "end", True)
        ]  # fmt: skip
    if end <= max(now, booking.starts_at):
        begun = booking.starts_at <= now
        return [
            Reason("ends_at_once", f"It would end by {asked}: nothing of it is left then.",
                   rules.iso(max(now, booking.starts_at)), asked,
                   "Release it instead." if begun else "Cancel it instead.", "end", True)
        ]  # fmt: skip
    reasons = []
    if (booking.ends_at - end) % pool.policy.grid:
        grid, by = rules.length_text(pool.policy.grid), booking.ends_at - end
        reasons.append(
            Reason("length_off_grid", f"It is shortened by multiples of {grid}.", grid, rules.length_text(by),
                   f"Shorten it by {rules.length_text(rules.snap_up(by, pool.policy.grid))}.", "end", True)
        )  # fmt: skip
    if booking.starts_at > now and end - booking.starts_at < pool.policy.min_length:
        least, length = rules.length_text(pool.policy.min_length), rules.length_text(end - booking.starts_at)
        reasons.append(
            Reason("too_short", f"A booking lasts at least {least}. It would last {length}.", least, length,
                   "Keep it longer, or release it once it has begun: only the time until then is charged.", "end", True)
        )  # fmt: skip
    return reasons


def _effects(
    work: Work,
    booking: Booking,
    before: tuple[PriceSegment, ...],
    after: tuple[PriceSegment, ...],
    units: int,
    now: datetime,
) -> tuple[QuotaEffect, ...]:
    since = max(now, booking.provided_at or booking.starts_at)
    rest = Window(since, max(booking.ends_at, since + timedelta(seconds=1)))
    old = schedule.pieces_of(schedule.within(before, rest), booking.zone, booking.units, booking.share840)
    new = schedule.pieces_of(schedule.within(after, rest), booking.zone, units, booking.share840)
    scopes = quotas.scopes_for(work, booking.tenant_id, booking.project_id, booking.account_id, [booking.kind])
    standing = quotas.standings(
        work, booking.tenant_id, scopes, rest, months_of(old), ZoneInfo(project_of(work, booking).zone), now
    )
    return freed_effects(standing, old, new)


def _write(
    work: Work, booking: Booking, view: BookingView, plan: Shrink, pool: Pool, actor: Actor, now: datetime
) -> None:
    stay = view.asked
    freed = _freed(work, booking, plan, pool, stay)
    _regain(work, booking, view, plan.leaves, actor, now)
    for leave in plan.leaves:
        kept = queries.multirange(leave.kept) if leave.kept else None
        queries_edits.leave_units(work, leave.held, kept, queries.multirange(leave.left), now, stay=stay)
    if plan.end < booking.ends_at:
        queries_edits.end_holds(work, booking.id, plan.end + pool.policy.gap)
        quotas.give_back(work, booking.id, plan.end)
    if plan.leaves:
        since = max(now, booking.provided_at or booking.starts_at)
        quotas.lower_rate(work, booking.id, since, plan.to.units * booking.share840)
    queries_edits.put_schedule(work, booking.id, plan.segments)
    to = plan.to
    queries_edits.shrink_booking(work, booking.id, plan.end, to.units, to.nodes, to.per_node, plan.total.amount)
    changes: dict = {"quoted": [str(booking.quoted), str(plan.total.amount)]}
    if plan.end < booking.ends_at:
        changes["end"] = [rules.iso(booking.ends_at), rules.iso(plan.end)]
    if plan.leaves:
        changes["units"] = [booking.units, to.units]
        changes["left"] = [[leave.held.node, leave.units] for leave in plan.leaves]
    queries_requests.pass_on(work, booking, freed, now)
    queries.note(work, booking.id, "shrink", view.state, view.state, actor, now, "", changes)


def _freed(work: Work, booking: Booking, plan: Shrink, pool: Pool, stay: bool) -> list[Piece]:
    """What others can have at once: the time after the new end, and units on which nothing ever was."""
    leaves = {leave.held.id: leave for leave in plan.leaves}
    allocation = queries.allocation_of(work, booking.id)
    assert allocation is not None
    end, freed = plan.end + pool.policy.gap, []
    for h in queries.holds_of(work, booking.id):
        leave = leaves.get(h.id)
        kept = leave.kept if leave is not None else h.ranges
        if leave is not None and not stay:
            freed.append(Piece(h.node_id, leave.left, h.start, h.end, allocation.id))
        if kept and end < h.end:
            freed.append(Piece(h.node_id, kept, end, h.end, allocation.id))
    return freed


def _regain(
    work: Work, booking: Booking, view: BookingView, leaves: tuple[Leave, ...], actor: Actor, now: datetime
) -> None:
    """Lost units that are given back are nobody's outage any more."""
    gone = {g for leave in leaves for lower, upper in leave.left for g in range(lower // 64, (upper + 63) // 64)}
    ended = [o for o in view.outages if o.until is None and o.unit in gone]
    changes: list[Change] = [Regain(o.unit, o.since, max(o.since, now)) for o in ended]
    still = [o for o in view.outages if o.until is None and o.unit not in gone]
    if ended and not still and Condition.DEGRADED in view.conditions:
        changes.append(Clear(Condition.DEGRADED, now))
    write_changes(work, booking, view, changes, actor, now)


def _in_place(work: Work, booking: Booking) -> bool:
    """Whether the cluster can take units out of what it has made already. Not known is not possible."""
    probe = inventory.cluster_with_id(work, booking.cluster_id).probe or {}
    return "places" in ((probe.get("capabilities") or {}).get("in_place") or ())


def _not_here(booking: Booking) -> Reason:
    return Reason("cluster_cannot", f"{booking.cluster} cannot take units out of a booking that stands there already.", None,
                  None, "End it earlier, or release it and book fewer units.", "units")  # fmt: skip
