"""Series: a rule in local wall time whose every occurrence is a booking of its own, placed and priced on its own instants.

Making one is one transaction under the locks of every pool and limit concerned, so that its occurrences see each other.
What conflicts is listed: `skip` books the rest, `none` books nothing then. An edit of several occurrences is made whole or
not at all, so that no occurrence is ever worse off by an edit that failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

from app.bookings import actions, leaving, offers, queries_series, rules
from app.bookings.edits import Key, kept_before, may_change
from app.bookings.facts import Booking
from app.bookings.form import nearest_of, offset_text
from app.bookings.offers import Desk
from app.bookings.queries_series import Series
from app.bookings.recurrence import Occurrence, WrongRule, before, occurrences, overlap
from app.bookings.schemas import Ask
from app.inventory import queries as inventory
from app.kernel.actor import Actor
from app.kernel.errors import Alternative, Conflict, Forbidden, NotFound, Reason, Refusal, Refused
from app.kernel.ids import new_id
from app.plumbing.db import Work
from app.plumbing.queue import Queue
from app.quotas import queries as quotas

OPEN = ("WAITING", "REQUESTED", "BOOKED")
"""States of an occurrence that an edit of its series still changes: it has not begun."""


@dataclass(frozen=True, slots=True)
class SeriesAsk:
    """What a series is to be. Times of `ask` do not count; local times are of `zone`, without an offset."""

    ask: Ask
    rule: str
    zone: str
    local_start: datetime
    local_end: datetime
    on_conflict: str


@dataclass(frozen=True, slots=True)
class Slot:
    """One occurrence with what came of it: a booking, or the reasons why not."""

    occurrence: Occurrence
    booking: Booking | None
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """A series with its occurrences. `dropped`: bookings that an edit cancelled."""

    series: Series
    slots: tuple[Slot, ...]
    dropped: tuple[Booking, ...] = ()

    @property
    def booked(self) -> tuple[Booking, ...]:
        """The bookings, in order."""
        return tuple(slot.booking for slot in self.slots if slot.booking is not None)

    @property
    def conflicts(self) -> tuple[Slot, ...]:
        """The occurrences that could not be booked."""
        return tuple(slot for slot in self.slots if slot.booking is None)

    @property
    def total(self) -> Decimal:
        """The price of all that is booked, in the tenant's currency."""
        return sum((b.quoted for b in self.booked), Decimal(0))


# --- making -----------------------------------------------------------------------------------------------------------


def book_series(work: Work, queue: Queue, actor: Actor, asked: SeriesAsk, key: Key | None = None) -> Made:
    """Book every occurrence that can be booked. The caller commits.

    Raises Refused with the reasons of every conflict when `on_conflict` is none and there is one, or when nothing at
    all can be booked; nothing is written then.
    """
    series_id = new_id()
    kept = kept_before(work, actor, key, "series", series_id)
    if kept is not None:
        return see_series(work, actor, kept)
    desk = offers.open_desk(work, actor, asked.ask.project)
    found = _occurrences(asked, desk)
    _lock(desk, asked.ask)
    return _make(desk, queue, asked, found, series_id, None)


def preview_series(work: Work, queue: Queue, actor: Actor, asked: SeriesAsk) -> Made:
    """What `book_series` would make, found by making it and taking it back."""
    with _taken_back(work):
        desk = offers.open_desk(work, actor, asked.ask.project)
        found = _occurrences(asked, desk)
        _lock(desk, asked.ask)
        return _make(desk, queue, replace(asked, on_conflict="skip"), found, new_id(), None, refuse=False)


def _make(
    desk: Desk,
    queue: Queue,
    asked: SeriesAsk,
    found: tuple[Occurrence, ...],
    series_id: UUID,
    split_from: UUID | None,
    *,
    refuse: bool = True,
) -> Made:
    work, actor, ask = desk.work, desk.actor, asked.ask
    wanted = {k: v for k, v in ask.to_post().items() if k not in ("start", "duration", "earliest", "latest")}
    series = Series(
        series_id, 0, desk.project.id, desk.project.slug, ask.name, asked.rule, asked.zone, asked.local_start,
        asked.local_end, wanted, asked.on_conflict, actor.account_id, actor.label, desk.now, None, split_from, 1,
    )  # fmt: skip
    series = replace(series, number=queries_series.insert_series(work, series))
    slots = []
    for occurrence in found:
        if occurrence.window is None:
            slots.append(Slot(occurrence, None, (_missing(occurrence, ZoneInfo(asked.zone)),)))
            continue
        one = replace(
            ask, start=occurrence.window.start, length=timedelta(seconds=occurrence.window.seconds), digest=None,
            earliest=None, latest=None, series_id=series_id, occurs_at=occurrence.window.start,
        )  # fmt: skip
        try:
            slots.append(Slot(occurrence, actions.book_among(work, queue, actor, one)))
        except Refused as refused:
            slots.append(Slot(occurrence, None, refused.refusal.reasons))
    made = Made(series, tuple(slots))
    if refuse and made.conflicts and (asked.on_conflict == "none" or not made.booked):
        raise _refused(asked, made)
    return made


def _refused(asked: SeriesAsk, made: Made) -> Refused:
    """Every conflict with its day; where some days fit, the same series without the others is what would work."""
    reasons = tuple(
        replace(reason, message=f"{day_text(slot.occurrence.local_start)}: {reason.message}")
        for slot in made.conflicts
        for reason in slot.reasons
    )
    alternatives: tuple[Alternative, ...] = ()
    if made.booked:
        price = {"currency": made.booked[0].currency, "amount": str(made.total)}
        days = f"{len(made.booked)} of {len(made.slots)} occurrences"
        alternatives = (Alternative("skip", series_to_post(asked) | {"on_conflict": "skip"}, price, days),)
    return Refused(Refusal(reasons, alternatives))


def series_to_post(asked: SeriesAsk) -> dict:
    """The request as it would be posted to /series."""
    body = {k: v for k, v in asked.ask.to_post().items() if k not in ("start", "duration", "earliest", "latest")}
    return body | {
        "rule": asked.rule,
        "zone": asked.zone,
        "local_start": asked.local_start.isoformat(timespec="seconds"),
        "local_end": asked.local_end.isoformat(timespec="seconds"),
        "on_conflict": asked.on_conflict,
    }


def _occurrences(asked: SeriesAsk, desk: Desk) -> tuple[Occurrence, ...]:
    """The times that the rule means, or Refused (422) when it cannot be kept by itself."""
    horizon = max((p.policy.horizon for p in offers.pools_asked(desk, asked.ask)), default=timedelta(0))
    try:
        found = occurrences(asked.rule, asked.local_start, asked.local_end, ZoneInfo(asked.zone), desk.now + horizon)
    except WrongRule as wrong:
        reason = Reason("wrong_rule", str(wrong), None, asked.rule, None, "rule", True)
        raise Refused(Refusal((reason,))) from None
    both = overlap(found)
    if both is not None:
        first, second = (day_text(o.local_start) for o in both)
        length = rules.length_text(asked.local_end - asked.local_start)
        room = rules.length_text(both[1].local_start - both[0].local_start)
        raise Refused(Refusal((
            Reason("series_overlaps_itself", f"The occurrence of {first} is not over when that of {second} begins.",
                   room, length, "Choose a shorter time, or a rule that leaves more between.", "rule", True),
        )))  # fmt: skip
    return found


def _missing(occurrence: Occurrence, zone: ZoneInfo) -> Reason:
    local = occurrence.local_start if occurrence.missing == "start" else occurrence.local_end
    early, late = nearest_of(local, zone)
    return Reason(
        "local_time_missing",
        f"{local:%H:%M} does not exist on that day in {zone.key}: the clocks are put forward then.",
        f"{early:%H:%M} or {late:%H:%M}",
        f"{local:%H:%M}",
        "Book that day by itself, at another time.",
        "rule",
    )


def day_text(local: datetime) -> str:
    """A local start in words: `Tue 19 Oct 2027, 19:00`."""
    return f"{local:%a} {local.day} {local:%b} {local.year}, {local:%H:%M}"


def twice_text(occurrence: Occurrence, zone: ZoneInfo) -> str:
    """Both instants of a start that exists twice, the first of which is taken; empty where there is one."""
    return " and ".join(offset_text(instant, zone) for instant in occurrence.twice)


def _lock(desk: Desk, ask: Ask) -> None:
    """Everything that any occurrence may need, in the order of the house: limits, then pools."""
    pools = offers.pools_asked(desk, ask)
    project = desk.project
    quotas.lock_scopes(desk.work, project.tenant_id, project.id, desk.person, sorted({p.kind for p in pools}))
    inventory.lock_pools(desk.work, [p.id for p in pools])


@contextmanager
def _taken_back(work: Work) -> Iterator[None]:
    """Whatever is written inside is undone at its end."""
    with work.pg.transaction(force_rollback=True):
        yield


# --- looking ----------------------------------------------------------------------------------------------------------


def see_series(work: Work, actor: Actor, series_id: UUID | None, number: int | None = None) -> Made:
    """A series that the actor may look at, with its bookings (cancelled ones too); NotFound for every other."""
    series = queries_series.find_series(work, series_id, number)
    if series is None or not actor.sees_project(series.project_id):
        raise NotFound("series_not_found", "There is no such series.")
    zone = ZoneInfo(series.zone)
    slots = []
    for booking in queries_series.bookings_of_series(work, series.id):
        start, end = (i.astimezone(zone).replace(tzinfo=None) for i in (booking.starts_at, booking.ends_at))
        slots.append(Slot(Occurrence(start, end, booking.window), booking))
    return Made(series, tuple(slots))


# --- editing ----------------------------------------------------------------------------------------------------------


def cancel_series(
    work: Work,
    queue: Queue,
    actor: Actor,
    series_id: UUID,
    since: datetime | None = None,
    key: Key | None = None,
    version: int | None = None,
) -> Made:
    """Cancel every occurrence from `since` on that has not begun (None: all of them). The series ends there."""
    kept = kept_before(work, actor, key, "cancel_series", series_id)
    if kept is not None:
        return see_series(work, actor, kept)
    series = _locked(work, actor, series_id, version)
    now = work.product_now()
    dropped = _drop(work, queue, actor, series, since)
    rule = _left_of(series, since)
    queries_series.end_series(work, series.id, now, rule)
    return replace(see_series(work, actor, series.id), dropped=dropped)


def change_series(
    work: Work,
    queue: Queue,
    actor: Actor,
    series_id: UUID,
    asked: SeriesAsk,
    since: datetime | None = None,
    key: Key | None = None,
    version: int | None = None,
) -> Made:
    """This and the following occurrences by another rule, time, size or name: the series is split, and what has not
    begun from `since` on (None: everything that has not begun) is booked anew. Whole or not at all: Refused otherwise.

    The first of the new occurrences is at `asked.local_start`.
    """
    new_series = new_id()
    kept = kept_before(work, actor, key, "change_series", new_series)
    if kept is not None:
        return see_series(work, actor, kept)
    series = queries_series.find_series(work, series_id)
    if series is None or not actor.sees_project(series.project_id):
        raise NotFound("series_not_found", "There is no such series.")
    asked = replace(asked, ask=replace(asked.ask, project=series.project), on_conflict="none")
    desk = offers.open_desk(work, actor, series.project)
    found = _occurrences(asked, desk)
    _lock(desk, asked.ask)
    series = _locked(work, actor, series_id, version)
    dropped = _drop(work, queue, actor, series, since)
    queries_series.end_series(work, series.id, desk.now, _left_of(series, since))
    made = _make(desk, queue, asked, found, new_series, series.id)
    return replace(made, dropped=dropped)


def preview_change(
    work: Work, queue: Queue, actor: Actor, series_id: UUID, asked: SeriesAsk, since: datetime | None = None
) -> Made:
    """What `change_series` would do, found by doing it and taking it back. Raises what it would raise."""
    with _taken_back(work):
        return change_series(work, queue, actor, series_id, asked, since)


def _locked(work: Work, actor: Actor, series_id: UUID, version: int | None) -> Series:
    series = queries_series.lock_series(work, series_id)
    if series is None or not actor.sees_project(series.project_id):
        raise NotFound("series_not_found", "There is no such series.")
    own = series.account_id is not None and series.account_id == actor.account_id
    if not actor.may("book") or not (actor.leads(series.project_id) or (own and actor.books_in(series.project_id))):
        raise Forbidden("role_missing", f"{series.label} is {series.made_by}'s. A lead of the project may change it.")
    if version is not None and version != series.version:
        raise Conflict("edited_meanwhile", f"{series.label} has changed since you looked. Look again, then decide.")
    return series


def _drop(work: Work, queue: Queue, actor: Actor, series: Series, since: datetime | None) -> tuple[Booking, ...]:
    """Cancel what has not begun from an instant on. Raises Conflict when there is nothing of it."""
    every = queries_series.bookings_of_series(work, series.id)
    going = [
        b for b in every if b.state in OPEN and (since is None or (b.occurs_at or b.starts_at) >= since)
        and may_change(actor, b)
    ]  # fmt: skip
    if not going:
        raise Conflict("nothing_to_change", f"No occurrence of {series.label} from then on can be changed any more.")
    queries_series.lock_bookings(work, [b.id for b in going])
    return tuple(leaving.cancel(work, queue, actor, b.id) for b in going)


def _left_of(series: Series, since: datetime | None) -> str | None:
    """The rule of what stays; None when nothing of it does."""
    if since is None:
        return None
    local = since.astimezone(ZoneInfo(series.zone)).replace(tzinfo=None)
    return before(series.rule, local) if local > series.local_start else None
