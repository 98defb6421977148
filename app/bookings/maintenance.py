"""Maintenance: what becomes of the bookings on nodes that somebody wants to work on, seen first and then done in one step.

A preview does the very thing and takes it back, so what it shows is what a commit does; the commit names the preview by
its digest and fails when the world has changed since. For each booking: `move` (other nodes, same time), `shorten` (to
the beginning of the work) or `cancel`; the first of these that is possible is proposed. Never calls a backend.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Literal
from uuid import UUID

from psycopg.errors import ExclusionViolation

from app.bookings import due, ground, offers, queries, queries_edits, queries_requests, rules, shrinking, waitlist
from app.bookings.capacity import Shape
from app.bookings.edits import caught_up, look_now, pool_of
from app.bookings.facts import Booking, Held
from app.bookings.ground import MovedMeanwhile, Site
from app.bookings.lifecycle import BookingView, Event, State, cancel_event, leave
from app.bookings.moves import write_changes
from app.bookings.placement import NoPlace
from app.bookings.queries_displacing import told
from app.bookings.queries_edits import Placed
from app.bookings.queries_maintenance import Concerned, concerned, requests_holding
from app.inventory import actions_maintenance as announcing
from app.inventory import queries as inventory
from app.inventory.facts import Cluster
from app.inventory.layouts import plan_layout
from app.inventory.queries_maintenance import Level, Maintenance, nodes_of_domain
from app.inventory.rules import may_operate
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Invalid, Reason
from app.kernel.window import Window
from app.plumbing import outbox
from app.plumbing.db import Work
from app.plumbing.queue import Queue
from app.quotas import queries as quotas

Choice = Literal["move", "shorten", "cancel"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done where and when. `nodes` are names of nodes, or of the domains of `level`; none with `cluster`.

    `choices` are the operator's own for bookings by label (`B-12`), instead of what is proposed. `layout`: how the GPUs
    of the nodes are cut when it ends, in the words of a list of nodes (`0:3g.40gb*2;1:whole`); '' changes nothing.
    """

    cluster: str
    level: Level
    nodes: tuple[str, ...]
    window: Window
    name: str
    why: str
    choices: Mapping[str, Choice] = field(default_factory=dict)
    layout: str = ""


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one booking. `possible`: what could be chosen, the proposal first. `back`: how much less it costs."""

    booking: Booking
    tenant: str
    done: Choice
    possible: tuple[Choice, ...]
    left: tuple[str, ...]
    took: tuple[str, ...]
    end: datetime
    back: Decimal


@dataclass(frozen=True, slots=True)
class Impact:
    """What a maintenance does, all of it; `withdrawn` counts requests and offers that lose their units."""

    maintenance: Maintenance
    fates: tuple[Fate, ...]
    withdrawn: int
    digest: str


def preview(work: Work, queue: Queue, actor: Actor, plan: Plan) -> Impact:
    """What `commit` would do now; changes nothing."""
    with work.pg.transaction(force_rollback=True):
        return _carry_out(work, queue, actor, plan)


def commit(work: Work, queue: Queue, actor: Actor, plan: Plan, digest: str) -> Impact:
    """Announce it and do to every booking what the preview of this digest showed. The caller commits.

    Raises Conflict `world_changed` when that is no longer what would happen.
    """
    impact = _carry_out(work, queue, actor, plan)
    if impact.digest != digest:
        raise Conflict(
            "world_changed", "Bookings or nodes have changed since the preview. Look at the new one and confirm it."
        )
    return impact


def _carry_out(work: Work, queue: Queue, actor: Actor, plan: Plan) -> Impact:
    may_operate(actor)
    cluster = inventory.cluster_named(work, plan.cluster)
    nodes = nodes_of_domain(work, cluster.id, plan.level, plan.nodes)
    inventory.lock_pools(work, inventory.with_slices(work, {pool for _, pool in nodes.values()}))
    now = work.product_now()
    _check(plan, now)
    recuts = plan_layout(work, cluster.id, nodes, plan.layout) if plan.layout.strip() else ()
    recut = queries.multirange(positions for r in recuts for positions in r.positions)
    one = announcing.announce(work, actor, cluster.id, nodes, plan.window, plan.name, plan.why, recuts)
    unknown = set(plan.choices)
    fates, withdrawn = [], 0
    own_tenant = work.tenant_id
    every = concerned(work, nodes, plan.window, recut)
    for who in every:
        work.act_for(who.tenant_id)
        withdrawn += _withdraw(work, who, nodes, plan, recut, now)
        fate = _decide(work, queue, actor, who, cluster, plan, now) if who.own else None
        if fate is not None:
            fates.append(fate)
            unknown.discard(fate.booking.label)
    work.act_for(own_tenant)
    if unknown:
        said = f"{', '.join(sorted(unknown))} has no units there then."
        raise Invalid("unknown_booking", said, (Reason("unknown_booking", said, field="choices", in_request=True),))
    return Impact(one, tuple(fates), withdrawn, _digest(plan, fates, withdrawn))


def _check(plan: Plan, now: datetime) -> None:
    if plan.window.end <= now:
        said = "The maintenance would be over already."
        raise Invalid(
            "start_in_past",
            said,
            (Reason("start_in_past", said, rules.iso(now), rules.iso(plan.window.end), None, "end", True),),
        )
    if plan.window.start < now - rules.LATE_BY:
        said = f"The start lies in the past: it is {rules.iso(now)} now."
        raise Invalid(
            "start_in_past",
            said,
            (Reason("start_in_past", said, rules.iso(now), rules.iso(plan.window.start), None, "start", True),),
        )


# --- one booking ------------------------------------------------------------------------------------------------------


def _decide(
    work: Work, queue: Queue, actor: Actor, who: Concerned, cluster: Cluster, plan: Plan, now: datetime
) -> Fate | None:
    """Lock it, see what is possible, do what was chosen or else the first of that. None: it is leaving already."""
    booking = queries.lock_booking(work, who.booking_id)
    assert booking is not None
    queries.holds_of(work, booking.id, lock=True)
    if booking.state == State.REQUESTED:
        waitlist.give_up(work, actor, booking, now)
        _tell(work, actor, booking, "booking_cancelled", plan, now)
        nodes = _names(queries.holds_of(work, booking.id))
        return Fate(booking, who.tenant, "cancel", ("cancel",), nodes, (), booking.ends_at, booking.quoted)
    view, state = caught_up(work, booking, now)
    if state not in (State.BOOKED, State.STARTING, State.ACTIVE) or booking.ends_at <= plan.window.start:
        return None  # over, being emptied, or there only with its cleaning gap
    held = tuple(h for h in queries.holds_of(work, booking.id) if h.live)
    place = _elsewhere(work, booking, view, now)
    possible: list[Choice] = []
    if place is not None:
        possible.append("move")
    if booking.starts_at < plan.window.start > now:
        possible.append("shorten")
    possible.append("cancel")
    choice = plan.choices.get(booking.label, possible[0])
    if choice not in possible:
        said = f"{booking.label} cannot be {_DONE[choice]}: {_WHY_NOT[choice]}"
        raise Invalid(
            "choice_impossible",
            said,
            (Reason("choice_impossible", said, " or ".join(possible), choice, None, "choices", True),),
        )
    left, took, end, back = _names(held), (), booking.ends_at, Decimal(0)
    if choice == "move":
        assert place is not None
        took = _move(work, booking, view, held, place, actor, plan, now)
        if took is None:
            raise Conflict("world_changed", "Bookings have changed meanwhile. Look again.")
    elif choice == "shorten":
        shrunk = shrinking.cut_short(work, queue, actor, booking, view, plan.window.start, now)
        end, back = shrunk.end, shrunk.back
    else:
        _cancel(work, queue, actor, booking, view, plan, now)
        back = booking.quoted if state is not State.ACTIVE else Decimal(0)
    kind = f"booking_{_TOLD[choice]}"
    _tell(work, actor, booking, kind, plan, now, end=rules.iso(end), nodes=", ".join(took or ()))
    return Fate(booking, who.tenant, choice, tuple(possible), left, took or (), end, back)


_DONE = {"move": "moved", "shorten": "shortened", "cancel": "cancelled"}
_TOLD = {"move": "replanned", "shorten": "shortened", "cancel": "cancelled"}
_WHY_NOT = {
    "move": "nothing else is free for all of its time, or it stands on the cluster already.",
    "shorten": "it does not begin before the work does.",
    "cancel": "",
}


def _elsewhere(work: Work, booking: Booking, view: BookingView, now: datetime) -> ground.Rearranged | None:
    """Other nodes for all of its time; only for what nothing was asked of a cluster for."""
    if view.state is not State.BOOKED or view.asked or booking.starts_at <= now:
        return None
    pool = pool_of(work, booking)
    capacity = inventory.capacity_of(work, [pool])[pool.id]
    whole, _, _ = offers.snapshot(work, capacity, booking.id)
    shape = Shape(
        booking.units if booking.nodes is None else None, booking.nodes, booking.per_node, booking.within, booking.near
    )  # type: ignore[arg-type]
    site = Site(whole, now, int(pool.policy.gap.total_seconds()))
    found = ground.place_anyhow(work, site, shape, booking.window, booking.id)
    return None if isinstance(found, NoPlace) else found


def _move(
    work: Work, booking: Booking, view: BookingView, held: Sequence[Held], found: ground.Rearranged, actor: Actor,
    plan: Plan, now: datetime,
) -> tuple[str, ...] | None:  # fmt: skip
    pool = pool_of(work, booking)
    allocation = queries.allocation_of(work, booking.id)
    assert allocation is not None
    parts = tuple((p.node_id, queries.multirange(p.positions)) for p in found.placement.parts)
    to = Placed(pool.cluster_id, pool.id, booking.window, booking.ends_at + pool.policy.gap, parts)
    try:
        with work.pg.transaction():
            queries_edits.lift(work, held)
            ground.make_way(work, found.moves, now)
            queries_edits.put_place(work, booking.id, held, allocation.id, to, now)
    except (ExclusionViolation, MovedMeanwhile):
        return None
    names = inventory.node_names(work, [node for node, _ in parts])
    took = tuple(sorted(n.name for n in names.values()))
    why = _why(plan)
    changes = {"nodes": [list(_names(held)), list(took)]}
    queries.note(work, booking.id, "replace", view.state, view.state, actor, now, why, changes)
    return took


def _cancel(
    work: Work, queue: Queue, actor: Actor, booking: Booking, view: BookingView, plan: Plan, now: datetime
) -> None:
    event = Event.WITHDRAW if view.state is State.ACTIVE else cancel_event(view)
    write_changes(work, booking, view, leave(view, event, now, _why(plan)), actor, now)
    allocation = queries.allocation_of(work, booking.id)
    assert allocation is not None
    if event is Event.CANCEL:
        due.forget(work, allocation.id)
    else:
        look_now(work, queue, booking, allocation.id, now)


def _withdraw(
    work: Work, who: Concerned, nodes: Mapping[int, tuple[str, int]], plan: Plan, recut: str, now: datetime
) -> int:
    """Offers, freed units and edits that wait lose what they hold there: they cannot be kept."""
    booking = queries.find_booking(work, who.booking_id)
    assert booking is not None
    if booking.state == State.REQUESTED and who.own:
        return 0
    gone: list[UUID] = requests_holding(work, who.booking_id, nodes, plan.window, recut)
    if gone:
        queries_requests.lock_holds_of_requests(work, gone)
        queries_requests.drop_holds(work, gone)
        for request_id in gone:
            quotas.give_back_request(work, request_id)
            queries_requests.close_request(work, request_id, "withdrawn", _BERTH, now, _why(plan))
    return len(gone)


_BERTH = Actor(None, "Berth")


def _tell(work: Work, actor: Actor, booking: Booking, kind: str, plan: Plan, now: datetime, **more: str) -> None:
    """Tell whose booking it is, and the leads of its project."""
    words = {"number": booking.number, "name": booking.name, "why": _why(plan), "by": actor.label, **more}
    for account in told(work, booking):
        outbox.tell(work, kind, now, account, booking.id, **words)


def _why(plan: Plan) -> str:
    return f"{plan.name}: {plan.why}" if plan.why else plan.name


def _names(held: Sequence[Held]) -> tuple[str, ...]:
    return tuple(sorted({h.node for h in held if h.live}))


def _digest(plan: Plan, fates: Sequence[Fate], withdrawn: int) -> str:
    """Names all that happens: a booking that came, went, changed or would go elsewhere makes another digest."""
    said = [
        [plan.cluster, rules.iso(plan.window.start), rules.iso(plan.window.end), withdrawn, plan.layout.strip()],
        *([f.booking.label, f.booking.version, f.done, list(f.took), rules.iso(f.end), str(f.back)] for f in fates),
    ]
    return f"m1:{hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32]}"
