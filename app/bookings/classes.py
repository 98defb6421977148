"""A class: one request for several people, a booking each at the same time, all or nothing.

Each booking belongs to its member, who alone enters it; its quota is the project's (no person's limits count); its verbs
are the lead's. Made in one transaction under the locks of every pool and limit concerned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from app.bookings import actions, leaving, offers, queries_series, rules, wanted
from app.bookings.capacity import Shape
from app.bookings.earliest import Grid
from app.bookings.edits import Key, kept_before
from app.bookings.facts import Booking
from app.bookings.offers import Desk
from app.bookings.queries_series import Class
from app.bookings.schemas import Ask, Owner
from app.inventory import queries as inventory
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Forbidden, NotFound, Reason, Refusal, Refused
from app.kernel.ids import new_id
from app.plumbing.db import Work
from app.plumbing.queue import Queue
from app.quotas import queries as quotas

MOST = 500
"""People in one class."""
_TRIES = 24
"""Starts that are looked at for a class that comes as soon as possible."""


@dataclass(frozen=True, slots=True)
class ClassMade:
    """A class with its bookings, by the names of their people."""

    one: Class
    bookings: tuple[Booking, ...]

    @property
    def total(self) -> Decimal:
        """The price of all of them, in the tenant's currency."""
        return sum((b.quoted for b in self.bookings), Decimal(0))


def book_class(
    work: Work, queue: Queue, actor: Actor, ask: Ask, people: Sequence[str], key: Key | None = None
) -> ClassMade:
    """Book what `ask` says once for each of these people (e-mail addresses of members), or nothing. The caller commits.

    As soon as possible is the first time at which all of them fit. Raises Refused with every reason; only a lead may.
    """
    class_id = new_id()
    kept = kept_before(work, actor, key, "class", class_id)
    if kept is not None:
        return see_class(work, actor, kept)
    desk = offers.open_desk(work, actor, ask.project, for_another=True)
    if not actor.leads(desk.project.id):
        raise Forbidden("role_missing", f"Only a lead of {desk.project.name} books for a class.")
    owners = _owners(desk, people)
    pools = offers.pools_asked(desk, ask)
    kinds = sorted({p.kind for p in pools})
    quotas.lock_scopes(work, desk.project.tenant_id, desk.project.id, None, kinds)
    inventory.lock_pools(work, [p.id for p in pools])
    queries_series.insert_class(work, class_id, desk.project.id, ask.name, actor.account_id, actor.label, desk.now)
    reasons: tuple[Reason, ...] = ()
    for start in _starts(desk, ask, len(owners)):
        try:
            with work.pg.transaction():
                for owner in owners:
                    _book(work, queue, actor, replace(ask, start=start, earliest=None, latest=None), owner, class_id)
            return see_class(work, actor, class_id)
        except Refused as refused:
            reasons = reasons or refused.refusal.reasons
    asked = rules.shape_text(_together(ask.shape, len(owners)))
    nowhere = Reason("no_room_for_class", f"There is no room for all {len(owners)} at once; nothing was booked.", None,
                     asked, "Choose another time, or book for fewer people.", "people")  # fmt: skip
    raise Refused(Refusal((nowhere, *reasons)))


def preview_class(work: Work, queue: Queue, actor: Actor, ask: Ask, people: Sequence[str]) -> ClassMade:
    """What `book_class` would make, found by making it and taking it back. Raises what it would raise."""
    with work.pg.transaction(force_rollback=True):
        return book_class(work, queue, actor, ask, people)


def see_class(work: Work, actor: Actor, class_id: UUID | None, number: int | None = None) -> ClassMade:
    """A class that the actor may look at, with its bookings; NotFound for every other."""
    found = queries_series.find_class(work, class_id, number)
    if found is None or not actor.sees_project(found.project_id):
        raise NotFound("class_not_found", "There is no such class.")
    return ClassMade(found, tuple(queries_series.bookings_of_class(work, found.id)))


def cancel_class(work: Work, queue: Queue, actor: Actor, class_id: UUID, key: Key | None = None) -> ClassMade:
    """Cancel what has not begun of a class and release what has: all of it, in one transaction. Only a lead may."""
    kept = kept_before(work, actor, key, "cancel_class", class_id)
    made = see_class(work, actor, class_id)
    if kept is not None:
        return made
    if not actor.leads(made.one.project_id):
        raise Forbidden("role_missing", f"{made.one.label} is its project's lead's to change.")
    going = [b for b in made.bookings if b.state in ("WAITING", "REQUESTED", "BOOKED", "STARTING", "ACTIVE")]
    if not going:
        raise Conflict("nothing_to_change", f"{made.one.label} is over.")
    queries_series.lock_bookings(work, [b.id for b in going])
    for booking in sorted(going, key=lambda b: b.id):
        verb = leaving.release if booking.state == "ACTIVE" else leaving.cancel
        verb(work, queue, actor, booking.id)
    return see_class(work, actor, class_id)


def _book(work: Work, queue: Queue, actor: Actor, ask: Ask, owner: Owner, class_id: UUID) -> Booking:
    return actions.book_among(work, queue, actor, replace(ask, owner=owner, class_id=class_id, digest=None))


def _owners(desk: Desk, people: Sequence[str]) -> tuple[Owner, ...]:
    """The people, each once, all of them members. Raises Refused (422) that names who is not."""
    named = list(dict.fromkeys(p.strip().lower() for p in people if p.strip()))
    if not named or len(named) > MOST:
        raise Refused(Refusal((
            Reason("too_many_people", f"A class has 1 to {MOST} people.", f"{MOST} people", f"{len(named)} people",
                   "Name at least one and not more.", "people", True),
        )))  # fmt: skip
    found = queries_series.members_named(desk.work, desk.project.id, named)
    strangers = [name for name in named if name not in found]
    if strangers:
        some = ", ".join(strangers[:5]) + (" and others" if len(strangers) > 5 else "")
        raise Refused(Refusal((
            Reason("not_a_member", f"Not a member of {desk.project.name}: {some}.", None, some,
                   "Let them be invited to the project first.", "people", True),
        )))  # fmt: skip
    return tuple(Owner(*found[name]) for name in named)


def _together(shape: Shape, people: int) -> Shape:
    """Everybody's units at once, without the closeness that each asks for: what must be free at least."""
    if shape.units is not None:
        return Shape(units=shape.units * people)
    return Shape(units=shape.total * people)


def _starts(desk: Desk, ask: Ask, people: int) -> list[datetime | None]:
    """The starts to try: the one asked for, or the first ones at which so many units are free together, soonest first."""
    if ask.start is not None:
        return [ask.start]
    shape = _together(ask.shape, people)
    found: set[datetime] = set()
    for pool in offers.pools_asked(desk, ask):
        first, until = wanted.bounds(ask, pool.policy, desk.now)
        ready = desk.ready(inventory.capacity_of(desk.work, [pool])[pool.id])
        gap = int(pool.policy.gap.total_seconds())
        grid = Grid(int(pool.policy.grid.total_seconds()), offers.EPOCH)
        tries = 0
        while tries < _TRIES:
            start = offers.soonest(ready, shape, ask.length, first, until, gap, grid if tries else None)
            if start is None:
                break
            if start > desk.now:
                start = rules.snap_instant(start, pool.policy.grid)
            found.add(start)
            first, tries = rules.snap_instant(start, pool.policy.grid) + pool.policy.grid, tries + 1
    return [None if start <= desk.now else start for start in sorted(found)][:_TRIES]
