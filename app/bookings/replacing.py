"""Other units for a booking whose own are no capacity: before it starts, when its start is blocked, and for a node that
died under it.

What to replace is decided here from views and the inventory; where to is `placement`'s. A booking never runs on units
that it does not hold: the holds are written first, under the pool's lock, and the cluster is asked after that. Never
calls a backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import numpy as np
from psycopg.errors import ExclusionViolation

from app.bookings import due, ground, offers, policies, queries, queries_life
from app.bookings.capacity import LEVELS, Flags, PoolSnapshot, Shape
from app.bookings.evidence import degraded, standing
from app.bookings.facts import Allocation, Booking, Held
from app.bookings.lifecycle import (
    BookingView,
    Change,
    Clear,
    Condition,
    Lose,
    Outage,
    Regain,
    State,
    follow,
)
from app.bookings.moves import write_changes
from app.bookings.placement import NoPlace, Part, place
from app.bookings.queries_life import Ailing
from app.bookings.recolour import Rearranged
from app.bookings.watching import worst_lost
from app.inventory import queries as inventory
from app.inventory.facts import Cluster, Pool
from app.kernel.actor import SYSTEM
from app.kernel.ids import new_id
from app.kernel.window import Window
from app.plumbing import outbox
from app.plumbing.db import Work
from app.plumbing.log import get_log

log = get_log("bookings")

NOT_BEGUN = (State.REQUESTED, State.BOOKED, State.STARTING)


_RETRY = timedelta(seconds=30)
"""At least so long a booking whose start is blocked keeps the units it was given before it gets others again."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A booking that has other units now: the names of the nodes that it left, and of those that it took."""

    left: tuple[str, ...]
    took: tuple[str, ...]


def needs_others(view: BookingView, held: Iterable[Held], pool: Pool, now: datetime) -> bool:
    """Whether a booking that was just looked at should be given other units: its start has been blocked for longer than
    a blip, or all that it has of a node has been lost for longer than that."""
    blip = pool.policy.blip
    if view.state is State.STARTING:
        blocked = view.conditions.get(Condition.BLOCKED)
        return blocked is not None and now < view.window.end and now - blocked.since >= blip
    if view.state is State.ACTIVE and now < view.window.end:
        return bool(worst_lost(view, [(h.node_id, h.gpus) for h in held], blip, now))
    return False


def replace_units(work: Work, booking_id: UUID, ailing: Sequence[Ailing] = ()) -> Replaced | None:
    """Give a booking other units instead of those that are no capacity; None when there are none, or it needs none.

    Takes the pool, then the booking, its holds and its due row. `ailing`: what is known to be wrong with its units.
    Before it begins, all of it may move, also to keep its shape; while it runs, only nodes of which nothing is left.
    """
    seen = queries.find_booking(work, booking_id)
    if seen is None:
        return None
    pool = policies.lock_pool(work, seen)
    booking = queries.lock_booking(work, booking_id)
    assert booking is not None
    held = tuple(h for h in queries.holds_of(work, booking_id, lock=True) if h.live)
    allocation = queries.allocation_of(work, booking_id)
    now = work.product_now()
    if allocation is None or not held or booking.ends_at <= now:
        return None
    view = queries.view_of(work, booking, held, allocation)
    cluster = inventory.cluster_with_id(work, booking.cluster_id)
    if view.state is State.ACTIVE:
        dead = set(worst_lost(view, [(h.node_id, h.gpus) for h in held], pool.policy.blip, now))
        leaves = [h for h in held if h.node_id in dead]
        if not leaves or not (_in_place(cluster) or len(leaves) == len(held)):
            return None  # the object would have to be made anew, and what still runs in it would end
    elif view.state in NOT_BEGUN and (ailing or needs_others(view, held, pool, now)):
        tried = None if ailing else queries_life.replaced_at(work, booking_id)
        if tried is not None and now - tried < max(pool.policy.blip, _RETRY):
            return None  # the units that it has were given a moment ago: they are looked at first
        leaves = list(held)
    else:
        return None
    found = _other_units(work, pool, booking, view, held, leaves, {a.node for a in ailing}, now)
    if found is None:
        return None
    return _write(work, pool, cluster, booking, allocation, view, leaves, found, now)


def _other_units(
    work: Work, pool: Pool, booking: Booking, view: BookingView, held: Sequence[Held], leaves: Sequence[Held],
    ailing: set[str], now: datetime,
) -> Rearranged | None:  # fmt: skip
    """Where the units that leave could lie from now on (or from the start), and who would have to make way."""
    running = view.state is State.ACTIVE
    window = Window(max(booking.starts_at, now), booking.ends_at)
    capacity = inventory.capacity_of(work, [pool])[pool.id]
    whole, positions, _ = offers.snapshot(work, capacity, booking.id)
    gap = int(pool.policy.gap.total_seconds())
    taken = queries.taken_by_others(work, positions, Window(window.start, window.end + pool.policy.gap), booking.id)
    snapshot = whole.with_busy(taken.plus(whole.busy))
    only = np.ones(len(snapshot.nodes), bool)
    if running:
        stay = [h for h in held if h not in leaves]
        shape = _part_shape(booking, leaves, stay)
        only = _beside(snapshot, booking, stay) & ~_nodes(snapshot, {h.node_id for h in held})
    else:
        shape = _whole_shape(booking)
        if view.state is State.STARTING and not ailing & {h.node for h in held}:
            # the cluster says no and the inventory sees nothing wrong: whatever it is, it is where the booking is now
            only = ~_nodes(snapshot, {h.node_id for h in held})
    found = place(snapshot, shape, window, gap, only=only)
    if not isinstance(found, NoPlace):
        return Rearranged(found, ())
    if running or not only.all():
        return None
    rearranged = ground.place_anyhow(work, ground.Site(whole, now, gap), shape, window, booking.id)
    return None if isinstance(rearranged, NoPlace) else rearranged


def _part_shape(booking: Booking, leaves: Sequence[Held], stay: Sequence[Held]) -> Shape:
    """What has to be found: all of it as it was booked, or as much as the nodes had that are gone."""
    if not stay:
        return _whole_shape(booking)
    if booking.nodes and booking.per_node:
        return Shape(nodes=len(leaves), per_node=booking.per_node)
    return Shape(units=sum(len(h.units) for h in leaves))


def _whole_shape(booking: Booking) -> Shape:
    units = None if booking.nodes else booking.units
    return Shape(units, booking.nodes, booking.per_node, booking.within, booking.near)  # type: ignore[arg-type]


def _beside(snapshot: PoolSnapshot, booking: Booking, stay: Sequence[Held]) -> Flags:
    """The nodes that share with those that stay what the booking was promised to share."""
    level = booking.within
    if level is None or level not in LEVELS or not stay:
        return np.ones(len(snapshot.nodes), bool)
    domain = snapshot.domain_of_nodes(level)
    return np.isin(domain, domain[_nodes(snapshot, {h.node_id for h in stay})])


def _nodes(snapshot: PoolSnapshot, ids: set[int]) -> Flags:
    return np.array([n.node_id in ids for n in snapshot.nodes], bool)


def _write(
    work: Work, pool: Pool, cluster: Cluster, booking: Booking, allocation: Allocation, view: BookingView,
    leaves: Sequence[Held], found: Rearranged, now: datetime,
) -> Replaced | None:  # fmt: skip
    parts = found.placement.parts
    start = max(booking.starts_at, now)  # late or running: until now it had others, whoever had these
    pinned = view.state in (State.STARTING, State.ACTIVE)
    end = booking.ends_at + pool.policy.gap
    new = [(new_id(), part.node_id, queries.multirange(part.positions)) for part in parts]
    try:
        with work.pg.transaction():
            queries_life.leave_units(work, [h.id for h in leaves], now, view.state is State.ACTIVE)
            ground.make_way(work, found.moves, now)
            queries_life.take_units(work, booking.id, allocation.id, new, start, end, pinned)
    except (ExclusionViolation, ground.MovedMeanwhile):
        return None
    names = inventory.node_names(work, [part.node_id for part in parts])
    done = Replaced(tuple(sorted({h.node for h in leaves})), tuple(sorted({n.name for n in names.values()})))
    said = f"{', '.join(done.left)} became {', '.join(done.took)}."
    changes = _changes(view, leaves, parts, now)
    write_changes(work, booking, view, changes, SYSTEM, now)
    queries_life.changed(work, booking.id)
    queries.note(
        work, booking.id, "replace", view.state, view.state, SYSTEM, now, _why(view),
        {"nodes": [list(done.left), list(done.took)]},
    )  # fmt: skip
    if (booking.asked and view.state is not State.BOOKED) or view.ensured:
        if _in_place(cluster):
            queries.want_more(work, booking.id)
        else:
            queries_life.next_generation(work, allocation.id)
    inventory.raise_version(work, [pool.id])
    if booking.account_id is not None:
        outbox.tell(
            work, "booking_replaced", now, booking.account_id, booking.id, key=f"replaced:{booking.id}:{now.isoformat()}",
            number=booking.number, name=booking.name, why=said, active=str(view.state is State.ACTIVE),
        )  # fmt: skip
    if view.state is not State.REQUESTED:
        at = now if pinned else max(now, booking.starts_at - pool.policy.made_ahead)
        due.hurry(work, allocation.id, booking.tenant_id, booking.cluster_id, at)
    log.info("other units", booking=booking.label, left=done.left, took=done.took)
    return done


def _changes(view: BookingView, leaves: Sequence[Held], parts: Sequence[Part], now: datetime) -> tuple[Change, ...]:
    """The units that were lost are no loss from now on; the new ones are one until the cluster has them in place."""
    over = (Condition.AT_RISK, Condition.BLOCKED)
    changes: list[Change] = [Clear(c, max(now, view.conditions[c].since)) for c in over if c in view.conditions]
    if view.state is not State.ACTIVE:
        return tuple(changes)
    gone = {gpu for h in leaves for gpu in h.gpus}
    changes += [Regain(o.unit, o.since, max(o.since, now)) for o in view.outages if o.until is None and o.unit in gone]
    changes += [
        Lose(Outage(gpu, now, None, "It is being put in place instead of units that were lost."))
        for part in parts
        for gpu in part.gpus
    ]
    return (*changes, *degraded(follow(view, changes), now))


def _why(view: BookingView) -> str:
    for condition in (Condition.AT_RISK, Condition.BLOCKED, Condition.DEGRADED):
        if condition in view.conditions and view.conditions[condition].why:
            return view.conditions[condition].why
    return ""


def _in_place(cluster: Cluster) -> bool:
    """Whether the cluster can give an object other units without making it anew."""
    able = ((cluster.probe or {}).get("capabilities") or {}).get("in_place", ())
    return "places" in able


# --- what a look at a cluster brings ----------------------------------------------------------------------------------


def call_at_risk(work: Work, booking_id: UUID, ailing: Sequence[Ailing]) -> bool:
    """A booking to come cannot have its units as things are, and there are no others: say so until that changes.

    True when this is new. Takes the booking alone.
    """
    booking = queries.lock_booking(work, booking_id)
    if booking is None or booking.state not in NOT_BEGUN:
        return False
    view = _view(work, booking)
    now = work.product_now()
    why = " ".join(dict.fromkeys(a.why for a in ailing))
    changes = standing(view, Condition.AT_RISK, min(min(a.since for a in ailing), now), why)
    write_changes(work, booking, view, changes, SYSTEM, now)
    new = Condition.AT_RISK not in view.conditions
    if new and booking.account_id is not None:
        since = min(a.since for a in ailing).isoformat()
        outbox.tell(
            work, "booking_at_risk", now, booking.account_id, booking.id, key=f"at_risk:{booking.id}:{since}",
            number=booking.number, name=booking.name, why=why, starts=booking.starts_at.isoformat(),
        )  # fmt: skip
    return new


def no_longer_at_risk(work: Work, booking_id: UUID) -> None:
    """Its units are capacity again, or it has others."""
    booking = queries.lock_booking(work, booking_id)
    if booking is None:
        return
    view = _view(work, booking)
    standing_now = view.conditions.get(Condition.AT_RISK)
    if standing_now is not None:
        now = work.product_now()
        write_changes(work, booking, view, (Clear(Condition.AT_RISK, max(now, standing_now.since)),), SYSTEM, now)


def tell_operators(
    work: Work, cluster: Cluster, bookings: Sequence[Booking], ailing: Sequence[Ailing], now: datetime
) -> None:
    """One notice to each operator about a tenant's bookings that are newly at risk."""
    since = min(a.since for a in ailing).isoformat()
    nodes = ", ".join(sorted({a.node for a in ailing}))
    for account in queries_life.operators(work):
        outbox.tell(
            work, "units_at_risk", now, account, None, key=f"at_risk:{cluster.name}:{nodes}:{since}", cluster=cluster.name,
            nodes=nodes, bookings=", ".join(b.label for b in bookings[:20]), count=len(bookings),
        )  # fmt: skip


def _view(work: Work, booking: Booking) -> BookingView:
    held = queries.holds_of(work, booking.id, lock=True)
    allocation = queries.allocation_of(work, booking.id)
    assert allocation is not None
    return queries.view_of(work, booking, held, allocation)
