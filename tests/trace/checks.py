"""What must be true of a replayed trace, worked out from the rows of holds and the answers of the API alone, by plain
sweeps in Python: no search, no constraint and no rule of the product is used.

Each check answers with sentences about what is wrong; none is all right.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import psycopg

POSITIONS = 64
"""Of a whole GPU."""
ORACLE = Path(__file__).resolve().parents[1] / "oracle" / "bill.py"


@dataclass(frozen=True, slots=True)
class Promise:
    """What an accepted request was promised."""

    name: str
    units: int
    within: str | None
    start: datetime
    end: datetime
    kind: str
    price: str

    @property
    def seconds(self) -> int:
        return int((self.end - self.start).total_seconds())


@dataclass(frozen=True, slots=True)
class HoldRow:
    """One row of holds; `gpus` are numbers of the installation."""

    booking: str
    node: int
    gpus: tuple[int, ...]
    start: datetime
    end: datetime
    live: bool


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node: which GPUs it has, and of what kind."""

    first: int
    gpus: int
    kind: str


def read_holds(owner: psycopg.Connection) -> list[HoldRow]:
    """All holds there ever were. Raises ValueError for a part of a GPU: the trace books whole ones."""
    rows = owner.execute(
        """SELECT booking_id::text, node_id, ARRAY(SELECT ARRAY[lower(r), upper(r)] FROM unnest(units) r),
                  lower(during), upper(during), live FROM holds"""
    )
    return [HoldRow(b, n, _gpus(ranges), s, e, live) for b, n, ranges, s, e, live in rows]


def read_nodes(owner: psycopg.Connection) -> dict[int, NodeRow]:
    """The nodes by their numbers."""
    rows = owner.execute("SELECT n.id, n.first_gpu, n.gpus, p.kind FROM nodes n JOIN pools p ON p.id = n.pool_id")
    return {i: NodeRow(first, gpus, kind) for i, first, gpus, kind in rows}


def wrong_holds(promises: Mapping[str, Promise], holds: Iterable[HoldRow], nodes: Mapping[int, NodeRow]) -> list[str]:
    """Whether every booking holds what it was promised, in its shape, at every instant of its window."""
    said = []
    rows: dict[str, list[HoldRow]] = {booking: [] for booking in promises}
    for hold in holds:
        if hold.booking not in rows:
            said.append(f"units are held for {hold.booking}, which nobody was promised")
            continue
        rows[hold.booking].append(hold)
        node = nodes[hold.node]
        if not all(node.first <= gpu < node.first + node.gpus for gpu in hold.gpus):
            said.append(f"{hold.booking} holds GPUs {hold.gpus} that are not of its node")
        if node.kind != promises[hold.booking].kind:
            said.append(f"{hold.booking} holds {node.kind} instead of {promises[hold.booking].kind}")
    for booking, promise in promises.items():
        edges = {promise.start, promise.end}
        edges |= {at for row in rows[booking] for at in (row.start, row.end) if promise.start < at < promise.end}
        for at in sorted(edges - {promise.end}):
            there = [row for row in rows[booking] if row.start <= at < row.end]
            gpus = [gpu for row in there for gpu in row.gpus]
            if len(gpus) != promise.units or len(set(gpus)) != len(gpus):
                said.append(f"{promise.name} holds {sorted(gpus)} at {at}, promised {promise.units} units")
            if promise.within == "node" and len({row.node for row in there}) != 1:
                said.append(f"{promise.name} is not within one node at {at}")
    return said


def wrong_now(promises: Mapping[str, Promise], owner: psycopg.Connection, now: datetime) -> list[str]:
    """Whether at this very instant the live holds are those of the bookings whose window it lies in, unit by unit."""
    rows = owner.execute(
        """SELECT booking_id::text, sum(upper(r) - lower(r)) / 64 FROM holds, unnest(units) r
            WHERE live AND during @> %s GROUP BY booking_id""",
        [now],
    )
    held = {booking: int(units) for booking, units in rows}
    wanted = {b: p.units for b, p in promises.items() if p.start <= now < p.end}
    return [] if held == wanted else [f"at {now} held and promised differ: {set(held.items()) ^ set(wanted.items())}"]


def overlaps(holds: Iterable[HoldRow]) -> list[str]:
    """Every two holds of one GPU whose times overlap."""
    by_gpu: dict[int, list[tuple[datetime, datetime, str]]] = {}
    for hold in holds:
        for gpu in hold.gpus:
            by_gpu.setdefault(gpu, []).append((hold.start, hold.end, hold.booking))
    said = []
    for gpu, times in by_gpu.items():
        reached, by = None, ""
        for start, end, booking in sorted(times):
            if reached is not None and start < reached:
                said.append(f"GPU {gpu} is held by {by} and {booking} at {start}")
            if reached is None or end > reached:
                reached, by = end, booking
    return said


def peak(promises: Iterable[Promise]) -> int:
    """The most units promised at one instant; what ends at an instant is gone before what begins then."""
    steps = sorted([(p.end, 0, -p.units) for p in promises] + [(p.start, 1, p.units) for p in promises])
    most = level = 0
    for _, _, units in steps:
        level += units
        most = max(most, level)
    return most


def unit_hours(promises: Iterable[Promise]) -> Fraction:
    """Units x length of all, exactly."""
    return sum((Fraction(p.units * p.seconds, 3600) for p in promises), Fraction(0))


def wrong_bookings(promises: Mapping[str, Promise], listed: Iterable[Mapping[str, Any]]) -> list[str]:
    """Whether the API lists exactly what was promised, provided from the first second on, over, and charged as quoted."""
    said, seen = [], set()
    for item in listed:
        promise = promises.get(item["uuid"])
        if promise is None:
            said.append(f"{item['number']} is listed and was never promised")
            continue
        seen.add(item["uuid"])
        times = [datetime.fromisoformat(item[word]) if item[word] else None for word in ("start", "end", "provided_at")]
        wanted = [promise.start, promise.end, promise.start]
        if times != wanted or (item["units"], item["within"]) != (promise.units, promise.within):
            said.append(f"{promise.name} was promised {promise}, the API says {item}")
        if (item["state"], item["outcome"]) != ("ENDED", "completed"):
            said.append(f"{promise.name} is {item['state']}, {item['outcome']}")
        if item["charged"]["amount"] != item["price"]["amount"] or item["price"]["amount"] != promise.price:
            said.append(f"{promise.name}: promised {promise.price}, price {item['price']}, charged {item['charged']}")
    said += [f"{p.name} is not listed" for booking, p in promises.items() if booking not in seen]
    return said


def ask_oracle(folder: Path, prices: Any, bookings: Any, statements: Any, zone: str, currency: str) -> tuple[Any, str]:
    """The independent bill of these answers of the API, and what it finds different ("" when nothing is)."""
    files = {"prices": prices, "bookings": bookings, "statements": statements}
    for name, document in files.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    words = [word for name in files for word in (f"--{name}", str(folder / f"{name}.json"))]
    done = subprocess.run(
        [sys.executable, str(ORACLE), *words, "--zone", zone, "--currency", currency],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return json.loads(
        done.stdout
    ), "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def _gpus(ranges: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    gpus: list[int] = []
    for lower, upper in ranges:
        if lower % POSITIONS or upper % POSITIONS:
            raise ValueError(f"positions {lower} to {upper} are not whole GPUs")
        gpus += range(lower // POSITIONS, upper // POSITIONS)
    return tuple(gpus)
