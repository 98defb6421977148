"""From a reservation's spans, runs, outages and gaps to samples. Pure; the curves give the values, this cuts the time.

Values are worked out on a base of minutes and changes (a run begins or ends, a unit is lost, a gap), then averaged over
the cells asked for. So a sample of 900 s is the mean of its fifteen of 60 s, and asking in two parts gives the same
values as asking once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from app.backends.contract import Sample
from app.backends.simulated.curves import Card, Floats, Ints, Stint, curve, key_of
from app.backends.simulated.looking import FOREVER, begun, instant, run_times
from app.backends.simulated.state import Cluster, Reservation, Unit, gpu_of, slice_of

_EPOCH_MINUTE = 60


@dataclass(frozen=True, slots=True)
class Stretch:
    """One GPU of a reservation over `[first, last)`, with all that cuts it. Intervals are `(from, until)`."""

    unit: Unit
    card: Card
    first: int
    last: int
    stints: tuple[Stint, ...]
    lost: tuple[tuple[int, int], ...]
    unseen: tuple[tuple[int, int], ...]


def stretches(cluster: Cluster, r: Reservation, seed: int, since: int, until: int, now: int) -> list[Stretch]:
    """What there is to measure of a reservation in `[since, until)`, by node, GPU and time. Cheap; no curves yet."""
    began = begun(cluster, r, now)
    if began is None:
        return []
    limit = min(r.end, FOREVER if r.released is None else r.released, until, now)
    ran = []
    for run in r.runs.values():
        times = run_times(cluster, r, run, now)
        if times.started is not None:
            end = max(times.started, now if times.ended is None else times.ended)
            ran.append((run, Stint(key_of(seed, r.ref, run.id), run.kind, times.started, end, run.hangs)))
    found = []
    for span in r.spans:
        first = max(began, span.since, since)
        last = min(limit, FOREVER if span.until is None else span.until)
        if first >= last:
            continue
        spec = cluster.nodes[span.node]
        memory = None if spec.gpu_memory_mib is None else spec.gpu_memory_mib * 1.048576e-3
        down, unseen = [], [(a, b) for node, a, b in cluster.gaps if node in (None, span.node)]
        lost: dict[int, list[tuple[int, int]]] = {}
        for o in cluster.outages.get(span.node, ()):
            if o.ref not in (None, r.ref) or o.since > now:
                continue
            piece = (o.since, FOREVER if o.until is None else o.until)
            if o.gpus is None:
                down.append(piece)
            else:
                for gpu in o.gpus:
                    lost.setdefault(gpu, []).append(piece)
        for gpu in sorted(set(map(gpu_of, span.gpus))):
            unit, numbers = (span.node, gpu), [n for n in span.gpus if gpu_of(n) == gpu]
            units = {(span.node, number) for number in numbers}
            stints = tuple(stint for run, stint in ran if run.units is None or units & set(run.units))
            # of a GPU that is cut, what is measured is the booking's slices together
            eighths = sum(cut[2] for cut in map(slice_of, numbers) if cut is not None) or 8
            watts = spec.power_watts and max(1, spec.power_watts * eighths // 8)
            card = Card(key_of(seed, span.node, gpu), watts, memory and memory * eighths / 8)
            found.append(Stretch(unit, card, first, last, stints, tuple(lost.get(gpu, ())), (*unseen, *down)))
    return sorted(found, key=lambda s: (s.unit, s.first))


def samples(found: list[Stretch], step: int) -> Iterator[Sample]:
    """The samples of these stretches, one a `step` seconds on the grid of UTC, cut at every change."""
    instants: dict[int, datetime] = {}
    for stretch in found:
        yield from _of_one(stretch, step, instants)


def _of_one(s: Stretch, step: int, instants: dict[int, datetime]) -> Iterator[Sample]:
    changes = [t for stint in s.stints for t in (stint.start, stint.end)]
    changes += [stint.hangs for stint in s.stints if stint.hangs is not None]
    changes += [t for piece in (*s.lost, *s.unseen) for t in piece]
    cuts = np.array(sorted({t for t in changes if s.first < t < s.last}), dtype=np.int64)
    earlier = [t for t in changes if s.first - _EPOCH_MINUTE < t <= s.first]
    base = _union(_grid(s.first, s.last, _EPOCH_MINUTE), cuts, np.array(earlier, dtype=np.int64))
    cells = _union(_inside(_grid(s.first, s.last, step), s.first, s.last), cuts, np.array([s.first], dtype=np.int64))
    fine = _union(_inside(base, s.first, s.last), cells)
    source = np.searchsorted(base, fine, side="right") - 1
    measured = curve(s.card, list(s.stints), base)

    used = _within(cells, ((t.start, t.end) for t in s.stints)) & ~_within(cells, s.lost)
    lost, unseen = _within(cells, s.lost), _within(cells, s.unseen)
    seconds = np.diff(np.append(cells, s.last))
    weights = np.diff(np.append(fine, s.last)).astype(float)
    groups = np.searchsorted(fine, cells)

    def mean(values: Floats | None, digits: int, unknown: np.ndarray) -> list[float | None]:
        if values is None:
            return [None] * len(cells)
        total = np.add.reduceat(values[source] * weights, groups) / seconds
        return [None if u else v for v, u in zip(np.round(total, digits).tolist(), unknown.tolist(), strict=True)]

    columns = zip(
        cells.tolist(),
        seconds.tolist(),
        mean(measured.utilisation, 4, unseen | lost),
        mean(measured.memory_gb, 2, unseen | lost),
        mean(measured.power_w, 1, unseen | lost),
        mean(measured.temperature_c, 1, unseen | lost),
        used.tolist(),
        unseen.tolist(),
        strict=True,
    )
    node, gpu = s.unit
    for at, length, utilisation, memory, power, temperature, in_use, unknown in columns:
        when = instants.get(at)
        if when is None:
            when = instants[at] = instant(at)
        yield Sample(node, gpu, when, length, utilisation, memory, power, temperature, None if unknown else in_use)


def _grid(first: int, last: int, step: int) -> Ints:
    """Multiples of `step` since 1970 that cover `[first, last)`; the first one may lie before it."""
    return np.arange(first - first % step, last, step, dtype=np.int64)


def _inside(edges: Ints, first: int, last: int) -> Ints:
    return edges[(edges >= first) & (edges < last)]


def _union(*parts: Ints) -> Ints:
    return np.unique(np.concatenate(parts))


def _within(at: Ints, pieces: Iterable[tuple[int, int]]) -> np.ndarray:
    inside = np.zeros(len(at), dtype=bool)
    for first, last in pieces:
        inside |= (at >= first) & (at < last)
    return inside
