"""One process's plumbing for its tasks: made at the first task, so that a pre-forked child has its own connections."""

from __future__ import annotations

import threading

from app.plumbing.runtime import Plumbing, make_plumbing
from app.settings import load_settings

_lock = threading.Lock()
_plumbing: Plumbing | None = None


def plumbing() -> Plumbing:
    """The plumbing of this process. Raises when the database's role passes row-level security."""
    global _plumbing
    with _lock:
        if _plumbing is None:
            _plumbing = make_plumbing(load_settings())
        return _plumbing


def close() -> None:
    """Give everything back at the end of the process."""
    global _plumbing
    with _lock:
        if _plumbing is not None:
            _plumbing.close()
            _plumbing = None
