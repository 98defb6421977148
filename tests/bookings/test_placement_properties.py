"""Placement and the earliest start against trying everything, on small random clusters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.bookings.capacity import LEVELS, Busy, NodeUnits, PoolSnapshot, Shape, epoch
from app.bookings.earliest import Grid, earliest, free_profile, free_starts, longest, prepare
from app.bookings.placement import NoPlace, Part, Placement, free_until, is_free, place
from app.kernel.window import Window
from tests.bookings import reference_placement as reference

ORIGIN = datetime(2026, 12, 1, tzinfo=UTC)
SPAN = 24


def at(second: int) -> datetime:
    return ORIGIN + timedelta(seconds=second)


@st.composite
def clusters(draw, nodes=4, units=3, stretches=3):
    """Up to `nodes` nodes, with domains that are sometimes unknown, units sometimes not offered."""
    name = st.sampled_from(["a", "b", None])
    taken = st.lists(
        st.tuples(st.integers(0, SPAN), st.integers(1, 8)).map(lambda p: (p[0], p[0] + p[1])), max_size=stretches
    )
    node = st.fixed_dictionaries(
        {
            "rack": name,
            "leaf": name,
            "nvlink": name,
            "units": st.lists(st.one_of(taken, taken, taken, st.none()), min_size=1, max_size=units),
        }
    )
    return draw(st.lists(node, min_size=1, max_size=nodes))


level = st.sampled_from([*LEVELS, None])
shapes = st.one_of(
    st.tuples(st.just("units"), st.integers(1, 6), level),
    st.tuples(st.just("nodes"), st.integers(1, 3), st.integers(1, 3), level),
)
gaps = st.integers(0, 2)


def pool_of(cluster, seed=0) -> PoolSnapshot:
    """The same cluster as the product sees it: positions with holes between nodes, busy ranges in some other order."""
    nodes, rows = [], []
    for i, node in enumerate(cluster):
        offered = sum(1 << j for j, taken in enumerate(node["units"]) if taken is not None)
        first = 10 * (i + 1)
        domains = {k: node[k] for k in ("rack", "leaf", "nvlink")}
        nodes.append(NodeUnits.whole(100 + i, first, len(node["units"]), offered, **domains))
        for j, taken in enumerate(node["units"]):
            rows += [(64 * (first + j), 64 * (first + j) + 64, epoch(at(s)), epoch(at(e))) for s, e in taken or []]
    rows.sort(key=lambda r: (r[2] * 7919 + r[0] + seed) % 101)
    return PoolSnapshot.of(1, 1, "h100", nodes, Busy.of_rows(rows))


def shape_of(shape) -> Shape:
    if shape[0] == "units":
        return Shape(units=shape[1], within=shape[2])
    return Shape(nodes=shape[1], per_node=shape[2], within=shape[3])


def unit_pairs(placement: Placement) -> list[tuple[int, int]]:
    return [(p.node_id - 100, g - 10 * (p.node_id - 99)) for p in placement.parts for g in p.gpus]


@settings(max_examples=250, deadline=None)
@given(clusters(), shapes, st.integers(0, SPAN), st.integers(1, 6), gaps)
def test_it_places_exactly_what_trying_everything_places(cluster, shape, start, length, gap):
    pool, window = pool_of(cluster), Window(at(start), at(start + length))
    answer = place(pool, shape_of(shape), window, gap)
    assert isinstance(answer, Placement) == reference.fits(cluster, shape, start, start + length + gap)
    if isinstance(answer, Placement):
        chosen = unit_pairs(answer)
        assert len(set(chosen)) == len(chosen) == answer.units
        assert set(chosen) <= set(reference.free_of(cluster, start, start + length + gap))
        assert reference.is_shape(cluster, shape, chosen), "the shape and the domain that were asked"
        assert reference.is_shape(cluster, (*shape[:-1], answer.level), chosen), "the level that is told"
        assert is_free(pool, answer.parts, window, gap)
        assert place(pool_of(cluster, seed=5), shape_of(shape), window, gap) == answer, "whatever the order of the rows"


@settings(max_examples=120, deadline=None)
@given(clusters(), shapes, st.integers(0, SPAN), st.integers(1, 6), gaps)
def test_a_refusal_tells_what_is_true(cluster, shape, start, length, gap):
    answer = place(pool_of(cluster), shape_of(shape), Window(at(start), at(start + length)), gap)
    if isinstance(answer, NoPlace):
        end = start + length + gap
        assert answer.never == (not reference.ever_fits(cluster, shape))
        assert answer.bookkeeping == reference.fits_by_counting(cluster, shape, start, end)
        free = reference.free_of(cluster, start, end)
        assert answer.free.units == len(free)
        assert answer.free.largest_node == max(
            (sum(1 for i, _ in free if i == n) for n in range(len(cluster))), default=0
        )
        smaller = [("units", n, shape[-1]) for n in range(1, 13)]
        if shape[0] == "units":
            assert answer.best == max((s[1] for s in smaller if reference.fits(cluster, s, start, end)), default=0)
        else:
            most = (n for n in range(1, 5) if reference.fits(cluster, ("nodes", n, shape[2], shape[3]), start, end))
            assert answer.best == max(most, default=0) * shape[2]


@settings(max_examples=120, deadline=None)
@given(
    clusters(), shapes, st.integers(0, 12), st.integers(1, 6), st.integers(0, 16), gaps, st.sampled_from([None, 1, 4])
)
def test_the_earliest_start_is_exact_to_the_second(cluster, shape, not_before, length, more, gap, step):
    pool = pool_of(cluster)
    ends_by = not_before + length + more
    grid = Grid(step, at(-3)) if step else None
    found = earliest(pool, shape_of(shape), length, at(not_before), at(ends_by), gap, grid)
    expected = reference.earliest(
        cluster, shape, length, not_before, ends_by, gap, lambda t: step is None or (t + 3) % step == 0
    )
    assert found == (None if expected is None else at(expected))
    assert found == earliest(prepare(pool), shape_of(shape), length, at(not_before), at(ends_by), gap, grid)


@settings(max_examples=60, deadline=None)
@given(clusters(), shapes, st.integers(0, SPAN), gaps)
def test_the_longest_stay_is_exact_to_the_second(cluster, shape, start, gap):
    limit = 2 * SPAN
    found = longest(pool_of(cluster), shape_of(shape), at(start), gap)
    assert min(found, limit) == reference.longest(cluster, shape, start, gap, limit)


@settings(max_examples=60, deadline=None)
@given(clusters(nodes=3, units=2), shapes, st.integers(0, 8), st.integers(1, 5), gaps)
def test_places_side_by_side_are_counted_for_each_start(cluster, shape, first, length, gap):
    found = free_starts(pool_of(cluster), shape_of(shape), length, at(first), 5, timedelta(seconds=3), gap)
    starts = [first + 3 * i for i in range(5)]
    assert found.tolist() == [reference.places(cluster, shape, s, s + length + gap) for s in starts]


@settings(max_examples=80, deadline=None)
@given(clusters(nodes=2, stretches=6), st.integers(0, SPAN), st.integers(1, SPAN))
def test_what_is_taken_is_told_in_stretches_that_neither_overlap_nor_touch(cluster, start, length):
    pool = pool_of(cluster)
    unit, since, until = pool.taken(epoch(at(start)), epoch(at(start + length)))
    told = [(u, s - epoch(ORIGIN), e - epoch(ORIGIN)) for u, s, e in zip(*map(list, (unit, since, until)), strict=True)]
    offered = [taken for node in cluster for taken in node["units"] if taken is not None]
    for index, taken in enumerate(offered):
        near = {t for s, e in taken if s < start + length and e > start for t in range(s, e)}
        mine = [(s, e) for u, s, e in told if u == index]
        assert {t for s, e in mine for t in range(s, e)} == near
        assert all(one[1] < other[0] for one, other in pairwise(mine))


@settings(max_examples=60, deadline=None)
@given(clusters(), st.integers(0, 8))
def test_the_profile_counts_units_free_throughout_each_step(cluster, first):
    found = free_profile(pool_of(cluster), at(first), 5, timedelta(seconds=4))
    starts = [first + 4 * i for i in range(5)]
    assert found.tolist() == [len(reference.free_of(cluster, s, s + 4)) for s in starts]


@settings(max_examples=60, deadline=None)
@given(clusters(nodes=2), st.integers(0, SPAN), st.data())
def test_units_stay_free_until_somebody_elses_time(cluster, start, data):
    every = reference.installed_of(cluster)
    chosen = data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=3, unique=True))
    parts = [Part(100 + i, ((64 * (10 * (i + 1) + j), 64 * (10 * (i + 1) + j) + 64),)) for i, j in chosen]
    until = free_until(pool_of(cluster), parts, Window(at(start), at(start + 1)))
    free = [n for n in range(1, 2 * SPAN) if set(chosen) <= set(reference.free_of(cluster, start, start + n))]
    assert min((until or epoch(at(start))) - epoch(at(start)), 2 * SPAN - 1) == max(free, default=0)


@pytest.mark.parametrize(
    "wrong", [{}, {"units": 0}, {"units": 1, "nodes": 1}, {"nodes": 2}, {"units": 1, "within": "room"}]
)
def test_a_shape_is_one_of_two_forms(wrong):
    with pytest.raises(ValueError, match=r"shape|level"):
        Shape(**wrong)
