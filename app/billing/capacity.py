"""Where the capacity of a period went: every unit-second is in exactly one part, so they add up to what is installed.

Pure; knows no database. Quantities are unit-seconds x 840 x share, as in kernel.money.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from app.kernel.window import Window

Part = Literal["reserved", "external", "maintenance", "failed"]
PARTS: tuple[Part, ...] = ("reserved", "maintenance", "failed", "external")
"""When several claim the same time, the first of these counts. What nobody claims is free."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A slot of a kind, there for the window; `share840` of a whole unit."""

    kind: str
    lower: int
    upper: int
    window: Window
    share840: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that took the positions `[lower, upper)` for a time."""

    part: Part
    lower: int
    upper: int
    window: Window


@dataclass
class KindCapacity:
    """Quantities of one kind in a period. `reserved` is used + unused + unknown."""

    installed: int = 0
    parts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*PARTS, "free"), 0))
    used: int = 0
    unused: int = 0

    @property
    def unknown(self) -> int:
        """What was reserved and not measured."""
        return self.parts["reserved"] - self.used - self.unused


def where_it_went(
    slots: Iterable[Installed], claims: Iterable[Claim], measured: Mapping[str, tuple[int, int]]
) -> dict[str, KindCapacity]:
    """Each kind's capacity by part. `measured` maps a kind to (used, unused): never counted beyond what is reserved."""
    by_gpu: dict[int, list[Claim]] = {}
    for claim in claims:
        for gpu in range(claim.lower // 64, (claim.upper - 1) // 64 + 1):
            by_gpu.setdefault(gpu, []).append(claim)
    kinds: dict[str, KindCapacity] = {}
    for slot in slots:
        kind = kinds.setdefault(slot.kind, KindCapacity())
        near = [
            (claim.part, part)
            for claim in by_gpu.get(slot.lower // 64, ())
            if claim.lower < slot.upper and claim.upper > slot.lower and (part := claim.window.intersect(slot.window))
        ]
        total = slot.window.seconds
        kind.installed += total * slot.share840
        for part, seconds in _first_claims(near).items():
            kind.parts[part] += seconds * slot.share840
            total -= seconds
        kind.parts["free"] += total * slot.share840
    for name, (used, unused) in measured.items():
        if name in kinds:
            kind = kinds[name]
            kind.used = min(used, kind.parts["reserved"])
            kind.unused = min(unused, kind.parts["reserved"] - kind.used)
    return kinds


def _first_claims(claims: list[tuple[Part, Window]]) -> dict[Part, int]:
    """Seconds of each part, where of several at one instant the first of PARTS counts."""
    if not claims:
        return {}
    edges: list[tuple[datetime, int, Part]] = []
    for part, window in claims:
        edges += [(window.start, 1, part), (window.end, -1, part)]
    edges.sort(key=lambda e: e[0])
    open_now = dict.fromkeys(PARTS, 0)
    seconds: dict[Part, int] = {}
    since = edges[0][0]
    for at, change, part in edges:
        if at > since:
            first = next((p for p in PARTS if open_now[p]), None)
            if first is not None:
                seconds[first] = seconds.get(first, 0) + int((at - since).total_seconds())
            since = at
        open_now[part] += change
    return seconds
