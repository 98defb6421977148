"""Random histories: no unit in two hands at any instant, and a fold kept up is a fold made anew."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.backends.contract import BackendError, Order, Place, Ref, Workload
from app.backends.simulated import NodeSpec, SimulatedBackend
from app.backends.simulated.state import fold
from app.backends.testing import MovableClock
from app.kernel.window import Window

NODES = tuple(NodeSpec(f"n{i}", "H100", 2, power_watts=700, gpu_memory_mib=81_559) for i in range(2))
REFS = tuple(Ref.of("prop", UUID(int=i + 1)) for i in range(5))

unit_sets = st.sets(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=2)
refs = st.integers(0, len(REFS) - 1)
minutes = st.sampled_from([-10, 0, 0, 5, 10, 30, 60])
lengths = st.sampled_from([5, 10, 30, 60])
node, gpu = st.integers(0, 1), st.integers(0, 1)
# what makes and moves is likelier than what breaks, else nothing stands long enough to be broken
commands = st.one_of(
    *[st.tuples(st.just("ensure"), refs, unit_sets, minutes, lengths)] * 5,
    *[st.tuples(st.just("move"), st.sampled_from([1, 60, 299, 300, 600, 1800]))] * 3,
    *[st.tuples(st.just("change"), refs, unit_sets, st.sampled_from([-30, -5, 0, 5, 30]))] * 3,
    st.tuples(st.just("release"), refs),
    st.tuples(st.just("launch"), refs, st.integers(0, 3), st.integers(1, 2)),
    st.tuples(st.just("stop"), refs, st.integers(0, 3)),
    st.tuples(st.just("dies"), node, minutes, st.one_of(st.none(), st.integers(1, 60))),
    st.tuples(st.just("ill"), node, gpu, minutes),
    st.tuples(st.just("returns"), node),
    st.tuples(st.just("take"), node, refs),
    *[st.tuples(st.just("foreign"), node, gpu, st.one_of(st.none(), lengths))] * 2,
    st.tuples(st.just("skew"), st.integers(-300, 300)),
    st.tuples(st.just("lose"), st.sampled_from(["ensure", "release", "*"])),
    st.tuples(st.just("slow"), st.integers(1, 400)),
)


class World:
    """One cluster, and the last order that each ref got through."""

    def __init__(self, path: Path, **config: Any) -> None:
        self.clock = MovableClock()
        self.began = self.clock()
        self.backend = SimulatedBackend({"path": str(path), **config}, self.clock)
        self.backend.define(NODES)
        self.orders: dict[Ref, Order] = {}

    def at(self, minutes: int) -> datetime:
        return self.clock() + timedelta(minutes=minutes)

    def do(self, command: tuple[Any, ...]) -> None:
        """Carry out one command; what the cluster refuses has to leave no line but that of a fault it met."""
        before = len(self.backend.entries())
        refused = ""
        try:
            self._do(command)
        except BackendError as e:
            refused = e.sentence
        if refused and "lost" not in refused:
            after = self.backend.entries()[before:]
            assert {line.command for line in after} <= {"call_fault_met"}, (command, refused, after)

    def _do(self, command: tuple[Any, ...]) -> None:
        b, verb, *args = self.backend, *command
        if verb == "ensure":
            ref, units, start, length = args
            self._ensure(REFS[ref], units, Window(self.at(start), self.at(start + length)))
        elif verb == "change" and REFS[args[0]] in self.orders:
            old = self.orders[REFS[args[0]]]
            end = max(old.window.end + timedelta(minutes=args[2]), old.window.start + timedelta(minutes=1))
            places = _places(args[1]) if args[2] % 10 == 0 else old.places
            self._put(replace(old, window=Window(old.window.start, end), places=places))
        elif verb == "release":
            b.release(REFS[args[0]])
        elif verb == "launch":
            b.launch(REFS[args[0]], Workload(f"w{args[1]}", "notebook", gpus=args[2]))
        elif verb == "stop":
            b.stop(REFS[args[0]], f"w{args[1]}")
        elif verb == "move":
            self.clock.move(args[0])
        elif verb == "dies":
            b.faults.node_dies(f"n{args[0]}", self.at(args[1]), args[2] and self.at(args[1] + args[2]))
        elif verb == "ill":
            b.faults.node_ill(f"n{args[0]}", args[1], at=self.at(args[2]))
        elif verb == "returns":
            b.faults.node_returns(f"n{args[0]}")
        elif verb == "take":
            b.faults.take_away(f"n{args[0]}", REFS[args[1]])
        elif verb == "foreign":
            b.faults.foreign_job(f"n{args[0]}", [args[1]], until=args[2] and self.at(args[2]))
        elif verb == "skew":
            b.faults.clock_skew(args[0])
        elif verb == "lose":
            b.faults.answer_lost(args[0])
        elif verb == "slow":
            b.faults.slow_start(args[0])

    def _ensure(self, ref: Ref, units: set[tuple[int, int]], window: Window) -> None:
        self._put(Order(ref, "p", "p", _places(units), window, ("ann",)))

    def _put(self, order: Order) -> None:
        try:
            self.backend.ensure(order)
        except BackendError as e:
            if "lost" in e.sentence:
                self.orders[order.ref] = order
            raise
        self.orders[order.ref] = order


def _places(units: set[tuple[int, int]]) -> tuple[Place, ...]:
    by_node: dict[str, list[int]] = {}
    for node, gpu in sorted(units):
        by_node.setdefault(f"n{node}", []).append(gpu)
    return tuple(Place(node, tuple(gpus)) for node, gpus in by_node.items())


def patiently(act: Callable[[], Any]) -> Any:
    """The answer, past faults that are still waiting."""
    for _ in range(60):
        with contextlib.suppress(BackendError):
            return act()
    return act()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=st.lists(commands, min_size=1, max_size=30), grace=st.sampled_from([0, 30]))
def test_no_unit_is_in_two_hands(history: list[tuple[Any, ...]], grace: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "log.sqlite", grace_seconds=grace)
        b = world.backend
        try:
            for command in history:
                world.do(command)
                seen = [patiently(lambda r=r: b.observe(r)) for r in REFS]
                standing = [o for o in seen if o.state not in ("absent", "gone") and o.window]
                for one, other in combinations([o for o in standing if o.state != "ending"], 2):
                    if one.window.overlaps(other.window):
                        assert not _units(one.places) & _units(other.places), (command, one, other)
                external = [
                    (n.name, use)
                    for n in patiently(b.inventory).nodes
                    for use in n.external
                    if "gave it" not in use.what
                ]
                for o in standing:
                    lost = {(x.node, g) for x in o.lost if x.until is None for g in x.gpus}
                    for name, use in external:
                        if o.state != "ending" and (use.until is None or use.until > o.window.start):
                            assert not _units(o.places) & {(name, g) for g in use.gpus}, (command, o, use)
                    if o.state == "degraded":
                        assert lost
                    if o.state == "ready":
                        assert not lost
                        assert o.in_place_since is not None
                    for x, y in combinations(o.lost, 2):
                        apart = x.node != y.node or not set(x.gpus) & set(y.gpus)
                        assert apart or (x.until is not None and x.until <= y.since), o.lost
            end = world.clock() + timedelta(hours=1)
            measured: dict[tuple[str, int], list[tuple[datetime, datetime]]] = {}
            for r in REFS:
                for s in patiently(lambda r=r: b.usage(r, world.began - timedelta(days=1), end, 300)).samples:
                    measured.setdefault((s.node, s.gpu), []).append((s.at, s.at + timedelta(seconds=s.seconds)))
            for unit, pieces in measured.items():
                for earlier, later in pairwise(sorted(pieces)):
                    assert earlier[1] <= later[0], (unit, earlier, later)
        finally:
            b.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=st.lists(commands, min_size=1, max_size=30))
def test_a_fold_kept_up_is_a_fold_made_anew(history: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "log.sqlite")
        b = world.backend
        try:
            for command in history:
                world.do(command)
            with b._log.look() as kept:
                assert kept == fold(b.entries())
            told = [patiently(lambda r=r: b.observe(r)) for r in REFS], patiently(b.inventory)
            b.close()
            assert told == ([b.observe(r) for r in REFS], b.inventory())
        finally:
            b.close()


def _units(places: tuple[Place, ...]) -> set[tuple[str, int]]:
    return {(p.node, g) for p in places for g in p.gpus}
