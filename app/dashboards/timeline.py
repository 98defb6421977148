"""The timeline: nodes by time, who has what, when enough is free. Others' bookings are busy time and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np

from app.bookings import offers
from app.bookings.capacity import Ints, PoolSnapshot, Shape, epoch, instant
from app.bookings.earliest import earliest
from app.dashboards import queries
from app.dashboards.cards import whole_nodes
from app.dashboards.queries import HeldRange, OwnBooking, Trouble
from app.inventory import queries as inventory
from app.inventory.facts import NodeCapacity, Pool, PoolCapacity
from app.kernel.actor import Actor
from app.kernel.window import Window, local_midnight
from app.plumbing.db import Work
from app.web import words
from app.web.views.booking import Bar, FreeStep, TimelineGroup, TimelinePage, TimelineRow
from app.web.views.parts import Link, Option

RANGES: dict[str, tuple[str, int, timedelta]] = {
    "day": ("Day", 1, timedelta(minutes=30)),
    "3d": ("3 days", 3, timedelta(hours=1)),
    "week": ("Week", 7, timedelta(hours=2)),
    "2w": ("2 weeks", 14, timedelta(hours=4)),
}
GROUPINGS = {"rack": "By rack", "leaf": "By leaf switch", "nvlink": "By NVLink domain", "kind": "By kind"}
_FEW_NODES = 48
"""Up to so many nodes the page holds all rows; beyond it a group's rows come when it is opened."""
_GROUP_NODES = 64
"""Nodes whose domain is not known are shown in groups of so many."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the person wants to see; names that do not exist have been replaced by what does."""

    cluster: str = ""
    kind: str = ""
    by: str = "rack"
    length: str = "week"
    first: date | None = None
    open: frozenset[str] = frozenset()

    def href(self, **changes: Any) -> str:
        """The page with something changed."""
        values = {
            "cluster": self.cluster,
            "kind": self.kind,
            "by": self.by,
            "range": self.length,
            "from": self.first.isoformat() if self.first else "",
        } | changes
        query = [(k, v) for k, v in values.items() if v]
        query += [("open", name) for name in sorted(changes.get("open", self.open)) if "open" not in values]
        return f"/timeline?{urlencode(query)}"


@dataclass(frozen=True, slots=True)
class _Node:
    """A node with its pool's kind, and its label's parts. `cut`: the profile, where its units are slices."""

    at: NodeCapacity
    kind: str
    group: str
    cut: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """A node that has whole GPUs and slices has a row for each kind."""
        return self.kind, self.at.node_id


def timeline(work: Work, actor: Actor, zone: ZoneInfo, asked: Asked) -> TimelinePage:
    """Fill the page. Read-only; two statements a table, whatever the number of nodes."""
    now = work.product_now()
    every = inventory.pools_for(work)
    names = sorted({pool.cluster for pool in every})
    cluster = asked.cluster if asked.cluster in names else (names[0] if names else "")
    pools = [p for p in every if p.cluster == cluster]
    kinds = {slug: kind.name for slug, kind in inventory.kinds(work).items()}
    kind = asked.kind if asked.kind in {p.kind for p in pools} else ""
    asked = Asked(cluster, kind, asked.by, asked.length, asked.first, asked.open)
    window, step = _window(asked, zone, now)
    shown = [p for p in pools if not kind or p.kind == kind]
    nodes, free, starts, free_now = _capacity(work, shown, asked.by, kinds, window, step, now)
    whole = free.sum(axis=0)
    units = sum(len(n.at.units) for n in nodes)
    day = asked.first or now.astimezone(zone).date()
    _, days, _ = RANGES[asked.length]
    return TimelinePage(
        sentence=_sentence(cluster, units, free_now) + _whole_sentence(work, shown, now, actor.zone),
        clusters=tuple(Link(name, asked.href(cluster=name, kind="", open=()), name == cluster) for name in names),
        kinds=(
            Option("", "All kinds", not kind),
            *(Option(slug, kinds[slug], slug == kind) for slug in sorted({p.kind for p in pools})),
        ),
        groupings=tuple(Option(value, label, value == asked.by) for value, label in GROUPINGS.items()),
        ranges=tuple(Link(label, asked.href(range=key), key == asked.length) for key, (label, _, _) in RANGES.items()),
        earlier=asked.href(**{"from": (day - timedelta(days=days)).isoformat()}),
        today=asked.href(**{"from": ""}),
        later=asked.href(**{"from": (day + timedelta(days=days)).isoformat()}),
        start=window.start,
        end=window.end,
        cluster=cluster,
        units=units,
        free=_steps(whole, starts, window),
        groups=_groups(work, actor, asked, nodes, free, starts, window, now),
        hidden=tuple(
            (name, value)
            for name, value in (
                ("cluster", cluster),
                ("range", asked.length),
                ("from", asked.first.isoformat() if asked.first else ""),
            )
            if value
        ),
    )


def _window(asked: Asked, zone: ZoneInfo, now: datetime) -> tuple[Window, timedelta]:
    """Whole local days: with a change of the clocks they are an hour shorter or longer."""
    _, days, step = RANGES[asked.length]
    first = asked.first or now.astimezone(zone).date()
    return Window(local_midnight(first, zone), local_midnight(first + timedelta(days=days), zone)), step


# --- capacity over time -----------------------------------------------------------------------------------------------


def _capacity(
    work: Work,
    pools: Sequence[Pool],
    by: str,
    kinds: dict[str, str],
    window: Window,
    step: timedelta,
    now: datetime,
) -> tuple[list[_Node], Ints, list[int], int]:
    """The nodes, for each of them how many units are free throughout each step, where the steps begin, and how many
    units are free at this instant."""
    starts = list(range(epoch(window.start), epoch(window.end), int(step.total_seconds())))
    nodes: list[_Node] = []
    by_id = {pool.id: pool for pool in pools}
    free, free_now = [np.zeros((0, len(starts)), np.int64)], 0
    for _, capacity in sorted(inventory.capacity_of(work, pools).items()):
        snapshot, _, ids = offers.snapshot(work, capacity)
        busy = queries.busy_in(work, ids, window, now)
        full = snapshot.with_busy(busy.plus(snapshot.busy))
        some = [i for i, node in enumerate(capacity.nodes) if node.units]  # a node that is all cut has no whole GPUs
        free.append(_free_by_node(full, starts, epoch(window.end))[some])
        if window.contains(now):
            free_now += int(_free_by_node(full, [epoch(now)], epoch(now) + 1).sum())
        else:
            free_now += _free_at(work, capacity, now)
        label = kinds[capacity.kind]
        pool = by_id[capacity.pool_id]
        cut = pool.kind.removeprefix(f"{pool.slice_of}-") if pool.slice_of else ""
        found = (capacity.nodes[i] for i in some)
        nodes += (_Node(node, label, _group_of(node, by, label), cut) for node in found)
    return nodes, np.concatenate(free), starts, free_now


def _free_by_node(pool: PoolSnapshot, starts: Sequence[int], end: int) -> Ints:
    """Units of each node (in the pool's order) that nothing takes throughout each step."""
    edges = np.array([*starts, end], np.int64)
    unit, since, until = pool.taken(int(edges[0]), end)
    first = np.clip(np.searchsorted(edges, since, side="right") - 1, 0, len(starts))
    last = np.clip(np.searchsorted(edges, until, side="left"), 0, len(starts))
    changes = np.zeros((len(pool.unit_lower), len(starts) + 1), np.int64)
    np.add.at(changes, (unit, first), 1)
    np.add.at(changes, (unit, last), -1)
    is_free = np.cumsum(changes, axis=1)[:, :-1] == 0
    free = np.zeros((len(pool.nodes), len(starts)), np.int64)
    np.add.at(free, pool.unit_node, is_free)
    return free


def _free_at(work: Work, capacity: PoolCapacity, at: datetime) -> int:
    """Units that nothing takes at an instant that lies outside of what is shown."""
    snapshot = offers.with_holds(work, capacity, Window(at, at + timedelta(seconds=1)))
    return int(_free_by_node(snapshot, [epoch(at)], epoch(at) + 1).sum())


def _steps(free: Ints, starts: Sequence[int], window: Window) -> tuple[FreeStep, ...]:
    """Steps of equal freedom made one: fewer rectangles, the same picture."""
    steps: list[FreeStep] = []
    ends = [*starts[1:], epoch(window.end)]
    for start, end, units in zip(starts, ends, (int(f) for f in free), strict=True):
        if steps and steps[-1].free == units:
            steps[-1] = FreeStep(steps[-1].start, instant(end), units)
        else:
            steps.append(FreeStep(instant(start), instant(end), units))
    return tuple(steps)


def _sentence(cluster: str, units: int, free: int) -> str:
    if not cluster:
        return "No cluster is connected yet."
    if not units:
        return f"{cluster} has no node of this kind."
    return f"{words.number(free)} of {words.number(units)} units of {cluster} are free now."


def _whole_sentence(work: Work, pools: Sequence[Pool], now: datetime, zone: str) -> str:
    """When a node is free as a whole: now, or from when for an hour at least."""
    capacities = inventory.capacity_of(work, pools)
    free = [(pool, offers.prepared(work, capacities[pool.id], now)) for pool in pools]
    whole = sum(whole_nodes((prepared for _, prepared in free), now).values())
    if whole:
        return f" {words.count(whole, 'node')} {'is' if whole == 1 else 'are'} free as a whole."
    starts = []
    for pool, prepared in free:
        size = int(prepared.pool.installed.max(initial=0))
        if size:
            shape = Shape(nodes=1, per_node=size)
            starts.append(earliest(prepared, shape, 3600, now, now + pool.policy.horizon))
    found = [start for start in starts if start is not None]
    return f" A whole node is free from {words.moment(min(found), zone, now)}." if found else ""


# --- groups and rows --------------------------------------------------------------------------------------------------


def _group_of(node: NodeCapacity, by: str, kind: str) -> str:
    if by == "kind":
        return kind
    value = getattr(node, by)
    head = {"rack": "Rack", "leaf": "Leaf", "nvlink": "NVLink"}[by]
    if value is None:
        return ""
    return value if value.lower().startswith(head.lower()) else f"{head} {value}"


def _groups(
    work: Work,
    actor: Actor,
    asked: Asked,
    nodes: list[_Node],
    free: Ints,
    starts: list[int],
    window: Window,
    now: datetime,
) -> tuple[TimelineGroup, ...]:
    members: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        members.setdefault(node.group, []).append(index)
    members = _with_unknown_split(members, nodes)
    everything = len(nodes) <= _FEW_NODES
    opened = [i for label, found in members.items() if everything or label in asked.open for i in found]
    rows = _rows(work, actor, [nodes[i] for i in opened], window, now)
    groups = []
    for position, (label, found) in enumerate(members.items()):
        of = [nodes[i].at for i in found]
        shown = tuple(rows[nodes[i].key] for i in found if nodes[i].key in rows)
        out = sum(len(n.units) - n.offered.bit_count() for n in of)
        groups.append(
            TimelineGroup(
                label=label,
                units=sum(len(n.units) for n in of),
                free=_steps(free[found].sum(axis=0), starts, window),
                rows=shown,
                note=f"{words.count(out, 'unit')} out" if out else words.count(len(found), "node"),
                bad=bool(out),
                open=bool(shown) and (label in asked.open or (everything and position < 3)),
                href=None if shown else asked.href(open=asked.open | {label}),
            )
        )
    return tuple(groups)


def _with_unknown_split(members: dict[str, list[int]], nodes: list[_Node]) -> dict[str, list[int]]:
    """Groups in order of their labels; nodes of no known domain in groups by name."""
    split = {label: members[label] for label in sorted(members, key=_natural) if label}
    loose = sorted(members.get("", ()), key=lambda i: nodes[i].at.name)
    for at in range(0, len(loose), _GROUP_NODES):
        part = loose[at : at + _GROUP_NODES]
        first, last = nodes[part[0]].at.name, nodes[part[-1]].at.name
        split[first if first == last else f"{first} – {last}"] = part
    return split


def _natural(label: str) -> list[tuple[int, int, str]]:
    """Rack 2 before rack 10."""
    parts, word, digits = [], "", ""
    for letter in label + "\0":
        if letter.isascii() and letter.isdigit():
            digits += letter
            continue
        if digits:
            parts += [(1, 0, word), (0, int(digits), "")]
            word = digits = ""
        word += letter
    return [*parts, (1, 0, word)]


def _rows(
    work: Work, actor: Actor, nodes: Sequence[_Node], window: Window, now: datetime
) -> dict[tuple[str, int], TimelineRow]:
    """A row for each node and kind."""
    ids = sorted({n.at.node_id for n in nodes})
    if not ids:
        return {}
    held = queries.held_ranges(work, ids, window, now)
    own = queries.own_bookings(work, held)
    bars: dict[tuple[str, int], list[Bar]] = {n.key: [] for n in nodes}
    by_id: dict[int, list[_Node]] = {}
    for node in nodes:
        by_id.setdefault(node.at.node_id, []).append(node)
    for one in held:
        for node in by_id[one.node_id]:
            bars[node.key] += _held_bars(node.at, one, own, actor, now)
    operator = bool(actor.platform_roles & {"operator", "auditor"})
    for trouble in queries.troubles(work, ids, window):
        for node in by_id[trouble.node_id]:
            bars[node.key] += _trouble_bars(node.at, trouble, window, operator)
    return {n.key: _row(n, tuple(sorted(bars[n.key], key=lambda b: (b.start, b.first)))) for n in nodes}


def _row(of: _Node, bars: tuple[Bar, ...]) -> TimelineRow:
    node = of.at
    units, offered = len(node.units), node.offered.bit_count()
    note = ""
    if node.state != "ready":
        note = {"down": "down", "drained": "drained", "unknown": "not observed"}[node.state]
    elif offered < units:
        note = f"{offered} of {units}"
    name = f"{node.name} {of.cut}" if of.cut else node.name
    return TimelineRow(name, max(units, 1), bars, note, bad=node.state == "down" or 0 < offered < units)


def _held_bars(
    node: NodeCapacity, held: HeldRange, own: dict[UUID, OwnBooking], actor: Actor, now: datetime
) -> list[Bar]:
    place = _place(node, held.lower, held.upper)
    if place is None:
        return []
    first, count = place
    start, end = instant(held.start), instant(held.end)
    owner = held.booking_id or held.request_id
    booking = own.get(owner) if owner is not None else None
    if booking is None or not actor.sees_project(booking.project_id):
        return [Bar("busy", start, end, first, count)]
    mine = actor.account_id is not None and booking.account_id == actor.account_id
    kind: Any = "mine" if mine else "project"
    if booking.state in ("REQUESTED", "WAITING") or held.request_id is not None:
        kind = "requested"
    # the cleaning gap after one's own booking is time in which nobody has the units
    shown_end = min(end, booking.ends_at) if booking.ends_at > start else end
    planned = not held.pinned and booking.state == "BOOKED" and start > now
    return [Bar(kind, start, shown_end, first, count, booking.name, f"/bookings/B-{booking.number}", planned)]


def _trouble_bars(node: NodeCapacity, trouble: Trouble, window: Window, operator: bool) -> list[Bar]:
    end = trouble.end or window.end
    if trouble.start >= end or (trouble.state == "external" and not trouble.ranges):
        return []
    kind: Any = {"external": "external", "drained": "maint", "maintenance": "maint"}.get(trouble.state, "faulty")
    words_for = {"external": "External use", "drained": "Drained", "down": "Down", "unknown": "Not observed"}
    label = (words_for | {"maintenance": "Maintenance"}).get(trouble.state, "Faulty")
    # what runs there is somebody's, and its name may say whose
    if trouble.why and (operator or trouble.state != "external"):
        label = f"{label}: {trouble.why}"
    if not trouble.ranges:
        return [Bar(kind, trouble.start, end, 0, max(len(node.units), 1), label)]
    places = (_place(node, lower, upper) for lower, upper in trouble.ranges)
    return [Bar(kind, trouble.start, end, first, count, label) for first, count in filter(None, places)]


def _place(node: NodeCapacity, lower: int, upper: int) -> tuple[int, int] | None:
    """Which of the node's units a range of positions touches: the first and how many; None for units it has no more."""
    touched = [i for i, unit in enumerate(node.units) if unit[0] < upper and lower < unit[1]]
    return (touched[0], touched[-1] - touched[0] + 1) if touched else None


def read_day(text: str) -> date | None:
    """A day of the address; None for none, or for what is no day."""
    try:
        day = date.fromisoformat(text) if text else None
    except ValueError:
        return None
    return day if day is not None and 2000 <= day.year <= 2200 else None
