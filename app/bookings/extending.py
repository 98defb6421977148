"""Extend: a later end on the same units, at the prices published now. A failed extension changes nothing.

Who comes after gives way where that breaks no promise: a booking that has not started and is not pinned goes to other units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from psycopg.errors import ExclusionViolation

from app.accounts import cluster_users
from app.bookings import asking, gaps, ground, offers, policies, queries, queries_edits, rules, schedule
from app.bookings.capacity import FOREVER, PoolSnapshot, instant
from app.bookings.edits import (
    Key,
    allow,
    caught_up,
    check_version,
    done_before,
    look_now,
    not_in_state,
    pool_of,
    project_of,
    see,
    tell_owner,
    view_now,
)
from app.bookings.facts import Booking, Held, PriceSegment
from app.bookings.giving_back import units_of
from app.bookings.ground import MovedMeanwhile, Site
from app.bookings.lifecycle import State
from app.bookings.offers import Desk
from app.bookings.own_use import without
from app.bookings.placement import NoPlace, Part, free_until
from app.bookings.recolour import Moved
from app.bookings.rules_load import Approval
from app.bookings.schemas import duration_text
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.kernel.actor import Actor
from app.kernel.errors import Alternative, Reason, Refusal, Refused
from app.kernel.window import Window
from app.plumbing.db import Work
from app.plumbing.queue import Queue
from app.pricing.rules import Cost, Segment, cost
from app.quotas import queries as quotas
from app.quotas.rules import QuotaEffect, Scope, pieces

_STEPS = tuple(timedelta(minutes=m) for m in (15, 30, 60, 120, 240, 360, 720, 1440, 2880, 5760, 10080))
"""Lengths for which it is tried whether others would give way."""


@dataclass(frozen=True, slots=True)
class Extension:
    """A later end and what it means: the price of what is added, and of all of it; who has to approve all of it; which
    holds give way for it."""

    booking: Booking
    end: datetime
    added: Cost
    total: Cost
    segments: tuple[PriceSegment, ...]
    effects: tuple[QuotaEffect, ...]
    approval: Approval | None = None
    moves: tuple[Moved, ...] = ()


def quote_extension(
    work: Work, actor: Actor, booking_id: UUID, by: timedelta | None, end: datetime | None
) -> Extension:
    """What an extension would cost, without making it. Raises what the extension itself would."""
    booking = see(work, actor, booking_id)
    allow(actor, booking)
    now = work.product_now()
    state = view_now(work, booking, now).state
    if state not in (State.BOOKED, State.STARTING, State.ACTIVE):
        raise not_in_state(booking, state, "extended")
    project = project_of(work, booking)
    desk = Desk(work, actor, project, now, booking.account_id)
    pool = pool_of(work, booking)
    scopes = quotas.scopes_for(work, project.tenant_id, project.id, booking.account_id, [booking.kind])
    return _extension(desk, booking, pool, _new_end(booking, by, end), scopes)


def extend(
    work: Work,
    queue: Queue,
    actor: Actor,
    booking_id: UUID,
    by: timedelta | None,
    end: datetime | None,
    key: Key | None = None,
    version: int | None = None,
) -> Booking:
    """Move the end later on the same units, at the prices published now. A failed extension changes nothing."""
    done = done_before(work, actor, key, "extend", booking_id)
    if done is not None:
        return done
    booking = see(work, actor, booking_id)
    allow(actor, booking)
    project = project_of(work, booking)
    scopes = quotas.lock_scopes(work, project.tenant_id, project.id, booking.account_id, [booking.kind])
    pool = policies.lock_pool(work, booking)
    locked = queries.lock_booking(work, booking_id)
    assert locked is not None
    check_version(locked, version)
    held = queries.holds_of(work, booking_id, lock=True)
    desk = Desk(work, actor, project, work.product_now(), booking.account_id)
    _, state = caught_up(work, locked, desk.now)
    if state not in (State.BOOKED, State.STARTING, State.ACTIVE):
        raise not_in_state(locked, state, "extended")
    plan = _extension(desk, locked, pool, _new_end(locked, by, end), scopes)
    try:
        ground.make_way(work, plan.moves, desk.now)
    except MovedMeanwhile:
        raise Refused(Refusal((_until_when(held, None, pool.kind),))) from None
    if plan.approval is not None:  # it is asked for; the booking stays as it is until somebody has said yes
        money = (plan.added.amount, plan.total.amount)
        asking.ask_to_extend(desk, locked, pool, plan.end, plan.segments, money, plan.approval, scopes)
        return locked
    try:
        with work.pg.transaction():
            queries.grow_holds(work, booking_id, plan.end + pool.policy.gap)
    except ExclusionViolation:
        raise Refused(Refusal((_until_when(held, None, pool.kind),))) from None
    queries.extend_booking(work, booking_id, plan.end, plan.total.amount, plan.segments)
    asked = schedule.pieces_of(plan.segments, desk.zone.key, locked.units, locked.share840)
    quotas.commit_pieces(work, project.tenant_id, scopes, asked, booking_id)
    changes = {
        "end": [rules.iso(locked.ends_at), rules.iso(plan.end)],
        "quoted": [str(locked.quoted), str(plan.total.amount)],
    }
    queries.note(work, booking_id, "extend", state, state, actor, desk.now, "", changes)
    tell_owner(work, actor, locked, "booking_extended", desk.now, end=rules.iso(plan.end))
    queries.want_more(work, booking_id)
    inventory.raise_version(work, [pool.id])
    allocation = queries.allocation_of(work, booking_id)
    assert allocation is not None
    if locked.asked:
        look_now(work, queue, locked, allocation.id, desk.now)
    after = queries.find_booking(work, booking_id)
    assert after is not None
    return after


def extension_limit(work: Work, booking: Booking) -> datetime:
    """Until when the booking could last on its units, by what is held after it and the pool's policy."""
    pool = pool_of(work, booking)
    now = work.product_now()
    latest = min(booking.starts_at + pool.policy.max_length, now + pool.policy.horizon)
    if pool.policy.max_extension is not None:
        latest = min(latest, _first_end(work, booking) + pool.policy.max_extension)
    free = _free_until(work, booking, pool)
    if free is not None and free - pool.policy.gap < latest:
        latest = max(free - pool.policy.gap, _with_others_moved(work, booking, pool, free, latest, now))
    return max(latest, booking.ends_at)


def _with_others_moved(
    work: Work, booking: Booking, pool: Pool, free: datetime, latest: datetime, now: datetime
) -> datetime:
    """The longest of some lengths beyond what is free for which whoever comes after would give way; else what is free."""
    ends = [booking.ends_at + it for it in _STEPS if free - pool.policy.gap < booking.ends_at + it <= latest]
    found = ground.longest_stay(work, _site(work, booking, pool, now), booking.id, booking.starts_at, ends)
    return found or free - pool.policy.gap


def _site(work: Work, booking: Booking, pool: Pool, now: datetime) -> Site:
    return Site(_pool_for(work, booking, pool), now, int(pool.policy.gap.total_seconds()))


def _pool_for(work: Work, booking: Booking, pool: Pool) -> PoolSnapshot:
    """The pool without holds; what its owner uses of it without a booking stands not in the way (it was claimed)."""
    found = offers.snapshot(work, inventory.capacity_of(work, [pool])[pool.id])[0]
    if not len(found.busy) or booking.account_id is None:
        return found
    name = cluster_users.name_on(work, booking.cluster_id, booking.account_id)
    own = queries_edits.uses(work, booking.cluster_id, [(booking.cluster_id, name)]) if name is not None else ()
    return found.with_busy(without(found.busy, own)) if own else found


def _extension(desk: Desk, booking: Booking, pool: Pool, end: datetime, scopes: tuple[Scope, ...]) -> Extension:
    reasons = rules.check_extension(booking.window, _first_end(desk.work, booking), end, pool.policy, desk.now)
    if reasons and end <= booking.ends_at:
        raise Refused(Refusal(tuple(reasons)))
    reasons += rules.check_open(pool.policy, pool.kind, pool.cluster)
    if not pool.writes:
        said = f"Berth only looks at {pool.cluster} now and changes nothing there."
        reasons.append(Reason("nothing_offered", said, fix="Ask the operators when it is open again.", field="end"))
    added = Window(booking.ends_at, end)
    free = _free_until(desk.work, booking, pool)
    moves: tuple[Moved, ...] = ()
    fed = bool(inventory.capacity_of(desk.work, [pool])[pool.id].budgets)
    if fed or (free is not None and free < end + pool.policy.gap):
        site = _site(desk.work, booking, pool, desk.now)
        found = ground.stay_longer(desk.work, site, booking.id, Window(booking.starts_at, end))
        if found is None or isinstance(found, NoPlace):
            held = queries.holds_of(desk.work, booking.id)
            if isinstance(found, NoPlace) and found.power is not None:
                reasons.append(replace(rules.no_place(found, booking.kind_name, booking.cluster), field="end"))
            else:
                until = booking.ends_at if free is None else free - pool.policy.gap
                reasons.append(_until_when(held, until, booking.kind_name, found))
        else:
            moves = found.moves
    elif free is not None and (left := gaps.gap_after(free, end, pool.policy)) is not None:
        reasons.append(replace(gaps.check_gap(left, pool.policy), field="end"))
    segments = desk.segments(booking.kind, added)
    if segments is None:
        reasons.append(rules.no_price(booking.kind, desk.project.price_group))
        raise Refused(Refusal(tuple(reasons)))
    asked = pieces(segments, desk.zone, booking.units, booking.share840)
    too_much, effects = offers.limits_of(desk, pool, booking.account_id, scopes, asked, added)
    reasons += too_much
    if reasons:
        raise Refused(Refusal(tuple(reasons), _elsewhere(desk, booking, added, segments, reasons)))
    before = queries.segments_of(desk.work, booking.id)
    added_segments = tuple(PriceSegment(s.window, s.price_id, s.per_hour) for s in segments)
    total = schedule.cost_of((*before, *added_segments), booking.units, booking.currency, booking.share840)
    return Extension(
        booking,
        end,
        cost(segments, booking.units, booking.currency, booking.share840),
        total,
        added_segments,
        effects,
        offers.approval_of(desk, pool, Window(booking.starts_at, end), total, booking.units),
        moves,
    )


def _elsewhere(
    desk: Desk, booking: Booking, added: Window, segments: tuple[Segment, ...], reasons: list[Reason]
) -> tuple[Alternative, ...]:
    """Where only others stand in the way: the same time on other units, or waiting for some."""
    if {r.code for r in reasons} != {"units_taken_after"}:
        return ()
    shape = (
        {"units": booking.units} if booking.nodes is None else {"nodes": booking.nodes, "per_node": booking.per_node}
    )
    request = {
        "project": booking.project,
        "name": booking.name,
        "kind": booking.kind,
        **shape,
        "within": booking.within,
        "start": "asap",  # a start of its own may lie off the grid
        "earliest": rules.iso(added.start),
        "latest": rules.iso(added.end),
        "duration": duration_text(added.end - added.start),
        "cost_center": booking.cost_centre,
        "reference": booking.reference,
        "wait": True,
    }
    price = cost(segments, booking.units, booking.currency, booking.share840)
    amount = {"currency": price.currency, "amount": str(price.amount)}
    said = f"{booking.units} {booking.kind_name} elsewhere from {rules.iso(added.start)}, or the waiting list for them"
    return (Alternative("wait", request, amount, said),)


def _free_until(work: Work, booking: Booking, pool: Pool) -> datetime | None:
    """From when on somebody else holds one of the booking's units; None when nobody does."""
    held = queries.holds_of(work, booking.id)
    base = _pool_for(work, booking, pool)
    positions = queries.multirange(r for h in held for r in h.ranges)
    blocked = max((h.end for h in held), default=booking.ends_at)
    window = Window(booking.ends_at, max(blocked, booking.ends_at) + timedelta(days=800))
    others = base.with_busy(queries.taken_by_others(work, positions, window, booking.id).plus(base.busy))
    parts = [Part(h.node_id, units) for h, units in units_of(held, booking.units)]
    until = free_until(others, parts, Window(booking.ends_at, booking.ends_at + timedelta(seconds=1)))
    if until is None:
        return booking.ends_at
    return None if until >= FOREVER else instant(until)


def _until_when(held: tuple[Held, ...], until: datetime | None, kind: str, why: NoPlace | None = None) -> Reason:
    where = ", ".join(h.node for h in held)
    limit = None if until is None else rules.iso(until)
    text = f"Units on {where} are taken afterwards." + (f" You can have them until {limit}." if limit else "")
    if why is not None and why.pinned:
        text += " Whoever has them then could give way, but is being put in place already."
    fix = f"Extend until then, or book {kind} elsewhere for the time after it, or wait for such units."
    return Reason("units_taken_after", text, limit, None, fix, "end")


def _first_end(work: Work, booking: Booking) -> datetime:
    """The end before the first extension."""
    for line in queries.history_of(work, booking.id):
        if line.event == "extend" and line.changes:
            return datetime.fromisoformat(line.changes["end"][0].replace("Z", "+00:00"))
    return booking.ends_at


def _new_end(booking: Booking, by: timedelta | None, end: datetime | None) -> datetime:
    return end if end is not None else booking.ends_at + (by or timedelta(0))
