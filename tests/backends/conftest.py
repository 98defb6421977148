"""A small simulated cluster on a fresh log, and a clock that stands still until it is moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.backends.contract import Order, Place, Ref
from app.backends.simulated import NodeSpec, SimulatedBackend
from app.backends.testing import MovableClock
from app.kernel.ids import new_id
from app.kernel.window import Window

NODES = tuple(
    NodeSpec(f"n{i}", "NVIDIA-H100-80GB-HBM3", 8, rack=f"r{i // 2}", power_watts=700, gpu_memory_mib=81_559)
    for i in range(4)
)


@pytest.fixture
def clock() -> MovableClock:
    """Monday 2026-03-02, 09:00 UTC."""
    return MovableClock()


@pytest.fixture
def waited() -> list[float]:
    """The seconds that slow calls would have waited."""
    return []


@pytest.fixture
def make(tmp_path: Path, clock: MovableClock, waited: list[float]) -> Iterator[Callable[..., SimulatedBackend]]:
    """Makes backends over one log, and closes it."""
    made: list[SimulatedBackend] = []

    def make(**config: Any) -> SimulatedBackend:
        backend = SimulatedBackend({"path": str(tmp_path / "log.sqlite"), **config}, clock, sleep=waited.append)
        made.append(backend)
        return backend

    yield make
    for backend in made:
        backend.close()


@pytest.fixture
def specs() -> tuple[NodeSpec, ...]:
    """Four nodes of eight H100."""
    return NODES


@pytest.fixture
def backend(make: Callable[..., SimulatedBackend], specs: tuple[NodeSpec, ...]) -> SimulatedBackend:
    """A cluster of these nodes."""
    backend = make()
    backend.define(specs)
    return backend


@pytest.fixture
def order(clock: MovableClock) -> Callable[..., Order]:
    """Makes orders: `order("n0")`, `order("n0", gpus=(0, 1), start=600, hours=2, workload="none")`."""

    def make(
        *nodes: str, gpus: tuple[int, ...] = tuple(range(8)), start: int = 600, hours: float = 2, **more: Any
    ) -> Order:
        begin = (clock() + timedelta(seconds=start)).replace(microsecond=0)
        settings = {"workload": more.pop("workload", "none")}
        words: dict[str, Any] = {
            "ref": Ref.of("test", new_id()),
            "project": "vision",
            "account": "vision",
            "places": tuple(Place(node, gpus) for node in nodes),
            "window": Window(begin, begin + timedelta(hours=hours)),
            "people": ("ann",),
            "settings": settings,
        }
        return Order(**{**words, **more})

    return make
