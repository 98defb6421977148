"""The verbs: quote, book, cancel, extend, release. One verb, one function, one transaction; the caller commits.

Each decides by the pure files under the locks of the house, writes, and leaves messages for after the commit. It must not
know HTTP, forms or workers, and never calls a backend.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from psycopg.errors import ExclusionViolation

from app.bookings import alternatives, due, offers, queries, rules
from app.bookings.capacity import FOREVER, Busy, instant
from app.bookings.facts import Booking, Held, PriceSegment, Project
from app.bookings.lifecycle import BookingView, Event, IllegalMove, Pace, State, cancel_event, leave, tick
from app.bookings.moves import write_changes
from app.bookings.offers import Desk, Offer, Quote
from app.bookings.placement import NoPlace, Part, free_until, place
from app.bookings.schemas import Ask
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.kernel.actor import SYSTEM, Actor
from app.kernel.errors import Conflict, Forbidden, NotFound, Reason, Refusal, Refused
from app.kernel.ids import new_id
from app.kernel.window import Window
from app.plumbing.db import PRODUCT_NOW, Work
from app.plumbing.queue import Queue, send_after_commit
from app.pricing import queries as pricing
from app.pricing.rules import Cost, Segment, cost
from app.quotas import queries as quotas
from app.quotas.rules import QuotaEffect, Scope, pieces

_WAITED = timedelta(minutes=1)
"""Longer than any lock is waited for: how far the window of "as soon as possible" can move until the locks are there."""
RECONCILE = "reconcile.cluster"
"""The task that works off what is due on one cluster."""


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key with what identifies the request under it."""

    key: str
    body_hash: bytes


# --- quote and book ---------------------------------------------------------------------------------------------------


def quote(work: Work, actor: Actor, ask: Ask) -> Quote:
    """What would be booked, when, where and for how much. Promises nothing.

    Raises Refused with every reason and up to three alternatives.
    """
    desk = offers.open_desk(work, actor, ask.project, ask.kind)
    try:
        return _quote(desk, ask)
    except Refused as refused:
        raise alternatives.explain(desk, ask, refused) from None


def _quote(desk: Desk, ask: Ask) -> Quote:
    failed: list[Reason] = []
    for found in offers.find_offers(desk, ask, offers.pools_asked(desk, ask)):
        if isinstance(found, Offer):
            reasons, effects = _limits(desk, ask, found)
            if not reasons:
                return offers.make_quote(desk, ask, found, effects)
        else:
            reasons = found[1] + _limits_anyway(desk, ask, found[0])
        failed += [r for r in reasons if r not in failed]
    raise Refused(Refusal(tuple(failed)))


def book(work: Work, queue: Queue, actor: Actor, ask: Ask, key: Key | None = None) -> Booking:
    """Book it, or raise Refused with every reason, and alternatives; the refusal is recorded, nothing else is.

    Commits nothing on success: the caller does. The same key and body again answers with the same booking.
    """
    skip: dict[int, tuple[Reason, ...]] = {}
    while True:
        try:
            return _book_once(work, queue, actor, ask, key, skip)
        except _Lost as lost:  # a pool that looked good without locks was not so under them: look at the others
            skip[lost.pool_id] = lost.reasons
            work.restart()
        except Refused as refused:
            work.restart()
            explained = _explain(work, actor, ask, refused)
            work.keep()
            raise explained from None


class _Lost(Exception):
    """Under its lock the pool cannot serve the request; `reasons` say why."""

    def __init__(self, pool_id: int, reasons: tuple[Reason, ...]) -> None:
        self.pool_id = pool_id
        self.reasons = reasons


def _book_once(
    work: Work, queue: Queue, actor: Actor, ask: Ask, key: Key | None, skip: dict[int, tuple[Reason, ...]]
) -> Booking:
    booking_id = new_id()
    done = _done_before(work, actor, key, "book", booking_id)
    if done is not None:
        return done
    desk = offers.open_desk(work, actor, ask.project, ask.kind)
    pools = offers.pools_asked(desk, ask)
    failed: list[Reason] = []
    for found in offers.find_offers(desk, ask, tuple(p for p in pools if p.id not in skip)):
        if isinstance(found, Offer):
            return _confirm(desk, queue, ask, found, booking_id)
        failed += [r for r in found[1] + _limits_anyway(desk, ask, found[0]) if r not in failed]
    failed += [r for reasons in skip.values() for r in reasons if r not in failed]
    raise Refused(Refusal(tuple(failed)))


def _confirm(desk: Desk, queue: Queue, ask: Ask, offer: Offer, booking_id: UUID) -> Booking:
    """Take the locks, look again, and write. Raises _Lost when the pool cannot serve it after all."""
    work, actor = desk.work, desk.actor
    kind = offer.pool.kind
    locked, scopes, pool, taken = _lock(desk, offer)
    now = locked.now
    offer = _again(locked, ask, offer, pool, taken)
    if ask.digest is not None:
        current = offers.digest_of(ask, offer, offers.TERMS)
        if current != ask.digest:
            raise Conflict(
                "quote_changed", "The quote has changed since it was shown. Look at the new one and confirm it."
            )
    asked = pieces(offer.segments, desk.zone, ask.shape.total)
    reasons, _ = offers.quota_of(locked, scopes, asked, offer.window, now)
    if reasons:
        raise _Lost(pool.id, reasons)
    policy = pool.policy
    new = queries.NewBooking(
        id=booking_id,
        allocation_id=new_id(),
        project=desk.project,
        name=ask.name,
        cost_centre=ask.cost_centre if ask.cost_centre is not None else desk.project.cost_centre,
        reference=ask.reference,
        kind=kind,
        cluster_id=pool.cluster_id,
        pool_id=pool.id,
        units=ask.shape.total,
        nodes=ask.shape.nodes,
        per_node=ask.shape.per_node,
        within=ask.shape.within,
        share840=840,
        window=offer.window,
        blocked_until=offer.window.end + policy.gap,
        currency=desk.project.currency,
        quoted=offer.cost.amount,
        workload={"kind": ask.workload},
        holds=tuple((p.node_id, queries.multirange(p.positions)) for p in offer.placement.parts),
        segments=offer.prices,
        due_at=max(offer.window.start - policy.made_ahead, now),
    )
    more = [(inventory.RAISE_VERSION, [[pool.id]])]
    if scopes and asked:
        more.append((quotas.COMMIT, quotas.commit_values(desk.project.tenant_id, scopes, asked, booking_id)))
    try:
        booked = queries.insert_booking(work, new, pool.cluster, actor, now, "", more)
    except ExclusionViolation:  # the last judge: whoever wrote it without the pool's lock was wrong, not the units
        raise _Lost(pool.id, (_taken_meanwhile(kind, pool.cluster),)) from None
    if new.due_at <= now:
        send_after_commit(work, queue, RECONCILE, pool.cluster_id)
    return booked


def _lock(desk: Desk, offer: Offer) -> tuple[Desk, tuple[Scope, ...], Pool, Busy]:
    """Lock scopes and pool, and read what decides, in one round trip.

    Returns a new desk, whose instant is read after the locks (before them it would be stale by the time waited), the
    scopes, the pool, and what is held now of the units that were found, from the offer's start on.
    """
    work, actor, project = desk.work, desk.actor, desk.project
    kind, positions = offer.pool.kind, offers.positions_of(offer)
    until = offer.window.end + offer.pool.policy.gap + _WAITED
    scopes, pools, clock, taken, prices = work.together(
        (quotas.LOCK_SCOPES, quotas.scope_values(project.tenant_id, project.id, actor.account_id, [kind])),
        (inventory.LOCK_POOLS, [[offer.pool.id]]),
        (PRODUCT_NOW, None),
        (queries.TAKEN, [positions, offer.window.start, until]),
        (pricing.TENANT_PRICES, [kind, kind]),
    )
    locked = Desk(work, actor, project, work.product_now_of(clock))
    locked.know_prices(kind, prices)
    return locked, tuple(Scope(*row) for row in scopes), inventory.pools_of(pools)[0], Busy.of_rows(taken)


def _again(desk: Desk, ask: Ask, offer: Offer, pool: Pool, taken: Busy) -> Offer:
    """The same offer under the lock, by what is true now; another place in the pool when this one has been taken.

    `taken` is what is held of its units from its start until `_WAITED` after its end.
    """
    work, now = desk.work, desk.now
    window = offer.window
    if ask.start is None and window.start < now:
        window = Window(now, now + ask.length)
    capacity = inventory.capacity_of(work, [pool])[pool.id]
    blocked = Window(window.start, window.end + pool.policy.gap)
    gap = int(pool.policy.gap.total_seconds())
    placement = offer.placement
    if blocked.end > offer.window.end + pool.policy.gap + _WAITED:  # the clock was moved meanwhile
        taken = queries.taken(work, offers.positions_of(offer), blocked)
    if taken.touches(blocked) or pool.capacity_version != offer.pool.capacity_version:
        found = place(offers.with_holds(work, capacity, blocked), ask.shape, window, gap)
        if isinstance(found, NoPlace) and ask.start is None:
            ready = offers.prepared(work, capacity, now)
            until = now + pool.policy.horizon
            start = offers.soonest(ready, ask.shape, ask.length, now + pool.policy.lead, until, gap)
            if start is None:
                raise _Lost(pool.id, (rules.no_start(ask.shape, pool.kind, pool.cluster, until),))
            window = Window(start, start + ask.length)
            found = place(ready.pool, ask.shape, window, gap)
        if isinstance(found, NoPlace):
            raise _Lost(pool.id, (rules.no_place(found, pool.kind, pool.cluster),))
        placement = found
    segments = desk.segments(pool.kind, window)
    reasons = rules.check_horizon(window.end, pool.policy, now)
    if ask.start is not None:
        reasons += rules.check_start(ask.start, pool.policy, now)
    reasons += rules.check_length(ask.length, pool.policy)
    if segments is None:
        reasons.append(rules.no_price(pool.kind, desk.project.price_group))
    if reasons or segments is None:
        raise _Lost(pool.id, tuple(reasons))
    price = cost(segments, ask.shape.total, desk.project.currency)
    return Offer(pool, window, placement, segments, price, starts_now=ask.start is None and window.start == now)


def _limits(desk: Desk, ask: Ask, offer: Offer) -> tuple[tuple[Reason, ...], tuple[QuotaEffect, ...]]:
    asked = pieces(offer.segments, desk.zone, ask.shape.total)
    return offers.quota_of(desk, desk.scopes(offer.pool.kind), asked, offer.window, desk.now)


def _limits_anyway(desk: Desk, ask: Ask, pool: Pool) -> tuple[Reason, ...]:
    """What the limits would say although the pool cannot serve it: all reasons at once."""
    start = max(ask.start, desk.now) if ask.start is not None else desk.now
    if ask.length <= timedelta(0) or ask.length > 2 * pool.policy.horizon:
        return ()
    window = Window(start, start + ask.length)
    segments = desk.segments(pool.kind, window)
    if segments is None:
        return ()
    asked = pieces(segments, desk.zone, ask.shape.total)
    return offers.quota_of(desk, desk.scopes(pool.kind), asked, window, desk.now)[0]


def _taken_meanwhile(kind: str, cluster: str) -> Reason:
    return Reason("no_units_free", f"Somebody else has just taken these {kind} on {cluster}.", None, None,
                  "Choose another time, kind or shape.", "start")  # fmt: skip


def _explain(work: Work, actor: Actor, ask: Ask, refused: Refused) -> Refused:
    """Alternatives for a refusal, and a row for the statistics."""
    try:
        desk = offers.open_desk(work, actor, ask.project)
    except Refused:
        return refused  # the project itself is unknown: there is nothing to offer and nobody to count it for
    explained = alternatives.explain(desk, ask, refused)
    codes = [r.code for r in explained.refusal.reasons]
    queries.record_refusal(work, desk.now, desk.project.id, actor.account_id, codes, ask.to_post())
    return explained


def _done_before(work: Work, actor: Actor, key: Key | None, verb: str, booking_id: UUID) -> Booking | None:
    """The booking that stands under the key, None when the key is new and now ours."""
    if key is None:
        return None
    # a key answers only to whoever used it: the same words of somebody else are another request
    mine = hashlib.sha256(f"{actor.account_id}\n".encode() + key.body_hash).digest()
    kept = queries.take_key(work, key.key, verb, mine, booking_id)
    if kept is None:
        return None
    if kept.verb != verb or kept.body_hash != mine:
        raise Conflict("idempotency_key_reused", "This idempotency key was used for another request. Take a new one.")
    return see(work, actor, kept.booking_id)


# --- verbs on a booking -----------------------------------------------------------------------------------------------


def see(work: Work, actor: Actor, booking_id: UUID | None, number: int | None = None) -> Booking:
    """A booking that the actor may look at; NotFound for every other, whether it exists or not."""
    if booking_id is not None:
        found = queries.find_booking(work, booking_id)
    else:
        found = queries.find_by_number(work, number) if number is not None else None
    if found is None or not actor.sees_project(found.project_id):
        raise NotFound("booking_not_found", "There is no such booking.")
    return found


def may_change(actor: Actor, booking: Booking) -> bool:
    """Members change what they booked themselves, leads and tenant admins everything of the project."""
    if not actor.may("book"):
        return False
    own = booking.account_id is not None and booking.account_id == actor.account_id
    return actor.leads(booking.project_id) or (own and actor.books_in(booking.project_id))


def cancel(
    work: Work, queue: Queue, actor: Actor, booking_id: UUID, key: Key | None = None, version: int | None = None
) -> Booking:
    """Give a booking up before it is active. Nothing is charged and everything it held goes back at once.

    Raises Conflict when it is too late (an active booking is released instead).
    """

    def change(booking: Booking, now: datetime) -> None:
        view, state = _caught_up(work, booking, now)
        event = cancel_event(view)
        if state is State.ACTIVE:
            raise Conflict(
                "too_late_to_cancel", f"{booking.label} is active. Release it instead: it is charged until then."
            )
        try:
            changes = leave(view, event, now, "")
        except IllegalMove:
            raise _not_in_state(booking, state, "cancelled") from None
        write_changes(work, booking, view, changes, actor, now)
        allocation = queries.allocation_of(work, booking.id)
        assert allocation is not None
        if event is Event.CANCEL:
            due.forget(work, allocation.id)
        else:
            _look_now(work, queue, booking, allocation.id, now)

    return _change(work, actor, booking_id, key, version, "cancel", change)


def release(
    work: Work, queue: Queue, actor: Actor, booking_id: UUID, key: Key | None = None, version: int | None = None
) -> Booking:
    """Give an active booking back now: charged to this second, the rest goes back to the project at once.

    The units are free for others when the cluster says that they are empty.
    """

    def change(booking: Booking, now: datetime) -> None:
        view, state = _caught_up(work, booking, now)
        try:
            changes = leave(view, Event.RELEASE, now, "")
        except IllegalMove:
            raise _not_in_state(booking, state, "released") from None
        write_changes(work, booking, view, changes, actor, now)
        allocation = queries.allocation_of(work, booking.id)
        assert allocation is not None
        _look_now(work, queue, booking, allocation.id, now)

    return _change(work, actor, booking_id, key, version, "release", change)


@dataclass(frozen=True, slots=True)
class Extension:
    """A later end and what it means: the price of what is added, and of all of it."""

    booking: Booking
    end: datetime
    added: Cost
    total: Cost
    segments: tuple[PriceSegment, ...]
    effects: tuple[QuotaEffect, ...]


def quote_extension(
    work: Work, actor: Actor, booking_id: UUID, by: timedelta | None, end: datetime | None
) -> Extension:
    """What an extension would cost, without making it. Raises what the extension itself would."""
    booking = see(work, actor, booking_id)
    _allow(actor, booking)
    if booking.state not in (State.BOOKED, State.STARTING, State.ACTIVE):
        raise _not_in_state(booking, State(booking.state), "extended")
    project = _project_of(work, booking)
    desk = Desk(work, actor, project, work.product_now())
    pool = _pool_of(work, booking)
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
    done = _done_before(work, actor, key, "extend", booking_id)
    if done is not None:
        return done
    booking = see(work, actor, booking_id)
    _allow(actor, booking)
    project = _project_of(work, booking)
    scopes = quotas.lock_scopes(work, project.tenant_id, project.id, booking.account_id, [booking.kind])
    pool = inventory.lock_pools(work, [booking.pool_id])[booking.pool_id]
    locked = queries.lock_booking(work, booking_id)
    assert locked is not None
    _check_version(locked, version)
    held = queries.holds_of(work, booking_id, lock=True)
    desk = Desk(work, actor, project, work.product_now())
    _, state = _caught_up(work, locked, desk.now)
    if state not in (State.BOOKED, State.STARTING, State.ACTIVE):
        raise _not_in_state(locked, state, "extended")
    plan = _extension(desk, locked, pool, _new_end(locked, by, end), scopes)
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
        _look_now(work, queue, locked, allocation.id, desk.now)
    after = queries.find_booking(work, booking_id)
    assert after is not None
    return after


def extension_limit(work: Work, booking: Booking) -> datetime:
    """Until when the booking could last on its units, by what is held after it and the pool's policy."""
    pool = _pool_of(work, booking)
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
    over, effects = offers.quota_of(desk, scopes, asked, added, desk.now)
    reasons += over
    if reasons:
        raise Refused(Refusal(tuple(reasons)))
    before = queries.segments_of(desk.work, booking.id)
    every = (*(Segment(s.window, s.price_id, s.per_hour) for s in before), *segments)
    return Extension(
        booking,
        end,
        cost(segments, booking.units, booking.currency),
        cost(every, booking.units, booking.currency),
        tuple(PriceSegment(s.window, s.price_id, s.per_hour) for s in segments),
        effects,
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


def _project_of(work: Work, booking: Booking) -> Project:
    project = queries.find_project(work, booking.project, booking.project_id)
    assert project is not None
    return project


def _pool_of(work: Work, booking: Booking) -> Pool:
    return inventory.pools_with_ids(work, [booking.pool_id])[booking.pool_id]


def _change(
    work: Work,
    actor: Actor,
    booking_id: UUID,
    key: Key | None,
    version: int | None,
    verb: str,
    change: Callable[[Booking, datetime], None],
) -> Booking:
    """What the verbs that take no pool have in common: key, right, lock, version, clock, answer."""
    done = _done_before(work, actor, key, verb, booking_id)
    if done is not None:
        return done
    _allow(actor, see(work, actor, booking_id))
    booking = queries.lock_booking(work, booking_id)
    assert booking is not None
    _check_version(booking, version)
    queries.holds_of(work, booking_id, lock=True)
    change(booking, work.product_now())
    after = queries.find_booking(work, booking_id)
    assert after is not None
    return after


def _caught_up(work: Work, booking: Booking, now: datetime) -> tuple[BookingView, State]:
    """The view after what time alone brings, written first: a release one second after the end finds it ended."""
    held = queries.holds_of(work, booking.id)
    allocation = queries.allocation_of(work, booking.id)
    assert allocation is not None
    view = queries.view_of(work, booking, held, allocation)
    pace = pace_of(_pool_of(work, booking))
    changes = tick(view, now, pace)
    view = write_changes(work, booking, view, changes, SYSTEM, now)
    return view, view.state


def pace_of(pool: Pool) -> Pace:
    """How closely a booking of this pool is followed."""
    return Pace(ahead=pool.policy.made_ahead)


def _look_now(work: Work, queue: Queue, booking: Booking, allocation_id: UUID, now: datetime) -> None:
    due.hurry(work, allocation_id, booking.tenant_id, booking.cluster_id, now)
    send_after_commit(work, queue, RECONCILE, booking.cluster_id)


def _allow(actor: Actor, booking: Booking) -> None:
    if not may_change(actor, booking):
        raise Forbidden(
            "role_missing", f"{booking.label} is {booking.booked_by}'s. A lead of the project may change it."
        )


def _check_version(booking: Booking, version: int | None) -> None:
    if version is not None and version != booking.version:
        raise Conflict("edited_meanwhile", f"{booking.label} has changed since you looked. Look again, then decide.")


def _not_in_state(booking: Booking, state: State, verb: str) -> Conflict:
    return Conflict("wrong_state", f"{booking.label} is {state.lower()} and cannot be {verb}.")
