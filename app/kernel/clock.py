"""The only file that reads the machine's time. Everything else is handed a value or a `Clock`.

Two clocks (docs/decisions/0002): the *wall* clock serves sessions, tokens, leases, rate limits and logs; the *product*
clock is the database function `berth_now()` (plumbing.db.product_now) and decides everything about bookings and money.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""Answers the present instant, aware and in UTC."""


def wall_now() -> datetime:
    """The machine's clock: aware, UTC, with microseconds."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds of a clock that never goes back; only differences mean anything."""
    return time.monotonic()


def whole_second(instant: datetime) -> datetime:
    """Cut to the second: event times of bookings and money carry no fractions."""
    return instant.replace(microsecond=0)
