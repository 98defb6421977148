"""Any history of the pure engine on a small cluster, against a plain model that says who has which unit when.

The pure files decide; the model here writes down what came of it, unit by unit and to the second, on a cluster of its own
that breaks down as real ones do. It shares no code with the product. Every step has a seed of its own, so a history that
breaks a promise is made shorter by leaving steps out (`shortest`) and shown as short as it gets.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from uuid import UUID
from zoneinfo import ZoneInfo

from app.bookings import giving_back, rules, schedule
from app.bookings.capacity import Busy, NodeUnits, PoolSnapshot, Shape
from app.bookings.evidence import apply_failure, apply_observation
from app.bookings.facts import Held as HeldOn
from app.bookings.facts import PriceSegment
from app.bookings.held import Held, Hold
from app.bookings.lifecycle import (
    FINAL,
    BookingView,
    Event,
    Lose,
    Move,
    Outage,
    Seen,
    State,
    cancel_event,
    follow,
    leave,
    may,
    next_step,
    reserved,
    tick,
)
from app.bookings.placement import NoPlace
from app.bookings.recolour import extend_moving, place_moving
from app.bookings.recurrence import WrongRule, occurrences
from app.bookings.watching import Use, pace_of, watch
from app.inventory.policy import Policy
from app.kernel.window import Window
from app.pricing.rules import Price, Segment, cost
from app.pricing.rules import schedule as price_schedule
from app.quotas.rules import Scope, Standing, Taken, check, pieces
from tests.model.vocabulary import Broken, Tally

BEGIN = datetime(2026, 12, 30, 20, 0, tzinfo=UTC)
ZONE = ZoneInfo("Europe/Zurich")
MINUTE = timedelta(minutes=1)
PER_NODE = 4
STEPS_EACH = 1_000
"""So many steps of one history; then another cluster with other rules."""
VERBS = {
    "book": 26, "extend": 9, "shrink": 7, "release": 4, "cancel": 6, "fail": 1, "ask": 3, "answer": 5, "wait": 2, "serve": 3,
    "hand_time": 22, "see": 30, "measure": 4, "fault": 5, "price": 1, "series": 1,
}  # fmt: skip
SHARES = {
    "book": 0.1, "extend": 0.1, "shrink": 0.1, "release": 0.1, "cancel": 0.1, "fail": 0.1, "ask": 0.1, "answer": 0.1,
    "wait": 1.0, "serve": 0.1, "hand_time": 1.0, "see": 0.3, "measure": 0.5, "price": 1.0, "series": 0.3,
}  # fmt: skip
FAULTS = (
    "node dies",
    "unit dies",
    "units not empty",
    "call refused",
    "call lost",
    "answer late",
    "slow start",
    "out of service",
    "in service",
)
REACHED = (
    *(f"state {s}" for s in State),
    *(f"outcome {o}" for o in ("completed", "released", "cancelled", "no_show", "failed", "not_provided")),
    *(f"fault {f}" for f in FAULTS),
    "moved by recolouring", "refused for want of units", "credited",
)  # fmt: skip


@dataclass
class Thing:
    """One object on the model's cluster, in seconds: made when, usable from, taken down when."""

    gpus: frozenset[int]
    made: int
    ready: int
    end: int
    linger: int
    in_place: int | None = None
    released: int | None = None
    breaks: list[tuple[int, int]] = field(default_factory=list)
    """From its end by an order to when a later end reached the cluster: nothing stood there."""

    @property
    def over(self) -> int:
        return self.end if self.released is None else max(self.made, min(self.end, self.released))

    @property
    def empty(self) -> int:
        return self.over + self.linger


@dataclass
class One:
    """A booking: the product's view of it, and beside it what the model knows."""

    id: int
    person: int
    shape: Shape
    view: BookingView
    holds: dict[int, tuple[int, frozenset[int]]]
    """By the hold's number: its node, its GPUs."""
    plan: tuple[PriceSegment, ...]
    promises: list[tuple[int, int, Decimal]]
    """The model's price of every second that was promised: (from, until, price)."""
    units: list[tuple[int, int]]
    """From when on how many."""
    first_end: datetime
    thing: Thing | None = None
    late: list[tuple[int, Seen, int, bool]] = field(default_factory=list)
    used_from: int | None = None
    left: int | None = None

    @property
    def gpus(self) -> frozenset[int]:
        return frozenset(g for _, gpus in self.holds.values() for g in gpus)

    def many_at(self, second: int) -> int:
        return [n for since, n in self.units if since <= second][-1] if self.units[0][0] <= second else self.units[0][1]


def second(at: datetime) -> int:
    return int(at.timestamp())


def instant(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


class Engine:
    """One history on one cluster."""

    def __init__(self, seed: int, tally: Tally) -> None:
        chance = random.Random(seed)
        self.tally = tally
        self.now = second(BEGIN)
        self.gap = chance.choice([0, 0, 300])
        self.policy = Policy(
            max_length=timedelta(hours=12), horizon=timedelta(days=4), gap=timedelta(seconds=self.gap),
            give_up=chance.choice([None, 40 * MINUTE]), made_ahead=chance.choice([timedelta(0), 10 * MINUTE, 60 * MINUTE]),
            max_extension=chance.choice([None, timedelta(hours=3)]), min_length=15 * MINUTE,
        )  # fmt: skip
        self.pace = pace_of(self.policy)
        names = ["a", "b", None]
        self.nodes = {
            n: (chance.choice(names), chance.choice(names)) for n in range(1, chance.randint(2, 4) + 1)
        }  # rack, leaf
        self.offline: set[int] = set()  # units out of service: installed, and offered to nobody
        self.pool = self.snapshot()
        self.limit_rate, self.limit_hours = chance.choice([6, 99]), chance.choice([200, 100_000])
        self.open: dict[int, One] = {}
        self.past: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self.prices: list[Price] = [
            Price(1, "k", Decimal("2.40"), BEGIN - timedelta(days=9), BEGIN - timedelta(days=9))
        ]
        self.things: list[Thing] = []
        self.down: list[tuple[int, int, int | None]] = []  # (gpu, since, until)
        self.dirty: list[tuple[int, int, int]] = []  # (gpu, since, until): units not empty
        self.slow = 0
        self.numbers = 0
        self.taken: dict[tuple[int, date], int] = defaultdict(int)

    def snapshot(self) -> PoolSnapshot:
        units = []
        for n, (rack, leaf) in self.nodes.items():
            offered = sum(1 << i for i, gpu in enumerate(self.gpus_of(n)) if gpu not in self.offline)
            units.append(NodeUnits.whole(n, PER_NODE * (n - 1), PER_NODE, offered, rack=rack, leaf=leaf))
        return PoolSnapshot.of(1, 1, "k", units, Busy.of_rows([]))

    # -- one step --

    def step(self, verb: str, seed: int) -> None:
        self.chance = random.Random(seed)
        getattr(self, verb)()
        self.settle()

    def settle(self) -> None:
        """What holds after every step."""
        for b in list(self.open.values()):
            self.tally.reached[f"state {b.view.state}"] += 1
            self.one_holds(b)
            if b.view.state in FINAL:
                self.close(b)
        self.nobody_twice()

    def pick(self, *states: State) -> One | None:
        found = [b for b in self.open.values() if b.view.state in states or self.chance.random() < 0.02]
        return self.chance.choice(found) if found else None

    # -- what must hold --

    def one_holds(self, b: One) -> None:
        state, w = b.view.state, b.view.window
        if state is State.WAITING or state in FINAL:
            return
        many = b.many_at(self.now) if self.now >= b.units[0][0] else b.units[0][1]
        if sum(len(g) for _, g in b.holds.values()) != many:
            raise Broken(f"promise 3: booking {b.id} has {b.holds}, promised are {many} units")
        nodes = [node for node, _ in b.holds.values()]
        if (
            b.shape.nodes is not None
            and sorted(len(g) for _, g in b.holds.values()) != [b.shape.per_node] * b.shape.nodes
        ):
            raise Broken(f"promise 3: booking {b.id} is not {b.shape}: {b.holds}")
        level = b.shape.within
        if level is not None:
            kept = {node if level == "node" else self.domain(node, level) for node in nodes}
            if len(kept) != 1:
                raise Broken(f"promise 3: booking {b.id} does not lie in one {level}: {b.holds}")
        if b.view.provided_at is not None and not (w.start <= b.view.provided_at < w.end):
            raise Broken(f"promise 6: booking {b.id} is provided at {b.view.provided_at}, outside {w}")
        if state not in (State.REQUESTED,) and state not in FINAL:
            step = next_step(b.view, instant(self.now), self.pace)
            if step.next_at is None or step.next_at < instant(self.now):
                raise Broken(f"booking {b.id} is forgotten in {state}: {step}")

    def domain(self, node: int, level: str) -> object:
        value = self.nodes[node][0 if level == "rack" else 1] if level in ("rack", "leaf") else None
        return ("alone", node) if value is None else value

    def nobody_twice(self) -> None:
        by_gpu: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for b in self.open.values():
            for gpu in b.gpus:
                by_gpu[gpu].append((second(b.view.window.start), second(b.view.window.end) + self.gap, b.id))
        for gpu, windows in by_gpu.items():
            windows += [w for w in self.past[gpu][-8:]]
            windows.sort()
            for (_, end, first), (start, _, other) in pairwise(windows):
                if start < end:
                    raise Broken(f"promise 1: unit {gpu} is held by {first} and {other} at {instant(start)}")

    def close(self, b: One) -> None:
        """A booking is over: what is charged is what was provided, and its units are free from then on."""
        del self.open[b.id]
        view, w = b.view, b.view.window
        freed = second(view.freed_at) if view.freed_at else self.now if view.state is not State.ENDED else None
        start, end = second(w.start), second(w.end) + self.gap
        until = min(end, freed) if freed is not None else end
        for gpu in b.gpus:
            if start < until:
                self.past[gpu].append((start, until, b.id))
        if view.outcome is not None:
            self.tally.reached[f"outcome {view.outcome}"] += 1
        charged = reserved(view, instant(self.now))
        if view.provided_at is None:
            if charged is not None:
                raise Broken(f"promise 6: booking {b.id} was never provided and is charged for {charged}")
            return
        thing = b.thing
        if thing is None or thing.in_place is None:
            raise Broken(f"promise 6: booking {b.id} counts as provided, and the cluster never had it in place")
        begin = max(start, thing.in_place)
        if second(view.provided_at) != begin:
            raise Broken(
                f"promise 7: booking {b.id} is provided at {view.provided_at}, it was in place from {instant(begin)}"
            )
        until = second(w.end) if b.left is None else min(second(w.end), b.left)
        if charged is None or (second(charged.start), second(charged.end)) != (begin, until):
            if not (charged is None and begin >= until):
                raise Broken(
                    f"promise 7: booking {b.id} is charged for {charged}, the account says {instant(begin)} .. {instant(until)}"
                )
            return
        self.money_holds(b, begin, until)
        for gpu in b.gpus:
            gone = sum(
                max(0, min(until, second(o.until or instant(until))) - max(begin, second(o.since)))
                for o in view.outages
                if o.unit == gpu
            )
            there = self.seconds_there(thing, gpu, begin, until)
            if until - begin - gone > there:
                raise Broken(
                    f"promise 6: unit {gpu} of booking {b.id} is charged for {until - begin - gone} s, it was there for {there} s; "
                    f"outages {view.outages}, {thing}"
                )
            if gone:
                self.tally.reached["credited"] += 1

    def seconds_there(self, thing: Thing, gpu: int, begin: int, until: int) -> int:
        """Seconds of `[begin, until)` in which the unit was there, second by second where anything was wrong."""
        end = min(until, thing.over)
        out = [*thing.breaks] + [
            (s, u if u is not None else end)
            for g, s, u in self.down
            if g == gpu and s < end and (u is None or u > begin)
        ]
        if not out:
            return max(0, end - begin)
        return sum(1 for at in range(begin, end) if not any(s <= at < u for s, u in out))

    def money_holds(self, b: One, begin: int, until: int) -> None:
        """What is charged is units x seconds x the price promised for each second, each price rounded once."""
        by_price: dict[Decimal, int] = defaultdict(int)
        edges = sorted({begin, until, *(s for s, _ in b.units), *(x for a, z, _ in b.promises for x in (a, z))})
        for a, z in pairwise(edges):
            if begin <= a and z <= until:
                price = next(p for s, e, p in b.promises if s <= a < e)
                by_price[price] += (z - a) * b.many_at(a)
        mine = sum((_rounded(Fraction(n) * Fraction(p) / 3600) for p, n in by_price.items()), Decimal(0))
        theirs = schedule.cost_of(
            schedule.within(b.plan, Window(instant(begin), instant(until))), b.units[-1][1], "CHF"
        ).amount
        if mine != theirs:
            raise Broken(f"promise 8: booking {b.id} costs {theirs}, the account says {mine}: {by_price}")

    # -- asking --

    def wish(self) -> tuple[Shape, datetime, timedelta]:
        chance = self.chance
        level = chance.choice([None, None, None, "node", "rack", "leaf"])
        if chance.random() < 0.65:
            shape = Shape(units=chance.choices([1, 2, 3, 4, 7, 20], [8, 6, 4, 3, 2, 1])[0], within=level)
        else:
            shape = Shape(nodes=chance.choice([1, 2, 2, 3]), per_node=chance.choice([1, 2, 4]), within=level)
        start = self.now + (900 - self.now % 900) % 900 + 900 * chance.choice([-2, 0, 0, 1, 2, 4, 8, 16, 30, 60, 500])
        if chance.random() < 0.04:
            start += 60
        length = timedelta(minutes=15 * chance.choices([0, 1, 2, 4, 8, 16, 60], [1, 6, 8, 8, 6, 3, 1])[0])
        if chance.random() < 0.03:
            length += timedelta(minutes=7)
        return shape, instant(start), length

    def judged(self, start: datetime, length: timedelta) -> set[str]:
        """The rules in the model's words."""
        found, grid, now = set(), 900, self.now
        if second(start) < now - 60:
            found.add("start_in_past")
        if second(start) % grid:
            found.add("start_off_grid")
        seconds = int(length.total_seconds())
        if seconds <= 0:
            found.add("ends_before_start")
        else:
            found |= {"too_short"} if seconds < 900 else set()
            found |= {"too_long"} if seconds > 12 * 3600 else set()
            found |= {"length_off_grid"} if seconds % grid else set()
        if second(start) + seconds > now + 4 * 86400:
            found.add("beyond_horizon")
        return found

    def book(self) -> None:
        self.request("book", State.BOOKED)

    def ask(self) -> None:
        self.request("ask", State.REQUESTED)

    def request(self, verb: str, state: State) -> None:
        shape, start, length = self.wish()
        now = instant(self.now)
        said = rules.check_length(length, self.policy) + rules.check_start(start, self.policy, now)
        said += rules.check_horizon(start + length, self.policy, now)
        found = {r.code for r in said}
        if found != self.judged(start, length):
            raise Broken(f"promise 5: the rules say {found}, the model {self.judged(start, length)}: {start} {length}")
        if length <= timedelta(0):
            self.tally.count(verb, found)
            return
        window = Window(start, start + length)
        segments = price_schedule(self.prices, "k", window, now)
        assert segments is not None
        promises = self.promised(second(start), second(window.end))
        self.same_price(segments, promises, shape.total)
        person = self.chance.randrange(2)
        found |= self.limits(person, segments, shape.total, window)
        held = self.held()
        answer = place_moving(self.pool, held, shape, window, self.gap)
        if isinstance(answer, NoPlace):
            self.no_place_is_true(answer, shape, window)
            found.add("no_units_free")
            self.tally.reached["refused for want of units"] += 1
        if found:
            self.tally.count(verb, found)
            return
        assert not isinstance(answer, NoPlace)
        self.move(answer.moves)
        if any(lower // 64 in self.offline for p in answer.placement.parts for lower, _ in p.units):
            raise Broken(f"promise 3: units out of service are booked: {answer.placement}")
        number = self.next()
        holds = {
            self.next(): (p.node_id, frozenset(lower // 64 for lower, _ in p.units)) for p in answer.placement.parts
        }
        plan = tuple(PriceSegment(s.window, s.price_id, s.per_hour) for s in segments)
        units = [(second(start), shape.total)]
        view = BookingView(state, window, tuple(sorted(g for _, gpus in holds.values() for g in gpus)))
        self.open[number] = One(number, person, shape, view, holds, plan, promises, units, window.end)
        self.commit(person, second(start), second(window.end), shape.total, 1)
        self.tally.count(verb, None)

    def no_place_is_true(self, said: NoPlace, shape: Shape, window: Window) -> None:
        """Refused is nothing that is free as it is: by counting the model's own units, without any closeness."""
        start, end = second(window.start), second(window.end) + self.gap
        free = {node: sum(self.free(g, start, end) for g in self.gpus_of(node)) for node in self.nodes}
        if shape.within in (None, "node"):
            groups = [free] if shape.within is None else [{n: f} for n, f in free.items()]
            for group in groups:
                fits = (
                    sum(group.values()) >= shape.units
                    if shape.units
                    else sum(f >= (shape.per_node or 1) for f in group.values()) >= (shape.nodes or 1)
                )
                if fits:
                    raise Broken(f"refused although free: {shape} {window}, free {free}")
        total = PER_NODE * len(self.nodes)
        if said.never and shape.total <= total and shape.within is None and not shape.nodes:
            raise Broken(f"said to be impossible: {shape} on {total} units")

    def gpus_of(self, node: int) -> range:
        return range(PER_NODE * (node - 1), PER_NODE * node)

    def free(self, gpu: int, start: int, end: int) -> bool:
        return gpu not in self.offline and not any(
            gpu in b.gpus and second(b.view.window.start) < end and second(b.view.window.end) + self.gap > start
            for b in self.open.values()
            if second(b.view.window.end) + self.gap > self.now
        )

    def held(self) -> Held:
        """Everybody's holds, as the product would read them."""
        rows = []
        for b in self.open.values():
            w = b.view.window
            start, end = second(w.start), second(w.end) + self.gap
            if end <= self.now:
                continue
            for number, (node, gpus) in b.holds.items():
                ranges = tuple((64 * g, 64 * g + 64) for g in sorted(gpus))
                rows.append(
                    Hold(number, b.id, node, ranges, start, end, b.view.asked, start <= self.now, b.shape.within,
                         (b.shape.nodes or 0) > 1)
                )  # fmt: skip
        rows.sort(key=lambda h: h.id)
        self.order = [h.owner for h in rows]
        return Held.of(rows)

    def move(self, moves) -> None:
        """Holds give way: only such as may, to as many units as they had."""
        for m in moves:
            (b,) = (b for b in self.open.values() if m.hold in b.holds)
            if b.view.asked or second(b.view.window.start) <= self.now:
                raise Broken(f"promise 3: booking {b.id} is pinned or has begun, and gives way")
            was = b.holds[m.hold]
            becomes = frozenset(g for lower, upper in m.to_positions for g in range(lower // 64, upper // 64))
            if was[0] != m.node_id or len(becomes) != len(was[1]) or not becomes <= set(self.gpus_of(m.to_node_id)):
                raise Broken(f"promise 3: hold {was} becomes {m}")
            if (becomes - was[1]) & self.offline:  # what it has it may keep: it is at risk, and placed anew by others
                raise Broken(f"promise 3: hold {was} goes to units out of service: {becomes}")
            b.holds[m.hold] = (m.to_node_id, becomes)
            self.tally.reached["moved by recolouring"] += 1
        for m in moves:
            (b,) = (b for b in self.open.values() if m.hold in b.holds)
            b.view = replace(b.view, units=tuple(sorted(b.gpus)))

    def next(self) -> int:
        self.numbers += 1
        return self.numbers

    # -- prices and limits --

    def price(self) -> None:
        at = self.now + self.chance.choice([-60, 1800, 7200, 86_400])
        number = len(self.prices) + 1
        per_hour = Decimal(self.chance.choice(["2.40", "0.333333", "7", "0"]))
        self.prices.append(Price(number, "k", per_hour, instant(max(at, self.now)), instant(self.now)))
        self.tally.count("price", None)

    def promised(self, start: int, end: int) -> list[tuple[int, int, Decimal]]:
        """Every second has the price of the version that became effective last by then; of equal ones the newest."""
        edges = sorted(
            {start, end, *(second(p.effective_at) for p in self.prices if start < second(p.effective_at) < end)}
        )
        return [
            (a, z, max((second(p.effective_at), second(p.published_at), p.id, p.per_hour) for p in self.prices
                       if second(p.effective_at) <= a)[3])
            for a, z in pairwise(edges)
        ]  # fmt: skip

    def same_price(self, segments: tuple[Segment, ...], promises: list[tuple[int, int, Decimal]], units: int) -> None:
        by_price: dict[Decimal, int] = defaultdict(int)
        for a, z, p in promises:
            by_price[p] += z - a
        mine = sum((_rounded(Fraction(n * units) * Fraction(p) / 3600) for p, n in by_price.items()), Decimal(0))
        theirs = cost(segments, units, "CHF").amount
        if mine != theirs:
            raise Broken(f"promise 2: quoted {theirs}, the model says {mine}")

    def commit(self, person: int, start: int, end: int, units: int, sign: int) -> None:
        at = start
        while at < end:
            local = instant(at).astimezone(ZONE)
            first = date(local.year, local.month, 1)
            following = date(local.year + local.month // 12, local.month % 12 + 1, 1)
            cut = min(end, int(datetime(following.year, following.month, 1, tzinfo=ZONE).timestamp()))
            for scope in (-1, person):
                self.taken[scope, first] += sign * units * (cut - at)
            at = cut

    def limits(self, person: int, segments, units: int, window: Window) -> set[str]:
        """What the limits say, and that it is what the model's own sums say: used + held + asked against the limit."""
        scopes = [
            (-1, Scope(1, "tenant", None, self.limit_rate * 2 * 840, self.limit_hours * 3600 * 840, "T")),
            (person, Scope(2, "user", None, self.limit_rate * 840, None, "P", None, UUID(int=1))),
        ]
        asked = pieces(segments, ZONE, units)
        standings, expected = [], set()
        for whose, scope in scopes:
            edges = {second(window.start), *(second(b.view.window.start) for b in self.open.values())}
            peak = max(
                sum(b.many_at(at) for b in self.open.values() if (whose in (-1, b.person)) and b.view.state is not State.WAITING
                    and second(b.view.window.start) <= at < min(second(b.view.window.end), b.left or 1 << 40))
                for at in edges if second(window.start) <= at < second(window.end)
            )  # fmt: skip
            months = {m: Taken(0, n * 840) for (s, m), n in self.taken.items() if s == whose}
            standings.append(Standing(scope, months, peak * 840))
            if (peak + units) * 840 > (scope.max_rate or 0):
                expected.add("quota_units")
            if scope.max_quantity is not None:
                more: dict[date, int] = defaultdict(int)
                before = dict(self.taken)
                self.commit(person, second(window.start), second(window.end), units, 1)
                for (s, m), n in self.taken.items():
                    if s == whose and n != before.get((s, m), 0):
                        more[m] = n
                self.taken.clear()
                self.taken.update(before)
                if any(n * 840 > scope.max_quantity for n in more.values()):
                    expected.add("quota_hours")
        reasons, effects = check(standings, asked)
        found = {r.code for r in reasons}
        if found != expected:
            raise Broken(f"promise 8: limits say {found}, the model {expected}")
        for e in effects:
            if e.before + (e.limit - e.before) != e.limit or e.after < e.before:
                raise Broken(f"promise 8: {e}")
        return found

    # -- edits --

    def extend(self) -> None:
        b = self.pick(State.BOOKED, State.STARTING, State.ACTIVE)
        if b is None:
            return
        self.catch_up(b)
        if b.view.state not in (State.BOOKED, State.STARTING, State.ACTIVE):
            self.tally.count("extend", ["wrong_state"])
            return
        end = b.view.window.end + timedelta(minutes=15 * self.chance.choice([-1, 1, 1, 2, 4, 12, 60]))
        said = rules.check_extension(b.view.window, b.first_end, end, self.policy, instant(self.now))
        if said:
            self.tally.count("extend", [r.code for r in said])
            return
        held = self.held()
        own = int(held.owner[self.order.index(b.id)]) if b.id in self.order else None
        if own is None:
            return
        window = Window(b.view.window.start, end)
        answer = extend_moving(self.pool, held, own, window, self.gap)
        after, until = second(b.view.window.end) + self.gap, second(end) + self.gap
        if isinstance(answer, NoPlace):
            others = [o for o in self.open.values() if o is not b and o.gpus & b.gpus and second(o.view.window.start) < until
                      and second(o.view.window.end) + self.gap > after]  # fmt: skip
            if not others and not b.gpus & self.offline:
                raise Broken(f"booking {b.id} cannot be extended until {end}, and nobody has its units")
            self.tally.count("extend", ["units_taken_after"])
            return
        self.move(answer.moves)
        mine = frozenset(lower // 64 for p in answer.placement.parts for lower, _ in p.units)
        if mine != b.gpus:
            raise Broken(f"booking {b.id} extended on {mine}, it has {b.gpus}")
        if mine & self.offline:
            raise Broken(f"booking {b.id} extended on units out of service: {mine & self.offline}")
        added = Window(b.view.window.end, end)
        segments = price_schedule(self.prices, "k", added, instant(self.now))
        assert segments is not None
        b.plan += tuple(PriceSegment(s.window, s.price_id, s.per_hour) for s in segments)
        b.promises += self.promised(second(added.start), second(added.end))
        self.commit(b.person, second(added.start), second(added.end), b.units[-1][1], 1)
        b.view = replace(b.view, window=window, wanted=b.view.wanted + 1)
        self.tally.count("extend", None)

    def shrink(self) -> None:
        b = self.pick(State.BOOKED, State.ACTIVE)
        if b is None:
            return
        self.catch_up(b)
        if b.view.state not in (State.BOOKED, State.ACTIVE):
            self.tally.count("shrink", ["wrong_state"])
            return
        shape, many = b.shape, b.units[-1][1]
        keep_nodes = self.chance.randint(1, shape.nodes) if shape.nodes and shape.nodes > 1 else None
        keep = None if keep_nodes else self.chance.randint(1, many)
        to = giving_back.smaller(many, shape.nodes, shape.per_node, keep, keep_nodes)
        if not isinstance(to, giving_back.Smaller):
            if (keep_nodes or 0) < (shape.nodes or 0) and keep_nodes:
                raise Broken(f"{keep_nodes} of {shape.nodes} nodes are refused: {to.code}")
            self.tally.count("shrink", [to.code])
            return
        on = [
            HeldOn(UUID(int=number), node, f"n{node}", PER_NODE * (node - 1), None, None, _ranges(gpus), b.view.window.start,
                   b.view.window.end, True, b.view.asked)
            for number, (node, gpus) in b.holds.items()
        ]  # fmt: skip
        lost = frozenset(o.unit for o in b.view.outages if o.until is None)
        leaves = giving_back.choose(on, many, to, lost)
        if sum(leave.units for leave in leaves) != many - to.units:
            raise Broken(f"promise 3: {many} units become {to.units}, and {leaves} are given back")
        begun = self.now > second(b.view.window.start)
        for one in leaves:
            number = one.held.id.int
            node, gpus = b.holds[number]
            left = frozenset(lower // 64 + i for lower, upper in one.left for i in range((upper - lower) // 64))
            kept = frozenset(lower // 64 + i for lower, upper in one.kept for i in range((upper - lower) // 64))
            if left | kept != gpus or left & kept:
                raise Broken(f"promise 3: {gpus} become {kept} and {left}")
            if kept:
                b.holds[number] = (node, kept)
            else:
                del b.holds[number]
            end = second(b.view.window.end) + self.gap
            if begun:  # what was left counts as the booking's until now
                for gpu in left:
                    self.past[gpu].append((second(b.view.window.start), min(self.now, end), b.id))
        b.view = replace(b.view, units=tuple(sorted(b.gpus)), wanted=b.view.wanted + 1)
        since = max(self.now, second(b.view.window.start))
        self.commit(b.person, since, second(b.view.window.end), many - to.units, -1)
        if begun:
            b.plan = schedule.shrunk(b.plan, instant(self.now), many)
            b.units.append((self.now, to.units))
        else:
            b.units = [(second(b.view.window.start), to.units)]
        b.shape = Shape(
            units=to.units if to.nodes is None else None, nodes=to.nodes, per_node=to.per_node, within=shape.within
        )
        self.tally.count("shrink", None)

    def catch_up(self, b: One) -> None:
        self.write(b, tick(b.view, instant(self.now), self.pace))

    def leave_by(self, verb: str, event: Event, *states: State) -> None:
        b = self.pick(*states)
        if b is None:
            return
        self.catch_up(b)
        if event is Event.CANCEL:
            event = cancel_event(b.view)
        if not may(b.view.state, event) or b.view.state in (State.WAITING, State.REQUESTED) or (
            verb == "cancel" and b.view.state is State.ACTIVE
        ):  # fmt: skip
            self.tally.count(verb, ["wrong_state"])
            return
        self.write(b, leave(b.view, event, instant(self.now)))
        self.tally.count(verb, None)

    def release(self) -> None:
        self.leave_by("release", Event.RELEASE, State.ACTIVE)

    def cancel(self) -> None:
        self.leave_by("cancel", Event.CANCEL, State.BOOKED, State.STARTING)

    def fail(self) -> None:
        self.leave_by("fail", Event.FAIL, State.ACTIVE)

    def answer(self) -> None:
        b = self.pick(State.REQUESTED)
        if b is None:
            return
        event = self.chance.choice([Event.APPROVE, Event.APPROVE, Event.REJECT, Event.LAPSE, Event.CANCEL])
        if b.view.state is not State.REQUESTED or (event is Event.APPROVE and self.now >= second(b.view.window.start)):
            self.tally.count("answer", ["too_late"])
            return
        self.write(b, [Move(event, instant(self.now))])
        self.tally.count("answer", None)

    def wait(self) -> None:
        """Somebody waits: nothing is held and nothing is counted."""
        shape, start, length = self.wish()
        length = max(length, 15 * MINUTE)
        window = Window(start, start + length)
        number = self.next()
        view = BookingView(State.WAITING, window)
        self.open[number] = One(number, 0, shape, view, {}, (), [], [(second(start), shape.total)], window.end)
        self.tally.count("wait", None)

    def serve(self) -> None:
        """Whoever waits gets what fits now, stops waiting, or has waited too long."""
        b = self.pick(State.WAITING)
        if b is None or b.view.state is not State.WAITING:
            return
        start, now = second(b.view.window.start), instant(self.now)
        if self.now > start or self.chance.random() < 0.2:
            self.write(b, [Move(self.chance.choice([Event.LAPSE, Event.CANCEL]), now)])
            self.tally.count("serve", None)
            return
        answer = place_moving(self.pool, self.held(), b.shape, b.view.window, self.gap)
        segments = price_schedule(self.prices, "k", b.view.window, now)
        assert segments is not None
        if isinstance(answer, NoPlace) or self.limits(b.person, segments, b.shape.total, b.view.window):
            self.tally.count("serve", ["no_units_free"])
            return
        self.move(answer.moves)
        b.holds = {self.next(): (p.node_id, frozenset(r[0] // 64 for r in p.units)) for p in answer.placement.parts}
        b.plan = tuple(PriceSegment(s.window, s.price_id, s.per_hour) for s in segments)
        b.promises = self.promised(start, second(b.view.window.end))
        self.commit(b.person, start, second(b.view.window.end), b.shape.total, 1)
        b.view = replace(b.view, units=tuple(sorted(b.gpus)))
        self.write(b, [Move(Event.BOOK, now)])
        self.tally.count("serve", None)

    def series(self) -> None:
        """Occurrences over the night in which the clocks change are what the wall says."""
        chance = self.chance
        local = datetime(2027, 3, 26, chance.randrange(24), chance.choice([0, 30]))  # noqa: DTZ001
        length = timedelta(minutes=30 * chance.randint(1, 6))
        count = chance.randint(1, 5)
        try:
            found = occurrences(
                f"FREQ=DAILY;COUNT={count}", local, local + length, ZONE, datetime(2027, 6, 1, tzinfo=UTC)
            )
        except WrongRule:
            self.tally.count("series", ["wrong_rule"])
            return
        if len(found) != count:
            raise Broken(f"{count} occurrences wanted, {len(found)} found")
        for n, one in enumerate(found):
            begins, ends = ((local + x + timedelta(days=n)) for x in (timedelta(0), length))
            there = [at.replace(tzinfo=ZONE).astimezone(UTC) for at in (begins, ends)]
            exists = [
                t.astimezone(ZONE).replace(tzinfo=None) == at for t, at in zip(there, (begins, ends), strict=True)
            ]
            if (one.window is not None) != all(exists) or (one.window and [one.window.start, one.window.end] != there):
                raise Broken(f"promise 11: {begins} .. {ends} became {one}")
        self.tally.count("series", None)

    # -- time, the cluster and what goes wrong --

    def write(self, b: One, changes) -> None:
        """Take changes, and keep the account of when it was left and what it no longer takes of limits."""
        before = b.view
        b.view = follow(b.view, changes)
        for change in changes:
            if isinstance(change, Lose) and change.outage.unit not in before.units:
                raise Broken(f"booking {b.id} loses unit {change.outage.unit} that it does not have")
        if b.view.left_by is not None and before.left_by is None:
            by_verb = b.view.left_by in (Event.RELEASE, Event.FAIL, Event.WITHDRAW, Event.NO_SHOW)
            b.left = min(self.now, second(b.view.window.end)) if by_verb else None
        over = b.view.state in FINAL or b.view.state is State.ENDING
        if over and before.state not in (*FINAL, State.ENDING, State.WAITING):
            since = second(b.view.window.start)
            if b.view.provided_at is not None:
                since = self.now if b.left is None else b.left
            edges = sorted({s for s, _ in b.units} | {since, second(b.view.window.end)})
            for a, z in pairwise(edges):
                if since <= a:
                    self.commit(b.person, a, z, b.many_at(a), -1)

    def hand_time(self) -> None:
        self.now += self.chance.choice([1, 30, 60, 300, 900, 900, 1800, 3600])
        for thing in self.things:
            self.place_thing(thing)
        for b in list(self.open.values()):
            if b.view.state is State.REQUESTED and self.now >= second(b.view.window.start):
                self.write(b, [Move(Event.LAPSE, instant(self.now))])
            elif b.view.state is not State.WAITING:
                self.catch_up(b)
        if len(self.things) > 60:
            self.things = [
                t for t in self.things if t.empty > self.now - 86_400 or any(b.thing is t for b in self.open.values())
            ]
        self.tally.count("hand_time", None)

    def place_thing(self, thing: Thing) -> None:
        """The exact second from which an object is in place: ready, its units empty and there."""
        if thing.in_place is not None or thing.ready > self.now:
            return
        at = thing.ready
        for _ in range(20):
            later = at
            for gpu in thing.gpus:
                others = [t.empty for t in self.things if t is not thing and gpu in t.gpus and t.in_place is not None
                          and t.made <= thing.made and t.empty > later]  # fmt: skip
                others += [u for g, s, u in self.dirty if g == gpu and s <= later < u]
                others += [
                    1 << 40 if u is None else u
                    for g, s, u in self.down
                    if g == gpu and s <= later and (u is None or u > later)
                ]
                later = max([later, *others])
            if later == at:
                break
            at = later
        if at <= self.now and at < thing.over:
            thing.in_place = at

    def observed(self, thing: Thing | None) -> Seen:
        if thing is None:
            return Seen("absent", why="There is no such object.")
        now = self.now
        self.place_thing(thing)
        since = None if thing.in_place is None else instant(thing.in_place)
        end = min(now, thing.over)
        lost = ()
        if thing.in_place is not None:
            lost = tuple(
                Outage(g, instant(max(s, thing.in_place)), None if u is None or u > end else instant(u), "It is away.")
                for g, s, u in self.down
                if g in thing.gpus and s < end and (u is None or u > thing.in_place)
            )
            lost = self.union(
                lost, [Outage(g, instant(s), instant(u), "Over.") for s, u in thing.breaks for g in thing.gpus]
            )
        if now >= thing.over:
            if now >= thing.empty and not any(s <= now < u for g, s, u in self.dirty if g in thing.gpus):
                return Seen("gone", instant(thing.over), since, instant(thing.empty), lost)
            return Seen("ending", instant(thing.over), since, None, lost)
        if thing.in_place is None:
            if now < thing.ready:
                return Seen("preparing", instant(thing.made))
            return Seen("blocked", instant(thing.ready), why="Units are not empty.")
        state = "degraded" if any(o.until is None for o in lost) else "ready"
        return Seen(state, since, since, None, lost)

    def union(self, lost: tuple[Outage, ...], more: list[Outage]) -> tuple[Outage, ...]:
        """Losses of a unit that do not overlap, as the contract has them."""
        if not more:
            return lost
        found: list[Outage] = []
        for o in sorted([*lost, *more], key=lambda o: (o.unit, o.since)):
            last = found[-1] if found and found[-1].unit == o.unit else None
            if last is not None and (last.until is None or o.since <= last.until):
                until = None if last.until is None or o.until is None else max(last.until, o.until)
                found[-1] = replace(last, until=until)
            else:
                found.append(o)
        return tuple(found)

    def call(self, b: One, call: str) -> None:
        w, thing = b.view.window, b.thing
        if call == "ensure" and thing is None:
            slow, self.slow = self.slow, 0
            thing = Thing(b.gpus, self.now, self.now + slow, second(w.end), self.chance.choice([0, 0, 20, 400]))
            b.thing = thing
            self.things.append(thing)
        elif call == "ensure" and thing is not None and self.now < thing.over:
            thing.end = max(second(w.end), self.now)
            if thing.in_place is None or thing.gpus >= b.gpus:
                thing.gpus = b.gpus
        elif call == "ensure" and thing is not None and thing.released is None and self.now < second(w.end):
            if thing.in_place is not None and thing.over < self.now:  # made anew, and what lies between is told as lost
                thing.breaks.append((thing.over, self.now))
            thing.end, thing.gpus = second(w.end), b.gpus
        elif call == "release" and thing is not None and thing.released is None and self.now < thing.end:
            thing.released = self.now

    def see(self) -> None:
        """One look of a worker at a booking, and whatever answers were on their way."""
        chance, now = self.chance, instant(self.now)
        b = self.pick(State.STARTING, State.ACTIVE, State.ACTIVE, State.ENDING)
        if b is None or b.view.state in (State.WAITING, State.REQUESTED):
            return
        if b.late and chance.random() < 0.6:
            _, seen, wanted, ensured = b.late.pop(0)
            if wanted == b.view.wanted:  # an answer to an order that has changed since does not count
                self.take(b, seen, ensured, wanted)
        self.catch_up(b)
        step = next_step(b.view, now, self.pace)
        if step.call is None:
            self.tally.count("see", ["nothing_to_ask"])
            return
        dice = chance.random()
        if dice < 0.08:  # the cluster is away, or says no
            self.reach("call refused")
            self.write(b, apply_failure(b.view, "No.", chance.random() < 0.4, now, self.pace))
            b.view = replace(b.view, failures=b.view.failures + 1)
            self.tally.count("see", ["refused"])
            return
        self.call(b, step.call)
        if dice < 0.16:
            self.reach("call lost")
            self.write(b, apply_failure(b.view, "No answer.", False, now, self.pace))
            b.view = replace(b.view, failures=b.view.failures + 1)
            self.tally.count("see", ["lost"])
            return
        seen = self.observed(b.thing)
        if step.call == "release" and seen.state == "absent":
            seen = Seen("gone")
        if dice < 0.24 and not b.late:
            self.reach("answer late")
            b.late.append((self.now, seen, b.view.wanted, step.call == "ensure"))
            self.tally.count("see", ["late"])
            return
        b.late.clear()
        self.take(b, seen, step.call == "ensure", b.view.wanted)
        self.tally.count("see", None)

    def take(self, b: One, seen: Seen, ensured: bool, wanted: int) -> None:
        self.write(b, apply_observation(b.view, seen, instant(self.now), self.pace))
        b.view = replace(b.view, seen=seen, failures=0, ensured=wanted if ensured else b.view.ensured)

    def measure(self) -> None:
        """Measurements of an active booking are complete up to now."""
        b = self.pick(State.ACTIVE)
        if b is None or b.view.state is not State.ACTIVE or b.view.provided_at is None:
            return
        if b.used_from is None and self.chance.random() < 0.4:
            b.used_from = self.now
        since = None if b.used_from is not None else b.view.provided_at
        if any(o.until is None for o in b.view.outages) or self.chance.random() < 0.1:
            since = None  # a gap
        use = Use(instant(self.now), None if b.used_from is None else instant(b.used_from), since, since)
        found = watch(b.view, self.policy, use, instant(self.now))
        if found.released is Event.NO_SHOW and (b.used_from is not None or since is None):
            raise Broken(f"booking {b.id} is a no-show, and was used or not measured")
        self.write(b, found.changes)
        self.tally.count("measure", None)

    def reach(self, fault: str) -> None:
        self.tally.reached[f"fault {fault}"] += 1

    def fault(self) -> None:
        chance = self.chance
        node = chance.choice(list(self.nodes))
        until = self.now + chance.choice([120, 900, 5400])
        name = chance.choice(
            ["node dies", "unit dies", "units not empty", "slow start", "out of service", "in service"]
        )
        self.reach(name)
        if name in ("out of service", "in service"):
            gpus = set(self.gpus_of(node)) if chance.random() < 0.5 else {chance.choice(self.gpus_of(node))}
            self.offline = self.offline | gpus if name == "out of service" else self.offline - gpus
            self.pool = self.snapshot()
            return
        if name == "slow start":
            self.slow = chance.choice([60, 1200, 4000])
        elif name == "units not empty":
            self.dirty.append((chance.choice(self.gpus_of(node)), self.now, until))
        else:
            gpus = list(self.gpus_of(node)) if name == "node dies" else [chance.choice(self.gpus_of(node))]
            for gpu in gpus:
                if not any(g == gpu and (u is None or u > self.now) for g, s, u in self.down):
                    self.down.append((gpu, self.now, until))


def _ranges(gpus: frozenset[int]) -> tuple[tuple[int, int], ...]:
    return tuple((64 * g, 64 * g + 64) for g in sorted(gpus))


def _rounded(money: Fraction) -> Decimal:
    whole = int(money * 100)
    return Decimal(whole + (1 if money * 100 - whole >= Fraction(1, 2) else 0)) / 100


# --- runs -------------------------------------------------------------------------------------------------------------


def history(seed: int, steps: int) -> list[tuple[str, int]]:
    """The steps of one history: verbs, each with a seed of its own."""
    chance = random.Random(seed)
    return [(chance.choices(list(VERBS), list(VERBS.values()))[0], chance.randrange(1 << 40)) for _ in range(steps)]


def play(seed: int, steps: list[tuple[str, int]], tally: Tally) -> Exception | None:
    """What breaks, if anything does; how far it came is in `steps[:tally.tried['step']]`."""
    engine = Engine(seed, tally)
    for n, (verb, own) in enumerate(steps):
        try:
            engine.step(verb, own)
        except Exception as error:
            del steps[n + 1 :]
            return error
    return None


def shortest(seed: int, steps: list[tuple[str, int]], kind: type, seconds: float = 60.0) -> list[tuple[str, int]]:
    """Fewer steps that break in the same way: ever smaller parts are left out as long as it still breaks."""
    import time

    until, size = time.monotonic() + seconds, max(1, len(steps) // 2)
    while size and time.monotonic() < until:
        at = 0
        while at < len(steps) and time.monotonic() < until:
            fewer = steps[:at] + steps[at + size :]
            if type(play(seed, fewer, Tally())) is kind:
                steps = fewer
            else:
                at += size
        size //= 2
    return steps


def run(steps: int, seed: int) -> Tally:
    """So many steps in histories of STEPS_EACH; Broken with the shortest history found when a promise does not hold."""
    tally, done = Tally(), 0
    while done < steps:
        own = seed * 1_000_003 + done
        many = min(STEPS_EACH, steps - done)
        story = history(own, many)
        error = play(own, story, tally)
        if error is not None:
            least = shortest(own, story, type(error))
            last = play(own, list(least), Tally()) or error
            said = "\n".join(f"    {verb} {number}" for verb, number in least)
            raise Broken(
                f"{type(last).__name__}: {last}\n\nseed {seed}; again: python -m tests.model --pure --seed {seed} --steps {steps}\n"
                f"cluster {own}, the shortest history found, {len(least)} steps:\n{said}"
            ) from error
        done += many
    return tally
