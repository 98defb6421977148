"""What the SQL of standings has to find, worked out in Python."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from app.kernel.window import Window


def largest_overlap(rows: Iterable[tuple[datetime, datetime, int]], window: Window) -> int:
    """The largest sum of rates that overlap at one instant of the window."""
    edges: list[tuple[datetime, int]] = []
    for start, end, rate in rows:
        if start < window.end and end > window.start:
            edges += [(max(start, window.start), rate), (end, -rate)]
    level = peak = 0
    for _, change in sorted(edges):  # at one instant what ends comes first: ranges are half-open
        level += change
        peak = max(peak, level)
    return peak
