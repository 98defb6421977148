"""Calls that go wrong, the log as evidence, and the settings: what an operator and a fault test rely on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from app.backends.contract import BackendError, Order, Ref, Workload
from app.backends.registry import UnknownBackend, backend_names, make_backend, require_backends
from app.backends.simulated import NodeSpec, SimulatedBackend
from app.backends.testing import Faulty, MovableClock, Never, Slow

Orders = Callable[..., Order]


def error(act: Callable[[], object]) -> BackendError:
    with pytest.raises(BackendError) as caught:
        act()
    return caught.value


class TestFaults:
    def test_refused_calls_do_nothing(self, backend: SimulatedBackend, order: Orders) -> None:
        made = order("n0")
        backend.faults.call_refused("ensure", "quota", count=2)
        assert [error(lambda: backend.ensure(made)).kind for _ in range(2)] == ["quota", "quota"]
        assert backend.observe(made.ref).state == "absent"
        assert backend.ensure(made).state == "ready"

    def test_an_answer_lost_after_the_act(self, backend: SimulatedBackend, order: Orders) -> None:
        made = order("n0")
        backend.faults.answer_lost("ensure")
        assert error(lambda: backend.ensure(made)).kind == "timeout"
        assert backend.observe(made.ref).state == "ready"
        backend.ensure(made)
        assert [(e.command, e.acted) for e in backend.entries(made.ref)] == [("ensure", True), ("ensure", False)]
        backend.faults.answer_lost("release", kind="unreachable")
        assert error(lambda: backend.release(made.ref)).kind == "unreachable"
        assert backend.observe(made.ref).state == "gone"

    def test_slow_calls_wait_and_time_out_at_the_limit(
        self, backend: SimulatedBackend, order: Orders, waited: list[float]
    ) -> None:
        first, second, third = order("n0"), order("n1"), order("n2")
        backend.faults.call_slow("ensure", 3)
        assert backend.ensure(first).state == "ready"
        backend.faults.call_slow("ensure", 300)
        assert error(lambda: backend.ensure(second)).kind == "timeout"
        assert backend.observe(second.ref).state == "absent"
        backend.faults.call_slow("ensure", 300, when="after")
        assert error(lambda: backend.ensure(third)).kind == "timeout"
        assert backend.observe(third.ref).state == "ready"
        assert waited == [3, backend.limit_seconds, backend.limit_seconds]

    def test_any_verb_meets_a_fault_of_any(self, backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
        made = order("n0")
        backend.ensure(made)
        backend.faults.call_refused("*", "unreachable", count=10)
        calls = (
            backend.probe, backend.inventory, backend.strays, lambda: backend.ensure(made),
            lambda: backend.observe(made.ref), lambda: backend.release(made.ref), lambda: backend.stop(made.ref, "x"),
            lambda: backend.launch(made.ref, Workload("x", "idle")), lambda: backend.access(made.ref, "ann"),  # type: ignore[arg-type]
            lambda: backend.usage(made.ref, clock(), clock(), 60),
        )  # fmt: skip
        assert [error(call).kind for call in calls] == ["unreachable"] * 10
        assert backend.observe(made.ref).state == "ready"

    def test_a_skewed_clock_shows_in_what_it_says(
        self, backend: SimulatedBackend, clock: MovableClock, order: Orders
    ) -> None:
        backend.faults.clock_skew(-120)
        made = order("n0", start=0)
        seen = backend.ensure(made)
        assert seen.observed_at == clock()
        clock.move(60)
        assert backend.observe(made.ref).state == "ready"
        assert not backend.probe().steps[2].ok
        clock.move_to(made.window.end)
        assert backend.observe(made.ref).state == "ready", "by its own clock the window is not over"
        backend.faults.clock_skew(0)
        assert backend.observe(made.ref).state == "ending"

    def test_a_gap_is_unknown_and_not_idle(self, backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
        made = order("n0", "n1", workload="inference")
        backend.ensure(made)
        start = made.window.start
        gap = start + timedelta(minutes=30, seconds=20), start + timedelta(minutes=70)
        backend.faults.metrics_gap(*gap, node="n0")
        clock.move_to(made.window.end)
        samples = backend.usage(made.ref, start, made.window.end, 900).samples
        unknown = [s for s in samples if s.in_use is None]
        assert {s.node for s in unknown} == {"n0"}
        assert sum(s.seconds for s in unknown if s.gpu == 0) == 70 * 60 - 30 * 60 - 20
        assert all(s[5:8] == (None, None, None) for s in unknown)
        for gpu in range(8):
            assert sum(s.seconds for s in samples if (s.node, s.gpu) == ("n0", gpu)) == 7200

    def test_a_fault_must_be_one(self, backend: SimulatedBackend, clock: MovableClock) -> None:
        f = backend.faults
        for act in (
            lambda: f.call_refused("dance"), lambda: f.call_refused("ensure", "bad"),  # type: ignore[arg-type]
            lambda: f.call_slow("ensure", -1), lambda: f.call_slow("ensure", 1, when="never"),
            lambda: f.answer_lost("ensure", kind="quota"), lambda: f.node_dies("n0", until=clock()),
        ):  # fmt: skip
            assert error(act).kind == "invalid"
        for act in (lambda: f.node_dies("n9"), lambda: f.node_ill("n0", 8), lambda: f.foreign_ends("x")):
            assert error(act).kind == "not_found"
        assert len(backend.entries()) == 1


class TestLog:
    def test_every_command_stands_there_and_acted_once(
        self, backend: SimulatedBackend, clock: MovableClock, order: Orders
    ) -> None:
        made = order("n0")
        for _ in range(3):
            backend.ensure(made)
        clock.move_to(made.window.start)
        for _ in range(2):
            backend.release(made.ref)
        said = [(e.command, e.acted) for e in backend.entries(made.ref)]
        assert said == [("ensure", True), ("ensure", False), ("ensure", False), ("release", True), ("release", False)]
        assert all(e.ref == made.ref.name for e in backend.entries(made.ref))
        assert backend.entries(Ref("")) == []

    def test_looking_writes_nothing(self, backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
        made = order("n0")
        backend.ensure(made)
        before = len(backend.entries())
        backend.probe(), backend.inventory(), backend.observe(made.ref), backend.strays()
        backend.usage(made.ref, clock(), clock(), 60), backend.access(made.ref, "ann")
        backend.release(Ref.parse(made.ref.name[:-1] + "7") or made.ref)
        assert len(backend.entries()) == before

    def test_nodes_defined_again_are_nothing(self, backend: SimulatedBackend, specs: tuple[NodeSpec, ...]) -> None:
        backend.define(specs)
        assert len(backend.entries()) == 1
        backend.define([*specs, NodeSpec("n9", "MI300X", 8)])
        assert [len(e.body["nodes"]) for e in backend.entries()] == [4, 1]
        assert error(lambda: backend.define([NodeSpec("n0", "H100", 4)])).kind == "unsupported"


class TestSettings:
    def test_what_is_wrong_is_said(self, tmp_path: Path, clock: MovableClock) -> None:
        path = str(tmp_path / "x.sqlite")
        for config in ({}, {"path": path, "sede": 1}, {"path": path, "seed": "x"}):
            assert error(lambda config=config: SimulatedBackend(config, clock)).kind == "invalid"
        assert not (tmp_path / "x.sqlite").exists(), "making a backend connects to nothing"

    def test_another_seed_is_refused(self, backend: SimulatedBackend, make: Callable[..., SimulatedBackend]) -> None:
        other = make(seed=2)
        assert error(other.inventory).kind == "invalid"
        assert not other.probe().ok

    def test_a_log_that_cannot_be_opened(self, tmp_path: Path, clock: MovableClock) -> None:
        (tmp_path / "file").write_text("not a folder")
        assert error(SimulatedBackend({"path": tmp_path / "file" / "log"}, clock).inventory).kind == "unreachable"
        (tmp_path / "junk").write_text("this is no database" * 100)
        assert error(SimulatedBackend({"path": tmp_path / "junk"}, clock).inventory).kind == "unreachable"
        assert not SimulatedBackend({"path": tmp_path / "junk"}, clock).probe().ok

    def test_the_registry(self, tmp_path: Path, clock: MovableClock) -> None:
        assert "simulated" in backend_names()
        made = make_backend("simulated", {"path": str(tmp_path / "log")}, clock)
        assert isinstance(made, SimulatedBackend)
        with pytest.raises(UnknownBackend, match=r"no backend 'abacus'.*simulated"):
            make_backend("abacus", {}, clock)
        with pytest.raises(UnknownBackend, match=r"Cluster 'alps' needs the backend 'abacus'"):
            require_backends({"jura": "simulated", "alps": "abacus"})


class TestDoubles:
    def test_faulty(self, backend: SimulatedBackend, order: Orders) -> None:
        made, double = order("n0"), Faulty(backend).refuse("ensure", "busy").lose_answer("ensure")
        assert error(lambda: double.ensure(made)).kind == "busy"
        assert backend.observe(made.ref).state == "absent"
        assert error(lambda: double.ensure(made)).kind == "timeout"
        assert double.ensure(made).state == "ready"
        assert (double.calls["ensure"], double.acted["ensure"]) == (3, 2)

    def test_slow_and_never(self, backend: SimulatedBackend, order: Orders) -> None:
        made, waits = order("n0"), list[float]()
        assert Slow(backend, 2, waits.append).ensure(made).state == "ready"
        assert error(Slow(backend, 99, waits.append).inventory).kind == "timeout"
        assert error(lambda: Never(backend, waits.append).release(made.ref)).kind == "timeout"
        assert backend.observe(made.ref).state == "ready"
        assert waits == [2, backend.limit_seconds, backend.limit_seconds]


def test_refs_are_names_that_every_cluster_takes() -> None:
    ref = Ref("berth-lab-01m8phfws4e3evq10d0nkfn6bf-g12")
    assert Ref.parse(ref.name) == ref
    assert (ref.installation, ref.generation) == ("lab", 12)
    assert ref.allocation is not None
    assert Ref.of("lab", ref.allocation, 12) == ref
    for foreign in (
        "",
        "berth-lab",
        "Berth-lab-01m8phfws4e3evq10d0nkfn6bf-g1",
        "berth-lab-01m8phfws4e3evq10d0nkfn6bf-g0",
    ):
        assert Ref.parse(foreign) is None
    with pytest.raises(ValueError, match="not a name"):
        Ref.of("My Lab", ref.allocation)
    with pytest.raises(ValueError, match="not a kind"):
        BackendError("odd", "It is odd.")  # type: ignore[arg-type]
