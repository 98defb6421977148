"""What every verb on a booking has in common: the key, the right, the lock, the version, the clock, the answer.

One verb, one function, one transaction; the caller commits. A verb that fails raises and has written nothing. It must not
know HTTP, forms or workers, and never calls a backend.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.bookings import due, policies, queries, queries_keys, watching
from app.bookings.facts import Booking, Project
from app.bookings.lifecycle import BookingView, Pace, State, follow, tick
from app.bookings.moves import write_changes
from app.inventory.facts import Pool
from app.kernel import ids
from app.kernel.actor import SYSTEM, Actor
from app.kernel.errors import Conflict, Forbidden, NotFound
from app.plumbing import outbox
from app.plumbing.db import Work
from app.plumbing.queue import Queue, send_after_commit

RECONCILE = "reconcile.cluster"
"""The task that works off what is due on one cluster."""


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key with what identifies the request under it."""

    key: str
    body_hash: bytes


def done_before(work: Work, actor: Actor, key: Key | None, verb: str, booking_id: UUID) -> Booking | None:
    """The booking that stands under the key, None when the key is new and now ours."""
    kept = kept_before(work, actor, key, verb, booking_id)
    return None if kept is None else see(work, actor, kept)


def kept_before(work: Work, actor: Actor, key: Key | None, verb: str, made: UUID) -> UUID | None:
    """The id that stands under the key, None when the key is new and now stands for `made`."""
    if key is None:
        return None
    # a key answers only to whoever used it: the same words of somebody else are another request
    mine = hashlib.sha256(f"{actor.account_id}\n".encode() + key.body_hash).digest()
    kept = queries_keys.take_key(work, key.key, verb, mine, made)
    if kept is None:
        return None
    if kept.verb != verb or kept.body_hash != mine:
        raise Conflict("idempotency_key_reused", "This idempotency key was used for another request. Take a new one.")
    return kept.booking_id


def see(work: Work, actor: Actor, booking_id: UUID | None, number: int | None = None) -> Booking:
    """A booking that the actor may look at; NotFound for every other, whether it exists or not."""
    if booking_id is not None:
        found = queries.find_booking(work, booking_id)
    else:
        found = queries.find_by_number(work, number) if number is not None else None
    if found is None or not actor.sees_project(found.project_id):
        raise NotFound("booking_not_found", "There is no such booking.")
    return found


def find(work: Work, actor: Actor, text: str) -> Booking:
    """The booking of an address: `bk_…`, or the number that people say (`B-2417`, `2417`). NotFound as in `see`."""
    digits = text.upper().removeprefix("B-")
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None
    return see(work, actor, ids.parse(ids.BOOKING, text), number)


def may_change(actor: Actor, booking: Booking) -> bool:
    """Members change what they booked themselves, leads and tenant admins everything of the project.

    A class's bookings are their members', but what becomes of them is the lead's to say.
    """
    if not actor.may("book"):
        return False
    own = booking.class_id is None and booking.account_id is not None and booking.account_id == actor.account_id
    return actor.leads(booking.project_id) or (own and actor.books_in(booking.project_id))


def change(
    work: Work,
    actor: Actor,
    booking_id: UUID,
    key: Key | None,
    version: int | None,
    verb: str,
    apply: Callable[[Booking, datetime], None],
) -> Booking:
    """What the verbs that take no pool have in common: key, right, lock, version, clock, answer."""
    done = done_before(work, actor, key, verb, booking_id)
    if done is not None:
        return done
    allow(actor, see(work, actor, booking_id))
    booking = queries.lock_booking(work, booking_id)
    assert booking is not None
    check_version(booking, version)
    queries.holds_of(work, booking_id, lock=True)
    apply(booking, work.product_now())
    after = queries.find_booking(work, booking_id)
    assert after is not None
    return after


def caught_up(work: Work, booking: Booking, now: datetime) -> tuple[BookingView, State]:
    """The view after what time alone brings, written first: a release one second after the end finds it ended."""
    view = _view(work, booking)
    pace = pace_of(pool_of(work, booking))
    changes = tick(view, now, pace)
    view = write_changes(work, booking, view, changes, SYSTEM, now)
    return view, view.state


def view_now(work: Work, booking: Booking, now: datetime) -> BookingView:
    """The same without writing anything: for what a verb would do."""
    view = _view(work, booking)
    return follow(view, tick(view, now, pace_of(pool_of(work, booking))))


def _view(work: Work, booking: Booking) -> BookingView:
    """What its life depends on. One that waits, or whose request holds nothing, has nothing on a cluster yet."""
    allocation = queries.allocation_of(work, booking.id)
    if allocation is None:
        return BookingView(State(booking.state), booking.window)
    return queries.view_of(work, booking, queries.holds_of(work, booking.id), allocation)


def tell_owner(work: Work, actor: Actor, booking: Booking, kind: str, now: datetime, **more: str) -> None:
    """Somebody else changed a person's booking: that person is told by whom."""
    if booking.account_id is not None and booking.account_id != actor.account_id:
        outbox.tell(
            work, kind, now, booking.account_id, booking.id, number=booking.number, name=booking.name, by=actor.label,
            **more,
        )  # fmt: skip


def pace_of(pool: Pool) -> Pace:
    """How closely a booking of this pool is followed."""
    return watching.pace_of(pool.policy)


def look_now(work: Work, queue: Queue, booking: Booking, allocation_id: UUID, now: datetime) -> None:
    due.hurry(work, allocation_id, booking.tenant_id, booking.cluster_id, now)
    send_after_commit(work, queue, RECONCILE, booking.cluster_id)


def allow(actor: Actor, booking: Booking) -> None:
    if not may_change(actor, booking):
        raise Forbidden(
            "role_missing", f"{booking.label} is {booking.booked_by}'s. A lead of the project may change it."
        )


def check_version(booking: Booking, version: int | None) -> None:
    if version is not None and version != booking.version:
        raise Conflict("edited_meanwhile", f"{booking.label} has changed since you looked. Look again, then decide.")


def not_in_state(booking: Booking, state: State, verb: str) -> Conflict:
    return Conflict("wrong_state", f"{booking.label} is {state.lower()} and cannot be {verb}.")


def project_of(work: Work, booking: Booking) -> Project:
    project = queries.find_project(work, booking.project, booking.project_id)
    assert project is not None
    return project


def pool_of(work: Work, booking: Booking) -> Pool:
    """The pool with the policy that counts for the booking's project."""
    return policies.pool_of(work, booking)
