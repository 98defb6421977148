"""The reference implementation keeps the contract that it is the reference of, however it is configured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.backends.contract import Backend, Place
from app.backends.simulated import NodeSpec, SimulatedBackend
from app.backends.testing import BackendContract


class TestSimulated(BackendContract):
    @pytest.fixture(params=["plain", "slow to prepare", "slow to end", "stiff"])
    def backend(
        self, request: pytest.FixtureRequest, make: Callable[..., SimulatedBackend], specs: tuple[NodeSpec, ...]
    ) -> Backend:
        manners = {
            "plain": {},
            "slow to prepare": {"provisioning_seconds": 7},
            "slow to end": {"grace_seconds": 9},
            "stiff": {"in_place": ()},
        }
        backend = make(**manners[request.param])
        backend.define(specs)
        return backend

    @pytest.fixture
    def nodes(self, specs: tuple[NodeSpec, ...]) -> tuple[Place, ...]:
        return tuple(Place(n.name, tuple(range(n.gpus))) for n in specs)
