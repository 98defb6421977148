"""Claim: use that a person has on units which nobody has booked becomes a booking from now on, on exactly those units.

The use goes on inside the booking; before, it was in everybody's way and nobody's right. The cluster's word says whose a use
is (`external_use.who`), and a person's user name there is what `accounts` knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from psycopg.errors import ExclusionViolation

from app.accounts import cluster_users
from app.bookings import offers, policies, queries, queries_edits, rules
from app.bookings.edits import RECONCILE, Key, done_before
from app.bookings.facts import Booking
from app.bookings.offers import Desk, Offer
from app.bookings.own_use import OwnUse, first_taken, without
from app.bookings.placement import Part, Placement
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.kernel.actor import Actor
from app.kernel.errors import NotFound, Reason, Refusal, Refused
from app.kernel.ids import new_id
from app.kernel.window import Window
from app.plumbing.db import Work
from app.plumbing.queue import Queue, send_after_commit
from app.pricing.rules import cost
from app.quotas import queries as quotas
from app.quotas.rules import QuotaEffect, Scope, pieces


@dataclass(frozen=True, slots=True)
class Wish:
    """In which project, under which name, for how long, at whose expense (None: the project's cost centre)."""

    project: str
    name: str
    length: timedelta
    cost_centre: str | None = None
    reference: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim would be: the use, the booking's window, units and price, and what it does to limits."""

    use: OwnUse
    offer: Offer
    effects: tuple[QuotaEffect, ...]


def own_uses(work: Work, actor: Actor) -> tuple[OwnUse, ...]:
    """What the person uses now without a booking, on every cluster that says whose a use is."""
    if actor.account_id is None:
        return ()
    names = ((c.id, cluster_users.name_on(work, c.id, actor.account_id)) for c in inventory.clusters(work))
    return queries_edits.uses(work, None, [(cluster, name) for cluster, name in names if name is not None])


def quote_claim(work: Work, actor: Actor, use_id: int, wish: Wish) -> Claim:
    """What a claim would cost, without making it. Raises what the claim itself would."""
    desk = offers.open_desk(work, actor, wish.project)
    use = _own(work, actor, use_id)
    pool = next(p for p in desk.pools() if p.id == use.pool_id)
    return _plan(desk, use, pool, wish, desk.scopes(use.kind))


def claim(work: Work, queue: Queue, actor: Actor, use_id: int, wish: Wish, key: Key | None = None) -> Booking:
    """Book the units that one uses already, from now on.

    Raises NotFound for use that is not the person's own, Refused when somebody has booked the units or a rule forbids it.
    """
    booking_id = new_id()
    done = done_before(work, actor, key, "claim", booking_id)
    if done is not None:
        return done
    desk = offers.open_desk(work, actor, wish.project)
    use = _own(work, actor, use_id)
    scopes = quotas.lock_scopes(work, desk.project.tenant_id, desk.project.id, actor.account_id, [use.kind])
    pools = inventory.lock_pools(work, [use.pool_id])
    pool = policies.effective(work, pools[use.pool_id], desk.project.id)
    use = _own(work, actor, use_id)  # it may have ended while the locks were waited for
    locked = Desk(work, actor, desk.project, work.product_now(), actor.account_id)
    plan = _plan(locked, use, pool, wish, scopes)
    return _write(locked, queue, plan, wish, scopes, booking_id)


def _own(work: Work, actor: Actor, use_id: int) -> OwnUse:
    use = queries_edits.use_with_id(work, use_id)
    name = None
    if use is not None and actor.account_id is not None:
        name = cluster_users.name_on(work, use.cluster_id, actor.account_id)
    if use is None or name is None or use.who != name:
        raise NotFound("use_not_found", "You have no such use now. It may have ended.")
    return use


def _plan(desk: Desk, use: OwnUse, pool: Pool, wish: Wish, scopes: tuple[Scope, ...]) -> Claim:
    now, work = desk.now, desk.work
    reasons = rules.check_open(pool.policy, pool.kind, pool.cluster) + rules.check_length(wish.length, pool.policy)
    if wish.length <= timedelta(0):
        raise Refused(Refusal(tuple(reasons)))
    window = Window(now, now + wish.length)
    reasons += rules.check_horizon(window.end, pool.policy, now)
    if not pool.writes:
        said = f"Berth only looks at {pool.cluster} now and changes nothing there."
        reasons.append(Reason("nothing_offered", said, fix="Ask the operators when it is open again."))
    part = _units(work, use, pool)
    if part is None:
        said = f"Not all of these units on {use.node} can be booked now."
        reasons.append(Reason("units_ill", said, fix="Move your work to other units.", field="use"))
    blocked = Window(now, window.end + pool.policy.gap)
    reasons += _booked(work, use, blocked, pool) or _in_the_way(work, use, blocked, pool)
    segments = desk.segments(pool.kind, window)
    if segments is None:
        reasons.append(rules.no_price(pool.kind, desk.project.price_group))
    if part is None or segments is None:
        raise Refused(Refusal(tuple(reasons)))
    units = len(part.units)
    price = cost(segments, units, desk.project.currency, pool.share840)
    needed = offers.approval_of(desk, pool, window, price, units)
    if needed is not None:
        said = f"This needs the approval of {needed.who}, and a claim begins at once."
        reasons.append(Reason("needs_approval_first", said, fix="Claim it for a shorter time.", field="duration"))
    asked = pieces(segments, desk.zone, units, pool.share840)
    over, effects = offers.limits_of(desk, pool, desk.person, scopes, asked, window)
    reasons += over
    if reasons:
        raise Refused(Refusal(tuple(reasons)))
    placement = Placement(pool.id, (part,), "node")
    return Claim(use, Offer(pool, window, placement, segments, price, starts_now=True), effects)


def _units(work: Work, use: OwnUse, pool: Pool) -> Part | None:
    """The units that are used, one by one; None when one of them is no capacity."""
    snapshot = offers.snapshot(work, inventory.capacity_of(work, [pool])[pool.id])[0]
    every = zip(snapshot.unit_lower.tolist(), snapshot.unit_upper.tolist(), strict=True)
    units = [u for u in every if any(lower <= u[0] and u[1] <= upper for lower, upper in use.positions)]
    covered = sum(upper - lower for lower, upper in units)
    if not units or covered != sum(upper - lower for lower, upper in use.positions):
        return None
    return Part(use.node_id, tuple(units))


def _booked(work: Work, use: OwnUse, blocked: Window, pool: Pool) -> list[Reason]:
    taken = queries.taken(work, queries.multirange(use.positions), blocked)
    if not len(taken):
        return []
    first = queries.instant_of(int(taken.start.min()))
    if first <= blocked.start:
        said = f"These units on {use.node} are booked by somebody else now."
        return [Reason("booked_by_others", said, None, None, "Stop what runs there, and book other units.", "use")]
    until = rules.iso(first - pool.policy.gap)
    said = f"These units on {use.node} are booked by somebody else from {rules.iso(first)} on."
    return [Reason("booked_by_others", said, until, rules.iso(blocked.end), f"Claim them until {until}.", "duration")]


def _in_the_way(work: Work, use: OwnUse, blocked: Window, pool: Pool) -> list[Reason]:
    """Maintenance, a layout that will be gone, use of others: all that takes units but this use."""
    busy = offers.snapshot(work, inventory.capacity_of(work, [pool])[pool.id])[0].busy
    first = first_taken(without(busy, [use]), use.positions, blocked)
    if first is None:
        return []
    until = rules.iso(queries.instant_of(first) - pool.policy.gap)
    said = f"These units on {use.node} are out of service, or used by others, from then on: {until}."
    fix = f"Claim them until {until}." if first > int(blocked.start.timestamp()) else "Move your work to other units."
    return [Reason("units_taken_after", said, until, rules.iso(blocked.end), fix, "duration")]


def _write(desk: Desk, queue: Queue, plan: Claim, wish: Wish, scopes: tuple[Scope, ...], booking_id: UUID) -> Booking:
    work, actor, offer, now = desk.work, desk.actor, plan.offer, desk.now
    pool, project = offer.pool, desk.project
    new = queries.NewBooking(
        id=booking_id,
        allocation_id=new_id(),
        project=project,
        name=wish.name,
        cost_centre=wish.cost_centre if wish.cost_centre is not None else project.cost_centre,
        reference=wish.reference,
        kind=pool.kind,
        cluster_id=pool.cluster_id,
        pool_id=pool.id,
        units=offer.placement.units,
        nodes=None,
        per_node=None,
        within=None,
        share840=pool.share840,
        window=offer.window,
        blocked_until=offer.window.end + pool.policy.gap,
        currency=project.currency,
        quoted=offer.cost.amount,
        workload={"kind": "none"},  # what runs there already is what it is for
        holds=tuple((p.node_id, queries.multirange(p.positions)) for p in offer.placement.parts),
        segments=offer.prices,
        due_at=now,
    )
    more = [(inventory.RAISE_VERSION, [[pool.id]])]
    asked = pieces(offer.segments, desk.zone, offer.placement.units, pool.share840)
    if scopes and asked:
        more.append((quotas.COMMIT, quotas.commit_values(project.tenant_id, scopes, asked, booking_id)))
    try:
        booked = queries.insert_booking(work, new, pool.cluster, actor, now, f"Claimed: {plan.use.what}.", more)
    except ExclusionViolation:
        said = f"Somebody else has just booked these units on {plan.use.node}."
        raise Refused(Refusal((Reason("booked_by_others", said, field="use"),))) from None
    send_after_commit(work, queue, RECONCILE, pool.cluster_id)
    return booked
