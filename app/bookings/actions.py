"""Quote and book. One verb, one function, one transaction; the caller commits. Verbs on a booking: edits.py and beside it.

Each decides by the pure files under the locks of the house, writes, and leaves messages for after the commit. It must not
know HTTP, forms or workers, and never calls a backend.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from psycopg.errors import ExclusionViolation

from app.bookings import alternatives, asking, gaps, ground, offers, policies, queries, quoting, rules, waits, wanted
from app.bookings.capacity import Busy
from app.bookings.edits import RECONCILE, Key, done_before
from app.bookings.facts import Booking
from app.bookings.ground import MovedMeanwhile
from app.bookings.lifecycle import Event
from app.bookings.offers import Desk, Offer, Quote
from app.bookings.placement import NoPlace, place
from app.bookings.schemas import Ask
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Reason, Refusal, Refused
from app.kernel.ids import new_id
from app.kernel.window import Window
from app.plumbing.db import PRODUCT_NOW, Work
from app.plumbing.queue import Queue, send_after_commit
from app.pricing import queries as pricing
from app.pricing.rules import cost
from app.quotas import queries as quotas
from app.quotas.rules import QuotaEffect, Scope, pieces

_WAITED = timedelta(minutes=1)
"""Longer than any lock is waited for: how far the window of "as soon as possible" can move until the locks are there."""

# --- quote and book ---------------------------------------------------------------------------------------------------


def quote(work: Work, actor: Actor, ask: Ask) -> Quote:
    """What would be booked, when, where and for how much. Promises nothing.

    Raises Refused with every reason and up to three alternatives.
    """
    desk = offers.open_desk(work, actor, ask.project, ask.exactly, for_another=ask.owner is not None)
    desk.gives_way = True
    try:
        return _quote(desk, ask)
    except Refused as refused:
        desk.gives_way = False  # what is offered instead is offered as things are
        raise alternatives.explain(desk, ask, refused) from None


def _quote(desk: Desk, ask: Ask) -> Quote:
    failed: list[Reason] = []
    for found in offers.find_offers(desk, ask, offers.pools_asked(desk, ask)):
        if isinstance(found, Offer):
            reasons, effects = _limits(desk, ask, found)
            if not reasons:
                return quoting.make_quote(desk, ask, found, effects)
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
        except _NewBudget:
            work.restart()
        except _Unserved as told:  # no lock was taken, so what was read still serves
            work.restart()
            told.desk.gives_way = False  # what is offered instead is offered as things are
            explained = _explain(told.desk, ask, told.refused)
            work.keep()
            raise explained from None
        except Refused as refused:
            work.restart()
            try:
                desk = offers.open_desk(work, actor, ask.project, for_another=ask.owner is not None)
            except Refused:
                raise refused from None  # the project itself is unknown: nothing to offer, nobody to count it for
            explained = _explain(desk, ask, refused)
            work.keep()
            raise explained from None


def book_among(work: Work, queue: Queue, actor: Actor, ask: Ask) -> Booking:
    """Book as one of several in a transaction that has locked the scopes and pools concerned already.

    Raises Refused with every reason, without alternatives, and has written nothing then.
    """
    skip: dict[int, tuple[Reason, ...]] = {}
    while True:
        try:
            with work.pg.transaction():
                return _book_once(work, queue, actor, ask, None, skip)
        except _Lost as lost:
            skip[lost.pool_id] = lost.reasons
        except _NewBudget:
            continue
        except _Unserved as told:
            raise told.refused from None


class _Unserved(Exception):
    """No pool can serve the request, and no lock was taken to find that out; `desk` is what was read."""

    def __init__(self, desk: Desk, refused: Refused) -> None:
        self.desk = desk
        self.refused = refused


class _NewBudget(Exception):
    """A power budget was set meanwhile, and its lock belongs before the pool's: begin again."""


class _Lost(Exception):
    """Under its lock the pool cannot serve the request; `reasons` say why."""

    def __init__(self, pool_id: int, reasons: tuple[Reason, ...]) -> None:
        self.pool_id = pool_id
        self.reasons = reasons


def _book_once(
    work: Work, queue: Queue, actor: Actor, ask: Ask, key: Key | None, skip: dict[int, tuple[Reason, ...]]
) -> Booking:
    booking_id = new_id()
    done = done_before(work, actor, key, "book", booking_id)
    if done is not None:
        return done
    desk = offers.open_desk(work, actor, ask.project, ask.exactly, for_another=ask.owner is not None)
    desk.gives_way = True
    pools = offers.pools_asked(desk, ask)
    without: list[tuple[Pool, tuple[Reason, ...]]] = []
    for found in offers.find_offers(desk, ask, tuple(p for p in pools if p.id not in skip)):
        if isinstance(found, Offer):
            return _confirm(desk, queue, ask, found, booking_id)
        without.append(found)
    failed: list[Reason] = []
    for pool, reasons in without:  # what the limits say is asked only now that no pool can serve it
        failed += [r for r in reasons + _limits_anyway(desk, ask, pool) if r not in failed]
    failed += [r for reasons in skip.values() for r in reasons if r not in failed]
    raise _Unserved(desk, Refused(Refusal(tuple(failed))))


def _confirm(desk: Desk, queue: Queue, ask: Ask, offer: Offer, booking_id: UUID) -> Booking:
    """Take the locks, look again, and write. Raises _Lost when the pool cannot serve it after all."""
    work, actor = desk.work, desk.actor
    kind = offer.pool.kind
    locked, scopes, pool, taken = _lock(desk, offer)
    now = locked.now
    offer = _again(locked, ask, offer, pool, taken)
    if ask.digest is not None:
        current = quoting.digest_of(ask, offer, quoting.terms_of(pool.policy))
        if current != ask.digest:
            raise Conflict(
                "quote_changed", "The quote has changed since it was shown. Look at the new one and confirm it."
            )
    asked = pieces(offer.segments, desk.zone, ask.shape.total, pool.share840)
    reasons, _ = offers.limits_of(locked, pool, desk.person, scopes, asked, offer.window)
    if reasons:
        raise _Lost(pool.id, reasons)
    policy = pool.policy
    if offer.approval is not None and not offer.approval.holds:
        return asking.request_without_units(locked, ask, offer, booking_id, offer.approval)
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
        share840=pool.share840,
        window=offer.window,
        blocked_until=offer.window.end + policy.gap,
        currency=desk.project.currency,
        quoted=offer.cost.amount,
        workload={"kind": ask.workload},
        holds=tuple((p.node_id, queries.multirange(p.positions)) for p in offer.placement.parts),
        segments=offer.prices,
        due_at=max(offer.window.start - policy.made_ahead, now),
        near=ask.shape.near,
        series_id=ask.series_id,
        occurs_at=ask.occurs_at,
        class_id=ask.class_id,
        owner=None if ask.owner is None else (ask.owner.account_id, ask.owner.name),
    )
    try:
        ground.make_way(work, offer.moves, now)
    except MovedMeanwhile:
        raise _Lost(pool.id, (_taken_meanwhile(kind, pool.cluster),)) from None
    more = [(inventory.RAISE_VERSION, [[pool.id]])]
    if scopes and asked:
        more.append((quotas.COMMIT, quotas.commit_values(desk.project.tenant_id, scopes, asked, booking_id)))
    try:
        event = Event.BOOK if offer.approval is None else Event.ASK
        booked = queries.insert_booking(work, new, pool.cluster, actor, now, "", more, event)
    except ExclusionViolation:  # the last judge: whoever wrote it without the pool's lock was wrong, not the units
        raise _Lost(pool.id, (_taken_meanwhile(kind, pool.cluster),)) from None
    if offer.approval is not None:
        asking.ask_to_book(work, booked, offer.approval, policy, actor, now)
    elif new.due_at <= now:
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
    limits = quotas.scope_values(project.tenant_id, project.id, desk.person, [kind])
    fed = bool(inventory.capacity_of(work, [offer.pool])[offer.pool.id].budgets)
    power = [(inventory.LOCK_POWER, [[offer.pool.id]])] if fed else []
    _, scopes, *_, pools, words, clock, taken, prices = work.together(
        (quotas.SHARE_LIMITS, limits),
        (quotas.LOCK_SCOPES, limits),
        *power,
        (inventory.LOCK_POOLS, [[offer.pool.id]]),
        (policies.OVERRIDES, [None, project.id]),
        (PRODUCT_NOW, None),
        (queries.TAKEN, [positions, offer.window.start, until]),
        (pricing.TENANT_PRICES, [kind, kind]),
    )
    locked = Desk(work, actor, project, work.product_now_of(clock), desk.person)
    locked.know_prices(kind, prices)
    (pool,) = policies.laid_over(inventory.pools_of(pools), words)
    if not fed and inventory.capacity_of(work, [pool])[pool.id].budgets:
        raise _NewBudget
    return locked, tuple(Scope(*row) for row in scopes), pool, Busy.of_rows(taken)


def _again(desk: Desk, ask: Ask, offer: Offer, pool: Pool, taken: Busy) -> Offer:
    """The same offer under the lock, by what is true now; another place in the pool when this one has been taken.

    `taken` is what is held of its units from its start until `_WAITED` after its end.
    """
    work, now = desk.work, desk.now
    window = offer.window
    if ask.start is None and window.start < now:  # and when that passes `latest`, it is refused below
        window = Window(now, now + ask.length)
    capacity = inventory.capacity_of(work, [pool])[pool.id]
    blocked = Window(window.start, window.end + pool.policy.gap)
    gap = int(pool.policy.gap.total_seconds())
    placement, moves = offer.placement, ()
    if blocked.end > offer.window.end + pool.policy.gap + _WAITED:  # the clock was moved meanwhile
        taken = queries.taken(work, offers.positions_of(offer), blocked)
    rest = pool.policy.min_gap
    if taken.touches(blocked) or pool.capacity_version != offer.pool.capacity_version or rest or capacity.budgets:
        held = offers.with_holds(work, capacity, Window(blocked.start - rest, blocked.end + rest))
        found = place(gaps.neat(held, window, pool.policy, now), ask.shape, window, gap)
        if isinstance(found, NoPlace) and ask.start is not None and not rest:
            anyhow = offers.with_others_moved(desk, pool, capacity, ask.shape, window, found)
            found, moves = (anyhow, ()) if isinstance(anyhow, NoPlace) else (anyhow.placement, anyhow.moves)
        if isinstance(found, NoPlace) and ask.start is None:
            ready = offers.prepared(work, capacity, now)
            first, until = wanted.bounds(ask, pool.policy, now)
            start = offers.soonest(ready, ask.shape, ask.length, first, until, gap, rest=(pool.policy, now))
            if start is None:
                raise _Lost(pool.id, (rules.no_start(ask.shape, pool.kind, pool.cluster, until),))
            window = Window(start, start + ask.length)
            found = place(gaps.neat(ready.pool, window, pool.policy, now), ask.shape, window, gap)
        if isinstance(found, NoPlace):
            raise _Lost(pool.id, (rules.no_place(found, pool.kind, pool.cluster),))
        placement = found
    segments = desk.segments(pool.kind, window)
    reasons = rules.check_open(pool.policy, pool.kind, pool.cluster) + rules.check_horizon(window.end, pool.policy, now)
    if ask.start is not None:
        reasons += rules.check_start(ask.start, pool.policy, now)
    reasons += rules.check_length(ask.length, pool.policy)
    if ask.latest is not None and window.end > ask.latest:
        reasons.append(rules.no_start(ask.shape, pool.kind, pool.cluster, ask.latest))
    if segments is None:
        reasons.append(rules.no_price(pool.kind, desk.project.price_group))
    if reasons or segments is None:
        raise _Lost(pool.id, tuple(reasons))
    price = cost(segments, ask.shape.total, desk.project.currency, pool.share840)
    needed = offers.approval_of(desk, pool, window, price, ask.shape.total)
    if needed is not None and waits.answer_by(now, window.start, pool.policy) is None:
        raise _Lost(pool.id, (waits.no_time_to_ask(needed.who, window.start, now),))
    starts_now = ask.start is None and window.start == now
    return Offer(pool, window, placement, segments, price, starts_now=starts_now, approval=needed, moves=moves)


def _limits(desk: Desk, ask: Ask, offer: Offer) -> tuple[tuple[Reason, ...], tuple[QuotaEffect, ...]]:
    asked = pieces(offer.segments, desk.zone, ask.shape.total, offer.pool.share840)
    scopes, account = desk.scopes(offer.pool.kind), desk.person
    return offers.limits_of(desk, offer.pool, account, scopes, asked, offer.window)


def _limits_anyway(desk: Desk, ask: Ask, pool: Pool) -> tuple[Reason, ...]:
    """What the limits would say although the pool cannot serve it: all reasons at once."""
    start = max(ask.start or ask.earliest or desk.now, desk.now)
    if ask.length <= timedelta(0) or ask.length > 2 * pool.policy.horizon:
        return ()
    window = Window(start, start + ask.length)
    segments = desk.segments(pool.kind, window)
    if segments is None:
        return ()
    asked = pieces(segments, desk.zone, ask.shape.total, pool.share840)
    return offers.limits_of(desk, pool, desk.person, desk.scopes(pool.kind), asked, window)[0]


def _taken_meanwhile(kind: str, cluster: str) -> Reason:
    return Reason("no_units_free", f"Somebody else has just taken these {kind} on {cluster}.", None, None,
                  "Choose another time, kind or shape.", "start")  # fmt: skip


def _explain(desk: Desk, ask: Ask, refused: Refused) -> Refused:
    """Alternatives for a refusal, and a row for the statistics."""
    explained = alternatives.explain(desk, ask, refused)
    codes = [r.code for r in explained.refusal.reasons]
    work, actor = desk.work, desk.actor
    queries.record_refusal(work, desk.now, desk.project.id, actor.account_id, codes, ask.to_post())
    return explained
