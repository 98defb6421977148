"""A cluster of any size that exists only in its log; see `backend`."""

from app.backends.simulated.backend import SimulatedBackend
from app.backends.simulated.state import NodeSpec

__all__ = ["NodeSpec", "SimulatedBackend"]
