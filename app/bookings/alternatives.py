"""What would work instead: up to three requests of different kinds that pass every rule as they stand.

Each candidate goes through the same search and the same rules as a booking; what is offered here can be posted unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from app.bookings import gaps, offers, rules, wanted
from app.bookings.capacity import Shape
from app.bookings.earliest import Grid, longest
from app.bookings.offers import Desk, Offer
from app.bookings.placement import NoPlace, place
from app.bookings.schemas import Ask
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.kernel.errors import Alternative, Refusal, Refused
from app.kernel.money import WHOLE
from app.kernel.window import Window
from app.pricing.rules import cost
from app.quotas.rules import pieces

MOST = 3
_TRIES = 24
"""How many candidates are looked at for one refusal: each costs a few reads."""


def explain(desk: Desk, ask: Ask, refused: Refused) -> Refused:
    """The same refusal with what would work instead."""
    found: dict[str, Alternative] = {}
    tried: set[Ask] = set()
    fewer: list[Ask] = []

    def look(candidates: Iterator[tuple[str, Ask]], tries: int) -> None:
        for kind_of_change, candidate in candidates:
            if len(found) == MOST or len(tried) >= tries:
                return
            if kind_of_change in found or candidate in tried:
                continue
            tried.add(candidate)
            offer = _possible(desk, candidate)
            if offer is not None:
                candidate = _pinned(candidate, offer)
                found[kind_of_change] = _alternative(kind_of_change, candidate, offer)
                if kind_of_change == "units":
                    fewer.append(candidate)

    look(_candidates(desk, ask), _TRIES)
    if len(found) < 2 and fewer:  # one change is not enough for anything else: two together may be
        look(_with_fewer(desk, ask, fewer[0]), 2 * _TRIES)
    return Refused(Refusal(refused.refusal.reasons, tuple(found.values())), refused.code)


def _candidates(desk: Desk, ask: Ask) -> Iterator[tuple[str, Ask]]:
    """Requests near the one asked, most alike first, each with what differs."""
    ask = replace(ask, digest=None)
    every = tuple(p for p in desk.pools() if p.writes)
    if not every:
        return
    near = [p for p in every if ask.exactly in (None, p.kind) and ask.cluster in (None, p.cluster)] or list(every)
    mended, change = _mended(desk, ask, near[0])
    if change:
        yield change, mended
    yield from _at_edges(desk, mended, near)
    yield "time", replace(mended, start=None, earliest=None, latest=None)
    yield from (("time", later) for later in _later(desk, mended, near))
    if mended.start is not None:
        yield from (("length", shorter) for shorter in _shorter(desk, mended, near))
    yield from (("length", shorter) for shorter in _halved(mended, near))
    yield from (("shape", replace(mended, shape=shape)) for shape in _shapes(mended.shape, near))
    kinds = _others(every, ask)
    priced = sorted(kinds, key=lambda kind: _price(desk, mended, kind))
    yield from (("kind", _of_kind(mended, kind)) for kind in priced)
    if ask.cluster is not None:
        yield "cluster", replace(mended, cluster=None)
    yield from (("units", replace(mended, shape=shape)) for shape in _as_many_as_fit(desk, mended, near))
    yield from (("units", replace(mended, shape=shape)) for shape in _fewer(mended.shape))
    yield from (("kind", replace(_of_kind(mended, kind), start=None, earliest=None, latest=None)) for kind in priced)
    if ask.kind is None and (ask.kinds or ask.memory_gb):
        yield "kind", replace(mended, kinds=(), memory_gb=None)


def _others(every: Iterable[Pool], ask: Ask) -> list[str]:
    """Other kinds than the one asked; a slice is offered only in a slice's place."""
    sliced = any(p.slice_of is not None for p in every if p.kind == ask.kind)
    kinds = {p.kind for p in every if p.kind != ask.kind and (sliced or p.slice_of is None)}
    return sorted(kinds) if ask.kind is not None else []


def _of_kind(ask: Ask, kind: str) -> Ask:
    """The request for just this kind, wherever it is."""
    return replace(ask, kind=kind, kinds=(), memory_gb=None, or_better=False, cluster=None)


def _at(ask: Ask, start: datetime) -> Ask:
    """The request for exactly this start."""
    return replace(ask, start=start, earliest=None, latest=None)


def _pinned(ask: Ask, offer: Offer) -> Ask:
    """A start that lies ahead is named, where the grid allows it: what is clicked later is then what was shown."""
    ahead = ask.start is None and not offer.starts_now
    on_grid = not int(offer.window.start.timestamp()) % int(offer.pool.policy.grid.total_seconds())
    return _at(ask, offer.window.start) if ahead and on_grid else ask


def _with_fewer(desk: Desk, ask: Ask, fewer: Ask) -> Iterator[tuple[str, Ask]]:
    """The smaller request that fits, changed in one more way."""
    every = [p for p in desk.pools() if p.writes]
    kinds = _others(every, ask)
    for kind in sorted(kinds, key=lambda kind: _price(desk, fewer, kind)):
        yield "units_and_kind", _of_kind(fewer, kind)
    pools = [p for p in every if ask.exactly in (None, p.kind) and ask.cluster in (None, p.cluster)]
    yield from (("units_and_time", later) for later in _later(desk, fewer, pools))
    yield from (("units_and_length", shorter) for shorter in _halved(fewer, pools))


def _halved(ask: Ask, pools: list[Pool]) -> Iterator[Ask]:
    """Half as long, and half of that: where hours are what is short."""
    if pools:
        policy, length = pools[0].policy, ask.length
        for _ in range(3):
            length = length / 2 // policy.grid * policy.grid
            if length >= policy.min_length:
                yield replace(ask, length=length)


def _mended(desk: Desk, ask: Ask, pool: Pool) -> tuple[Ask, str]:
    """The request with what is wrong in itself put right, and what that changed."""
    policy = pool.policy
    length = min(max(rules.snap_up(ask.length, policy.grid), policy.min_length), policy.max_length)
    change = "length" if length != ask.length else ""
    start = ask.start
    if start is not None and (
        rules.check_start(start, policy, desk.now) or rules.check_horizon(start + length, policy, desk.now)
    ):
        snapped = rules.snap_instant(max(start, desk.now + policy.lead), policy.grid)
        start = None if snapped + length > desk.now + policy.horizon else snapped
        change = change or "time"
    ask = replace(ask, start=start, length=length)
    if wanted.check_between(ask, policy, desk.now):
        ask, change = replace(ask, latest=None), change or "time"
    return ask, change


def _at_edges(desk: Desk, ask: Ask, pools: list[Pool]) -> Iterator[tuple[str, Ask]]:
    """Where too short a time would be left beside others: begin when they end, or end when they begin."""
    if ask.start is None:
        return
    for pool in pools[:4]:
        policy, window = pool.policy, Window(ask.start, ask.start + ask.length)
        if not policy.min_gap:
            continue
        rest = Window(window.start - policy.min_gap, window.end + policy.gap + policy.min_gap)
        capacity = inventory.capacity_of(desk.work, [pool])[pool.id]
        for left in gaps.slivers(desk.held(capacity, rest), window, policy, desk.now)[:4]:
            if left.ended is not None:
                yield "time", _at(ask, left.ended)
            elif left.begins is not None:
                yield "time", _at(ask, left.begins - policy.gap - ask.length)
                yield "length", replace(ask, length=left.begins - policy.gap - ask.start)


def _later(desk: Desk, ask: Ask, pools: list[Pool]) -> Iterator[Ask]:
    """The first start on the grid at or after the one asked: soonest may be too early for who asked for next week."""
    for pool in pools[:4]:
        capacity = inventory.capacity_of(desk.work, [pool])[pool.id]
        grid = Grid(int(pool.policy.grid.total_seconds()), offers.EPOCH)
        first = ask.start or ask.earliest or desk.now
        after = rules.snap_instant(max(first, desk.now + pool.policy.lead), pool.policy.grid)
        start = offers.soonest(
            desk.ready(capacity),
            ask.shape,
            ask.length,
            after,
            desk.now + pool.policy.horizon,
            int(pool.policy.gap.total_seconds()),
            grid,
            (pool.policy, desk.now),
        )
        if start is not None and start != ask.start:
            later = _at(ask, start)
            yield later if ask.kind is None else replace(later, kind=pool.kind, or_better=False)


def _shorter(desk: Desk, ask: Ask, pools: list[Pool]) -> Iterator[Ask]:
    """As long as it fits from the start asked."""
    assert ask.start is not None
    for pool in pools[:4]:
        capacity = inventory.capacity_of(desk.work, [pool])[pool.id]
        ready = desk.ready(capacity)
        most = longest(ready, ask.shape, ask.start, int(pool.policy.gap.total_seconds()))
        length = min(timedelta(seconds=min(most, 10**9)), pool.policy.max_length) // pool.policy.grid * pool.policy.grid
        if pool.policy.min_length <= length < ask.length:
            yield replace(ask, length=length)


def _shapes(shape: Shape, pools: list[Pool]) -> Iterator[Shape]:
    """The same number of units, laid out otherwise."""
    total = shape.total
    wider = {
        "node": ("nvlink", "leaf", "rack", None),
        "nvlink": ("leaf", "rack", None),
        "leaf": ("rack", None),
        "rack": (None,),
    }
    if shape.nodes is None:
        for nodes in (2, 4, 8):
            if shape.within == "node" and total % nodes == 0 and total // nodes >= 1:
                yield Shape(nodes=nodes, per_node=total // nodes)
        for level in wider.get(shape.within or "", ()):
            yield Shape(units=total, within=level)
    else:
        for level in wider.get(shape.within or "", ()):
            yield Shape(nodes=shape.nodes, per_node=shape.per_node, within=level)
        for nodes in (shape.nodes * 2, shape.nodes * 4):
            if total % nodes == 0:
                yield Shape(nodes=nodes, per_node=total // nodes)
        yield Shape(units=total)


def _as_many_as_fit(desk: Desk, ask: Ask, pools: list[Pool]) -> Iterator[Shape]:
    """The most of the shape that is free for the time asked, or from now."""
    for pool in pools[:4]:
        start = ask.start or max(ask.earliest or desk.now, desk.now)
        window = Window(start, start + ask.length)
        capacity = inventory.capacity_of(desk.work, [pool])[pool.id]
        gap = int(pool.policy.gap.total_seconds())
        found = place(desk.held(capacity, Window(start, window.end + pool.policy.gap)), ask.shape, window, gap)
        if not isinstance(found, NoPlace):
            continue
        free = found.free
        if ask.shape.units is not None and 0 < free.domain_units < ask.shape.units:
            yield Shape(units=free.domain_units, within=ask.shape.within)
        elif ask.shape.nodes is not None and 0 < free.domain_nodes < ask.shape.nodes:
            yield Shape(nodes=free.domain_nodes, per_node=ask.shape.per_node, within=ask.shape.within)
        elif ask.shape.nodes is not None and free.largest_node:
            yield Shape(nodes=1, per_node=min(free.largest_node, ask.shape.per_node or 1))


def _fewer(shape: Shape) -> Iterator[Shape]:
    """Less of it, by halves."""
    if shape.units is not None:
        units = shape.units // 2
        while units >= 1:
            yield Shape(units=units, within=shape.within)
            units //= 2
        return
    nodes = (shape.nodes or 0) // 2
    while nodes >= 1:
        yield Shape(nodes=nodes, per_node=shape.per_node, within=shape.within)
        nodes //= 2
    per_node = (shape.per_node or 0) // 2
    while per_node >= 1:
        yield Shape(nodes=1, per_node=per_node)
        per_node //= 2


def _price(desk: Desk, ask: Ask, kind: str) -> tuple[bool, Decimal, str]:
    """What the length would cost in another kind from now: the nearest in price comes first."""
    segments = desk.segments(kind, Window(ask.start or desk.now, (ask.start or desk.now) + ask.length))
    share = next((p.share840 for p in desk.pools() if p.kind == kind), WHOLE)
    return (
        segments is None,
        cost(segments, ask.shape.total, desk.project.currency, share).amount if segments else Decimal(0),
        kind,
    )


def _possible(desk: Desk, ask: Ask) -> Offer | None:
    """The offer that the request would get, or None when any rule says no."""
    try:
        pools = offers.pools_asked(desk, ask)
    except Refused:
        return None
    for found in offers.find_offers(desk, ask, pools):
        if not isinstance(found, Offer):
            continue
        asked = pieces(found.segments, desk.zone, ask.shape.total, found.pool.share840)
        scopes, account = desk.scopes(found.pool.kind), desk.actor.account_id
        reasons, _ = offers.limits_of(desk, found.pool, account, scopes, asked, found.window)
        if not reasons:
            return found
    return None


def _alternative(kind_of_change: str, ask: Ask, offer: Offer) -> Alternative:
    amount = {"currency": offer.cost.currency, "amount": str(offer.cost.amount)}
    summary = (
        f"{rules.shape_text(ask.shape)} of {offer.pool.kind} on {offer.pool.cluster}, "
        f"{rules.iso(offer.window.start)} for {rules.length_text(ask.length)}"
    )
    return Alternative(kind_of_change, ask.to_post(), amount, summary)
