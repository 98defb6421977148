"""Where units are found and where not: the tricky cases, each named by what it shows."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from app.bookings.capacity import FOREVER, Busy, NodeUnits, PoolSnapshot, Shape, epoch
from app.bookings.earliest import Grid, earliest, free_starts, longest, prepare
from app.bookings.placement import NoPlace, Part, Placement, free_until, is_free, place
from app.kernel.window import Window

DAY = datetime(2026, 12, 1, tzinfo=UTC)
HOUR = 3600
HORIZON = DAY + timedelta(days=90)


def hour(h: float) -> datetime:
    return DAY + timedelta(hours=h)


def window(start: float, end: float) -> Window:
    return Window(hour(start), hour(end))


def taken(*holds: tuple[int, int, float, float | None]) -> Busy:
    """Holds `(first GPU, last GPU, from hour, to hour)`; None: nobody knows until when."""
    return Busy.of_rows(
        (64 * first, 64 * last + 64, epoch(hour(start)), FOREVER if end is None else epoch(hour(end)))
        for first, last, start, end in holds
    )


def pool(nodes: list[NodeUnits], busy: Busy | None = None) -> PoolSnapshot:
    return PoolSnapshot.of(7, 1, "H100-SXM-80GB", nodes, busy or Busy.nothing())


def node(number: int, gpus: int = 8, **where) -> NodeUnits:
    """Node n owns the GPUs 10 n .. 10 n + gpus - 1."""
    return NodeUnits.whole(number, 10 * number, gpus, **where)


def gpus(answer: Placement | NoPlace) -> list[int]:
    assert isinstance(answer, Placement), answer
    return [g for part in answer.parts for g in part.gpus]


# --- time -------------------------------------------------------------------------------------------------------------


def test_windows_that_touch_do_not_overlap():
    one = pool([node(1, 1)], taken((10, 10, 10, 12)))
    assert gpus(place(one, Shape(units=1), window(12, 14))) == [10]
    assert gpus(place(one, Shape(units=1), window(8, 10))) == [10]


ALLEN = {
    "before": (6, 8, True),
    "meets": (8, 10, True),
    "overlaps": (9, 12, False),
    "finished by": (9, 14, False),
    "contains": (9, 15, False),
    "starts": (10, 12, False),
    "equals": (10, 14, False),
    "started by": (10, 15, False),
    "during": (11, 13, False),
    "finishes": (12, 14, False),
    "overlapped by": (12, 15, False),
    "met by": (14, 16, True),
    "after": (15, 17, True),
}


@pytest.mark.parametrize(("start", "end", "fits"), ALLEN.values(), ids=ALLEN)
def test_of_allens_thirteen_relations_only_before_after_and_touching_fit(start, end, fits):
    one = pool([node(1, 1)], taken((10, 10, 10, 14)))
    assert isinstance(place(one, Shape(units=1), window(start, end)), Placement) is fits


def test_the_cleaning_gap_comes_after_a_booking_and_before_the_next():
    one = pool([node(1, 1)], taken((10, 10, 14, 16)))
    assert isinstance(place(one, Shape(units=1), window(10, 14)), Placement)
    assert isinstance(place(one, Shape(units=1), window(10, 14), gap=600), NoPlace)
    assert longest(one, Shape(units=1), hour(10), gap=600) == 4 * HOUR - 600


def test_find_a_time_inside_one_day():
    one = pool([node(1, 1)], taken((10, 10, 10, 12)))
    starts = free_starts(one, Shape(units=1), HOUR, hour(9), 4, timedelta(hours=1))
    assert starts.tolist() == [1, 0, 0, 1], "9 to 10 and 12 to 13 only"


def test_use_without_a_known_end_is_never_free_again_but_was_before():
    one = pool([node(1, 1)], taken((10, 10, 10, None)))
    assert earliest(one, Shape(units=1), HOUR, hour(9.5), HORIZON) is None
    assert isinstance(place(one, Shape(units=1), window(9, 10)), Placement)


def test_as_soon_as_possible_is_the_second_at_which_a_hold_ends_or_the_next_point_of_the_grid():
    one = pool([node(1, 1)], taken((10, 10, 10, 12 + 7 / 60)))
    assert earliest(one, Shape(units=1), HOUR, hour(10), HORIZON) == hour(12 + 7 / 60)
    assert earliest(one, Shape(units=1), HOUR, hour(10), HORIZON, grid=Grid(900, DAY)) == hour(12.25)
    now = hour(9) + timedelta(seconds=11)
    assert earliest(one, Shape(units=1), 900, now, HORIZON, grid=Grid(900, DAY)) == now, "from now means now"
    assert Grid(900, DAY).up(now) == hour(9.25)


def test_d_hours_between_a_and_b():
    one = pool([node(1, 1)], taken((10, 10, 10, 12)))
    assert earliest(one, Shape(units=1), 2 * HOUR, hour(9), hour(14)) == hour(12)
    assert earliest(one, Shape(units=1), 2 * HOUR, hour(9), hour(13.5)) is None


# --- shapes -----------------------------------------------------------------------------------------------------------


def test_four_asked_and_three_free_is_nothing():
    answer = place(pool([node(1, 4)], taken((13, 13, 10, 12))), Shape(units=4), window(10, 12))
    assert isinstance(answer, NoPlace)
    assert (answer.best, answer.free.units, answer.never) == (3, 3, False)


def test_eight_on_one_node_with_four_free_on_each_of_two():
    busy = taken((10, 13, 8, 15), (20, 23, 8, 13))
    two = pool([node(1), node(2)], busy)
    answer = place(two, Shape(units=8, within="node"), window(10, 12))
    assert isinstance(answer, NoPlace)
    assert (answer.free.units, answer.best, answer.free.whole_nodes, answer.never) == (8, 4, 0, False)
    assert earliest(two, Shape(units=8, within="node"), 2 * HOUR, hour(10), HORIZON) == hour(13), "when n2 is whole"
    offered = place(two, Shape(nodes=2, per_node=4), window(10, 12))
    assert [p.node_id for p in offered.parts] == [1, 2]
    assert gpus(offered) == [14, 15, 16, 17, 24, 25, 26, 27]


def test_a_unit_free_at_every_instant_is_not_a_unit_free_all_the_time():
    one = pool([node(1, 2)], taken((10, 10, 12, 14), (11, 11, 10, 12)))
    answer = place(one, Shape(units=1), window(10, 14))
    assert isinstance(answer, NoPlace)
    assert answer.bookkeeping, "moving holds between units would help, if none were pinned"
    assert longest(one, Shape(units=1), hour(10)) == 2 * HOUR, "10 to 12 is the offer"
    assert earliest(one, Shape(units=1), 4 * HOUR, hour(10), HORIZON) == hour(12)


def test_two_nodes_that_take_turns_are_not_one_node():
    two = pool([node(1, 1), node(2, 1)], taken((10, 10, 12, 14), (20, 20, 10, 12)))
    answer = place(two, Shape(units=1), window(10, 14))
    assert isinstance(answer, NoPlace)
    assert not answer.bookkeeping, "a booking does not change its node half way"


def test_holds_in_the_way_only_by_their_unit_are_told_as_bookkeeping():
    one = pool([node(1, 2)], taken((10, 10, 0, 2), (10, 10, 4, 6), (11, 11, 2, 4)))
    answer = place(one, Shape(units=1), window(0, 6))
    assert isinstance(answer, NoPlace)
    assert answer.bookkeeping


def test_a_booked_slice_takes_its_gpu_from_who_wants_it_whole_and_leaves_the_other_slices():
    slices = tuple((64 * 3 + 8 * i, 64 * 3 + 8 * i + 8) for i in range(7))
    held = Busy.of_rows([(*slices[2], epoch(hour(10)), epoch(hour(12)))])
    whole = pool([NodeUnits(1, ((192, 256),), 1)], held)
    assert isinstance(place(whole, Shape(units=1), window(11, 13)), NoPlace)
    assert earliest(whole, Shape(units=1), HOUR, hour(11), HORIZON) == hour(12)
    sliced = pool([NodeUnits(1, slices, 0b1111111)], held)
    answer = place(sliced, Shape(units=6), window(11, 13))
    assert isinstance(answer, Placement)
    assert answer.parts[0].positions == ((192, 208), (216, 248))
    assert gpus(answer) == [3]
    assert isinstance(place(sliced, Shape(units=7), window(11, 13)), NoPlace)


def test_a_gpu_booked_whole_takes_all_its_slices():
    slices = tuple((64 * 3 + 8 * i, 64 * 3 + 8 * i + 8) for i in range(7))
    sliced = pool([NodeUnits(1, slices, 0b1111111)], taken((3, 3, 10, 12)))
    assert isinstance(place(sliced, Shape(units=1), window(11, 13)), NoPlace)


def test_places_of_two_nodes_need_two_nodes_however_many_units_one_has():
    shape, hours = Shape(nodes=2, per_node=1), (HOUR, hour(0), 1, timedelta(hours=1))
    assert free_starts(pool([node(1)]), shape, *hours).tolist() == [0]
    assert free_starts(pool([node(1), node(2, 3)]), shape, *hours).tolist() == [3]
    assert free_starts(pool([node(1), node(2, 3), node(3, 3)]), shape, *hours).tolist() == [6]
    assert free_starts(pool([node(1), node(2), node(3)]), Shape(nodes=2, per_node=4), *hours).tolist() == [3]


# --- domains ----------------------------------------------------------------------------------------------------------


def test_twelve_nodes_in_a_rack_of_eight_never_fit():
    nodes = [node(i, rack=f"rack {i // 8}") for i in range(16)]
    answer = place(pool(nodes), Shape(nodes=12, per_node=8, within="rack"), window(10, 12))
    assert isinstance(answer, NoPlace)
    assert answer.never
    assert (answer.installed.domain_nodes, answer.free.nodes, answer.best) == (8, 16, 64)
    assert isinstance(place(pool(nodes), Shape(nodes=12, per_node=8), window(10, 12)), Placement)


def test_what_would_fit_if_nothing_were_ill_is_not_never():
    ill = NodeUnits.whole(1, 10, 8, offered=0b11111101)
    answer = place(pool([ill]), Shape(units=8, within="node"), window(10, 12))
    assert isinstance(answer, NoPlace)
    assert not answer.never
    assert (answer.installed.units, answer.offered.units, answer.free.units) == (8, 7, 7)
    assert 11 not in gpus(place(pool([ill]), Shape(units=7), window(10, 12)))
    assert earliest(pool([ill]), Shape(units=8), HOUR, hour(10), HORIZON) is None


def test_a_node_whose_rack_is_not_known_shares_it_with_nobody():
    nodes = [node(1, 1, rack="a"), node(2, 1), node(3, 1), node(4, 1, rack="a")]
    assert gpus(place(pool(nodes), Shape(nodes=2, per_node=1, within="rack"), window(0, 1))) == [10, 40]
    assert isinstance(place(pool(nodes[1:3]), Shape(units=2, within="rack"), window(0, 1)), NoPlace)


def test_a_leaf_switch_of_two_racks_does_not_join_them():
    nodes = [node(1, 1, rack="a", leaf="x"), node(2, 1, rack="b", leaf="x"), node(3, 1, rack="b", leaf="y")]
    assert gpus(place(pool(nodes), Shape(units=2, within="rack"), window(0, 1))) == [20, 30]
    assert gpus(place(pool(nodes), Shape(units=2), window(0, 1))) == [10, 20], "closest when nothing was asked"


def test_units_anywhere_come_from_the_smallest_domain_that_has_them():
    nodes = [node(i, 2, rack=f"r{i // 4}", leaf=f"l{i // 2}", nvlink=f"n{i}") for i in range(8)]
    busy = taken((0, 1, 0, 9), (20, 20, 0, 9), (30, 30, 0, 9), (50, 50, 0, 9))
    assert place(pool(nodes, busy), Shape(units=2), window(0, 1)).level == "node"
    four = place(pool(nodes, busy), Shape(units=4), window(0, 1))
    assert (four.level, [p.node_id for p in four.parts]) == ("leaf", [6, 7])
    assert place(pool(nodes, busy), Shape(units=6), window(0, 1)).level == "rack"
    assert place(pool(nodes, busy), Shape(units=10), window(0, 1)).level is None


# --- best fit ---------------------------------------------------------------------------------------------------------


def test_a_broken_node_is_filled_before_a_whole_one_is_broken():
    nodes, busy = [node(1), node(2), node(3)], taken((20, 24, 0, 9), (30, 33, 0, 9))
    assert [p.node_id for p in place(pool(nodes, busy), Shape(units=3), window(0, 1)).parts] == [2]
    assert [p.node_id for p in place(pool(nodes, busy), Shape(units=4), window(0, 1)).parts] == [3]
    assert [p.node_id for p in place(pool(nodes, busy), Shape(units=5), window(0, 1)).parts] == [1]


def test_whole_nodes_are_taken_where_the_domain_is_broken_already():
    nodes = [node(i, 4, nvlink=f"n{i // 4}") for i in range(8)]
    busy = taken((40, 40, 0, 9))
    assert [p.node_id for p in place(pool(nodes, busy), Shape(units=4), window(0, 1)).parts] == [5]
    assert [p.node_id for p in place(pool(nodes, busy), Shape(nodes=3, per_node=4), window(0, 1)).parts] == [5, 6, 7]


def test_many_units_take_few_nodes_and_the_rest_fills_a_broken_one():
    nodes, busy = [node(1), node(2), node(3)], taken((20, 25, 0, 9))
    answer = place(pool(nodes, busy), Shape(units=10), window(0, 1))
    assert {p.node_id: len(p.units) for p in answer.parts} == {1: 8, 2: 2}


def test_on_a_node_the_unit_whose_free_time_is_filled_best_is_taken():
    busy = taken((10, 10, 0, 8), (11, 11, 0, 10), (11, 11, 13, 20), (12, 12, 14, 20))
    assert gpus(place(pool([node(1, 4)], busy), Shape(units=1), window(10, 12))) == [11]


# --- units that are held already --------------------------------------------------------------------------------------


def test_an_extension_is_told_until_when_its_units_are_free():
    one = pool([node(1, 2)], taken((10, 10, 12, 14)))
    parts = [Part(1, ((640, 704),))]
    assert free_until(one, parts, window(10, 11)) == epoch(hour(12))
    assert is_free(one, parts, window(10, 12))
    assert not is_free(one, parts, window(10, 12), gap=60)
    assert free_until(one, parts, window(12, 13)) is None, "taken at once"
    assert free_until(one, [Part(1, ((704, 768),))], window(10, 11)) == FOREVER
    assert free_until(one, [Part(9, ((6400, 6464),))], window(10, 11)) is None, "not offered any more"
    assert free_until(pool([]), parts, window(10, 11)) is None


# --- building ---------------------------------------------------------------------------------------------------------


def test_packed_columns_say_the_same_as_rows():
    rows = [(0, 128, 1_800_000_000, 1_800_003_600), (640, 704, 1_800_000_000, FOREVER)]
    columns = list(zip(*rows, strict=True))
    packed = [struct.pack(f">2{form}", *column) for form, column in zip("iiqq", columns, strict=True)]
    one, other = Busy.of_rows(rows), Busy.of_bytes(*packed)
    for name in ("lower", "upper", "start", "end"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
        assert getattr(other, name).dtype == np.int64
    assert len(Busy.of_bytes(b"", b"", b"", b"")) == 0
    assert len(one.plus(other, Busy.nothing())) == 4


def test_two_units_on_one_position_are_refused():
    with pytest.raises(ValueError, match="share positions"):
        pool([NodeUnits(1, ((0, 64),), 1), NodeUnits(2, ((56, 64),), 1)])


def test_an_empty_pool_has_no_place_and_no_time():
    empty = pool([])
    answer = place(empty, Shape(units=1), window(0, 1))
    assert isinstance(answer, NoPlace)
    assert answer.never
    assert earliest(empty, Shape(nodes=1, per_node=1), HOUR, hour(0), HORIZON) is None
    assert longest(empty, Shape(units=1), hour(0)) == 0
    assert free_starts(empty, Shape(nodes=1, per_node=1), HOUR, hour(0), 2, timedelta(hours=1)).tolist() == [0, 0]


# --- at size ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_in_a_crowded_cluster_the_answers_agree_with_each_other(seed):
    """No reference is quick enough here, but a place is there at the earliest start and not a second before, and for
    the longest stay and not a second more."""
    chance = np.random.default_rng(seed)
    nodes = [node(i, 8, rack=f"r{i // 8}", leaf=f"l{i // 4}", nvlink=f"n{i // 2}") for i in range(96)]
    holds = []
    for i in range(96):
        for first, last in ((0, 7),) if i % 3 == 0 else ((0, 3), (4, 7)) if i % 3 == 1 else ((0, 0), (1, 2), (3, 7)):
            now = chance.random() * 20 - 10
            while now < 24 * 20:
                length, rest = 1 + chance.random() * 20, chance.random() * 9
                holds.append(
                    (10 * i + first, 10 * i + last, round(now * HOUR) / HOUR, round((now + length) * HOUR) / HOUR)
                )
                now += length + rest
    crowded = pool(nodes, taken(*holds))
    ready = prepare(crowded)
    found = 0
    for shape in (
        Shape(units=1),
        Shape(units=8, within="node"),
        Shape(units=40, within="rack"),
        Shape(nodes=2, per_node=8, within="nvlink"),
        Shape(nodes=3, per_node=4, within="leaf"),
        Shape(nodes=10, per_node=8),
        Shape(units=300),
    ):
        for length in (1800, 4 * HOUR, 11 * HOUR):
            start = earliest(ready, shape, length, hour(20), hour(24 * 20), gap=300)
            if start is None:
                continue
            found += 1
            stay = Window(start, start + timedelta(seconds=length))
            assert isinstance(place(crowded, shape, stay, 300), Placement)
            if start > hour(20):
                before = Window(start - timedelta(seconds=1), stay.end - timedelta(seconds=1))
                assert isinstance(place(crowded, shape, before, 300), NoPlace)
            most = longest(ready, shape, start, 300)
            assert most >= length
            assert isinstance(place(crowded, shape, Window(start, start + timedelta(seconds=most)), 300), Placement)
            over = Window(start, start + timedelta(seconds=most + 1))
            assert isinstance(place(crowded, shape, over, 300), NoPlace)
            assert free_starts(ready, shape, length, start, 1, timedelta(hours=1), 300)[0] >= 1
    assert found >= 8, "most shapes fit at some time"
