"""Power budgets: what is drawn over time, what still fits, and that no answer exceeds a budget."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.bookings.capacity import Busy, NodeUnits, PoolSnapshot, Shape, epoch
from app.bookings.earliest import Grid, earliest
from app.bookings.placement import NoPlace, Placement, place
from app.bookings.power import Budget, Draws, PoolPower, fits
from app.bookings.recolour import Rearranged, extend_moving, place_moving
from tests.bookings.rearranging import (
    after,
    at,
    check_rearranged,
    check_shape,
    cluster_of,
    held_of,
    pool_of,
    shape_by,
    shape_of,
    units_asked,
    window,
)
from tests.oracle import rearranged as reference

SPAN = 8
seeds = st.integers(0, 1 << 30)
Row = tuple[int, int, int, int]


def draws_of(rows: list[Row]) -> Draws:
    return Draws.of_rows((b, epoch(at(s)), epoch(at(e)), w) for b, s, e, w in rows)


def drawn(rows: list[Row], budget: int, t: int) -> int:
    return sum(w for b, s, e, w in rows if b == budget and s <= t < e)


rows = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, SPAN), st.integers(1, 6), st.integers(1, 9)).map(
        lambda r: (r[0], r[1], r[1] + r[2], r[3])
    ),
    max_size=6,
)


@settings(max_examples=200, deadline=None)
@given(rows, st.integers(0, SPAN), st.integers(1, 6), st.integers(0, 20), st.integers(0, 30))
def test_more_fits_when_the_worst_instant_of_the_window_leaves_room(rows, start, length, watts, limit):
    worst = max(drawn(rows, 0, t) for t in range(start, start + length))
    answer = fits(draws_of(rows), 0, limit, watts, epoch(at(start)), epoch(at(start + length)))
    assert answer == (worst + watts <= limit)


def test_windows_that_touch_draw_one_after_the_other():
    one = draws_of([(0, 0, 2, 10), (0, 2, 4, 10)])
    assert one.peaks(1, epoch(at(0)), epoch(at(4))).tolist() == [10]
    assert fits(one, 0, 15, 5, epoch(at(0)), epoch(at(4)))
    assert not fits(one, 0, 15, 6, epoch(at(3)), epoch(at(9)))
    assert fits(one, 0, 15, 15, epoch(at(4)), epoch(at(9)))


# --- placing ----------------------------------------------------------------------------------------------------------


def racks(busy: Busy | None = None) -> PoolSnapshot:
    """Two racks of two nodes with 8 units."""
    nodes = [NodeUnits.whole(i, 10 * i, 8, rack=f"r{i // 2}") for i in range(4)]
    return PoolSnapshot.of(1, 1, "h100", nodes, busy or Busy.nothing())


def budgets(*limits: int, rows: list[Row] = (), watts: int = 1000) -> PoolPower:  # type: ignore[assignment]
    named = [Budget(f"rack r{i}", limit) for i, limit in enumerate(limits)]
    return PoolPower(named, (np.array([0, 0, 1, 1]),), np.full(4, watts), draws_of(list(rows)))


def nodes_of(answer) -> dict[int, int]:
    assert isinstance(answer, Placement), answer
    return {p.node_id: len(p.units) for p in answer.parts}


def test_a_rack_with_room_is_taken_before_one_without():
    assert nodes_of(place(racks(), Shape(units=8, within="node"), window(0, 1), 0, budgets(7000, 9000))) == {2: 8}
    assert nodes_of(place(racks(), Shape(units=8, within="node"), window(0, 1), 0, budgets(8000, 9000))) == {0: 8}


def test_many_units_are_spread_over_racks_as_their_budgets_allow():
    answer = place(racks(), Shape(units=12), window(0, 1), 0, budgets(7000, 6000))
    assert sorted(nodes_of(answer).values()) == [5, 7]
    answer = place(racks(), Shape(nodes=3, per_node=4), window(0, 1), 0, budgets(4500, 9000))
    assert nodes_of(answer) == {0: 4, 2: 4, 3: 4}


def test_a_refusal_for_power_says_the_limit_what_is_drawn_and_what_was_asked():
    power = budgets(7000, 9000, rows=[(1, 0, 5, 6000)])
    answer = place(racks(), Shape(units=8, within="rack"), window(4, 6), 0, power)
    assert isinstance(answer, NoPlace)
    assert answer.power is not None
    told = (answer.power.budget, answer.power.limit, answer.power.drawn, answer.power.asked)
    assert told == ("rack r0", 7000, 0, 8000)
    assert not answer.bookkeeping
    assert not answer.never
    assert isinstance(place(racks(), Shape(units=8, within="rack"), window(5, 6), 0, power), Placement)


def test_a_refusal_for_units_does_not_speak_of_power():
    full = Busy.of_rows([(0, 64 * 50, epoch(at(0)), epoch(at(9)))])
    answer = place(racks(full), Shape(units=1), window(0, 1), 0, budgets(0, 0))
    assert isinstance(answer, NoPlace)
    assert answer.power is None


def test_the_room_around_the_racks_has_a_budget_too():
    power = budgets(9000, 9000)
    room = PoolPower([*power.budgets, Budget("room", 10_000)], (*power.layers, np.full(4, 2)), power.watts, power.draws)
    assert sum(nodes_of(place(racks(), Shape(units=10), window(0, 1), 0, room)).values()) == 10
    answer = place(racks(), Shape(units=11), window(0, 1), 0, room)
    assert isinstance(answer, NoPlace)
    assert answer.power.budget == "room"


def test_nodes_without_a_budget_draw_from_nobody():
    free = PoolPower([Budget("rack r0", 0)], (np.array([0, 0, -1, -1]),), np.full(4, 1000), draws_of([]))
    assert set(nodes_of(place(racks(), Shape(units=16), window(0, 1), 0, free))) == {2, 3}


def test_the_gap_draws_nothing():
    power = budgets(8000, 0, rows=[(0, 2, 4, 8000)])
    assert nodes_of(place(racks(), Shape(units=8), window(0, 2), 1, power)) == {0: 8}


def test_the_earliest_start_waits_for_power():
    power = budgets(9000, 9000, rows=[(0, 0, 6, 5000), (1, 0, 5, 5000)])
    assert earliest(racks(), Shape(units=8), 2, at(0), at(99), power=power) == at(0), "4 and 4"
    assert earliest(racks(), Shape(units=8, within="rack"), 2, at(0), at(99), power=power) == at(5)
    assert earliest(racks(), Shape(units=10), 2, at(0), at(99), power=power) == at(5)
    assert earliest(racks(), Shape(units=18), 2, at(0), at(99), power=power) == at(6)
    assert earliest(racks(), Shape(units=19), 2, at(0), at(99), power=power) is None
    assert earliest(racks(), Shape(units=18), 2, at(0), at(99), 0, Grid(4, at(0)), power) == at(8)


def test_an_extension_draws_on():
    cluster = {
        "nodes": [{"units": 2, "rack": "a", "leaf": None, "nvlink": None}],
        "others": [],
        "holds": [
            {"id": 1, "owner": 1, "node": 0, "units": {0}, "start": 0, "end": 2, "fixed": True, "within": None, "apart": False}
        ],
    }  # fmt: skip
    pool, held = pool_of(cluster), held_of(cluster)

    def power(rows):
        return PoolPower([Budget("rack a", 15)], (np.zeros(1, np.int64),), np.full(1, 10), draws_of(rows))

    mine = (0, 0, 2, 10)
    assert isinstance(extend_moving(pool, held, 0, window(0, 4), power=power([mine, (0, 1, 4, 5)])), Rearranged)
    refused = extend_moving(pool, held, 0, window(0, 4), power=power([mine, (0, 3, 4, 6)]))
    assert isinstance(refused, NoPlace)
    assert (refused.power.limit, refused.power.drawn, refused.power.asked) == (15, 6, 10)


def test_holds_that_give_way_draw_where_they_go_all_of_them_together():
    def asked(holds: int):
        nodes = [{"units": 2, "rack": r, "leaf": None, "nvlink": None} for r in ("a", "b")]
        held = [
            {"id": i, "owner": i, "node": 0, "units": {i}, "start": 0, "end": 9, "fixed": False, "within": None, "apart": False}
            for i in range(holds)
        ]  # fmt: skip
        cluster = {"nodes": nodes, "others": [], "holds": held}
        power = PoolPower([Budget("rack b", 10)], (np.array([-1, 0]),), np.full(2, 10), draws_of([]))
        return place_moving(pool_of(cluster), held_of(cluster), Shape(units=2, within="node"), window(1, 2), 0, power)

    assert [m.to_node_id for m in asked(1).moves] == [101]
    assert isinstance(asked(2), NoPlace), "rack b feeds one of them"


# --- against trying everything ----------------------------------------------------------------------------------------


def power_of(chance, cluster, rows: list[Row], same: bool) -> tuple[PoolPower, list[int], list[list[int]]]:
    """Budgets of racks 0 and 1 and, sometimes, of a room; all units draw the same, or not."""
    nodes = len(cluster["nodes"])
    rack = [chance.choice([0, 0, 1, -1]) for _ in range(nodes)]
    layers = [rack] + ([[2] * nodes] if chance.random() < 0.5 else [])
    watts = [2 if same else chance.randint(1, 3) for _ in range(nodes)]
    limits = [chance.randint(4, 20) for _ in range(3)]
    named = [Budget(f"b{i}", w) for i, w in enumerate(limits)]
    return PoolPower(named, tuple(np.array(x) for x in layers), np.array(watts), draws_of(rows)), limits, layers


def kept(limits, layers, watts, rows, takes, start, end) -> bool:
    """Does no budget that these units draw on go over its limit at any instant?"""
    for layer in layers:
        for budget in set(layer) - {-1}:
            more = sum(t * watts[n] for n, t in enumerate(takes) if layer[n] == budget)
            if more and any(drawn(rows, budget, t) + more > limits[budget] for t in range(start, end)):
                return False
    return True


@settings(max_examples=200, deadline=None)
@given(seeds, rows, st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_with_budgets_it_places_what_trying_everything_places(seed, rows, nodes, units, same):
    chance = Random(seed)
    cluster = cluster_of(chance, nodes, units, SPAN, 4, 1)
    power, limits, layers = power_of(chance, cluster, rows, same)
    shape, start = shape_by(chance, nodes, units), chance.randrange(SPAN)
    end = start + chance.randint(1, 4)
    every = pool_of(cluster).with_busy(pool_of(cluster).busy.plus(held_of(cluster).busy))
    answer = place(every, shape_of(shape), window(start, end), 0, power)
    trial = reference.Trial(cluster, shape, start, end)
    watts = power.watts.tolist()
    free = [max(k for k in range(units + 1) if trial.node_works(n, frozenset(), k)) for n in range(nodes)]
    ways = [w for w in reference.layouts(cluster, shape) if all(t <= f for t, f in zip(w, free, strict=True))]
    good = [w for w in ways if kept(limits, layers, watts, rows, w, start, end)]
    if isinstance(answer, Placement):
        asked = [(p.node_id - 100, len(p.units)) for p in answer.parts]
        assert tuple(sum(k for n, k in asked if n == node) for node in range(nodes)) in good
    else:
        assert (answer.power is not None) == bool(ways)
        assert not (same and good), "where units draw the same, no place is missed"


@settings(max_examples=150, deadline=None)
@given(seeds, rows, st.integers(1, 3), st.integers(1, 3), st.integers(0, 1))
def test_the_earliest_start_under_budgets_is_exact(seed, rows, nodes, units, gap):
    chance = Random(seed)
    cluster = cluster_of(chance, nodes, units, SPAN, 4, 1)
    power, _, _ = power_of(chance, cluster, rows, same=True)
    shape, length, step = shape_of(shape_by(chance, nodes, units)), chance.randint(1, 4), chance.choice([None, 3])
    every = pool_of(cluster).with_busy(pool_of(cluster).busy.plus(held_of(cluster).busy))
    found = earliest(every, shape, length, at(1), at(30), gap, Grid(step, at(0)) if step else None, power)
    starts = [s for s in range(1, 30 - length + 1) if s == 1 or step is None or s % step == 0]
    fitting = [s for s in starts if isinstance(place(every, shape, window(s, s + length), gap, power), Placement)]
    assert found == (at(fitting[0]) if fitting else None)


@settings(max_examples=150, deadline=None)
@given(seeds, rows, st.integers(1, 3), st.integers(2, 4), st.integers(2, 8), st.booleans())
def test_moving_holds_exceeds_no_budget(seed, rows, nodes, units, tries, same):
    chance = Random(seed)
    cluster = cluster_of(chance, nodes, units, SPAN, tries, fixed=0.2)
    power, limits, layers = power_of(chance, cluster, [], same)
    watts = power.watts.tolist()

    def of_holds(holds) -> list[Row]:
        return [
            (layer[h["node"]], h["start"], h["end"], len(h["units"]) * watts[h["node"]])
            for h, layer in product(holds, layers)
            if layer[h["node"]] >= 0
        ]

    before = rows + of_holds(cluster["holds"])
    # what is booked already is within its budget
    limits = [max([limits[b], *(drawn(before, b, t) for t in range(3 * SPAN))]) for b in range(3)]
    power = PoolPower([Budget(f"b{i}", w) for i, w in enumerate(limits)], power.layers, power.watts, draws_of(before))
    shape, start = shape_by(chance, nodes, units), chance.randrange(SPAN)
    end = start + chance.randint(1, SPAN)
    answer = place_moving(pool_of(cluster), held_of(cluster), shape_of(shape), window(start, end), 0, power)
    if isinstance(answer, Rearranged):
        asked = units_asked(answer)
        check_rearranged(cluster, answer, asked, start, end)
        check_shape(cluster, shape, asked)
        new = [(layer[n], start, end, len(u) * watts[n]) for (n, u), layer in product(asked, layers) if layer[n] >= 0]
        now = rows + of_holds(after(cluster, answer)["holds"]) + new
        assert all(drawn(now, b, t) <= limits[b] for b in range(3) for t in range(3 * SPAN))


def test_a_unit_draws_something():
    with pytest.raises(ValueError, match="watt"):
        budgets(1, 1, watts=0)
