"""When a GPU may be cut into slices, or made whole again.

Pure. A layout changes only while nothing holds any part of the GPU, and a gap before and after belongs to the change.
"""

from __future__ import annotations

import numpy as np

from app.bookings.capacity import FOREVER, POSITIONS_PER_GPU, Busy


def may_change(busy: Busy, gpu: int, at: int, gap: int = 0) -> bool:
    """Whether the layout of a GPU (by its number in the installation) can change at an instant (epoch seconds): whatever
    takes a part of it has ended `gap` seconds before, and nothing is held of the old layout later on.

    `busy` must have the holds of all pools that the GPU's slices are in: they share its positions.
    """
    return at >= first_change(busy, gpu, 0, gap)


def first_change(busy: Busy, gpu: int, not_before: int, gap: int = 0) -> int:
    """The first instant from `not_before` on at which the layout can change; `FOREVER` when something has no end."""
    lower = gpu * POSITIONS_PER_GPU
    mine = (busy.lower < lower + POSITIONS_PER_GPU) & (busy.upper > lower)
    last = int(np.max(busy.end[mine], initial=-FOREVER))
    return FOREVER if last >= FOREVER else max(not_before, last + gap)
