"""Extend: a later end on the same units, at the prices published now. A failed extension changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from psycopg.errors import ExclusionViolation

from app.bookings import approvals, offers, policies, queries, rules
from app.bookings.capacity import FOREVER, instant
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
)
from app.bookings.facts import Booking, Held, PriceSegment
from app.bookings.lifecycle import State
from app.bookings.offers import Desk
from app.bookings.placement import Part, free_until
from app.bookings.rules_load import Approval
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.kernel.actor import Actor
from app.kernel.errors import Reason, Refusal, Refused
from app.kernel.window import Window
from app.plumbing.db import Work
from app.plumbing.queue import Queue
from app.pricing.rules import Cost, Segment, cost
from app.quotas import queries as quotas
from app.quotas.rules import QuotaEffect, Scope, pieces


@dataclass(frozen=True, slots=True)
class Extension:
    """A later end and what it means: the price of what is added, and of all of it; who has to approve all of it."""

    booking: Booking
    end: datetime
    added: Cost
    total: Cost
    segments: tuple[PriceSegment, ...]
    effects: tuple[QuotaEffect, ...]
    approval: Approval | None = None


def quote_extension(
    work: Work, actor: Actor, booking_id: UUID, by: timedelta | None, end: datetime | None
) -> Extension:
    """What an extension would cost, without making it. Raises what the extension itself would."""
    booking = see(work, actor, booking_id)
    allow(actor, booking)
    if booking.state not in (State.BOOKED, State.STARTING, State.ACTIVE):
        raise not_in_state(booking, State(booking.state), "extended")
    project = project_of(work, booking)
    desk = Desk(work, actor, project, work.product_now(), booking.account_id)
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
    if plan.approval is not None:  # it is asked for; the booking stays as it is until somebody has said yes
        money = (plan.added.amount, plan.total.amount)
        approvals.ask_to_extend(desk, locked, pool, plan.end, plan.segments, money, plan.approval, scopes)
        return locked
    try:
        with work.pg.transaction():
            queries.grow_holds(work, booking_id, plan.end + pool.policy.gap)
    except ExclusionViolation:
        raise Refused(Refusal((_until_when(held, None, pool.kind),))) from None
    queries.extend_booking(work, booking_id, plan.end, plan.total.amount, plan.segments)
    asked = pieces((Segment(s.window, s.price_id, s.per_hour) for s in plan.segments), desk.zone, locked.units)
    quotas.commit_pieces(work, project.tenant_id, scopes, asked, booking_id)
    changes = {
        "end": [rules.iso(locked.ends_at), rules.iso(plan.end)],
        "quoted": [str(locked.quoted), str(plan.total.amount)],
    }
    queries.note(work, booking_id, "extend", state, state, actor, desk.now, "", changes)
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
    if free is not None:
        latest = min(latest, free - pool.policy.gap)
    return max(latest, booking.ends_at)


def _extension(desk: Desk, booking: Booking, pool: Pool, end: datetime, scopes: tuple[Scope, ...]) -> Extension:
    reasons = rules.check_extension(booking.window, _first_end(desk.work, booking), end, pool.policy, desk.now)
    if reasons and end <= booking.ends_at:
        raise Refused(Refusal(tuple(reasons)))
    if not pool.writes:
        said = f"Berth only looks at {pool.cluster} now and changes nothing there."
        reasons.append(Reason("nothing_offered", said, fix="Ask the operators when it is open again.", field="end"))
    if desk.project.ended_at is not None and desk.project.ended_at <= desk.now:
        said = f"The project {desk.project.name} has ended."
        reasons.append(Reason("project_ended", said, fix="Ask a tenant admin to renew it.", field="end"))
    added = Window(booking.ends_at, end)
    free = _free_until(desk.work, booking, pool)
    if free is not None and free < end + pool.policy.gap:
        held = queries.holds_of(desk.work, booking.id)
        reasons.append(_until_when(held, free - pool.policy.gap, booking.kind_name))
    segments = desk.segments(booking.kind, added)
    if segments is None:
        reasons.append(rules.no_price(booking.kind, desk.project.price_group))
        raise Refused(Refusal(tuple(reasons)))
    asked = pieces(segments, desk.zone, booking.units)
    over, effects = offers.limits_of(desk, pool, booking.account_id, scopes, asked, added)
    reasons += over
    if reasons:
        raise Refused(Refusal(tuple(reasons)))
    before = queries.segments_of(desk.work, booking.id)
    every = (*(Segment(s.window, s.price_id, s.per_hour) for s in before), *segments)
    total = cost(every, booking.units, booking.currency)
    return Extension(
        booking,
        end,
        cost(segments, booking.units, booking.currency),
        total,
        tuple(PriceSegment(s.window, s.price_id, s.per_hour) for s in segments),
        effects,
        offers.approval_of(desk, pool, Window(booking.starts_at, end), total, booking.units),
    )


def _free_until(work: Work, booking: Booking, pool: Pool) -> datetime | None:
    """From when on somebody else holds one of the booking's units; None when nobody does."""
    held = queries.holds_of(work, booking.id)
    capacity = inventory.capacity_of(work, [pool])[pool.id]
    base, _, _ = offers.snapshot(work, capacity)
    positions = queries.multirange(r for h in held for r in h.ranges)
    blocked = max((h.end for h in held), default=booking.ends_at)
    window = Window(booking.ends_at, max(blocked, booking.ends_at) + timedelta(days=800))
    others = base.with_busy(queries.taken_by_others(work, positions, window, booking.id).plus(base.busy))
    parts = [Part(h.node_id, tuple((64 * g, 64 * g + 64) for g in h.gpus)) for h in held]
    until = free_until(others, parts, Window(booking.ends_at, booking.ends_at + timedelta(seconds=1)))
    if until is None:
        return booking.ends_at
    return None if until >= FOREVER else instant(until)


def _until_when(held: tuple[Held, ...], until: datetime | None, kind: str) -> Reason:
    where = ", ".join(h.node for h in held)
    limit = None if until is None else rules.iso(until)
    text = f"Units on {where} are taken afterwards." + (f" You can have them until {limit}." if limit else "")
    return Reason("units_taken_after", text, limit, None, f"Extend until then, or book {kind} again elsewhere.", "end")


def _first_end(work: Work, booking: Booking) -> datetime:
    """The end before the first extension."""
    for line in queries.history_of(work, booking.id):
        if line.event == "extend" and line.changes:
            return datetime.fromisoformat(line.changes["end"][0].replace("Z", "+00:00"))
    return booking.ends_at


def _new_end(booking: Booking, by: timedelta | None, end: datetime | None) -> datetime:
    return end if end is not None else booking.ends_at + (by or timedelta(0))
