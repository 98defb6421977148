"""The simulated cluster as a fold over its log: entries in, state out. Pure; knows no file, no clock, no backend call.

Everything here is what the log *says*. What a state means at an instant is worked out in `looking`, whether a command
may be added to the log in `deciding`. Times are whole seconds since 1970 (the cluster's clock), None where open.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Unit = tuple[str, int]
"""A GPU, or a slice of one: its node's name and its number there. A GPU's number is its index, a slice's is made by
`slice_number`, so that both can stand in the log side by side."""

_SLICED = 1 << 16


def slice_number(gpu: int, start: int, size: int) -> int:
    """The number of a slice: which GPU, from which eighth of its memory on, how many."""
    return _SLICED + (gpu << 8) + (start << 4) + size


def gpu_of(number: int) -> int:
    """The index of the GPU that a number means, or means a part of."""
    return number if number < _SLICED else (number - _SLICED) >> 8


def slice_of(number: int) -> tuple[int, int, int] | None:
    """(GPU, first eighth, eighths) of a slice, None for a whole GPU."""
    return None if number < _SLICED else (gpu_of(number), number >> 4 & 15, number & 15)


def meet(some: Iterable[int], others: Iterable[int]) -> set[int]:
    """The GPUs of a node on which units of the two are the same, or parts of the same."""
    taken: dict[int, int] = {}
    for number in others:
        taken[gpu_of(number)] = taken.get(gpu_of(number), 0) | _eighths(number)
    return {gpu_of(n) for n in some if taken.get(gpu_of(n), 0) & _eighths(n)}


def _eighths(number: int) -> int:
    cut = slice_of(number)
    return 255 if cut is None else ((1 << cut[2]) - 1) << cut[1]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log. `acted` is False for a call that was made again and found everything done."""

    id: int
    at: int
    ref: str
    command: str
    acted: bool
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as it is built. `power_watts` is one GPU's TDP, `gpu_memory_mib` one GPU's memory."""

    name: str
    kind: str
    gpus: int
    rack: str | None = None
    leaf: str | None = None
    nvlink: str | None = None
    power_watts: int | None = None
    gpu_memory_mib: int | None = None
    cpu_milli: int | None = None
    memory_mib: int | None = None


@dataclass(slots=True)
class Span:
    """Units of one node in one reservation, from `since` until `until` (None: as long as the reservation holds)."""

    node: str
    gpus: tuple[int, ...]
    since: int
    until: int | None = None


@dataclass(slots=True)
class Run:
    """A workload of a reservation. `units` None: all units that the reservation has, whatever happens to some.

    It starts `delay` seconds after it could, and finishes by itself after `seconds` (None: never). `own`: it belongs to
    the order, and goes on with the units that are left when some are lost.
    """

    id: str
    kind: str
    user: str
    units: tuple[Unit, ...] | None
    launched: int
    delay: int
    seconds: int | None
    own: bool = False
    stopped: int | None = None
    hangs: int | None = None


@dataclass(slots=True)
class Reservation:
    """One object of Berth on the cluster. `order` is the last order in canonical words; `end` never lies before the
    command that set it. `empty` is when its work is over after a release."""

    ref: str
    order: str
    account: str
    people: tuple[str, ...]
    start: int
    end: int
    made: int
    ready: int
    spans: list[Span]
    runs: dict[str, Run] = field(default_factory=dict)
    released: int | None = None
    empty: int | None = None

    @property
    def over(self) -> int:
        """When it stops holding its units, as far as the log says."""
        return self.end if self.empty is None else min(self.end, self.empty)


@dataclass(slots=True)
class Outage:
    """GPUs of a node (None: the whole node) that are not there. `ref` limits it to one reservation (taken away)."""

    gpus: tuple[int, ...] | None
    since: int
    until: int | None
    why: str
    ref: str | None = None


@dataclass(slots=True)
class Foreign:
    """Units used by something Berth did not make. `taken_from` is the reservation that had them."""

    id: str
    node: str
    gpus: tuple[int, ...]
    since: int
    until: int | None
    what: str
    taken_from: str | None = None
    who: str = ""
    cpu_milli: int = 0
    memory_mib: int = 0


@dataclass(slots=True)
class CallFault:
    """What the next `left` calls of a verb (`*`: any) meet: `slow`, `refused` or `lost`."""

    id: int
    what: str
    verb: str
    left: int
    kind: str
    seconds: float
    when: str


@dataclass(slots=True)
class Cluster:
    """The state after the entry `last_id`, at which the cluster's clock said `last_at`."""

    last_id: int = 0
    last_at: int = 0
    skew: int = 0
    nodes: dict[str, NodeSpec] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    outages: dict[str, list[Outage]] = field(default_factory=dict)
    drained: dict[str, str] = field(default_factory=dict)
    foreign: dict[str, Foreign] = field(default_factory=dict)
    gaps: list[tuple[str | None, int, int]] = field(default_factory=list)
    call_faults: list[CallFault] = field(default_factory=list)
    slow_starts: list[list[int]] = field(default_factory=list)
    swapped: dict[Unit, int] = field(default_factory=dict)
    """How often the card of a GPU was swapped for another."""
    on_node: dict[str, dict[str, None]] = field(default_factory=dict, compare=False)
    """Index only: which reservations may have units of a node."""

    def apply(self, entry: Entry) -> None:
        """Take the next entry into the state. An entry that did not act changes nothing but the position."""
        if entry.acted:
            _APPLY[entry.command](self, entry)
        self.last_id = entry.id
        if entry.command != "skew":  # else a clock that was ahead could not be set right again
            self.last_at = max(self.last_at, entry.at)


def fold(entries: list[Entry]) -> Cluster:
    """The state after all these entries, from the beginning."""
    cluster = Cluster()
    for entry in entries:
        cluster.apply(entry)
    return cluster


def canonical(value: object) -> str:
    """JSON in one fixed spelling, so that equal orders are equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def run_of(body: Mapping[str, Any], launched: int) -> Run:
    """A run from its words in the log."""
    units = body["units"]
    return Run(
        id=body["id"],
        kind=body["kind"],
        user=body["user"],
        units=None if units is None else tuple((node, gpu) for node, gpu in units),
        launched=launched,
        delay=body["delay"],
        seconds=body["seconds"],
        own=body["own"],
    )


# --- one function per command -----------------------------------------------------------------------------------------


def _define(cluster: Cluster, entry: Entry) -> None:
    for spec in entry.body["nodes"]:
        cluster.nodes[spec["name"]] = NodeSpec(**spec)


def _spans(cluster: Cluster, ref: str, places: list[list[Any]], since: int) -> list[Span]:
    for node, _ in places:
        cluster.on_node.setdefault(node, {})[ref] = None
    return [Span(node, tuple(gpus), since) for node, gpus in places]


def _ensure(cluster: Cluster, entry: Entry) -> None:
    order, at = entry.body["order"], entry.at
    reservation = Reservation(
        ref=entry.ref,
        order=canonical(order),
        account=order["account"],
        people=tuple(order["people"]),
        start=order["start"],
        end=order["end"],
        made=at,
        ready=at + entry.body["delay"],
        spans=_spans(cluster, entry.ref, order["places"], at),
    )
    _take_run(reservation, entry)
    _use_slow_start(cluster, entry)
    cluster.reservations[entry.ref] = reservation


def _change(cluster: Cluster, entry: Entry) -> None:
    """The same ref with another order. `begun` says whether people were on it: then units come and go at this instant,
    and what was over before stays over; else it is made anew."""
    reservation, order, at = cluster.reservations[entry.ref], entry.body["order"], entry.at
    old_end = reservation.end
    if not entry.body["begun"]:
        reservation.start = order["start"]
        if "places" in entry.body["changed"]:
            reservation.spans = _spans(cluster, entry.ref, order["places"], at)
            reservation.ready = at + entry.body["delay"]
            _use_slow_start(cluster, entry)
        reservation.runs = {k: r for k, r in reservation.runs.items() if not r.own}
        _take_run(reservation, entry)
    else:
        closed = min(at, old_end)
        wanted = {(node, gpu) for node, gpus in order["places"] for gpu in gpus}
        kept: set[Unit] = set()
        spans = []
        for span in reservation.spans:
            if span.until is not None:
                spans.append(span)
                continue
            stay = () if at > old_end else tuple(g for g in span.gpus if (span.node, g) in wanted)
            go = tuple(g for g in span.gpus if g not in stay)
            kept.update((span.node, g) for g in stay)
            if go:
                spans.append(Span(span.node, go, span.since, max(closed, span.since)))
            if stay:
                spans.append(Span(span.node, stay, span.since))
        added = [[node, [g for g in gpus if (node, g) not in kept]] for node, gpus in order["places"]]
        reservation.spans = spans + _spans(cluster, entry.ref, [a for a in added if a[1]], at)
        if at > old_end:
            for run in reservation.runs.values():
                run.stopped = old_end if run.stopped is None else min(run.stopped, old_end)
    for span in reservation.spans:
        cluster.on_node.setdefault(span.node, {})[entry.ref] = None
    reservation.end = max(order["end"], at)
    reservation.order = canonical(order)
    reservation.account = order["account"]
    reservation.people = tuple(order["people"])


def _take_run(reservation: Reservation, entry: Entry) -> None:
    if entry.body["run"]:
        run = run_of(entry.body["run"], entry.at)
        reservation.runs[run.id] = run


def _use_slow_start(cluster: Cluster, entry: Entry) -> None:
    if entry.body.get("slow_start") and cluster.slow_starts:
        cluster.slow_starts[0][1] -= 1
        if cluster.slow_starts[0][1] <= 0:
            cluster.slow_starts.pop(0)


def _release(cluster: Cluster, entry: Entry) -> None:
    reservation = cluster.reservations[entry.ref]
    reservation.released = entry.at
    reservation.empty = entry.at + entry.body["grace"]


def _launch(cluster: Cluster, entry: Entry) -> None:
    run = run_of(entry.body["run"], entry.at)
    cluster.reservations[entry.ref].runs[run.id] = run


def _stop(cluster: Cluster, entry: Entry) -> None:
    cluster.reservations[entry.ref].runs[entry.body["id"]].stopped = entry.at


def _hang(cluster: Cluster, entry: Entry) -> None:
    cluster.reservations[entry.ref].runs[entry.body["id"]].hangs = entry.body["since"]


def _outage(cluster: Cluster, entry: Entry) -> None:
    body = entry.body
    gpus = None if body["gpus"] is None else tuple(body["gpus"])
    outage = Outage(gpus, body["since"], body["until"], body["why"], entry.ref or None)
    cluster.outages.setdefault(body["node"], []).append(outage)
    if entry.ref and gpus:
        foreign = Foreign(
            f"taken-{entry.id}", body["node"], gpus, body["since"], body["until"], body["why"], taken_from=entry.ref
        )
        cluster.foreign[foreign.id] = foreign


def _mend(cluster: Cluster, entry: Entry) -> None:
    """Ends what is wrong with a node, or with some of its GPUs, at this instant."""
    body = entry.body
    node, gpus, until = body["node"], body["gpus"], body["until"]
    for outage in cluster.outages.get(node, []):
        same = gpus is None or (outage.gpus is not None and set(outage.gpus) <= set(gpus))
        if same and outage.since <= until and (outage.until is None or outage.until > until):
            outage.until = until
    for foreign in cluster.foreign.values():
        taken = foreign.taken_from is not None and foreign.node == node
        if taken and gpus is None and (foreign.until is None or foreign.until > until):
            foreign.until = until
    cluster.drained.pop(node, None)


def _drain(cluster: Cluster, entry: Entry) -> None:
    cluster.drained[entry.body["node"]] = entry.body["why"]


def _foreign(cluster: Cluster, entry: Entry) -> None:
    body = entry.body
    cluster.foreign[body["id"]] = Foreign(
        body["id"], body["node"], tuple(body["gpus"]), entry.at, body["until"], body["what"], None, body.get("who", ""),
        body.get("cpu_milli", 0), body.get("memory_mib", 0),
    )  # fmt: skip


def _foreign_end(cluster: Cluster, entry: Entry) -> None:
    foreign = cluster.foreign[entry.body["id"]]
    if foreign.until is None or foreign.until > entry.at:
        foreign.until = entry.at


def _swap(cluster: Cluster, entry: Entry) -> None:
    unit = (entry.body["node"], entry.body["gpu"])
    cluster.swapped[unit] = cluster.swapped.get(unit, 0) + 1


def _gap(cluster: Cluster, entry: Entry) -> None:
    cluster.gaps.append((entry.body["node"], entry.body["since"], entry.body["until"]))


def _call_fault(cluster: Cluster, entry: Entry) -> None:
    cluster.call_faults.append(CallFault(id=entry.id, **entry.body))


def _call_fault_met(cluster: Cluster, entry: Entry) -> None:
    for fault in cluster.call_faults:
        if fault.id in entry.body["faults"]:
            fault.left -= 1
    cluster.call_faults = [f for f in cluster.call_faults if f.left > 0]


def _slow_start(cluster: Cluster, entry: Entry) -> None:
    cluster.slow_starts.append([entry.body["seconds"], entry.body["count"]])


def _skew(cluster: Cluster, entry: Entry) -> None:
    cluster.skew = entry.body["seconds"]


_APPLY = {
    "define": _define,
    "ensure": _ensure,
    "change": _change,
    "release": _release,
    "launch": _launch,
    "stop": _stop,
    "hang": _hang,
    "outage": _outage,
    "mend": _mend,
    "drain": _drain,
    "foreign": _foreign,
    "foreign_end": _foreign_end,
    "swap": _swap,
    "gap": _gap,
    "call_fault": _call_fault,
    "call_fault_met": _call_fault_met,
    "slow_start": _slow_start,
    "skew": _skew,
}
