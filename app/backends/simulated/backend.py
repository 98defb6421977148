"""The simulated cluster behind the contract: the embedded default and the reference implementation.

It knows its own log and the product clock, nothing else of Berth. Every verb reads what the log says now; every command
is one line of the log, decided and written in one step, so it acts once however often it is called and by however many
processes. It has no speed of its own: the product clock moves, and the same log then means something later.

Configuration: `path` of the log (required), `seed` (1), `provisioning_seconds` (0), `grace_seconds` (0) that work gets
to stop, `auto_workload` (True: a booking that brings no workload starts a training by itself, unless its settings say
`workload: none`), `limit_seconds` (10), `in_place` (changes of an order that are possible: end, start, places, people).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from app.backends.contract import (
    Access,
    AccessWay,
    BackendError,
    Capabilities,
    Inventory,
    Observation,
    Order,
    Probe,
    ProbeStep,
    Ref,
    Secrets,
    Stray,
    Usage,
    Workload,
    WorkloadSeen,
)
from app.backends.simulated import deciding, looking, metering
from app.backends.simulated.deciding import CHANGES, Line, Manners
from app.backends.simulated.faults import Faults
from app.backends.simulated.log import Log, close_log, log_at, now_of
from app.backends.simulated.state import CallFault, Cluster, Entry, NodeSpec
from app.kernel.clock import Clock
from app.kernel.window import Window

_KEYS = {
    "path", "seed", "provisioning_seconds", "grace_seconds", "auto_workload", "limit_seconds", "in_place"
}  # fmt: skip

T = TypeVar("T")


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


class SimulatedBackend:
    """One simulated cluster. Safe for several threads and processes over the same path."""

    limit_seconds: float

    def __init__(
        self,
        config: Mapping[str, Any],
        clock: Clock,
        secrets: Secrets | None = None,
        *,
        sleep: Callable[[float], None] = _wait,
    ) -> None:
        """`sleep` is how a slow call waits, in seconds of the wall clock; it needs no secrets."""
        if unknown := sorted(set(config) - _KEYS):
            raise BackendError("invalid", f"The simulated cluster knows no setting {', '.join(unknown)}.")
        if not config.get("path"):
            raise BackendError("invalid", "The simulated cluster needs the path of its log.", "path")
        try:
            self.limit_seconds = float(config.get("limit_seconds", 10))
            self.manners = Manners(
                seed=int(config.get("seed", 1)),
                provisioning=int(config.get("provisioning_seconds", 0)),
                grace=int(config.get("grace_seconds", 0)),
                auto_workload=bool(config.get("auto_workload", True)),
                in_place=frozenset(config.get("in_place", CHANGES)),
            )
        except (TypeError, ValueError) as e:
            raise BackendError("invalid", "A setting of the simulated cluster is not a number.", repr(e)) from e
        self.path = Path(config["path"])
        self.clock = clock
        self._sleep = sleep
        self.faults = Faults(self._write)

    # --- the verbs ----------------------------------------------------------------------------------------------------

    def probe(self) -> Probe:
        """As in the contract."""

        def see() -> Probe:
            try:
                with self._log.look() as cluster:
                    nodes, last, skew = len(cluster.nodes), cluster.last_id, cluster.skew
            except BackendError as e:
                return Probe(False, "simulated 1", (ProbeStep("log", False, e.sentence),), None, (e.sentence,))
            missing = () if nodes else ("No nodes are defined yet.",)
            steps = (
                ProbeStep("log", True, f"The log is open and has {last} lines."),
                ProbeStep("nodes", bool(nodes), f"{nodes} nodes are defined."),
                ProbeStep("clock", not skew, f"The cluster's clock is {skew} s off." if skew else "The clocks agree."),
            )
            return Probe(bool(nodes), "simulated 1", steps, self._capabilities(), missing, identity="berth")

        return self._call("probe", see)

    def inventory(self) -> Inventory:
        """As in the contract."""

        def see() -> Inventory:
            observed_at, product = self._times()
            with self._log.look() as cluster:
                return looking.inventory(cluster, self.manners.seed, now_of(cluster, product), observed_at)

        return self._call("inventory", see)

    def ensure(self, order: Order) -> Observation:
        """As in the contract."""
        return self._command("ensure", order.ref, lambda c, at: deciding.ensure(c, self.manners, order, at))

    def observe(self, ref: Ref) -> Observation:
        """As in the contract."""
        return self._call("observe", lambda: self._observe(ref, *self._times()))

    def release(self, ref: Ref) -> Observation:
        """As in the contract."""

        def act() -> Observation:
            observed_at, product = self._times()
            self._log.append(product, lambda c, at: deciding.release(c, self.manners, ref, at))
            seen = self._observe(ref, observed_at, product)
            if seen.state == "absent":
                return Observation(ref, "gone", observed_at, why="The cluster never had it.")
            return seen

        return self._call("release", act)

    def launch(self, ref: Ref, workload: Workload) -> WorkloadSeen:
        """As in the contract."""

        def decide(cluster: Cluster, at: int) -> Line:
            return deciding.launch(cluster, self.manners, ref, workload, at)

        return self._on_workload("launch", ref, workload.id, decide)

    def stop(self, ref: Ref, workload_id: str) -> WorkloadSeen:
        """As in the contract."""
        return self._on_workload("stop", ref, workload_id, lambda c, at: deciding.stop(c, ref, workload_id, at))

    def access(self, ref: Ref, user: str) -> Access:
        """As in the contract. The commands are those of a real cluster; here they reach nothing, as the note says."""

        def see() -> Access:
            _, product = self._times()
            with self._log.look() as cluster:
                r = cluster.reservations.get(ref.name)
                if r is None or r.released is not None:
                    raise BackendError("not_found", "The cluster holds nothing for this booking.", ref.name)
                if user not in r.people:
                    raise BackendError("permission", f"{user} is not among the people of this booking.", ref.name)
                now = now_of(cluster, product)
                if now >= r.end or looking.in_place_since(cluster, r, now) is None:
                    raise BackendError("busy", "The booking is not in place yet, or no longer.", ref.name)
                return self._ways(user, r.ref, looking.places(r)[0].node, r.start, r.end, now)

        return self._call("access", see)

    def usage(self, ref: Ref, since: datetime, until: datetime, step: int) -> Usage:
        """As in the contract."""

        def see() -> Usage:
            if not 60 <= step <= 900:
                raise BackendError("invalid", "A sample lasts 60 to 900 seconds.", f"step {step}")
            first, last = math.floor(since.timestamp()), math.floor(until.timestamp())
            _, product = self._times()
            with self._log.look() as cluster:
                now = now_of(cluster, product)
                known = looking.instant(max(first, min(last, now)))
                r = cluster.reservations.get(ref.name)
                if r is None:
                    return Usage((), (), known)
                found = metering.stretches(cluster, r, self.manners.seed, first, last, now)
                ran = tuple(
                    w
                    for run in r.runs.values()
                    for w in (looking.workload_seen(cluster, r, run, now),)
                    if w.started is not None and w.started < until and (w.ended is None or w.ended > since)
                )
            return Usage(tuple(metering.samples(found, step)), ran, known)

        return self._call("usage", see)

    def strays(self) -> tuple[Stray, ...]:
        """As in the contract."""

        def see() -> tuple[Stray, ...]:
            observed_at, product = self._times()
            with self._log.look() as cluster:
                found = []
                for name, r in sorted(cluster.reservations.items()):
                    ref = Ref(name)
                    if looking.observation(cluster, ref, now_of(cluster, product), observed_at).state != "gone":
                        window = Window(looking.instant(r.start), looking.instant(r.end)) if r.start < r.end else None
                        found.append(Stray(ref, looking.instant(r.made), r.account, window))
                return tuple(found)

        return self._call("strays", see)

    # --- only here: what an operator or a test does to the cluster itself ---------------------------------------------

    def define(self, nodes: Iterable[NodeSpec]) -> None:
        """Build nodes, or change what is known of them. The same nodes again are nothing."""
        specs = tuple(nodes)
        self._write(lambda c, at: deciding.define(c, specs))

    def entries(self, ref: Ref | None = None) -> list[Entry]:
        """The log, or one object's part of it, in order: the evidence of what was asked and what acted."""
        return self._log.entries(None if ref is None else ref.name)

    def close(self) -> None:
        """Close this process's file; the next call opens it again."""
        close_log(self.path)

    # --- how a call goes ----------------------------------------------------------------------------------------------

    def _call(self, verb: str, act: Callable[[], T]) -> T:
        """One call with the faults that are waiting for it: slow, refused, or the answer lost after the act."""
        faults = self._faults_met(verb)
        for fault in faults:
            if fault.what == "slow" and fault.when == "before":
                self._be_slow(fault.seconds)
        for fault in faults:
            if fault.what == "refused":
                raise BackendError(fault.kind, "The cluster refused this call.", f"fault {fault.id}")  # type: ignore[arg-type]
        answer = act()
        for fault in faults:
            if fault.what == "slow" and fault.when == "after":
                self._be_slow(fault.seconds)
        for fault in faults:
            if fault.what == "lost":
                raise BackendError(fault.kind, "The cluster's answer was lost.", f"fault {fault.id}")  # type: ignore[arg-type]
        return answer

    def _faults_met(self, verb: str) -> list[CallFault]:
        """At most one fault of each sort, the oldest first; that it was met is written down before anything happens."""
        try:
            with self._log.look() as cluster:
                if not _waiting(cluster, verb):
                    return []
        except BackendError:
            if verb == "probe":
                return []
            raise
        met: list[CallFault] = []

        def take(cluster: Cluster, at: int) -> Line | None:
            met.extend(_waiting(cluster, verb))
            return Line("call_fault_met", "", {"faults": [f.id for f in met], "verb": verb}) if met else None

        self._write(take)
        return met

    def _be_slow(self, seconds: float) -> None:
        self._sleep(min(seconds, self.limit_seconds))
        if seconds >= self.limit_seconds:
            raise BackendError("timeout", "The cluster did not answer in time.", f"{seconds} s")

    def _command(self, verb: str, ref: Ref, decide: Callable[[Cluster, int], Line | None]) -> Observation:
        def act() -> Observation:
            observed_at, product = self._times()
            self._log.append(product, decide)
            return self._observe(ref, observed_at, product)

        return self._call(verb, act)

    def _on_workload(
        self, verb: str, ref: Ref, workload_id: str, decide: Callable[[Cluster, int], Line | None]
    ) -> WorkloadSeen:
        def act() -> WorkloadSeen:
            _, product = self._times()
            self._log.append(product, decide)
            with self._log.look() as cluster:
                r = cluster.reservations[ref.name]
                return looking.workload_seen(cluster, r, r.runs[workload_id], now_of(cluster, product))

        return self._call(verb, act)

    def _write(self, decide: Callable[[Cluster, int], Line | None]) -> Entry | None:
        return self._log.append(self._times()[1], decide)

    def _observe(self, ref: Ref, observed_at: datetime, product: int) -> Observation:
        with self._log.look() as cluster:
            return looking.observation(cluster, ref, now_of(cluster, product), observed_at)

    def _times(self) -> tuple[datetime, int]:
        """The product clock's instant, and its whole seconds since 1970."""
        now = self.clock()
        return now, math.floor(now.timestamp())

    @property
    def _log(self) -> Log:
        return log_at(self.path, self.manners.seed, self.limit_seconds)

    def _capabilities(self) -> Capabilities:
        return Capabilities(
            partial_nodes=True,
            mig=True,
            reservations="native",
            enforcement="hard",
            accounting=True,
            metrics=True,
            launch=True,
            topology=True,
            in_place=self.manners.in_place,  # type: ignore[arg-type]
        )

    def _ways(self, user: str, ref: str, node: str, start: int, end: int, now: int) -> Access:
        hour = now // 3600
        secret = blake2b(f"{self.manners.seed}/{ref}/{user}/{hour}".encode(), digest_size=12).hexdigest()
        note = "This cluster is simulated: the command shows the form, and there is nothing behind it."
        if now < start:
            note = f"From {looking.instant(start):%Y-%m-%d %H:%M} UTC. {note}"
        return Access(
            user=user,
            ways=(
                AccessWay("Shell", (f"ssh {user}@{node}",), note=note),
                AccessWay("Batch job", (f"sbatch --reservation={ref} job.sh",), note=note),
            ),
            credential=secret,
            expires_at=looking.instant(max(start, now)) + timedelta(seconds=min(3600, end - max(start, now))),
        )


def _waiting(cluster: Cluster, verb: str) -> list[CallFault]:
    first: dict[tuple[str, str], CallFault] = {}
    for fault in cluster.call_faults:
        if fault.verb in (verb, "*"):
            first.setdefault((fault.what, fault.when), fault)
    return list(first.values())
