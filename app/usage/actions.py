"""Reserved time is written from events, measurements are taken in, and what of the time was used is worked out.

Every verb may be repeated, by another worker at the same time too: the second changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from app.backends.contract import Sample, Usage, WorkloadSeen
from app.bookings import queries as bookings
from app.bookings.facts import Booking, Held, PriceSegment
from app.kernel.errors import NotFound
from app.kernel.money import quantity
from app.kernel.window import Window
from app.plumbing.db import Work
from app.plumbing.log import get_log
from app.usage import queries, rules
from app.usage.queries import BookedGpu, SampleLine, UsageLine
from app.usage.rules import Interval

log = get_log("usage")
FINE_FOR = timedelta(hours=48)
"""How long measurements are kept as they came."""
COARSE = 900
"""Seconds of a kept measurement after that."""
_STATES = {"waiting": "pending"}


@dataclass(frozen=True, slots=True)
class Written:
    """What became of reported intervals: ids that are new, that were there already, and that contradict the ledger."""

    new: tuple[UUID, ...] = ()
    repeated: tuple[UUID, ...] = ()
    conflicting: tuple[UUID, ...] = ()


# --- reserved time ----------------------------------------------------------------------------------------------------


def meter(work: Work, booking_id: UUID, now: datetime) -> Written:
    """Write the pieces of a booking's reserved time that are over at `now`, and move its cursor, in this transaction.

    A piece that was written already is left alone; one that says something else than the ledger becomes a conflict.
    """
    found = bookings.lock_metered(work, booking_id)
    if found is None:
        raise NotFound("booking", "There is no such booking.")
    booking, held, segments = found
    cuts = [s.window.start for s in segments] + [h.left_at for h in held if h.left_at is not None]
    window = rules.charge_window(booking.provided_at, booking.ends_at, booking.released_at)
    pieces = rules.reserved(window, ZoneInfo(booking.zone), cuts) if window else ()
    over = rules.ended(pieces, now, booking.metered_until)
    with work.pg.pipeline():  # what needs no answer goes along with what does
        queries.meter_next(work, booking_id, rules.next_end(pieces, now))
        if not over:
            return Written()
        queries.set_cursor(work, booking_id, over[-1].end)
        return record_intervals(
            work, [_interval(booking, held, segments, piece) for piece in over], now, _evidence(booking)
        )


def record_intervals(work: Work, intervals: Sequence[Interval], now: datetime, evidence: dict[str, Any]) -> Written:
    """Write reported intervals, whoever reports them: the source is evidence, not part of the key.

    What is equal to the ledger is a repeat; what overlaps it and differs is kept as an open conflict and never summed.
    """
    new = queries.insert_intervals(work, intervals, evidence)
    repeated, conflicting = [], []
    for interval in intervals:
        if interval.id in new:
            continue
        if queries.interval_there(work, interval):
            repeated.append(interval.id)
        else:
            queries.insert_conflict(work, interval, evidence, now)
            log.warning("a report contradicts what is metered", booking=str(interval.booking_id))
            conflicting.append(interval.id)
    return Written(tuple(i.id for i in intervals if i.id in new), tuple(repeated), tuple(conflicting))


def _interval(booking: Booking, held: Iterable[Held], segments: Sequence[PriceSegment], piece: Window) -> Interval:
    """One piece over all units that the booking held then. Holds that are over count where no live one does; those that
    it left count until then."""
    then = [h for h in held if h.start < piece.end and (h.left_at or h.end) > piece.start]
    stayed = [h for h in then if h.left_at is None]
    counted = ([h for h in stayed if h.live] or stayed) + [h for h in then if h.left_at is not None]
    if not counted:
        raise RuntimeError(f"{booking.label} was provided, but no hold says which units it had at {piece.start}")
    units = bookings.multirange([r for h in counted for r in h.ranges])
    amount = quantity(_units_at(booking, segments, piece.start), piece.seconds, booking.share840)
    return Interval(rules.interval_id(booking.id, units, piece), booking.id, units, piece, amount)


def _units_at(booking: Booking, segments: Sequence[PriceSegment], at: datetime) -> int:
    """How many units the booking had at an instant: it may have given some back since."""
    return next((s.units for s in segments if s.units is not None and s.window.contains(at)), booking.units)


def _evidence(booking: Booking) -> dict[str, Any]:
    return {"source": "events", "provided_at": booking.provided_at.isoformat()}


# --- measurements -----------------------------------------------------------------------------------------------------


def take_samples(work: Work, booking_id: UUID, window: Window, answer: Usage) -> datetime | None:
    """Keep what the cluster measured of a booking in the window that it was asked for, and split the hours it touches.

    Returns the instant from which a workload first held a unit, as far as this answer tells; the caller tells bookings.
    """
    booking = bookings.lock_booking(work, booking_id)
    if booking is None:
        raise NotFound("booking", "There is no such booking.")
    until = min(window.end, answer.until)
    charged = rules.charge_window(booking.provided_at, booking.ends_at, booking.released_at)
    gpus = queries.booked_gpus(work, booking_id)
    if until > window.start and charged is not None:
        taken = Window(window.start, until)
        queries.replace_samples(work, booking_id, taken, _lines(answer.samples, gpus))
        done = taken.intersect(charged)
        if done is not None:
            _split_hours(work, booking, charged, done, gpus)
    for seen in answer.workloads:
        _keep_workload(work, booking, seen)
    if charged is None:
        return None
    own = {(g.node, g.gpu) for g in gpus}
    first = min((s.at for s in answer.samples if s.in_use and (s.node, s.gpu) in own), default=charged.end)
    return max(first, charged.start) if first < charged.end else None


def _split_hours(work: Work, booking: Booking, charged: Window, done: Window, gpus: Sequence[BookedGpu]) -> None:
    """Work out anew every hour that `done` touches, up to its end. Measurements are complete until then."""
    weights = {(g.node_id, g.gpu): g.weight for g in gpus}
    segments = bookings.segments_of(work, booking.id)
    shrunk = [s.window.end for s in segments if s.units is not None]
    stretches = [
        Window(part.start, min(part.end, done.end))
        for hour in rules.hours_of(charged, ZoneInfo(booking.zone))
        for part in hour.cut(shrunk)
        if part.start < done.end and part.end > done.start
    ]
    lines = queries.samples_of(work, booking.id, Window(stretches[0].start, done.end))
    starts = [stretch.start for stretch in stretches]
    inside: list[list[SampleLine]] = [[] for _ in stretches]
    for line in lines:
        first = max(0, bisect_right(starts, line.at) - 1)
        last = bisect_left(starts, line.at + timedelta(seconds=line.seconds))
        for of_stretch in inside[first:last]:
            of_stretch.append(line)
    out = []
    for stretch, near in zip(stretches, inside, strict=True):
        amount = quantity(_units_at(booking, segments, stretch.start), stretch.seconds, booking.share840)
        parts = rules.split(queries.readings(near), stretch, weights, amount)
        out.append(UsageLine(stretch, parts, _energy(near, stretch)))
    queries.put_usage(work, booking.id, out)


def _energy(lines: Sequence[SampleLine], stretch: Window) -> Decimal | None:
    """Watt-hours of the stretch, to the milliwatt-hour; None where no power was measured."""
    parts = []
    for line in lines:
        inside = Window(line.at, line.at + timedelta(seconds=line.seconds)).intersect(stretch)
        if inside is not None:
            parts += [(inside.seconds, watts) for watts in line.power_w]
    measured = rules.energy_wh(parts)
    return None if measured is None else round(Decimal(str(measured)), 3)


def _lines(samples: Sequence[Sample], gpus: Sequence[BookedGpu]) -> list[SampleLine]:
    """Samples of the booked GPUs as rows of one node and one stretch: cut wherever one GPU of the node has an edge."""
    booked = {(g.node, g.gpu): g.node_id for g in gpus}
    by_node: dict[int, list[Sample]] = {}
    for sample in samples:
        node_id = booked.get((sample.node, sample.gpu))
        if node_id is not None:
            by_node.setdefault(node_id, []).append(sample)
    lines = []
    for node_id, of_node in by_node.items():
        edges = sorted({e for s in of_node for e in (s.at, s.at + timedelta(seconds=s.seconds))})
        place = {edge: n for n, edge in enumerate(edges)}
        cells: list[list[Sample]] = [[] for _ in edges]
        for sample in of_node:
            for n in range(place[sample.at], place[sample.at + timedelta(seconds=sample.seconds)]):
                cells[n].append(sample)
        for n, cell in enumerate(cells):
            if cell:
                lines.append(_line(node_id, edges[n], edges[n + 1], sorted(cell, key=lambda s: s.gpu)))
    return lines


def _line(node_id: int, start: datetime, end: datetime, cell: Sequence[Sample]) -> SampleLine:
    return SampleLine(
        node_id,
        start,
        int((end - start).total_seconds()),
        [s.gpu for s in cell],
        [s.utilisation for s in cell],
        [s.memory_gb for s in cell],
        [s.power_w for s in cell],
        [s.temperature_c for s in cell],
        [s.in_use for s in cell],
    )


def _keep_workload(work: Work, booking: Booking, seen: WorkloadSeen) -> None:
    queries.put_workload(
        work,
        booking.id,
        seen.id,
        seen.kind,
        _STATES.get(seen.state, seen.state),
        seen.why,
        booking.units if seen.gpus is None else seen.gpus,
        seen.started,
        seen.ended,
    )


# --- keeping less of what is old --------------------------------------------------------------------------------------


def thin(work: Work, now: datetime, limit: int = 500) -> int:
    """Join measurements older than 48 hours to one per node and 15 minutes; returns how many cells were joined.

    Whose they are is read across tenants, each is written as its own tenant. How the time splits stays as it was worked
    out from the fine ones. Means are weighted by time.
    """
    last, whose = now - FINE_FOR, work.tenant_id
    with work.read_all():
        cells = queries.fine_cells(work, Window(last - timedelta(days=7), last), COARSE, limit)
    for tenant_id, booking_id, start in cells:
        if work.tenant_id != tenant_id:
            work.act_for(tenant_id)
        cell = Window(start, start + timedelta(seconds=COARSE))
        by_node: dict[int, list[SampleLine]] = {}
        for line in queries.samples_of(work, booking_id, cell):
            if line.at >= cell.start:
                by_node.setdefault(line.node_id, []).append(line)
        queries.replace_samples(work, booking_id, cell, [joined(lines) for lines in by_node.values()])
    work.act_for(whose)
    return len(cells)


def joined(lines: Sequence[SampleLine]) -> SampleLine:
    """Measurements of one node that follow each other, as one. In use is kept where it was the same throughout."""
    start = min(line.at for line in lines)
    end = max(line.at + timedelta(seconds=line.seconds) for line in lines)
    gpus = sorted({gpu for line in lines for gpu in line.gpus})
    whole = int((end - start).total_seconds())

    def mean(name: str, gpu: int) -> float | None:
        known = [(line.seconds, value) for line in lines if (value := _of(line, name, gpu)) is not None]
        return sum(s * v for s, v in known) / sum(s for s, _ in known) if known else None

    def in_use(gpu: int) -> bool | None:
        seen = [(line.seconds, _of(line, "in_use", gpu)) for line in lines]
        values = {value for _, value in seen}
        complete = sum(seconds for seconds, value in seen if value is not None) == whole
        return values.pop() if len(values) == 1 and complete else None

    return SampleLine(
        lines[0].node_id,
        start,
        whole,
        gpus,
        *([mean(name, gpu) for gpu in gpus] for name in ("utilisation", "memory_gb", "power_w", "temperature_c")),
        [in_use(gpu) for gpu in gpus],
    )


def _of(line: SampleLine, name: str, gpu: int) -> Any:
    return getattr(line, name)[line.gpus.index(gpu)] if gpu in line.gpus else None
