"""Who holds which units, as far as recolouring must know: frozen columns of holds, with what each booking was promised.

Pure. Owners are opaque numbers: whose they are, and what they cost, is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import numpy as np

from app.bookings.capacity import LEVELS, Busy, Flags, Ints, Level, Range


@dataclass(frozen=True, slots=True)
class Hold:
    """One hold: units of one node for a time, in epoch seconds, the cleaning gap included.

    `pinned`: made on the cluster or about to be; `started`: its time has begun. Neither moves. `within`: the level that
    the holds of its owner must go on sharing (what was required; and what was preferred, where it is kept today).
    `apart`: they must lie on different nodes (the booking is `nodes` x `per_node`).
    """

    id: Any
    owner: Hashable
    node_id: int
    units: tuple[Range, ...]
    start: int
    end: int
    pinned: bool = False
    started: bool = False
    within: Level | None = None
    apart: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """All holds of a pool from now on. Columns of one entry a hold: `ids` can be sorted; `owner` is equal for the holds of
    one booking; `within` is an index in LEVELS, -1 for none. Rows of one entry a range of positions: `hold` (its index),
    `lower`, `upper`. Holds of other pools are harmless.
    """

    ids: Sequence[Any]
    owner: Ints
    node_id: Ints
    start: Ints
    end: Ints
    pinned: Flags
    started: Flags
    within: Ints
    apart: Flags
    hold: Ints = field(repr=False)
    lower: Ints = field(repr=False)
    upper: Ints = field(repr=False)

    @classmethod
    def of(cls, holds: Iterable[Hold]) -> Held:
        """From objects; good for hundreds."""
        every = list(holds)
        owners: dict[Hashable, int] = {}
        rows = [(i, *r) for i, h in enumerate(every) for r in h.units]
        hold, lower, upper = np.array(rows, np.int64).reshape(-1, 3).T.copy()

        def column(value: Callable[[Hold], int], kind: type = np.int64) -> Any:
            return np.fromiter((value(h) for h in every), kind, len(every))

        return cls(
            [h.id for h in every],
            column(lambda h: owners.setdefault(h.owner, len(owners))),
            column(lambda h: h.node_id),
            column(lambda h: h.start),
            column(lambda h: h.end),
            column(lambda h: h.pinned, np.bool_),
            column(lambda h: h.started, np.bool_),
            column(lambda h: -1 if h.within is None else LEVELS.index(h.within)),
            column(lambda h: h.apart, np.bool_),
            hold,
            lower,
            upper,
        )

    @property
    def busy(self) -> Busy:
        """What they take."""
        return Busy(self.lower, self.upper, self.start[self.hold], self.end[self.hold])

    def busy_of(self, which: Flags) -> Busy:
        """What those take that are flagged."""
        rows = np.flatnonzero(which[self.hold])
        hold = self.hold[rows]
        return Busy(self.lower[rows], self.upper[rows], self.start[hold], self.end[hold])

    def ranges(self, hold: int) -> tuple[Range, ...]:
        """The positions of one, by its index."""
        rows = np.flatnonzero(self.hold == hold)
        return tuple(sorted(zip(self.lower[rows].tolist(), self.upper[rows].tolist(), strict=True)))

    def until(self, which: Flags, end: int) -> Held:
        """The same, those that are flagged ending at another time."""
        return replace(self, end=np.where(which, end, self.end))

    def without(self, which: Flags) -> Held:
        """The same, those that are flagged taking nothing."""
        rows = np.flatnonzero(~which[self.hold])
        return replace(self, hold=self.hold[rows], lower=self.lower[rows], upper=self.upper[rows])

    def __len__(self) -> int:
        return len(self.start)


class PackedIds(Sequence[UUID]):
    """UUIDs side by side in bytes (`string_agg(uuid_send(id), '')`), made into objects only when asked for."""

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    def __getitem__(self, index: Any) -> Any:
        return UUID(bytes=self.packed[16 * index : 16 * index + 16])

    def __len__(self) -> int:
        return len(self.packed) // 16
