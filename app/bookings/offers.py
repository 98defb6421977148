"""Finds what could be booked: reads pools, prices, quotas and holds, and lets the pure files decide. Writes nothing.

`Desk` is one question's reading room: the project, the instant, and what was read so far, so that the alternatives of a
refusal ask the database once. Without locks an offer is a guess; `actions.book` makes it again under locks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from uuid import UUID
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo

from app.bookings import gaps, ground, policies, queries, rules, rules_load, waits, wanted
from app.bookings.capacity import Busy, NodeUnits, PoolSnapshot, Shape
from app.bookings.earliest import Prepared, prepare
from app.bookings.facts import PriceSegment, Project
from app.bookings.gaps import soonest
from app.bookings.ground import Site
from app.bookings.host import HostUse, uncovered
from app.bookings.open_projects import closed
from app.bookings.placement import NoPlace, Placement, place
from app.bookings.queries_power import power_of
from app.bookings.recolour import Moved, Rearranged
from app.bookings.rules_load import Approval
from app.bookings.schemas import Ask
from app.inventory import queries as inventory
from app.inventory.facts import Pool, PoolCapacity
from app.kernel import ids
from app.kernel.actor import Actor
from app.kernel.errors import Forbidden, Reason, Refusal, Refused
from app.kernel.window import Window
from app.plumbing.db import PRODUCT_NOW, Work
from app.pricing import queries as pricing
from app.pricing.rules import Cost, Price, Segment, cost, schedule
from app.quotas import queries as quotas
from app.quotas.rules import Piece, QuotaEffect, Scope, check, months_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EVER = timedelta(days=3653)
_STATIC: WeakKeyDictionary[PoolCapacity, tuple[PoolSnapshot, str, list[int]]] = WeakKeyDictionary()
_PREPARED: WeakKeyDictionary[PoolCapacity, tuple[bytes, Prepared]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Offer:
    """One pool that could serve the request: when, where, for how much, and whether somebody has to approve it."""

    pool: Pool
    window: Window
    placement: Placement
    segments: tuple[Segment, ...]
    cost: Cost
    starts_now: bool
    approval: Approval | None = None
    moves: tuple[Moved, ...] = ()

    @property
    def prices(self) -> tuple[PriceSegment, ...]:
        """The schedule as a booking freezes it."""
        return tuple(PriceSegment(s.window, s.price_id, s.per_hour) for s in self.segments)


@dataclass(frozen=True, slots=True)
class Quote:
    """An offer with its effect on quota: what is shown before anything is promised."""

    ask: Ask
    project: Project
    offer: Offer
    effects: tuple[QuotaEffect, ...]
    node_names: tuple[tuple[str, int], ...]
    place: str
    energy_kwh: Decimal | None
    terms: tuple[str, ...]
    digest: str


@dataclass(slots=True)
class Desk:
    """What is read for one question; `now` is the product clock when it began. Nothing is read twice: whoever decides
    under locks takes a new one."""

    work: Work
    actor: Actor
    project: Project
    now: datetime
    person: UUID | None = None
    """Whose limits count beside the project's and the tenant's; None: nobody's."""
    leaving: UUID | None = None
    """A booking that gives up its place and its hours: they count as free."""
    gives_way: bool = False
    """Whether holds that have not started may be moved for the answer."""
    _prices: dict[str | None, tuple[Price, ...]] = field(default_factory=dict)
    _scopes: dict[str, tuple[Scope, ...]] = field(default_factory=dict)
    _pools: tuple[Pool, ...] | None = None
    _ready: dict[int, Prepared] = field(default_factory=dict)
    _held: dict[tuple[int, Window], PoolSnapshot] = field(default_factory=dict)

    @property
    def zone(self) -> ZoneInfo:
        """The zone of billing days."""
        return ZoneInfo(self.project.zone)

    def segments(self, kind: str, window: Window) -> tuple[Segment, ...] | None:
        """The price schedule of a kind by what is published now."""
        known = self._prices.get(kind) or self._prices.get(None)
        if known is None:
            kinds = sorted({p.kind for p in self.pools()} | {kind})
            known = self._prices[None] = pricing.price_list(
                self.work, self.project.price_group, self.project.currency, kinds, self.now
            )
        return schedule(known, kind, window, self.now)

    def know_prices(self, kind: str | None, rows: list[tuple]) -> None:
        """Take in the rows of TENANT_PRICES for a kind (None: all), read by somebody else."""
        self._prices[kind] = tuple(Price(*row) for row in rows)

    def scopes(self, kind: str) -> tuple[Scope, ...]:
        """The limits that a booking of this kind counts in."""
        if kind not in self._scopes:
            self._scopes[kind] = quotas.scopes_for(
                self.work, self.project.tenant_id, self.project.id, self.person, [kind]
            )
        return self._scopes[kind]

    def pools(self) -> tuple[Pool, ...]:
        """Every pool, in order of their ids, each with the policy that counts for the project."""
        if self._pools is None:
            words = self.work.pg.execute(policies.OVERRIDES, [None, self.project.id]).fetchall()
            self._pools = policies.laid_over(inventory.pools_for(self.work, None, None), words)
        return self._pools

    def ready(self, capacity: PoolCapacity) -> Prepared:
        """A pool with all that is held from now on, for searching."""
        if capacity.pool_id not in self._ready:
            self._ready[capacity.pool_id] = prepared(self.work, capacity, self.now, self.leaving)
        return self._ready[capacity.pool_id]

    def held(self, capacity: PoolCapacity, window: Window) -> PoolSnapshot:
        """A pool with what is held of it in a window, from now on at the earliest."""
        if capacity.pool_id in self._ready:  # all of it has been read already
            return self._ready[capacity.pool_id].pool
        key = (capacity.pool_id, window)
        if key not in self._held:
            self._held[key] = with_holds(self.work, capacity, window, self.leaving)
        return self._held[key]


def open_desk(work: Work, actor: Actor, project: str, kind: str | None = None, *, for_another: bool = False) -> Desk:
    """The project, if the actor may book in it, with all pools and, when a kind is named, its prices: one round trip.

    `for_another`: it will be somebody else's booking and counts in no person's limits. Raises Refused (422) for an
    unknown project, Forbidden for a mere viewer.
    """
    if not actor.may("book"):
        raise Forbidden("scope_missing", "This token may not book: it lacks the scope book.")
    named = [project, ids.parse(ids.PROJECT, project)]
    projects, clock, pools, words, prices = work.together(
        (queries.PROJECT, named),
        (PRODUCT_NOW, None),
        (inventory.POOLS, {"kind": None, "cluster": None}),
        (policies.OVERRIDES, named),
        (pricing.TENANT_PRICES, [kind, kind]),
    )
    found = Project(*projects[0]) if projects else None
    if found is None or not actor.sees_project(found.id):
        raise Refused(Refusal((rules.unknown("project", project, (), "project"),)))
    if not actor.books_in(found.id):
        raise Forbidden("role_missing", f"You may look at {found.name} but not book in it. Ask a lead of the project.")
    now = work.product_now_of(clock)
    over = closed(found, now)
    if over is not None:
        raise Refused(Refusal((over,)))
    desk = Desk(work, actor, found, now, None if for_another else actor.account_id)
    desk._pools = policies.laid_over(inventory.pools_of(pools), words)
    desk.know_prices(kind, prices)
    return desk


def pools_asked(desk: Desk, ask: Ask) -> tuple[Pool, ...]:
    """The pools that the request names, by cluster and kind. Raises Refused (422) for unknown names."""
    every = desk.pools()
    kinds, clusters = {p.kind for p in every}, {p.cluster for p in every}
    # who asks for any unit gets a whole one: slices are given to who names them
    whole = {p.kind for p in every if p.slice_of is None}
    if ask.memory_gb is not None or ask.or_better:
        known = inventory.kinds(desk.work)
        serving = wanted.kinds_for(ask, {slug: known[slug] for slug in whole | {*ask.kinds, ask.kind} & kinds})
    else:
        serving = frozenset(ask.kinds or whole) if ask.kind is None else frozenset({ask.kind})
    unknown = [slug for slug in ask.kinds if slug not in kinds]
    pools = tuple(p for p in every if p.writes and p.kind in serving and ask.cluster in (None, p.cluster))
    if pools and not unknown:
        # closed pools are named only where there is no other
        return tuple(p for p in pools if p.policy.may_book) or pools
    reasons = [rules.unknown("kind", slug, sorted(kinds), "kinds") for slug in unknown]
    if ask.kind is not None and ask.kind not in kinds:
        reasons.append(rules.unknown("kind", ask.kind, sorted(kinds), "kind"))
    if ask.memory_gb is not None and not serving:
        most = max((known[slug].memory_gb or 0 for slug in kinds), default=0)
        reasons.append(
            Reason("no_such_memory", f"No unit has {ask.memory_gb} GB of memory.", f"{most} GB", f"{ask.memory_gb} GB",
                   "Ask for less memory in a unit, or for more units.", "memory_gb", True)
        )  # fmt: skip
    if ask.cluster is not None and ask.cluster not in clusters:
        reasons.append(rules.unknown("cluster", ask.cluster, sorted(clusters), "cluster"))
    if not reasons:
        what = f"{ask.kind or 'a unit'} on {ask.cluster}" if ask.cluster else (ask.kind or "any unit")
        fix = "Choose another kind or cluster."
        reasons.append(Reason("nothing_offered", f"Nobody can book {what} now.", None, what, fix, "kind"))
    raise Refused(Refusal(tuple(reasons)))


def snapshot(work: Work, capacity: PoolCapacity, leaving: UUID | None = None) -> tuple[PoolSnapshot, str, list[int]]:
    """A pool without holds, the positions of its units as a multirange, its node ids: kept while the capacity stands.
    Where power budgets are set it knows what is drawn of them now, but by the booking `leaving`."""
    kept = _STATIC.get(capacity)
    if kept is None:
        nodes = [NodeUnits(n.node_id, tuple(n.units), n.offered, n.rack, n.leaf, n.nvlink) for n in capacity.nodes]
        taken = Busy.of_rows(capacity.taken)
        if capacity.hosts:
            taken = taken.plus(*_without_host(capacity, nodes))
        pool = PoolSnapshot.of(capacity.pool_id, capacity.cluster_id, capacity.kind, nodes, taken)
        positions = queries.multirange(r for n in capacity.nodes for r in n.units)
        kept = _STATIC[capacity] = (pool, positions, [n.node_id for n in capacity.nodes])
    if capacity.budgets:
        return kept[0].under(power_of(work, capacity, leaving)), *kept[1:]
    return kept


def _without_host(capacity: PoolCapacity, nodes: list[NodeUnits]) -> Iterator[Busy]:
    """Units whose share of their node's CPU or memory is external use's."""
    for node in nodes:
        mine = [h for h in capacity.hosts if h.node_id == node.node_id]
        if mine:
            uses = [HostUse(h.cpu_milli, h.memory_mib, h.units, h.start, h.end) for h in mine]
            yield uncovered(node, mine[0].all_cpu_milli, mine[0].all_memory_mib, uses)


def positions_of(offer: Offer) -> str:
    """The units of an offer as the text of a multirange."""
    return queries.multirange(r for p in offer.placement.parts for r in p.positions)


def with_holds(work: Work, capacity: PoolCapacity, window: Window, leaving: UUID | None = None) -> PoolSnapshot:
    """The pool with what is held of it in a window, by others than the booking `leaving`."""
    pool, positions, _ = snapshot(work, capacity, leaving)
    if leaving is not None:
        return pool.with_busy(queries.taken_by_others(work, positions, window, leaving).plus(pool.busy))
    return pool.with_busy(queries.taken(work, positions, window).plus(pool.busy))


def with_others_moved(
    desk: Desk, pool: Pool, capacity: PoolCapacity, shape: Shape, window: Window, why: NoPlace
) -> Rearranged | NoPlace:
    """A place that is there once holds that have not started give way; `why` when that is of no use."""
    if why.never or why.power is not None:
        return why
    site = Site(snapshot(desk.work, capacity, desk.leaving)[0], desk.now, _gap(pool))
    return ground.place_anyhow(desk.work, site, shape, window, desk.leaving)


def prepared(work: Work, capacity: PoolCapacity, now: datetime, leaving: UUID | None = None) -> Prepared:
    """The pool with all that is held from now on, sorted for searching; kept while the holds stay the same."""
    pool, positions, nodes = snapshot(work, capacity, leaving)
    if leaving is not None:
        others = queries.taken_by_others(work, positions, Window(now, now + _EVER), leaving)
        return prepare(pool.with_busy(others.plus(pool.busy)))
    held = queries.taken_from(work, nodes, now)
    mark = hashlib.blake2b(digest_size=16)
    for column in (held.lower, held.upper, held.start, held.end):
        mark.update(column.tobytes())
    if pool.power is not None:
        for column in (pool.power.draws.start, pool.power.draws.end, pool.power.draws.watts):
            mark.update(column.tobytes())
    kept = _PREPARED.get(capacity)
    if kept is None or kept[0] != mark.digest():
        kept = _PREPARED[capacity] = (mark.digest(), prepare(pool.with_busy(held.plus(pool.busy))))
    return kept[1]


def find_offers(desk: Desk, ask: Ask, pools: tuple[Pool, ...]) -> Iterator[Offer | tuple[Pool, tuple[Reason, ...]]]:
    """Offers in the order in which they would be taken; for a pool that cannot serve, why not.

    Exact start: by price, then kind, then pool. As soon as possible: by start first.
    """
    capacities = inventory.capacity_of(desk.work, pools)
    if ask.start is not None:
        yield from _exact(desk, ask, pools, capacities)
    else:
        yield from _soonest(desk, ask, pools, capacities)


def _exact(desk: Desk, ask: Ask, pools, capacities) -> Iterator[Offer | tuple[Pool, tuple[Reason, ...]]]:
    assert ask.start is not None
    priced = []
    for pool in pools:
        reasons = rules.check_open(pool.policy, pool.kind, pool.cluster)
        reasons += rules.check_length(ask.length, pool.policy) + rules.check_start(ask.start, pool.policy, desk.now)
        if ask.length <= timedelta(0):
            yield pool, tuple(reasons)
            continue
        # what lies in the past is refused for that; all else is judged as if it began now
        start = desk.now if any(r.code == "start_in_past" for r in reasons) else ask.start
        window = Window(start, start + ask.length)
        reasons += rules.check_horizon(window.end, pool.policy, desk.now)
        segments = desk.segments(pool.kind, window)
        if segments is None:
            reasons.append(rules.no_price(pool.kind, desk.project.price_group))
        priced.append((pool, window, segments, reasons))
    total, currency = ask.shape.total, desk.project.currency
    costs = {p.id: cost(s, total, currency, p.share840) for p, _, s, _ in priced if s is not None}
    priced.sort(
        key=lambda row: (
            ask.or_better and row[0].kind != ask.kind,  # another kind only where the one named does not do
            row[0].id not in costs,
            costs[row[0].id].amount if row[0].id in costs else 0,
            row[0].kind,
            row[0].id,
        )
    )
    for pool, window, segments, reasons in priced:
        held = desk.held(capacities[pool.id], _blocked(window, pool))
        found, moves = place(gaps.neat(held, window, pool.policy, desk.now), ask.shape, window, _gap(pool)), ()
        left = gaps.slivers(held, window, pool.policy, desk.now)
        if left and isinstance(found, NoPlace) and isinstance(place(held, ask.shape, window, _gap(pool)), NoPlace):
            left = ()  # it is not for the slivers that it does not fit
        if isinstance(found, NoPlace) and left:
            reasons = [*reasons, gaps.check_gap(left[0], pool.policy)]
            yield pool, tuple(reasons)
            continue
        if isinstance(found, NoPlace) and desk.gives_way and not reasons and not pool.policy.min_gap:
            anyhow = with_others_moved(desk, pool, capacities[pool.id], ask.shape, window, found)
            found, moves = (anyhow, ()) if isinstance(anyhow, NoPlace) else (anyhow.placement, anyhow.moves)
        if isinstance(found, NoPlace):
            reasons = [*reasons, rules.no_place(found, pool.kind, pool.cluster)]
        if reasons or segments is None or isinstance(found, NoPlace):
            yield pool, tuple(reasons)
        else:
            price = costs[pool.id]
            needed = approval_of(desk, pool, window, price, ask.shape.total)
            if needed is not None and waits.answer_by(desk.now, window.start, pool.policy) is None:
                yield pool, (waits.no_time_to_ask(needed.who, window.start, desk.now),)
                continue
            yield Offer(pool, window, found, segments, price, starts_now=False, approval=needed, moves=moves)


def _soonest(desk: Desk, ask: Ask, pools, capacities) -> Iterator[Offer | tuple[Pool, tuple[Reason, ...]]]:
    found: list[tuple[datetime, bool, Decimal, str, int, Offer]] = []
    for pool in pools:
        reasons = rules.check_open(pool.policy, pool.kind, pool.cluster) + rules.check_length(ask.length, pool.policy)
        if ask.length <= timedelta(0):
            yield pool, tuple(reasons)
            continue
        reasons += wanted.check_between(ask, pool.policy, desk.now)
        first, until = wanted.bounds(ask, pool.policy, desk.now)
        ready = desk.ready(capacities[pool.id])
        start = soonest(ready, ask.shape, ask.length, first, until, _gap(pool), rest=(pool.policy, desk.now))
        if start is None:
            probe = place(ready.pool, ask.shape, Window(desk.now, desk.now + ask.length), _gap(pool))
            if isinstance(probe, NoPlace) and probe.never:
                reasons.append(rules.no_place(probe, pool.kind, pool.cluster))
            elif not any(r.in_request for r in reasons):  # else there was no time to look for
                reasons.append(rules.no_start(ask.shape, pool.kind, pool.cluster, until))
            yield pool, tuple(reasons)
            continue
        window = Window(start, start + ask.length)
        segments = desk.segments(pool.kind, window)
        if segments is None:
            reasons.append(rules.no_price(pool.kind, desk.project.price_group))
        placed = place(gaps.neat(ready.pool, window, pool.policy, desk.now), ask.shape, window, _gap(pool))
        if reasons or segments is None or isinstance(placed, NoPlace):
            yield pool, tuple(reasons)
            continue
        price = cost(segments, ask.shape.total, desk.project.currency, pool.share840)
        needed = approval_of(desk, pool, window, price, ask.shape.total)
        if needed is not None and start < waits.first_asked(desk.now, pool.policy):
            later = _soonest_asked(desk, ask, pool, ready, max(first, waits.first_asked(desk.now, pool.policy)), until)
            if isinstance(later, Reason):
                yield pool, (later,)
                continue
            window, placed, segments, price, needed = later
            start = window.start
        offer = Offer(pool, window, placed, segments, price, starts_now=start == desk.now, approval=needed)
        other = ask.or_better and pool.kind != ask.kind
        found.append((start, other, price.amount, pool.kind, pool.id, offer))
    yield from (row[-1] for row in sorted(found, key=lambda row: row[:-1]))


def _soonest_asked(
    desk: Desk, ask: Ask, pool: Pool, ready: Prepared, first: datetime, until: datetime
) -> tuple[Window, Placement, tuple[Segment, ...], Cost, Approval | None] | Reason:
    """The first place that leaves somebody time to approve it."""
    start = soonest(ready, ask.shape, ask.length, first, until, _gap(pool), rest=(pool.policy, desk.now))
    if start is None:
        return rules.no_start(ask.shape, pool.kind, pool.cluster, until)
    window = Window(start, start + ask.length)
    neat = gaps.neat(ready.pool, window, pool.policy, desk.now)
    placed, segments = place(neat, ask.shape, window, _gap(pool)), desk.segments(pool.kind, window)
    if segments is None:
        return rules.no_price(pool.kind, desk.project.price_group)
    assert not isinstance(placed, NoPlace)
    price = cost(segments, ask.shape.total, desk.project.currency, pool.share840)
    return window, placed, segments, price, approval_of(desk, pool, window, price, ask.shape.total)


def limits_of(
    desk: Desk,
    pool: Pool,
    account_id: UUID | None,
    scopes: tuple[Scope, ...],
    asked: tuple[Piece, ...],
    window: Window,
    leaving: UUID | None = None,
) -> tuple[tuple[Reason, ...], tuple[QuotaEffect, ...]]:
    """What the quotas and the pool's own limits say to these pieces more for a person, without the booking `leaving`.

    Right only under the locks of the scopes and of the pool.
    """
    standing = quotas.standings(
        desk.work, desk.project.tenant_id, scopes, window, months_of(asked), desk.zone, desk.now, leaving
    )
    reasons, effects = check(standing, asked)
    rate = max((p.rate for p in asked), default=0)
    over = policies.over_load(desk.work, pool, desk.project.id, account_id, rate, window, desk.now, leaving)
    ends = closed(desk.project, desk.now, window.end)
    return (*reasons, *over, *([] if ends is None else [ends])), effects


def approval_of(desk: Desk, pool: Pool, window: Window, price: Cost, units: int) -> Approval | None:
    """Who has to approve so many units over a window at that price, by the pool's policy."""
    hours = Fraction(units * window.seconds * pool.share840, 3600 * 840)
    return rules_load.approval_needed(pool.policy, hours, price.amount, price.currency, desk.actor, desk.project.id)


def _gap(pool: Pool) -> int:
    return int(pool.policy.gap.total_seconds())


def _blocked(window: Window, pool: Pool) -> Window:
    """The time of which must be known what is held: with the cleaning after it, and the least time beside it."""
    rest = pool.policy.min_gap
    return Window(window.start - rest, window.end + pool.policy.gap + rest)
