"""Everything that can be made to go wrong on a simulated cluster. Each fault is a line of its log: part of its state.

Instants are of the product clock, aware, whole seconds; left out, they mean now. A fault may be dated back: then the
cluster tells of it later than it happened, as clusters do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from app.backends.contract import ERROR_KINDS, BackendError, ErrorKind, Ref
from app.backends.simulated import deciding
from app.backends.simulated.deciding import Line
from app.backends.simulated.state import Cluster, Entry

Write = Callable[[Callable[[Cluster, int], Line | None]], Entry | None]
VERBS = ("probe", "inventory", "ensure", "observe", "release", "launch", "stop", "access", "usage", "strays")


class Faults:
    """The switches of one simulated cluster: `backend.faults.node_dies("n1")`."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def node_dies(
        self, node: str, at: datetime | None = None, until: datetime | None = None, why: str = "It stopped answering."
    ) -> None:
        """The whole node is away from `at` until `until`, or until `node_returns`."""
        self._out(node, None, at, until, why)

    def node_ill(
        self, node: str, gpu: int, xid: int = 79, at: datetime | None = None, until: datetime | None = None
    ) -> None:
        """One GPU falls out with an XID error; the others run on."""
        why = f"XID {xid}: {_XIDS.get(xid, 'the driver reported an error')}."
        self._out(node, (gpu,), at, until, why)

    def node_returns(self, node: str, at: datetime | None = None) -> None:
        """Ends all that is wrong with a node at `at`, drained and taken away included."""
        self._write(lambda c, now: Line("mend", "", {"node": _node(c, node), "gpus": None, "until": _s(at, now)}))

    def gpu_mended(self, node: str, gpu: int, at: datetime | None = None) -> None:
        """Ends the illness of one GPU at `at`."""
        self._write(lambda c, now: Line("mend", "", {"node": _node(c, node), "gpus": [gpu], "until": _s(at, now)}))

    def node_drains(self, node: str, why: str = "Drained by an operator.") -> None:
        """Takes no new work from now on; what runs there runs on."""
        self._write(lambda c, now: Line("drain", "", {"node": _node(c, node), "why": why}))

    def take_away(self, node: str, ref: Ref, why: str = "An operator gave it to somebody else.") -> None:
        """A held node leaves a booking behind Berth's back and is in foreign use; `node_returns` gives it back."""
        self._write(lambda c, now: deciding.take_away(c, node, ref, why, now))

    def foreign_job(
        self, node: str, gpus: Iterable[int], until: datetime | None = None, what: str = "a job", id: str = "",
        who: str = "", cpu_milli: int = 0, memory_mib: int = 0,
    ) -> str:  # fmt: skip
        """Somebody else's job from now on, with its own limit if any. `conflict` when units are held then. `who`: the
        cluster user whose it is. It may have no GPUs, and only CPU (thousandths of a core) and memory of the node.

        Answers with its id, for `foreign_ends`.
        """
        units = tuple(sorted(set(gpus)))
        end = None if until is None else _s(until, 0)
        host = (cpu_milli, memory_mib)

        def decide(cluster: Cluster, now: int) -> Line | None:
            return deciding.foreign(cluster, id or f"job-{cluster.last_id + 1}", node, units, end, what, now, who, host)

        entry = self._write(decide)
        return id if entry is None else str(entry.body["id"])

    def card_swapped(self, node: str, gpu: int) -> None:
        """Somebody puts another card into the slot of a GPU: it has another UUID from now on."""
        self._write(lambda c, _: deciding.swap(c, node, gpu))

    def foreign_ends(self, id: str) -> None:
        """A foreign job ends now."""

        def decide(cluster: Cluster, now: int) -> Line | None:
            if id not in cluster.foreign:
                raise BackendError("not_found", f"There is no foreign job {id}.", id)
            return Line("foreign_end", "", {"id": id})

        self._write(decide)

    def workload_hangs(self, ref: Ref, workload_id: str = "own", at: datetime | None = None) -> None:
        """The workload stands still from `at` on: it holds its GPUs and computes nothing."""

        def decide(cluster: Cluster, now: int) -> Line | None:
            r = cluster.reservations.get(ref.name)
            if r is None or workload_id not in r.runs:
                raise BackendError("not_found", "There is no such workload.", f"{ref.name} {workload_id}")
            return Line("hang", ref.name, {"id": workload_id, "since": _s(at, now)})

        self._write(decide)

    def metrics_gap(self, since: datetime, until: datetime, node: str | None = None) -> None:
        """Nothing is known of this node (of any, when None) for a while: unknown, not idle."""
        body = {"node": node, "since": _s(since, 0), "until": _s(until, 0)}
        self._write(lambda c, now: Line("gap", "", body))

    def clock_skew(self, seconds: int) -> None:
        """The cluster's clock is so many seconds ahead of the product's (behind: negative); 0 ends it. It never goes
        back behind its own last line."""
        self._write(lambda c, now: Line("skew", "", {"seconds": int(seconds)}))

    def slow_start(self, seconds: int, count: int = 1) -> None:
        """The next `count` bookings are in place so many seconds after they were asked for."""
        self._write(lambda c, now: Line("slow_start", "", {"seconds": int(seconds), "count": int(count)}))

    def call_slow(self, verb: str, seconds: float, count: int = 1, when: str = "before") -> None:
        """The next `count` calls of a verb (`*`: any) wait before they act, or `after` acting, before they answer. From
        the limit on they end in `timeout`."""
        if when not in ("before", "after"):
            raise BackendError("invalid", "A call is slow before or after it acts.", when)
        self._call_fault("slow", verb, count, "timeout", seconds, when)

    def call_refused(self, verb: str, kind: ErrorKind = "unreachable", count: int = 1) -> None:
        """The next `count` calls of a verb do nothing and raise an error of this kind."""
        self._call_fault("refused", verb, count, kind, 0.0, "before")

    def answer_lost(self, verb: str, count: int = 1, kind: ErrorKind = "timeout") -> None:
        """The next `count` calls of a verb act, and then raise `timeout` or `unreachable`: done, but nobody is told."""
        if kind not in ("timeout", "unreachable"):
            raise BackendError("invalid", "A lost answer is a timeout or a broken connection.", kind)
        self._call_fault("lost", verb, count, kind, 0.0, "after")

    def _call_fault(self, what: str, verb: str, count: int, kind: str, seconds: float, when: str) -> None:
        if verb != "*" and verb not in VERBS:
            raise BackendError("invalid", f"There is no verb {verb!r}.", verb)
        if kind not in ERROR_KINDS or count < 1 or seconds < 0:
            raise BackendError("invalid", "A fault has a kind of the list, a count from 1 and no negative time.", kind)
        body = {"what": what, "verb": verb, "left": int(count), "kind": kind, "seconds": float(seconds), "when": when}
        self._write(lambda c, now: Line("call_fault", "", body))

    def _out(
        self, node: str, gpus: tuple[int, ...] | None, at: datetime | None, until: datetime | None, why: str
    ) -> None:
        def decide(cluster: Cluster, now: int) -> Line | None:
            since, end = _s(at, now), None if until is None else _s(until, now)
            spec = cluster.nodes[_node(cluster, node)]
            if gpus is not None and not all(0 <= g < spec.gpus for g in gpus):
                raise BackendError("not_found", f"Node {node} has {spec.gpus} GPUs.", repr(gpus))
            if end is not None and end <= since:
                raise BackendError("invalid", "A fault ends after it begins.", f"{since} {end}")
            return Line("outage", "", {"node": node, "gpus": gpus, "since": since, "until": end, "why": why})

        self._write(decide)


_XIDS = {
    31: "GPU memory page fault",
    48: "double-bit ECC error",
    63: "ECC page retirement",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    94: "contained ECC error",
    95: "uncontained ECC error",
}


def _node(cluster: Cluster, node: str) -> str:
    if node not in cluster.nodes:
        raise BackendError("not_found", f"There is no node {node}.", node)
    return node


def _s(at: datetime | None, now: int) -> int:
    return now if at is None else int(at.timestamp())
