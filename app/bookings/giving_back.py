"""Which units a booking gives back when it keeps fewer, and what that gives back of limits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from app.bookings.capacity import Range
from app.bookings.facts import Held
from app.kernel.errors import Reason
from app.kernel.money import SCALE
from app.quotas.rules import Month, Piece, QuotaEffect, Standing, Taken


@dataclass(frozen=True, slots=True)
class Smaller:
    """How many units are kept, and in which form: `nodes` and `per_node` None for units anywhere."""

    units: int
    nodes: int | None
    per_node: int | None


@dataclass(frozen=True, slots=True)
class Leave:
    """What one hold keeps and what it leaves, as ranges of positions; `kept` empty: the node is given back."""

    held: Held
    kept: tuple[Range, ...]
    left: tuple[Range, ...]
    units: int


def smaller(
    units: int, nodes: int | None, per_node: int | None, wanted_units: int | None, wanted_nodes: int | None
) -> Smaller | Reason:
    """The form of what is kept. Of several nodes whole ones are given back, of one node single units."""
    if wanted_nodes is not None:
        if nodes is None or per_node is None:
            return _wrong(
                "no_nodes", "This booking is of units, not of whole nodes.", "Say how many units it keeps.", "nodes"
            )
        if not 1 <= wanted_nodes < nodes:
            return _fewer(nodes, wanted_nodes, "nodes", "node")
        return Smaller(wanted_nodes * per_node, wanted_nodes, per_node)
    assert wanted_units is not None
    if not 1 <= wanted_units < units:
        return _fewer(units, wanted_units, "units", "unit")
    if nodes is None or per_node is None:
        return Smaller(wanted_units, None, None)
    if nodes == 1:
        return Smaller(wanted_units, 1, wanted_units)
    if wanted_units % per_node:
        below = wanted_units // per_node * per_node
        fits = " or ".join(str(n) for n in (below, below + per_node) if 0 < n < units)
        return Reason(
            "whole_nodes", f"A booking of {nodes} nodes gives back whole ones, {per_node} units each.",
            f"multiples of {per_node} units", f"{wanted_units} units", f"Keep {fits} units." if fits else None, "units", True,
        )  # fmt: skip
    return Smaller(wanted_units, wanted_units // per_node, per_node)


def choose(held: Sequence[Held], units: int, to: Smaller, lost: frozenset[int]) -> tuple[Leave, ...]:
    """What each hold leaves: first units that are lost, then from the node that has the fewest, so that nodes get free.

    `units`: how many they are now, all of one size. `lost`: numbers of GPUs that are not there now.
    """
    of = {h.id: list(ranges) for h, ranges in units_of(held, units)}
    ill = {h.id: [u for u in of[h.id] if u[0] // 64 in lost] for h in held}
    most_ill = sorted(held, key=lambda h: (-len(ill[h.id]), len(of[h.id]), h.node), reverse=False)
    if to.nodes is not None and to.nodes > 0 and len(held) > 1:
        gone = {h.id for h in _last(most_ill, len(held) - to.nodes, ill)}
        return tuple(Leave(h, (), h.ranges, len(of[h.id])) for h in held if h.id in gone)
    leave: dict = {h.id: [] for h in held}
    missing = units - to.units
    for h in most_ill:
        take = ill[h.id][:missing]
        leave[h.id] += take
        missing -= len(take)
    for h in sorted(held, key=lambda h: (len(of[h.id]) - len(leave[h.id]), h.node)):
        rest = [u for u in of[h.id] if u not in leave[h.id]]
        take = rest[len(rest) - min(missing, len(rest)) :]
        leave[h.id] += take
        missing -= len(take)
    found = []
    for h in held:
        if leave[h.id]:
            kept = [u for u in of[h.id] if u not in leave[h.id]]
            found.append(Leave(h, _joined(kept), _joined(leave[h.id]), len(leave[h.id])))
    return tuple(found)


def _last(order: Sequence[Held], count: int, ill: dict) -> list[Held]:
    """So many nodes: those that lost units first, else the last by name."""
    worst = [h for h in order if ill[h.id]]
    others = sorted((h for h in order if not ill[h.id]), key=lambda h: h.node, reverse=True)
    return [*worst, *others][:count]


def units_of(held: Sequence[Held], units: int) -> tuple[tuple[Held, tuple[Range, ...]], ...]:
    """Each hold with its units one by one: `units` in all, of one size."""
    width = sum(upper - lower for h in held for lower, upper in h.ranges) // units
    return tuple((h, tuple(_units(h.ranges, width))) for h in held)


def _units(ranges: Iterable[Range], width: int) -> list[Range]:
    return [(at, at + width) for lower, upper in ranges for at in range(lower, upper, width)]


def _joined(units: Iterable[Range]) -> tuple[Range, ...]:
    joined: list[Range] = []
    for lower, upper in sorted(units):
        if joined and joined[-1][1] == lower:
            joined[-1] = (joined[-1][0], upper)
        else:
            joined.append((lower, upper))
    return tuple(joined)


def freed_effects(
    standings: Sequence[Standing], before: Sequence[Piece], after: Sequence[Piece]
) -> tuple[QuotaEffect, ...]:
    """What giving back does to each limit of hours and of money: used and held without the difference of the two."""
    change: dict[Month, int] = {}
    money: dict[Month, Decimal] = {}
    for sign, pieces in ((-1, before), (1, after)):
        for piece in pieces:
            month = piece.day.replace(day=1)
            change[month] = change.get(month, 0) + sign * piece.quantity
            money[month] = money.get(month, Decimal(0)) + sign * piece.money
    of_hours = tuple(
        QuotaEffect(s.scope, "hours", taken.total, taken.total + quantity, s.scope.max_quantity, month, taken.used)
        for s in standings
        if s.scope.max_quantity is not None
        for month, quantity in sorted(change.items())
        for taken in (s.months.get(month, Taken()),)
        if quantity
    )
    of_money = tuple(
        QuotaEffect(s.scope, "money", spent.total, spent.total + amount, s.scope.max_money * SCALE, month, spent.used)
        for s in standings
        if s.scope.max_money is not None
        for month, amount in sorted(money.items())
        for spent in (s.money.get(month, Taken()),)
        if amount
    )
    return of_hours + of_money


def _fewer(has: int, wanted: int, field: str, word: str) -> Reason:
    many = f"{has} {word}{'s' if has != 1 else ''}"
    fix = f"Keep 1 to {has - 1}." if has > 1 else "Release or cancel the booking."
    return Reason("not_fewer", f"The booking has {many}; it keeps fewer, and at least one.", many, str(wanted), fix, field,
                  True)  # fmt: skip


def _wrong(code: str, message: str, fix: str, field: str) -> Reason:
    return Reason(code, message, None, None, fix, field, True)
