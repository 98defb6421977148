"""What a state of the simulated cluster means at an instant: observations, inventory, runs, losses. Pure.

`now` is the cluster's clock in whole seconds. What the log says about later than `now` is not known yet: an outage that
will end is still open, one that will begin is not there. So the same log and the same instant give the same answer,
whenever and wherever it is asked.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from app.backends.contract import (
    ExternalUse,
    Inventory,
    LostUnits,
    NodeFacts,
    Observation,
    Place,
    Ref,
    Slice,
    UnhealthyUnit,
    WorkloadSeen,
)
from app.backends.simulated.state import Cluster, NodeSpec, Outage, Reservation, Run, Span, gpu_of, slice_of
from app.kernel.window import Window

FOREVER = 1 << 40


def instant(seconds: int) -> datetime:
    """The aware UTC instant of whole seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def observation(cluster: Cluster, ref: Ref, now: int, observed_at: datetime) -> Observation:
    """What is there under a ref."""
    reservation = cluster.reservations.get(ref.name)
    if reservation is None:
        return Observation(ref, "absent", observed_at)
    seen = _standing(cluster, reservation, now)
    return Observation(
        ref=ref,
        state=seen.state,  # type: ignore[arg-type]
        observed_at=observed_at,
        since=instant(seen.since),
        in_place_since=None if seen.in_place is None else instant(seen.in_place),
        empty_since=None if seen.empty is None else instant(seen.empty),
        lost=losses(cluster, reservation, now),
        window=Window(instant(reservation.start), instant(reservation.end))
        if reservation.start < reservation.end
        else None,
        places=places(reservation),
        why=seen.why,
        raw=seen.raw,
        leaving=leaving(cluster, reservation, now),
    )


@dataclass(frozen=True, slots=True)
class Standing:
    """State, since when, and why, in whole seconds."""

    state: str
    since: int
    in_place: int | None
    empty: int | None = None
    why: str = ""
    raw: str = ""


def _standing(cluster: Cluster, r: Reservation, now: int) -> Standing:
    began = begun(cluster, r, now)
    in_place = in_place_since(cluster, r, now)
    if r.released is not None:
        if began is None:  # nothing of it ever ran, so nothing has to be seen ending
            return Standing("gone", r.released, None, r.released, "It was taken down before it began.")
        empty, node = _empty_since(cluster, r, r.over, now)
        if empty is None:
            stopping = "Its work is being stopped."
            why = f"Node {node} does not answer: whether it is empty cannot be seen." if node else stopping
            return Standing("ending", r.released, in_place, None, why)
        return Standing("gone", max(empty, r.released), in_place, empty, "")
    if began is not None and now >= r.end:
        empty, node = _empty_since(cluster, r, r.end, now)
        why = "The window is over: what ran was stopped, and the object stands until it is released."
        if node:
            why = f"The window is over, and node {node} does not answer: whether it is empty cannot be seen."
        return Standing("ending", r.end, in_place, empty, why)
    if now < r.ready:
        return Standing("preparing", r.made, None, None, "Access and units are being prepared.")
    if began is None:
        if now >= r.end:
            return Standing("ending", r.end, None, r.end, "The window is over and it never began.")
        trouble = _trouble(cluster, r, now)
        if trouble is None:
            since = in_place if in_place is not None else r.ready
            return Standing("ready", max(r.ready, since), in_place, None, "")
        node, outage = trouble
        return Standing("blocked", max(r.ready, outage.since), None, None, _sentence(node, outage), outage.why)
    lost = [x for x in losses(cluster, r, now) if x.until is None]
    if lost:
        first = min(lost)
        since = min(int(x.since.timestamp()) for x in lost)
        count = sum(len(x.gpus) for x in lost)
        total = len({(s.node, gpu_of(g)) for s in r.spans if s.until is None for g in s.gpus})
        return Standing("degraded", since, in_place, None, f"{count} of {total} GPUs are lost. {first.why}", first.why)
    back = [int(x.until.timestamp()) for x in losses(cluster, r, now) if x.until is not None]
    return Standing("ready", max([in_place if in_place is not None else began, *back]), in_place, None, "")


def places(r: Reservation) -> tuple[Place, ...]:
    """The units it has now, by node."""
    held: dict[str, list[int]] = {}
    for span in r.spans:
        if span.until is None:
            held.setdefault(span.node, []).extend(span.gpus)
    return tuple(_place(node, numbers) for node, numbers in sorted(held.items()))


def _place(node: str, numbers: Iterable[int]) -> Place:
    every = sorted(set(numbers))
    slices = tuple(Slice(*cut) for cut in map(slice_of, every) if cut is not None)
    return Place(node, tuple(n for n in every if slice_of(n) is None), slices)


def leaving(cluster: Cluster, r: Reservation, now: int) -> tuple[Place, ...]:
    """Units it gave back on nodes that have not answered since: nobody has seen them empty."""
    found: dict[str, list[int]] = {}
    for span in r.spans:
        if span.until is None or not _silent_since(cluster, span.node, span.until, now):
            continue
        found.setdefault(span.node, []).extend(span.gpus)
    return tuple(_place(node, numbers) for node, numbers in sorted(found.items()))


def _silent_since(cluster: Cluster, node: str, at: int, now: int) -> bool:
    """Whether the node was away at an instant, and has not been there for a moment until now."""
    away = at
    for outage in sorted(cluster.outages.get(node, ()), key=lambda o: o.since):
        if outage.gpus is None and outage.since <= min(away, now):
            until = _seen_until(outage, now)
            if until is None:
                return True
            away = max(away, until)
    return False


def begun(cluster: Cluster, r: Reservation, now: int) -> int | None:
    """When people were first on it: the window runs, it is ready, and no unit of it is missing. None if not yet."""
    t = max(r.ready, r.start)
    limit = min(r.end, FOREVER if r.released is None else r.released)
    moved = True
    while moved and t < limit and t <= now:
        moved = False
        for _, outage in _outages(cluster, r, now):
            until = _seen_until(outage, now)
            if outage.since <= t and (until is None or until > t):
                if until is None:
                    return None
                t, moved = until, True
    return t if t < limit and t <= now else None


def in_place_since(cluster: Cluster, r: Reservation, now: int) -> int | None:
    """From which instant all was in place and stayed so until the window began (or until now, before that)."""
    began = begun(cluster, r, now)
    if began is not None and began > max(r.ready, r.start):
        return began
    upto = began if began is not None else now
    if now < r.ready or (began is None and (now >= r.start or r.released is not None)):
        return None
    since = r.ready
    for _, outage in _outages(cluster, r, now):
        until = _seen_until(outage, now)
        if outage.since <= upto and (until is None or until > since):
            if until is None or until > upto:
                return None
            since = until
    return since


def losses(cluster: Cluster, r: Reservation, now: int) -> tuple[LostUnits, ...]:
    """Every loss since it began and while it held, each unit at most once at an instant."""
    if not any(span.node in cluster.outages or span.until is not None for span in r.spans):
        return ()
    began = begun(cluster, r, now)
    if began is None:
        return ()
    limit = min(r.end, FOREVER if r.released is None else r.released)
    found: dict[tuple[int, int | None, str, str], list[int]] = {}
    for span in r.spans:
        outages = [o for o in cluster.outages.get(span.node, ()) if o.ref in (None, r.ref) and o.since <= now]
        first, last = max(began, span.since), min(limit, FOREVER if span.until is None else span.until)
        for gpu in sorted(set(map(gpu_of, span.gpus))) if outages else ():
            for since, until, why in _merged(outages, gpu, first, last, now):
                found.setdefault((since, until, why, span.node), []).append(gpu)
    for node, gpu, since, until in _between_spans(r):
        if since >= began:
            found.setdefault((since, until, _TOO_LATE, node), []).append(gpu_of(gpu))
    lost = [
        LostUnits(node, tuple(sorted(set(gpus))), instant(since), None if until is None else instant(until), why)
        for (since, until, why, node), gpus in found.items()
    ]
    return tuple(sorted(lost, key=lambda x: (x.since, x.node, x.gpus)))


_TOO_LATE = "Its window was over on the cluster before the later end was heard of."


def _between_spans(r: Reservation) -> Iterator[tuple[str, Any, int, int]]:
    """(node, GPU or slice, from, until) in which a unit stood in nobody's order and was in it before and after: a later end that
    came when the window was over."""
    last: dict[tuple[str, Any], int] = {}
    for span in sorted(r.spans, key=lambda s: s.since):
        for gpu in span.gpus:
            over = last.get((span.node, gpu))
            if over is not None and over < span.since:
                yield span.node, gpu, over, span.since
            if span.until is not None:
                last[span.node, gpu] = span.until


def _merged(outages: list[Outage], gpu: int, first: int, last: int, now: int) -> Iterator[tuple[int, int | None, str]]:
    """The union of the outages of one GPU inside `[first, last)`; an open end is None while the hold goes on."""
    pieces = []
    for o in outages:
        if o.gpus is None or gpu in o.gpus:
            until = _seen_until(o, now)
            since, end = max(o.since, first), min(last, FOREVER if until is None else until)
            if since < end and since <= now:
                pieces.append((since, end, o.why))
    pieces.sort()
    current: tuple[int, int, str] | None = None
    for since, end, why in pieces:
        if current is None:
            current = (since, end, why)
        elif since <= current[1]:
            current = (current[0], max(current[1], end), current[2])
        else:
            yield current[0], _known(current[1], now), current[2]
            current = (since, end, why)
    if current is not None:
        yield current[0], _known(current[1], now), current[2]


def _known(end: int, now: int) -> int | None:
    return end if end <= now else None


def _seen_until(outage: Outage, now: int) -> int | None:
    """Its end, if that has come."""
    return outage.until if outage.until is not None and outage.until <= now else None


def _outages(cluster: Cluster, r: Reservation, now: int) -> list[tuple[str, Outage]]:
    """The outages known at `now` that touch units it began with, by time."""
    found = []
    for span in r.spans:
        for outage in cluster.outages.get(span.node, ()):
            if outage.since > now or outage.ref not in (None, r.ref) or span.since > max(r.ready, r.start):
                continue
            if outage.gpus is None or set(outage.gpus) & set(map(gpu_of, span.gpus)):
                found.append((span.node, outage))
    found.sort(key=lambda pair: (pair[1].since, FOREVER if pair[1].until is None else pair[1].until))
    return found


def _trouble(cluster: Cluster, r: Reservation, now: int) -> tuple[str, Outage] | None:
    for node, outage in _outages(cluster, r, now):
        if _seen_until(outage, now) is None:
            return node, outage
    return None


def _sentence(node: str, outage: Outage) -> str:
    if outage.ref is not None:
        return f"Node {node} was taken from this booking: {outage.why}"
    if outage.gpus is None:
        return f"Node {node} is not answering: {outage.why}"
    return f"GPU {', '.join(map(str, outage.gpus))} of node {node} is unhealthy: {outage.why}"


def _empty_since(cluster: Cluster, r: Reservation, stop: int, now: int) -> tuple[int | None, str | None]:
    """When all its units were seen empty: its work has stopped and every node answers. Else the node that does not."""
    empty = stop
    for span in r.spans:
        t = stop if span.until is None else min(stop, span.until)
        for outage in sorted(cluster.outages.get(span.node, ()), key=lambda o: o.since):
            if outage.gpus is None and outage.since <= min(t, now) and (outage.until is None or outage.until > t):
                until = _seen_until(outage, now)
                if until is None:
                    return None, span.node
                t = until
        empty = max(empty, t)
    return (empty, None) if empty <= now else (None, None)


# --- workloads --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunTimes:
    """When a run ran, in whole seconds; `ended` None while it goes on, `started` None when it never did."""

    state: str
    started: int | None
    ended: int | None
    why: str = ""


def run_times(cluster: Cluster, r: Reservation, run: Run, now: int) -> RunTimes:
    """What became of a workload: the first of finished, stopped, window over, released, unit lost."""
    began = begun(cluster, r, now)
    ends = [(r.over, "stopped", "The booking was released." if r.released is not None else "The window is over.")]
    if run.stopped is not None:
        ends.append((run.stopped, "stopped", "It was stopped."))
    if began is None:
        end, state, why = min(ends)
        return RunTimes(state, None, end, why) if end <= now else RunTimes("waiting", None, None)
    start = max(run.launched, began) + run.delay
    if run.seconds is not None:
        ends.append((start + run.seconds, "finished", ""))
    if not run.own:
        for loss in losses(cluster, r, now):
            since = max(start, int(loss.since.timestamp()))
            still = loss.until is None or loss.until.timestamp() > start
            mine = {(node, gpu_of(number)) for node, number in run.units or ()}
            if still and any((loss.node, gpu) in mine for gpu in loss.gpus):
                ends.append((since, "failed", f"It lost GPUs of node {loss.node}. {loss.why}"))
    end, state, why = min(ends, key=lambda e: e[0])
    if end <= now:
        return RunTimes(state, start if start < end else None, end, why)
    return RunTimes("running", start, None) if start <= now else RunTimes("waiting", None, None)


def workload_seen(cluster: Cluster, r: Reservation, run: Run, now: int) -> WorkloadSeen:
    """The same in the contract's words."""
    times = run_times(cluster, r, run, now)
    return WorkloadSeen(
        id=run.id,
        kind=run.kind,
        state=times.state,  # type: ignore[arg-type]
        started=None if times.started is None else instant(times.started),
        ended=None if times.ended is None else instant(times.ended),
        why=times.why,
        user=run.user,
        gpus=None if run.units is None else len(run.units),
    )


# --- inventory --------------------------------------------------------------------------------------------------------


def inventory(cluster: Cluster, seed: int, now: int, observed_at: datetime) -> Inventory:
    """All nodes as they are now. What bookings of Berth hold is not told: Berth knows it."""
    foreign: dict[str, list[ExternalUse]] = {}
    for f in cluster.foreign.values():
        if f.since <= now and (f.until is None or f.until > now):
            until = None if f.until is None or f.taken_from is not None else instant(f.until)
            foreign.setdefault(f.node, []).append(ExternalUse(f.gpus, until, f.what, f.who, f.cpu_milli, f.memory_mib))
    nodes = tuple(
        _facts(cluster, spec, seed, now, observed_at, tuple(foreign.get(spec.name, ())))
        for _, spec in sorted(cluster.nodes.items())
    )
    return Inventory(nodes, observed_at, "simulated")


def _facts(
    cluster: Cluster, spec: NodeSpec, seed: int, now: int, observed_at: datetime, external: tuple[ExternalUse, ...]
) -> NodeFacts:
    state, why = "ready", ""
    unhealthy: dict[int, UnhealthyUnit] = {}
    if spec.name in cluster.drained:
        state, why = "drained", cluster.drained[spec.name]
    for outage in cluster.outages.get(spec.name, ()):
        if outage.since > now or _seen_until(outage, now) is not None or outage.ref is not None:
            continue
        if outage.gpus is None:
            state, why = "down", outage.why
        else:
            for gpu in outage.gpus:
                unhealthy.setdefault(gpu, UnhealthyUnit(gpu, outage.why, instant(outage.since)))
    return NodeFacts(
        name=spec.name,
        kind=spec.kind,
        gpus=spec.gpus,
        observed_at=observed_at,
        state=state,  # type: ignore[arg-type]
        why=why,
        unhealthy=tuple(unhealthy[gpu] for gpu in sorted(unhealthy)),
        external=external,
        rack=spec.rack,
        leaf=spec.leaf,
        nvlink=spec.nvlink,
        power_watts=spec.power_watts,
        gpu_memory_mib=spec.gpu_memory_mib,
        cpu_milli=spec.cpu_milli,
        memory_mib=spec.memory_mib,
        uuids=tuple(_uuid(seed, spec.name, gpu, cluster.swapped.get((spec.name, gpu), 0)) for gpu in range(spec.gpus)),
    )


def _uuid(seed: int, node: str, gpu: int, swaps: int) -> str:
    card = f"/{swaps}" if swaps else ""
    digest = blake2b(f"{seed}/{node}/{gpu}{card}".encode(), digest_size=16).digest()
    return f"GPU-{uuid.UUID(bytes=digest, version=4)}"


def held(r: Reservation) -> Iterator[tuple[Span, int, int]]:
    """Which units it keeps others from, and for how long: `[from, until)`, empty ones left out."""
    for span in r.spans:
        first = max(r.start, span.since)
        last = r.over if span.until is None else min(r.over, span.until)
        if first < last:
            yield span, first, last
