"""What was measured of a booking: the units now, the curves over time, and since when nothing runs on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from app.bookings.facts import Booking, Held
from app.bookings.lifecycle import Outage
from app.inventory.facts import Kind
from app.kernel.window import Window
from app.plumbing.db import Work
from app.usage import queries as usage
from app.usage.queries import BookedGpu, SampleLine
from app.web import words
from app.web.views.booking import NodeUnits, Samples, UnitNow, UnitSeries, WorkloadRow

_MOST_SERIES = 64
_POINTS = 90
_STEPS = (60, 120, 300, 600, 900, 1800, 3600, 7200)
_FRESH = timedelta(minutes=10)
"""A sample that ended longer ago does not say how a unit is now."""
IDLE_AFTER = timedelta(minutes=15)
_WORKLOADS = {
    "training": "Training run",
    "notebook": "Notebook",
    "inference": "Inference server",
    "shell": "Shell",
    "job": "Job",
    "idle": "Placeholder",
}
_STATES = {
    "pending": ("Waiting", "warn"),
    "running": ("Running", "ok"),
    "finished": ("Finished", None),
    "failed": ("Failed", "bad"),
    "stopped": ("Stopped", None),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """`idle_since`: from when every unit was measured and unused; None when something runs or is not known."""

    units: tuple[NodeUnits, ...]
    samples: Samples | None
    sampled_at: datetime | None
    idle_since: datetime | None


def measured(
    work: Work, booking: Booking, held: Sequence[Held], outages: Iterable[Outage], kind: Kind, window: Window | None,
    now: datetime, zone: str,
) -> Measured:  # fmt: skip
    """Read the newest stretch of measurements; how long it is depends on how many nodes there are."""
    if window is None:
        return Measured((), None, None, None)
    gpus = usage.booked_gpus(work, booking.id)
    nodes = len({gpu.node_id for gpu in gpus}) or 1
    first = max(window.start, window.end - timedelta(hours=max(2, min(24, 64 // nodes))))
    lines = usage.samples_of(work, booking.id, Window(first, window.end))
    if not lines:
        return Measured((), None, None, None)
    newest = max(line.at + timedelta(seconds=line.seconds) for line in lines)
    active = booking.state == "ACTIVE"
    return Measured(
        _units_now(gpus, lines, held, outages, now, zone) if active else (),
        _samples(gpus, lines, kind),
        newest,
        _idle_since(lines) if active else None,
    )


def workload_rows(work: Work, booking: Booking, now: datetime) -> tuple[WorkloadRow, ...]:
    """What ran and runs in it, in order of start."""
    rows = []
    for workload_id, kind, name, state, why, units, started, ended in usage.workloads_of(work, booking.id):
        label, tone = _STATES.get(state, (words.first_upper(state), None))
        seconds = None if started is None else units * int((min(ended or now, now) - started).total_seconds())
        hint = " · ".join(part for part in (name or workload_id, why) if part)
        rows.append(
            WorkloadRow(_WORKLOADS.get(kind, words.first_upper(kind)), hint, label, tone, units, started, seconds)
        )  # type: ignore[arg-type]
    return tuple(rows)


def _units_now(
    gpus: Sequence[BookedGpu], lines: Sequence[SampleLine], held: Sequence[Held], outages: Iterable[Outage],
    now: datetime, zone: str,
) -> tuple[NodeUnits, ...]:  # fmt: skip
    first_gpu = {h.node_id: h.first_gpu for h in held}
    lost = {outage.unit: outage for outage in outages if outage.until is None}
    latest: dict[int, SampleLine] = {}
    for line in lines:
        if line.at + timedelta(seconds=line.seconds) > now - _FRESH:
            latest[line.node_id] = line
    nodes: dict[tuple[int, str], list[UnitNow]] = {}
    for gpu in gpus:
        outage = lost.get(first_gpu.get(gpu.node_id, 0) + gpu.gpu)
        note = "" if outage is None else f"lost since {words.moment(outage.since, zone, now)}"
        nodes.setdefault((gpu.node_id, gpu.node), []).append(_unit_now(gpu.gpu, latest.get(gpu.node_id), note))
    return tuple(NodeUnits(name, tuple(units)) for (_, name), units in nodes.items())


def _unit_now(gpu: int, line: SampleLine | None, note: str) -> UnitNow:
    if line is None or gpu not in line.gpus:
        return UnitNow(gpu, note=note)
    at = line.gpus.index(gpu)
    share, watts, heat = line.utilisation[at], line.power_w[at], line.temperature_c[at]
    return UnitNow(
        gpu,
        None if share is None else Fraction(share).limit_denominator(1000),
        line.memory_gb[at],
        None if watts is None else round(watts),
        None if heat is None else round(heat),
        note,
    )


def _samples(gpus: Sequence[BookedGpu], lines: Sequence[SampleLine], kind: Kind) -> Samples:
    """Means over steps of one length; a step without a measurement is a gap."""
    first, last = min(line.at for line in lines), max(line.at for line in lines)
    length = max((last - first).total_seconds() / _POINTS, max(line.seconds for line in lines))
    step = next((s for s in _STEPS if s >= length), _STEPS[-1])
    origin = int(first.timestamp()) // step * step
    count = (int(last.timestamp()) - origin) // step + 1
    chosen = gpus[:_MOST_SERIES]
    place = {(g.node_id, g.gpu): i for i, g in enumerate(chosen)}
    sums = [[[0.0, 0] for _ in range(count)] for _ in range(4 * len(chosen))]
    for line in lines:
        at = (int(line.at.timestamp()) - origin) // step
        for n, gpu in enumerate(line.gpus):
            i = place.get((line.node_id, gpu))
            if i is None:
                continue
            for k, values in enumerate((line.utilisation, line.memory_gb, line.power_w, line.temperature_c)):
                if values[n] is not None:
                    cell = sums[4 * i + k][at]
                    cell[0] += values[n]  # type: ignore[operator]
                    cell[1] += 1
    curves = [
        tuple(None if not n else round(total / n * (100 if k % 4 == 0 else 1), 1) for total, n in row)
        for k, row in enumerate(sums)
    ]
    start = datetime.fromtimestamp(origin, first.tzinfo)
    return Samples(
        tuple(start + timedelta(seconds=step * i) for i in range(count)),
        timedelta(seconds=step),
        tuple(UnitSeries(g.node, g.gpu, *curves[4 * i : 4 * i + 4]) for i, g in enumerate(chosen)),
        _memory(kind, curves),
        kind.tdp_watts,
    )


def _memory(kind: Kind, curves: Sequence[tuple[float | None, ...]]) -> int:
    """How high the memory chart goes: the unit's memory, or what was seen where the catalogue does not know it."""
    if kind.memory_gb is not None:
        return int(kind.memory_gb)
    return max((int(v) + 1 for row in curves[1::4] for v in row if v is not None), default=1)


def _idle_since(lines: Sequence[SampleLine]) -> datetime | None:
    since: datetime | None = None
    for line in lines:  # by time: whatever was used or not known begins the count anew
        if any(used is not False for used in line.in_use):
            since = None
        elif since is None:
            since = line.at
    return since
