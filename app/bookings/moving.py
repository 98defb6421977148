"""Move: another window, another cluster, in one edit before the start. A failed move leaves the booking as it was.

It is found as a new booking would be, with its own units and hours counted as free, at the prices published now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg.errors import ExclusionViolation

from app.bookings import due, ground, offers, policies, queries, queries_edits, queries_requests, rules
from app.bookings.capacity import Shape
from app.bookings.edits import (
    Key,
    allow,
    caught_up,
    check_version,
    done_before,
    look_now,
    not_in_state,
    project_of,
    see,
    tell_owner,
    view_now,
)
from app.bookings.facts import Booking, Project
from app.bookings.ground import MovedMeanwhile
from app.bookings.lifecycle import BookingView, State
from app.bookings.offers import Desk, Offer
from app.bookings.open_projects import closed
from app.bookings.queries_edits import Placed
from app.bookings.schemas import Ask
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Reason, Refusal, Refused
from app.plumbing.db import Work
from app.plumbing.queue import Queue
from app.quotas import queries as quotas
from app.quotas.rules import Piece, QuotaEffect, Scope, pieces


@dataclass(frozen=True, slots=True)
class To:
    """Where and when to: what is not said stays as it is. `cluster` "any" is any that has the kind."""

    start: datetime | None = None
    length: timedelta | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Relocation:
    """A booking at another time or place, and what it means. `change`: how much more it costs; less is negative."""

    booking: Booking
    offer: Offer
    change: Decimal
    effects: tuple[QuotaEffect, ...]


def quote_move(work: Work, actor: Actor, booking_id: UUID, to: To) -> Relocation:
    """What a move would cost, without making it. Raises what the move itself would."""
    booking = see(work, actor, booking_id)
    allow(actor, booking)
    now = work.product_now()
    _check_state(work, booking, now)
    desk = _desk(work, actor, booking, project_of(work, booking), now)
    ask = _ask(booking, to)
    _refuse(_unmoved(booking, ask))
    return _find(desk, booking, ask, offers.pools_asked(desk, ask), desk.scopes(booking.kind))


def move(
    work: Work,
    queue: Queue,
    actor: Actor,
    booking_id: UUID,
    to: To,
    key: Key | None = None,
    version: int | None = None,
) -> Booking:
    """Give up its place for another one, at the prices published now.

    Raises Refused with every reason, Conflict once it is being put in place.
    """
    done = done_before(work, actor, key, "move", booking_id)
    if done is not None:
        return done
    booking = see(work, actor, booking_id)
    allow(actor, booking)
    _check_state(work, booking, work.product_now())
    project = project_of(work, booking)
    ask = _ask(booking, to)
    _refuse(_unmoved(booking, ask))
    guess = _desk(work, actor, booking, project, work.product_now())
    found = _find(guess, booking, ask, offers.pools_asked(guess, ask), guess.scopes(booking.kind))
    scopes = quotas.lock_scopes(work, project.tenant_id, project.id, booking.account_id, [booking.kind])
    pools = inventory.lock_pools(work, {booking.pool_id, found.offer.pool.id})
    locked = queries.lock_booking(work, booking_id)
    assert locked is not None
    allow(actor, locked)
    check_version(locked, version)
    if locked.version != booking.version:
        raise Conflict("edited_meanwhile", f"{booking.label} has just been changed by somebody else. Look again.")
    queries.holds_of(work, booking_id, lock=True)
    now = work.product_now()
    view, state = caught_up(work, locked, now)
    if state is not State.BOOKED:
        raise not_in_state(locked, state, "moved")
    desk = _desk(work, actor, locked, project, now)
    pool = policies.effective(work, pools[found.offer.pool.id], project.id)
    plan = _find(desk, locked, ask, (pool,), scopes)
    _refuse(_elsewhere(locked, view, pool))
    _write(desk, queue, locked, view, plan, scopes)
    inventory.raise_version(work, pools)
    after = queries.find_booking(work, booking_id)
    assert after is not None
    return after


def _check_state(work: Work, booking: Booking, now: datetime) -> None:
    """Before anything is looked for: what is over is not told that there is no room."""
    state = view_now(work, booking, now).state
    if state is not State.BOOKED:
        raise not_in_state(booking, state, "moved")


def _desk(work: Work, actor: Actor, booking: Booking, project: Project, now: datetime) -> Desk:
    over = closed(project, now)
    if over is not None:
        raise Refused(Refusal((over,)))
    return Desk(work, actor, project, now, booking.account_id, leaving=booking.id, gives_way=True)


def _ask(booking: Booking, to: To) -> Ask:
    """The booking as it would be asked for anew."""
    form = {"units": booking.units} if booking.nodes is None else {"nodes": booking.nodes, "per_node": booking.per_node}
    cluster = None if to.cluster == "any" else to.cluster or booking.cluster
    return Ask(
        project=booking.project,
        name=booking.name,
        kind=booking.kind,
        shape=Shape(**form, within=booking.within, near=booking.near),  # type: ignore[arg-type]
        cluster=cluster,
        start=to.start or booking.starts_at,
        length=to.length if to.length is not None else booking.ends_at - booking.starts_at,
        cost_centre=booking.cost_centre,
        reference=booking.reference,
        workload=(booking.workload or {}).get("kind", "default"),
        digest=None,
    )


def _find(desk: Desk, booking: Booking, ask: Ask, pools: tuple[Pool, ...], scopes: tuple[Scope, ...]) -> Relocation:
    failed: list[Reason] = []
    for found in offers.find_offers(desk, ask, pools):
        if isinstance(found, Offer):
            reasons, effects = offers.limits_of(
                desk, found.pool, booking.account_id, scopes, _pieces(desk, booking, found), found.window, booking.id
            )
            reasons += _needs_approval(booking, found)
            if not reasons:
                return Relocation(booking, found, found.cost.amount - booking.quoted, effects)
        else:
            reasons = found[1]
        failed += [r for r in reasons if r not in failed]
    raise Refused(Refusal(tuple(failed)))


def _pieces(desk: Desk, booking: Booking, offer: Offer) -> tuple[Piece, ...]:
    return pieces(offer.segments, desk.zone, booking.units, booking.share840)


def _needs_approval(booking: Booking, offer: Offer) -> tuple[Reason, ...]:
    """A booking that was let pass is moved without asking again, as long as it gets neither longer nor dearer."""
    if offer.approval is None:
        return ()
    longer = offer.window.end - offer.window.start > booking.ends_at - booking.starts_at
    if not longer and offer.cost.amount <= booking.quoted:
        return ()
    said = f"At that time it would need the approval of {offer.approval.who}."
    return (
        Reason("needs_approval", said, None, None, "Book it anew, and cancel this one once that is approved.", "start"),
    )


def _unmoved(booking: Booking, ask: Ask) -> Reason | None:
    if (ask.start, ask.length, ask.cluster) != (
        booking.starts_at,
        booking.ends_at - booking.starts_at,
        booking.cluster,
    ):
        return None
    return Reason(
        "not_moved", "It is there already.", None, None, "Choose another start, length or cluster.", "start", True
    )


def _elsewhere(booking: Booking, view: BookingView, pool: Pool) -> Reason | None:
    """What stands on a cluster already, made ahead, cannot go to another."""
    if not view.asked or pool.cluster_id == booking.cluster_id:
        return None
    said = f"It stands on {booking.cluster} already and cannot go to another cluster."
    return Reason("made_ahead", said, None, None, "Book it there anew, and cancel this one.", "cluster")


def _refuse(reason: Reason | None) -> None:
    if reason is not None:
        raise Refused(Refusal((reason,)))


def _write(
    desk: Desk, queue: Queue, booking: Booking, view: BookingView, plan: Relocation, scopes: tuple[Scope, ...]
) -> None:
    work, now, offer = desk.work, desk.now, plan.offer
    pool, window = offer.pool, offer.window
    held = queries.holds_of(work, booking.id)
    allocation = queries.allocation_of(work, booking.id)
    assert allocation is not None
    freed = queries_requests.pieces_of_booking(work, booking.id)
    queries_requests.withdraw_edits(work, booking.id, now)
    object_id = allocation.id
    if pool.cluster_id != booking.cluster_id:
        object_id = queries_edits.new_allocation(work, pool.cluster_id)
    parts = tuple((p.node_id, queries.multirange(p.positions)) for p in offer.placement.parts)
    to = Placed(pool.cluster_id, pool.id, window, window.end + pool.policy.gap, parts)
    try:
        with work.pg.transaction():
            queries_edits.lift(work, held)
            ground.make_way(work, offer.moves, now)
            queries_edits.put_place(work, booking.id, held, object_id, to, now)
    except (ExclusionViolation, MovedMeanwhile):  # whoever wrote without the pool's lock was wrong, not the units
        said = f"Somebody else has just taken these {booking.kind_name} on {pool.cluster}."
        raise Refused(Refusal((Reason("no_units_free", said, fix="Try again.", field="start"),))) from None
    quotas.give_back(work, booking.id, offers.EPOCH)
    quotas.commit_pieces(work, booking.tenant_id, scopes, _pieces(desk, booking, offer), booking.id)
    queries_edits.put_schedule(work, booking.id, offer.prices)
    queries_edits.move_booking(work, booking.id, to, offer.cost.amount)
    queries_requests.pass_on(work, booking, _still_free(freed, to), now)
    state = view.state
    queries.note(work, booking.id, "move", state, state, desk.actor, now, "", _changes(booking, plan))
    tell_owner(
        work, desk.actor, booking, "booking_moved", now, start=rules.iso(window.start), end=rules.iso(window.end)
    )
    if object_id != allocation.id:
        queries_edits.close_allocation(work, allocation.id)
        due.forget(work, allocation.id)
    begins = max(window.start - pool.policy.made_ahead, now)
    due.hurry(work, object_id, booking.tenant_id, pool.cluster_id, begins)
    if view.asked:
        queries.want_more(work, booking.id)
    if view.asked or begins <= now:
        look_now(work, queue, replace(booking, cluster_id=pool.cluster_id), object_id, now)


def _still_free(freed: tuple[queries_requests.Piece, ...], to: Placed) -> list[queries_requests.Piece]:
    """What it gave up, where its new place does not lie on it."""
    return [p for p in freed if p.end <= to.window.start or p.start >= to.blocked_until]


def _changes(booking: Booking, plan: Relocation) -> dict[str, Any]:
    offer = plan.offer
    changes: dict[str, Any] = {
        "start": [rules.iso(booking.starts_at), rules.iso(offer.window.start)],
        "end": [rules.iso(booking.ends_at), rules.iso(offer.window.end)],
        "quoted": [str(booking.quoted), str(offer.cost.amount)],
    }
    if offer.pool.cluster_id != booking.cluster_id:
        changes["cluster"] = [booking.cluster, offer.pool.cluster]
    return changes
