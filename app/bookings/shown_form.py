"""Fills the form of the Book page: what can be chosen, what it costs and is free now, and when else a request fits.

On the floor of pages, beside shown.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from app.accounts.queries import ProjectSeen
from app.bookings import offers, rules
from app.bookings.earliest import Grid, free_profile, free_starts
from app.bookings.form import BookFields
from app.bookings.offers import Desk
from app.bookings.schemas import Ask
from app.bookings.shown import fresh_key
from app.inventory import queries as inventory
from app.inventory.facts import Cluster, Kind, Pool, PoolCapacity
from app.kernel.errors import Refused
from app.kernel.window import Window
from app.plumbing.db import Work
from app.pricing import queries as pricing
from app.pricing.rules import cost, schedule
from app.web import words
from app.web.views import booking as views
from app.web.views.parts import Money, Option

_SECOND = timedelta(seconds=1)
_ANCHORS = (8, 13, 18)
"""Local hours near which people like to start: the other starts on offer are looked for from there."""

# --- the form ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shelf:
    """What can be booked: pools, kinds and clusters, the price of a unit-hour now, and how much is free now."""

    pools: tuple[Pool, ...]
    kinds: Mapping[str, Kind]
    clusters: tuple[Cluster, ...]
    prices: Mapping[str, Money]
    free: Mapping[int, int]
    """Free units by pool, now."""
    sizes: Mapping[int, int]
    """Units that are offered, by pool."""

    @property
    def offered(self) -> tuple[str, ...]:
        """Slugs of the kinds that can be booked, those with a price first, then by name."""
        slugs = {pool.kind for pool in self.pools}
        return tuple(sorted(slugs, key=lambda slug: (slug not in self.prices, self.kinds[slug].name)))


def read_shelf(work: Work, price_group: str, currency: str, now: datetime) -> Shelf:
    """Read it; without locks, for showing."""
    pools = tuple(pool for pool in inventory.pools_for(work) if pool.writes)
    slugs = sorted({pool.kind for pool in pools})
    listed = pricing.price_list(work, price_group, currency, slugs, now)
    prices = {}
    for slug in slugs:
        segments = schedule(listed, slug, Window(now, now + _SECOND), now)
        if segments is not None:
            # prices are per GPU-hour; a slice pays its share
            share = next(pool.share840 for pool in pools if pool.kind == slug)
            prices[slug] = Money(segments[0].per_hour * share / 840, currency)
    capacities = inventory.capacity_of(work, pools)
    moment = Window(now, now + _SECOND)
    held = {pool.id: offers.with_holds(work, capacities[pool.id], moment) for pool in pools}
    free = {pool_id: int(free_profile(pool, now, 1, _SECOND)[0]) for pool_id, pool in held.items()}
    sizes = {pool_id: len(pool.unit_lower) for pool_id, pool in held.items()}
    return Shelf(pools, inventory.kinds(work), inventory.clusters(work), prices, free, sizes)


def book_form(
    work: Work,
    shelf: Shelf,
    projects: Iterable[ProjectSeen],
    fields: BookFields,
    zone: ZoneInfo,
    errors: Mapping[str, str],
) -> views.BookForm:
    """The form with what was typed, or with its defaults."""
    pool = next((p for p in shelf.pools if p.kind == fields.kind), shelf.pools[0] if shelf.pools else None)
    return views.BookForm(
        projects=tuple(Option(p.slug, p.name, p.slug == fields.project) for p in projects),
        kinds=(*(_kind_choice(shelf, slug, fields.kind) for slug in shelf.offered),
               views.KindChoice("any", "Any kind", None, "the cheapest that fits", fields.kind == "any")),
        clusters=(Option("", "Any that fits", not fields.cluster),
                  *(Option(name, name, name == fields.cluster) for name in sorted({p.cluster for p in shelf.pools}))),
        idempotency_key=fresh_key(),
        name=fields.name,
        shape="nodes" if fields.shape == "nodes" else "units",
        nodes=fields.nodes,
        per_node=fields.per_node,
        units=fields.units,
        within=_level(fields.within or fields.near),
        prefer=bool(fields.prefer or (fields.near and not fields.within)),
        kinds_only=fields.kinds,
        memory_gb=fields.memory_gb,
        or_better=bool(fields.or_better),
        when=fields.when if fields.when in ("exact", "between") else "asap",  # type: ignore[arg-type]
        start=_local_text(fields.start, zone),
        earliest=_local_text(fields.earliest, zone),
        latest=_local_text(fields.latest, zone),
        hours=fields.hours,
        cost_center=fields.cost_center,
        reference=fields.reference,
        limits_hint="" if pool is None else _limits_hint(pool),
        within_hint="" if pool is None else _within_hint(work, pool),
        workloads=_workloads(shelf, fields.workload),
        errors=errors,
    )  # fmt: skip


def _kind_choice(shelf: Shelf, slug: str, chosen: str) -> views.KindChoice:
    pools = [pool for pool in shelf.pools if pool.kind == slug]
    free = {pool.cluster: 0 for pool in pools}
    for pool in pools:
        free[pool.cluster] += shelf.free[pool.id]
    some = sorted(name for name, units in free.items() if units)
    hint = f"{words.number(sum(free.values())) if some else 'none'} free now on {_and(some or sorted(free))}"
    if slug not in shelf.prices:
        hint = "no price is published, so it cannot be booked"
    return views.KindChoice(slug, shelf.kinds[slug].name, shelf.prices.get(slug), hint, slug == chosen)


def _limits_hint(pool: Pool) -> str:
    policy = pool.policy
    least, most = rules.length_text(policy.min_length), rules.length_text(policy.max_length)
    return f"In steps of {rules.length_text(policy.grid)}, {least} to {most}."


def _within_hint(work: Work, pool: Pool) -> str:
    """How large the domains of the chosen kind are, where the cluster says."""
    nodes = inventory.capacity_of(work, [pool])[pool.id].nodes
    said = []
    for level, name in (("nvlink", "an NVLink domain"), ("leaf", "a leaf switch"), ("rack", "a rack")):
        sizes: dict[str, int] = {}
        for node in nodes:
            value = getattr(node, level)
            if value is not None:
                sizes[value] = sizes.get(value, 0) + 1
        if sizes:
            said.append(f"{name} has {_up_to(sizes.values(), 'node')}")
    return f"On {pool.cluster} a node has {', '.join([_up_to((len(n.units) for n in nodes), 'unit'), *said])}."


def _up_to(sizes: Iterable[int], what: str) -> str:
    sizes = set(sizes)
    return f"{'up to ' if len(sizes) > 1 else ''}{words.count(max(sizes, default=0), what)}"


def _workloads(shelf: Shelf, chosen: str) -> tuple[Option, ...]:
    """What a cluster can start by itself; nothing where none can."""
    if not any(((c.probe or {}).get("capabilities") or {}).get("launch") for c in shelf.clusters):
        return ()
    simulated = any(c.backend == "simulated" for c in shelf.clusters)
    choices = (
        ("default", "A training run" if simulated else "What the pool starts by itself"),
        ("none", "Nothing, I start it myself"),
        ("notebook", "A notebook"),
        ("inference", "An inference server"),
    )
    return tuple(Option(value, label, value == (chosen or "default")) for value, label in choices)


def _local_text(text: str, zone: ZoneInfo) -> str:
    """A start as the form's own field wants it: local, without an offset. What cannot be read stays as typed."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return text
    local = instant.astimezone(zone).replace(tzinfo=None) if instant.tzinfo else instant
    return local.isoformat(timespec="seconds" if local.second else "minutes")


def _level(text: str) -> Literal["", "node", "nvlink", "leaf", "rack"]:
    return text if text in ("node", "nvlink", "leaf", "rack") else ""  # type: ignore[return-value]


def _and(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


# --- when else --------------------------------------------------------------------------------------------------------


def other_starts(
    desk: Desk, ask: Ask, fields: BookFields, after: datetime, zone: ZoneInfo, most: int = 6
) -> tuple[views.StartOption, ...]:
    """A handful of later starts at which it fits, near the hours at which people like to start, cheapest kind first."""
    try:
        pools = offers.pools_asked(desk, ask)[:4]
    except Refused:
        return ()
    capacities = inventory.capacity_of(desk.work, pools)
    found: dict[datetime, views.StartOption] = {}
    for anchor in _anchors(after, zone, 3 * most):
        best = min(filter(None, (_start_in(desk, ask, fields, pool, capacities[pool.id], anchor) for pool in pools)),
                   key=lambda option: (option.start, option.price.amount), default=None)  # fmt: skip
        if best is None:
            break  # nothing fits from here on, so nothing fits later
        if best.start > after:
            found.setdefault(best.start, best)
        if len(found) == most:
            break
    return tuple(found[start] for start in sorted(found))


def _anchors(after: datetime, zone: ZoneInfo, most: int) -> Iterator[datetime]:
    day, found = after.astimezone(zone).date(), 0
    while found < most:
        for hour in _ANCHORS:
            instant = datetime(day.year, day.month, day.day, hour, tzinfo=zone).astimezone(UTC)
            if instant > after:
                found += 1
                yield instant
        day += timedelta(days=1)


def _start_in(
    desk: Desk, ask: Ask, fields: BookFields, pool: Pool, capacity: PoolCapacity, anchor: datetime
) -> views.StartOption | None:
    policy = pool.policy
    if rules.check_length(ask.length, policy):
        return None
    ready = offers.prepared(desk.work, capacity, desk.now)
    grid, gap = Grid(int(policy.grid.total_seconds()), offers.EPOCH), int(policy.gap.total_seconds())
    first = rules.snap_instant(max(anchor, desk.now + policy.lead), policy.grid)
    until, rest = desk.now + policy.horizon, (policy, desk.now)
    start = offers.soonest(ready, ask.shape, ask.length, first, until, gap, grid, rest)
    if start is None:
        return None
    window = Window(start, start + ask.length)
    segments = desk.segments(pool.kind, window)
    if segments is None:
        return None
    price = cost(segments, ask.shape.total, desk.project.currency, pool.share840)
    places = int(free_starts(ready, ask.shape, int(ask.length.total_seconds()), start, 1, policy.grid, gap)[0])
    chosen = fields.model_copy(update={"when": "exact", "start": start.isoformat()})
    said = {name: value for name, value in chosen.model_dump(exclude={"quote", "idempotency_key"}).items() if value}
    return views.StartOption(start, window.end, Money(price.amount, price.currency), f"/book?{urlencode(said)}", places)
