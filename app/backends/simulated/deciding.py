"""Whether a command may be added to the simulated cluster's log, and in which words. Pure; writes nothing.

Each function takes the state and the instant of the command, and answers with the line to add (`acted` False when there
is nothing left to do) or raises `BackendError`, upon which nothing is added. What depends on the seed is worked out
here and written into the line, so that the fold needs no dice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

from app.backends.contract import BackendError, Order, Place, Ref, Workload
from app.backends.simulated.looking import FOREVER, begun, held, in_place_since, losses, run_times
from app.backends.simulated.state import (
    Cluster,
    NodeSpec,
    Reservation,
    Unit,
    canonical,
    gpu_of,
    meet,
    slice_number,
)

CHANGES = frozenset({"end", "start", "places", "people"})
KINDS = ("training", "notebook", "inference", "shell", "job", "idle")


@dataclass(frozen=True, slots=True)
class Manners:
    """What is configured about this cluster. Times in seconds."""

    seed: int = 1
    provisioning: int = 0
    grace: int = 0
    auto_workload: bool = True
    in_place: frozenset[str] = CHANGES


@dataclass(frozen=True, slots=True)
class Line:
    """A line to add to the log."""

    command: str
    ref: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    acted: bool = True


def ensure(cluster: Cluster, manners: Manners, order: Order, at: int) -> Line:
    """Make it, change it, or find it made."""
    words = _words(order)
    r = cluster.reservations.get(order.ref.name)
    if r is not None and r.released is not None:
        raise BackendError("conflict", "This booking was taken down on the cluster and is not made again.", r.ref)
    if r is not None and r.order == canonical(words):
        return Line("ensure", order.ref.name, {}, acted=False)
    _possible(cluster, order)
    if words["end"] <= at and (r is None or begun(cluster, r, at) is None):
        raise BackendError("invalid", "The window is over.", f"end {order.window.end}, cluster {at}")
    if r is None:
        _free(cluster, order, words, at)
        slow = cluster.slow_starts[0][0] if cluster.slow_starts else 0
        body = {"order": words, "delay": manners.provisioning + slow, "slow_start": slow > 0}
        return Line("ensure", order.ref.name, {**body, "run": _own_run(manners, order, words)})
    return _change(cluster, manners, order, words, r, at)


def _change(cluster: Cluster, manners: Manners, order: Order, words: dict[str, Any], r: Reservation, at: int) -> Line:
    began = begun(cluster, r, at) is not None
    now_places = _by_node((s.node, g) for s in r.spans if s.until is None for g in s.gpus)
    changed = {
        name
        for name, differs in (
            ("start", words["start"] != r.start),
            ("end", max(words["end"], at) != r.end and words["end"] != r.end),
            ("places", words["places"] != now_places),
            ("people", tuple(words["people"]) != r.people),
        )
        if differs
    }
    if impossible := changed - manners.in_place:
        what = " and ".join(sorted(impossible))
        raise BackendError("unsupported", f"This cluster cannot change the {what} in place.", r.ref)
    if began and "start" in changed:
        raise BackendError("invalid", "It has begun: its start cannot change any more.", r.ref)
    _free(cluster, order, words, at)
    slow = cluster.slow_starts[0][0] if cluster.slow_starts and not began and "places" in changed else 0
    body = {
        "order": words,
        "changed": sorted(changed),
        "begun": began,
        "delay": manners.provisioning + slow,
        "slow_start": slow > 0,
        "run": None if began else _own_run(manners, order, words),
    }
    return Line("change", order.ref.name, body)


def release(cluster: Cluster, manners: Manners, ref: Ref, at: int) -> Line | None:
    """Take it down; None when nothing of that name was ever there."""
    r = cluster.reservations.get(ref.name)
    if r is None:
        return None
    if r.released is not None:
        return Line("release", r.ref, {}, acted=False)
    runs = any(run_times(cluster, r, run, at).state == "running" for run in r.runs.values())
    return Line("release", r.ref, {"grace": manners.grace if runs else 0})


def launch(cluster: Cluster, manners: Manners, ref: Ref, workload: Workload, at: int) -> Line:
    """Start a workload on free units of the booking."""
    r = _there(cluster, ref)
    if workload.id in r.runs:
        return Line("launch", r.ref, {"id": workload.id}, acted=False)
    _workload_possible(workload)
    if at >= r.end or in_place_since(cluster, r, at) is None:
        raise BackendError("busy", "The booking is not in place.", r.ref)
    lost = {(x.node, g) for x in losses(cluster, r, at) if x.until is None for g in x.gpus}
    units = [(s.node, g) for s in r.spans if s.until is None for g in s.gpus]
    free = [u for u in units if (u[0], gpu_of(u[1])) not in lost and u not in _taken(cluster, r, units, at)]
    wanted = len(units) if workload.gpus is None else workload.gpus
    if wanted > len(free):
        sentence = f"{wanted} GPUs are asked for, and {len(free)} of the booking's {len(units)} are free."
        raise BackendError("capacity", sentence, r.ref)
    run = _run(workload, sorted(free)[:wanted], delay=_dice(manners.seed, r.ref, workload.id) % 20 + 5, own=False)
    return Line("launch", r.ref, {"run": run})


def stop(cluster: Cluster, ref: Ref, workload_id: str, at: int) -> Line:
    """Stop a workload; one that has ended stays as it is."""
    r = cluster.reservations.get(ref.name)
    run = r.runs.get(workload_id) if r else None
    if r is None or run is None:
        raise BackendError("not_found", "There is no such workload in this booking.", f"{ref.name} {workload_id}")
    over = run_times(cluster, r, run, at).ended is not None
    return Line("stop", r.ref, {"id": workload_id}, acted=run.stopped is None and not over)


def define(cluster: Cluster, nodes: Iterable[NodeSpec]) -> Line | None:
    """Build nodes, or change what is known of them; None when all are as they are."""
    new = []
    for spec in nodes:
        old = cluster.nodes.get(spec.name)
        if spec.gpus < 0 or not spec.name:
            raise BackendError("invalid", "A node has a name and no fewer than 0 GPUs.", repr(spec))
        if old is not None and spec.gpus < old.gpus:
            raise BackendError("unsupported", f"GPUs of node {spec.name} cannot be taken out of a simulated node.")
        if old != spec:
            new.append(asdict(spec))
    return Line("define", "", {"nodes": new}) if new else None


def foreign(
    cluster: Cluster, id: str, node: str, gpus: tuple[int, ...], until: int | None, what: str, at: int, who: str = "",
    host: tuple[int, int] = (0, 0),
) -> Line | None:  # fmt: skip
    """Somebody else's job from now on; None when it is there already. Held units refuse it, as a cluster would."""
    if id in cluster.foreign:
        return None
    _units_there(cluster, node, gpus)
    _unused(cluster, node, gpus, at, FOREVER if until is None else until, but="")
    words = {"id": id, "node": node, "gpus": list(gpus), "until": until, "what": what}
    words |= {"who": who} if who else {}
    return Line("foreign", "", words | ({"cpu_milli": host[0], "memory_mib": host[1]} if any(host) else {}))


def swap(cluster: Cluster, node: str, gpu: int) -> Line:
    """Another card sits where one was."""
    _units_there(cluster, node, (gpu,))
    return Line("swap", "", {"node": node, "gpu": gpu})


def take_away(cluster: Cluster, node: str, ref: Ref, why: str, at: int) -> Line | None:
    """A node's units leave a booking behind Berth's back; None when they have left already."""
    r = _there(cluster, ref)
    gpus = sorted({gpu_of(g) for s in r.spans if s.until is None and s.node == node for g in s.gpus})
    if not gpus:
        raise BackendError("not_found", f"The booking has no units on node {node}.", r.ref)
    earlier = [o for o in cluster.outages.get(node, ()) if o.ref == r.ref and o.since <= at]
    if any(o.until is None or o.until > at for o in earlier):
        return None
    return Line("outage", r.ref, {"node": node, "gpus": gpus, "since": at, "until": None, "why": why})


# --- parts ------------------------------------------------------------------------------------------------------------


def _words(order: Order) -> dict[str, Any]:
    return {
        "project": order.project,
        "account": order.account,
        "places": _by_node((p.node, number) for p in order.places for number in _numbers(p)),
        "start": int(order.window.start.timestamp()),
        "end": int(order.window.end.timestamp()),
        "people": sorted(order.people),
        "workload": None if order.workload is None else asdict(order.workload),
        "settings": dict(order.settings),
    }


def _numbers(place: Place) -> list[int]:
    """The units of a place as the log numbers them."""
    return [*place.gpus, *(slice_number(s.gpu, s.start, s.size) for s in place.slices)]


def _by_node(units: Iterable[Unit]) -> list[list[Any]]:
    found: dict[str, set[int]] = {}
    for node, gpu in units:
        found.setdefault(node, set()).add(gpu)
    return [[node, sorted(gpus)] for node, gpus in sorted(found.items())]


def _possible(cluster: Cluster, order: Order) -> None:
    if order.units == 0 and not any(p.slices for p in order.places):
        raise BackendError("invalid", "An order has at least one GPU.", order.ref.name)
    if Ref.parse(order.ref.name) is None:
        raise BackendError("invalid", "The name is not of Berth's form.", order.ref.name)
    seen: set[Unit] = set()
    for place in order.places:
        for cut in place.slices:
            if not (cut.start >= 0 and cut.size > 0 and cut.start + cut.size <= 8):
                raise BackendError("invalid", "A slice lies inside the eight parts of a GPU's memory.", repr(cut))
        numbers = _numbers(place)
        _units_there(cluster, place.node, tuple(map(gpu_of, numbers)))
        for number in numbers:
            if meet([number], [n for node, n in seen if node == place.node]):
                raise BackendError("invalid", "An order names each GPU once.", f"{place.node} {gpu_of(number)}")
            seen.add((place.node, number))
    if order.workload is not None:
        _workload_possible(order.workload)


def _units_there(cluster: Cluster, node: str, gpus: tuple[int, ...]) -> None:
    spec = cluster.nodes.get(node)
    if spec is None:
        raise BackendError("not_found", f"There is no node {node}.", node)
    for gpu in gpus:
        if not 0 <= gpu < spec.gpus:
            raise BackendError("not_found", f"Node {node} has no GPU {gpu}.", f"{spec.gpus} GPUs")


def _workload_possible(workload: Workload) -> None:
    if workload.kind not in KINDS:
        raise BackendError("invalid", f"There is no kind of workload {workload.kind!r}.", repr(workload))
    if not workload.id or (workload.gpus or 0) < 0 or (workload.seconds is not None and workload.seconds <= 0):
        sentence = "A workload has an id, no fewer than 0 GPUs, and a length if any."
        raise BackendError("invalid", sentence, repr(workload))


def _free(cluster: Cluster, order: Order, words: dict[str, Any], at: int) -> None:
    for node, gpus in words["places"]:
        _unused(cluster, node, gpus, max(words["start"], at), words["end"], order.ref.name, frozenset(order.people))


def _unused(
    cluster: Cluster,
    node: str,
    gpus: Iterable[int],
    first: int,
    last: int,
    but: str,
    people: frozenset[str] = frozenset(),
) -> None:
    """No other reservation and nothing foreign has one of these units in `[first, last)`; what is of `people` may stay."""
    wanted = set(gpus)
    index = cluster.on_node.get(node, {})
    for name in list(index):
        r = cluster.reservations[name]
        if r.released is not None and r.over <= cluster.last_at:
            del index[name]  # an index only: what is over can be in nobody's way again
            continue
        if name == but:
            continue
        for span, since, until in held(r):
            if span.node == node and since < last and first < until and (both := meet(wanted, span.gpus)):
                clash = ", ".join(map(str, sorted(both)))
                raise BackendError("conflict", f"GPU {clash} of node {node} is held by another booking then.", name)
    for f in cluster.foreign.values():
        if f.node != node or (but and f.taken_from == but) or f.who in people or not meet(wanted, f.gpus):
            continue
        if f.since < last and (f.until is None or first < f.until) and f.since != f.until:
            raise BackendError("conflict", f"Node {node} is used by something else then: {f.what}", f.id)


def _there(cluster: Cluster, ref: Ref) -> Reservation:
    r = cluster.reservations.get(ref.name)
    if r is None or r.released is not None:
        raise BackendError("not_found", "The cluster holds nothing for this booking.", ref.name)
    return r


def _taken(cluster: Cluster, r: Reservation, units: list[Unit], at: int) -> set[Unit]:
    """Units of a booking on which a workload runs or waits."""
    taken: set[Unit] = set()
    for run in r.runs.values():
        if run_times(cluster, r, run, at).state in ("running", "waiting"):
            taken.update(units if run.units is None else run.units)
    return taken


def _own_run(manners: Manners, order: Order, words: dict[str, Any]) -> dict[str, Any] | None:
    """The workload that the order brings along; a training when it brings none and does not say `none`."""
    length = words["end"] - words["start"]
    dice = _dice(manners.seed, order.ref.name, "own")
    delay = min(5 + dice % 40, length // 20)
    if order.workload is not None:
        units = [(node, gpu) for node, gpus in words["places"] for gpu in gpus]
        if (order.workload.gpus or 0) > len(units):
            raise BackendError("invalid", "Its workload asks for more GPUs than the booking has.", order.ref.name)
        chosen = None if order.workload.gpus is None else units[: order.workload.gpus]
        return _run(order.workload, chosen, delay, own=True)
    kind = order.settings.get("workload", "training" if manners.auto_workload else "none")
    if kind == "none":
        return None
    if kind not in KINDS:
        raise BackendError("invalid", f"There is no kind of workload {kind!r}.", order.ref.name)
    seconds = None
    if kind in ("training", "job") and dice % 1000 < 350:  # about a third is done before its booking is over
        seconds = max(60, length * (45 + dice // 1000 % 48) // 100)
    own = Workload(id="own", kind=kind, user=words["people"][0] if words["people"] else "", seconds=seconds)
    return _run(own, None, delay, own=True)


def _run(workload: Workload, units: list[Unit] | None, delay: int, own: bool) -> dict[str, Any]:
    return {
        "id": workload.id,
        "kind": workload.kind,
        "user": workload.user,
        "units": None if units is None else [list(unit) for unit in units],
        "delay": delay,
        "seconds": workload.seconds,
        "own": own,
    }


def _dice(seed: int, *words: str) -> int:
    return int.from_bytes(blake2b("/".join((str(seed), *words)).encode(), digest_size=8).digest())
