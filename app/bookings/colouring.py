"""Which unit of a node each hold gets, when some are fixed: interval colouring, exact.

Pure. It knows one node, whose units are numbered from 0; not whose the holds are, nor other nodes. Without fixed
stretches the holds could be taken in order of their starts; with them it is a search, which tries what leaves most holds
where they are first, remembers in which situations it failed, and ends after a number of steps that the caller allows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.bookings.capacity import FOREVER

Stretch = tuple[int, int]
_LOCAL_STEPS = 60
"""How many steps the search spends on holds around the change alone, before it looks at all that hang together."""


class OutOfSteps(Exception):
    """The search has taken as many steps as it was allowed; what it would have found is not known."""


@dataclass(slots=True)
class Steps:
    """How many steps are left. A step is a hold looked at once: some ten microseconds."""

    left: int

    def take(self, steps: int = 1) -> None:
        """Spend them; raises OutOfSteps when there are none left."""
        self.left -= steps
        if self.left < 0:
            raise OutOfSteps


@dataclass(frozen=True, slots=True)
class Block:
    """`units` of a node needed together during `[start, end)`: a hold that may change units, or what is asked for.

    `now`: the units it has; empty when it comes from elsewhere.
    """

    key: int
    units: int
    start: int
    end: int
    now: tuple[int, ...] = ()


def colour(
    fixed: Sequence[Sequence[Stretch]], blocks: Sequence[Block], change: Stretch, steps: Steps
) -> dict[int, tuple[int, ...]] | None:
    """Units for the blocks that hang together with what has changed, by their keys; None when there are none.

    `fixed`: for each unit the stretches in which it can serve no block, in order and disjoint. `change`: a time that
    contains all blocks that are new, and all stretches that are. Blocks that share no time with the change, not even by
    way of others, keep their units and are not in the answer. Raises OutOfSteps.
    """
    near = [b for b in blocks if b.start < change[1] and b.end > change[0]]
    steps.take(2 + len(near) // 4)
    if not near:
        return {}
    if lacks(fixed, near, change) > 0:
        return None
    steps.take(1 + len(blocks) // 16)
    lo, hi, together = _hanging_together(blocks, change)
    if lacks(fixed, together, (lo, hi)) > 0:
        return None
    if len(near) < len(together):
        try:
            far = [b for b in together if b.start >= change[1] or b.end <= change[0]]
            few = Steps(min(_LOCAL_STEPS, steps.left))
            found = _assign(_with(fixed, far), near, few)
            steps.take(max(min(_LOCAL_STEPS, steps.left) - few.left, 0))
            if found is not None:
                return found
        except OutOfSteps:
            steps.take(_LOCAL_STEPS)
    return _assign(_Fixed(fixed, lo, hi), together, steps)


def lacks(fixed: Sequence[Sequence[Stretch]], blocks: Sequence[Block], time: Stretch) -> int:
    """How many units are too few at the worst instant of a time (less than nothing: spare), if each block could change
    its units at any instant."""
    lo, hi = time
    steps = []
    for unit in fixed:
        for start, end in unit:
            if start >= hi:
                break
            if end > lo:
                steps += [(max(start, lo), 1), (min(end, hi), -1)]
    for block in blocks:
        if block.start < hi and block.end > lo:
            steps += [(max(block.start, lo), block.units), (min(block.end, hi), -block.units)]
    steps.sort()
    taken = most = 0
    for _, step in steps:
        taken += step
        most = max(most, taken)
    return most - len(fixed)


def _hanging_together(blocks: Sequence[Block], change: Stretch) -> tuple[int, int, list[Block]]:
    """The blocks that share time with the change by way of each other, and the time that they cover."""
    lo, hi = change
    run: list[Block] = []
    end = -FOREVER
    found: list[Block] = []
    for block in [*sorted(blocks, key=lambda b: (b.start, b.key)), None]:
        if block is None or block.start >= end:
            if run and run[0].start < change[1] and end > change[0]:
                found += run
                lo, hi = min(lo, run[0].start), max(hi, end)
            run, end = [], -FOREVER
        if block is not None:
            run.append(block)
            end = max(end, block.end)
    return lo, hi, found


class _Fixed:
    """The fixed stretches of each unit, searchable; units with equal stretches are of one class."""

    def __init__(self, fixed: Sequence[Sequence[Stretch]], lo: int, hi: int) -> None:
        near = [tuple((s, e) for s, e in unit if s < hi and e > lo) for unit in fixed]
        self.starts = [[s for s, _ in unit] for unit in near]
        self.ends = [[e for _, e in unit] for unit in near]
        classes: dict[tuple[Stretch, ...], int] = {}
        self.classes = [classes.setdefault(unit, len(classes)) for unit in near]

    def after(self, unit: int, start: int, end: int) -> int | None:
        """When the unit's next fixed stretch begins, if none touches `[start, end)`."""
        at = bisect_right(self.ends[unit], start)
        if at == len(self.ends[unit]):
            return FOREVER
        following = self.starts[unit][at]
        return following if following >= end else None


def _with(fixed: Sequence[Sequence[Stretch]], blocks: Sequence[Block]) -> _Fixed:
    """The fixed stretches, and these blocks where they are now."""
    more: list[list[Stretch]] = [list(unit) for unit in fixed]
    for block in blocks:
        for unit in block.now:
            more[unit].append((block.start, block.end))
    return _Fixed([sorted(unit) for unit in more], -FOREVER, 2 * FOREVER)


def _assign(fixed: _Fixed, blocks: Sequence[Block], steps: Steps) -> dict[int, tuple[int, ...]] | None:
    """Units for every block, in order of their starts, going back where it does not go on."""
    order = sorted(blocks, key=lambda b: (b.start, -b.end, b.key))
    used = _Used(len(fixed.starts), order)
    until = [-FOREVER] * len(fixed.starts)
    picked: list[tuple[int, ...]] = []
    kept: list[list[int]] = []
    failed: set[tuple] = set()
    states: list[tuple] = [()]
    tries = [_choices(fixed, order[0], until, used)]
    while tries:
        steps.take()
        choice = next(tries[-1], None)
        if choice is None:
            tries.pop()
            failed.add(states.pop())
            if kept:
                until[:] = kept.pop()
                picked.pop()
            continue
        kept.append(until[:])
        picked.append(choice)
        for unit in choice:
            until[unit] = order[len(tries) - 1].end
        if len(tries) == len(order):
            return {b.key: units for b, units in zip(order, picked, strict=True)}
        following = order[len(tries)]
        # Units of one class that are free at the same time are alike from here on.
        since = following.start
        state = (len(tries), *sorted((c, u if u > since else 0) for c, u in zip(fixed.classes, until, strict=True)))
        if state in failed:
            until[:] = kept.pop()
            picked.pop()
            continue
        states.append(state)
        tries.append(_choices(fixed, following, until, used))
    return None


class _Used:
    """How many blocks have a unit now during a time: taking it would move them."""

    def __init__(self, units: int, blocks: Sequence[Block]) -> None:
        self.starts: list[list[int]] = [[] for _ in range(units)]
        self.ends: list[list[int]] = [[] for _ in range(units)]
        for block in blocks:
            for unit in block.now:
                self.starts[unit].append(block.start)
                self.ends[unit].append(block.end)
        for unit in range(units):
            self.starts[unit].sort()
            self.ends[unit].sort()

    def count(self, unit: int, start: int, end: int) -> int:
        return bisect_left(self.starts[unit], end) - bisect_right(self.ends[unit], start)


def _choices(fixed: _Fixed, block: Block, until: list[int], used: _Used) -> Iterator[tuple[int, ...]]:
    """Sets of units that the block could get, best first: one set for each way to take units of the classes."""
    free = []
    for unit, busy in enumerate(until):
        if busy <= block.start:
            after = fixed.after(unit, block.start, block.end)
            if after is not None:
                moves = (unit not in block.now, used.count(unit, block.start, block.end) - (unit in block.now))
                free.append((*moves, after, unit))
    if len(free) < block.units:
        return
    ranked = [unit for *_, unit in sorted(free)]
    first = tuple(ranked[: block.units])
    yield first
    groups: dict[int, list[int]] = {}
    for unit in ranked:
        groups.setdefault(fixed.classes[unit], []).append(unit)
    if len(groups) > 1 and len(ranked) > block.units:
        chosen = {c: len(set(units) & set(first)) for c, units in groups.items()}
        yield from (
            units
            for units in _ways(list(groups.values()), block.units)
            if any(len(set(units) & set(groups[c])) != n for c, n in chosen.items())
        )


def _ways(groups: list[list[int]], wanted: int) -> Iterator[tuple[int, ...]]:
    """Every way to take so many units of groups, of each group the first ones."""
    if not groups:
        yield ()
        return
    least = wanted - sum(map(len, groups[1:]))
    for take in range(min(len(groups[0]), wanted), max(least, 0) - 1, -1):
        for rest in _ways(groups[1:], wanted - take):
            yield (*groups[0][:take], *rest)
