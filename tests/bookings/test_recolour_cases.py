"""Who gives way and who does not: the tricky cases of placement, each named by what it shows."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest

from app.bookings.capacity import FOREVER, NodeUnits, Shape
from app.bookings.earliest import earliest, longest
from app.bookings.held import Held, Hold, PackedIds
from app.bookings.placement import NoPlace, Placement, place
from app.bookings.recolour import Moved, Rearranged, extend_moving, place_moving, replace_moving
from tests.bookings.test_placement_cases import DAY, HORIZON, HOUR, epoch, gpus, hour, node, pool, taken, window

GPU = 64


def hold(number: int, first: int, last: int, start: float, end: float, **facts) -> Hold:
    """Hold `number` of the booking of that number (or `owner`) on the GPUs first .. last of node first // 10."""
    owner = facts.pop("owner", number)
    return Hold(
        number, owner, first // 10, ((GPU * first, GPU * last + GPU),), epoch(hour(start)), epoch(hour(end)), **facts
    )


def moves(answer) -> list[tuple[int, int, int]]:
    """(hold, first GPU before, first GPU after)."""
    assert isinstance(answer, Rearranged), answer
    return [(m.hold, m.positions[0][0] // GPU, m.to_positions[0][0] // GPU) for m in answer.moves]


NOTHING = Held.of([])


# --- the cases of the booking pages -----------------------------------------------------------------------------------


def test_eight_on_one_node_are_refused_when_four_and_four_are_free():
    two = pool([node(1), node(2)], taken((10, 13, 0, 9), (20, 23, 0, 5)))
    one = Shape(units=8, within="node")
    answer = place_moving(two, NOTHING, one, window(1, 3))
    assert isinstance(answer, NoPlace)
    assert (answer.best, answer.free.units, answer.bookkeeping) == (4, 8, False)
    assert earliest(two, one, 2 * HOUR, hour(1), HORIZON) == hour(5), "the next time a node is whole"
    assert isinstance(place(two, Shape(nodes=2, per_node=4), window(1, 3)), Placement), "what is offered instead"


@pytest.mark.parametrize("what", ["external", "pinned", "started"])
def test_one_gpu_free_at_every_instant_is_refused_when_no_single_one_is_free_throughout(what):
    if what == "external":
        two, held = pool([node(1, 2)], taken((10, 10, 12, 14), (11, 11, 10, 12))), NOTHING
    else:
        two = pool([node(1, 2)])
        facts = {what: True}
        held = Held.of([hold(1, 10, 10, 12, 14, **facts), hold(2, 11, 11, 10, 12, **facts)])
    answer = place_moving(two, held, Shape(units=1), window(10, 14))
    assert isinstance(answer, NoPlace)
    assert answer.bookkeeping
    assert answer.pinned == (what == "pinned"), "a refusal that only a pin causes says so"
    assert not answer.gave_up
    every = two.with_busy(two.busy.plus(held.busy))
    assert longest(every, Shape(units=1), hour(10)) == 2 * HOUR, "10 to 12 is what can be offered"


XYZ = [hold(1, 10, 10, 0, 2), hold(2, 10, 10, 4, 6), hold(3, 11, 11, 2, 4)]


def test_what_fits_by_count_is_not_refused_while_nobody_has_started():
    answer = place_moving(pool([node(1, 2)]), Held.of(XYZ), Shape(units=1), window(0, 6))
    assert moves(answer) == [(3, 11, 10)]
    assert gpus(answer.placement) == [11]


@pytest.mark.parametrize("facts", [{"pinned": True}, {"started": True}])
def test_whoever_is_pinned_or_has_started_stays(facts):
    stuck = [*XYZ[:2], hold(3, 11, 11, 2, 4, **facts)]
    # X and Y may move, but not so that one GPU is free from 0 to 6: Z is on one, and they leave the other in turn
    both = [*stuck[1:], hold(1, 10, 10, 0, 2, **facts)]
    answer = place_moving(pool([node(1, 2)]), Held.of(both), Shape(units=1), window(0, 6))
    assert isinstance(answer, NoPlace)
    assert answer.pinned == ("pinned" in facts)


def test_a_pin_in_the_middle_moves_the_others_around_it():
    stuck = [*XYZ[:2], hold(3, 11, 11, 2, 4, pinned=True)]
    answer = place_moving(pool([node(1, 2)]), Held.of(stuck), Shape(units=1), window(0, 6))
    assert moves(answer) == [(1, 10, 11), (2, 10, 11)]
    assert gpus(answer.placement) == [10]


def test_another_kind_is_another_pool_and_never_taken_instead():
    """A request names its kind; what is free of a better one is in a pool of its own."""
    full = pool([node(1, 1)], taken((10, 10, 0, 9)))
    assert isinstance(place_moving(full, NOTHING, Shape(units=1), window(1, 2)), NoPlace)


def test_units_are_judged_by_the_tightest_of_their_limits():
    """Five nodes are free, but only one has what a part of the request needs."""
    nodes = [node(i, 1) for i in range(1, 6)] + [node(7, 4)]
    busy = taken((70, 70, 0, 9))
    assert isinstance(place_moving(pool(nodes, busy), NOTHING, Shape(units=5), window(0, 1)), Rearranged)
    assert isinstance(place_moving(pool(nodes, busy), NOTHING, Shape(units=4, within="node"), window(0, 1)), NoPlace)


# --- extending --------------------------------------------------------------------------------------------------------

A = hold(1, 10, 10, 10, 12, started=True)


def test_an_extension_makes_a_neighbour_give_way():
    held = Held.of([A, hold(2, 10, 10, 12, 14)])
    answer = extend_moving(pool([node(1, 2)]), held, 0, window(10, 13))
    assert moves(answer) == [(2, 10, 11)]
    assert gpus(answer.placement) == [10]


def test_an_extension_sends_the_neighbour_to_another_node():
    answer = extend_moving(pool([node(1, 1), node(2, 1)]), Held.of([A, hold(2, 10, 10, 12, 14)]), 0, window(10, 13))
    assert moves(answer) == [(2, 10, 20)]


@pytest.mark.parametrize("facts", [{"pinned": True}, {"started": True}, {}])
def test_an_extension_is_refused_when_the_neighbour_cannot_go(facts):
    held = Held.of([A, hold(2, 10, 10, 12, 14, **facts), hold(3, 11, 11, 11, 13, started=True)])
    answer = extend_moving(pool([node(1, 2)]), held, 0, window(10, 13))
    assert isinstance(answer, NoPlace)
    spare = extend_moving(pool([node(1, 3)]), held, 0, window(10, 13))
    assert isinstance(spare, NoPlace) == bool(facts)
    assert not isinstance(spare, NoPlace) or spare.pinned == ("pinned" in facts)


def test_an_extension_into_free_time_moves_nobody_and_keeps_the_gap():
    held = Held.of([A, hold(2, 10, 10, 14, 16, pinned=True)])
    one = pool([node(1, 1)])
    assert moves(extend_moving(one, held, 0, window(10, 14))) == []
    assert isinstance(extend_moving(one, held, 0, window(10, 14), gap=60), NoPlace)


def test_a_booking_that_has_not_begun_may_change_its_own_units_to_last_longer():
    held = Held.of([hold(1, 10, 10, 10, 12), hold(2, 10, 10, 12, 14, pinned=True)])
    answer = extend_moving(pool([node(1, 2)]), held, 0, window(10, 13))
    assert moves(answer) == [(1, 10, 11)]
    assert gpus(answer.placement) == [11]


def test_units_that_are_out_of_service_later_cannot_be_kept():
    answer = extend_moving(pool([node(1, 2)], taken((10, 10, 12, None))), Held.of([A]), 0, window(10, 13))
    assert isinstance(answer, NoPlace)


# --- from node to node ------------------------------------------------------------------------------------------------


def test_a_hold_leaves_its_node_when_that_makes_a_node_whole():
    two = pool([node(1, 4), node(2, 4)])
    held = Held.of([hold(1, 10, 10, 0, 9), hold(2, 20, 20, 0, 9)])
    answer = place_moving(two, held, Shape(units=4, within="node"), window(1, 2))
    assert len(moves(answer)) == 1
    assert gpus(answer.placement) in ([10, 11, 12, 13], [20, 21, 22, 23])


def test_a_booking_keeps_its_closeness_or_moves_as_one():
    where = [{"leaf": "a"}, {"leaf": "a"}, {"leaf": "b"}, {"leaf": "b"}]
    four = pool([node(i + 1, 2, **w) for i, w in enumerate(where)])
    pair = [hold(i, 10 * i, 10 * i + 1, 5, 9, owner=9, within="leaf", apart=True) for i in (1, 2)]
    answer = place_moving(
        four, Held.of([*pair, hold(3, 30, 31, 0, 5)]), Shape(nodes=2, per_node=2, within="leaf"), window(0, 7)
    )
    assert sorted(moves(answer)) == [(1, 10, 30), (2, 20, 40)] or sorted(moves(answer)) == [(3, 30, 10)], moves(answer)
    stuck = [*pair, hold(3, 30, 31, 8, 10, pinned=True)]
    refused = place_moving(four, Held.of(stuck), Shape(nodes=2, per_node=2, within="leaf"), window(0, 9))
    assert isinstance(refused, NoPlace), "half of the pair would have to go to the other leaf"


def test_a_booking_over_different_nodes_is_not_put_on_one():
    two = pool([node(1, 4), node(2, 4)])
    held = Held.of([hold(i, 10 * i, 10 * i, 0, 9, owner=9, apart=True) for i in (1, 2)])
    assert isinstance(place_moving(two, held, Shape(units=4, within="node"), window(1, 2)), NoPlace)
    loose = Held.of([hold(i, 10 * i, 10 * i, 0, 9, owner=9) for i in (1, 2)])
    assert isinstance(place_moving(two, loose, Shape(units=4, within="node"), window(1, 2)), Rearranged)


def test_no_more_than_eight_holds_leave_their_nodes():
    def two(size):
        held = [hold(i, 10 + i, 10 + i, 0, 9) for i in range(size)] + [hold(90, 20, 20, 0, 9, pinned=True)]
        return place_moving(
            pool([node(1, 10), node(2, 10)]), Held.of(held), Shape(units=10, within="node"), window(1, 2)
        )

    assert len(moves(two(8))) == 8
    assert isinstance(two(9), NoPlace)


def test_a_hold_on_a_unit_that_is_out_of_service_keeps_that_and_moves_the_rest():
    ill = NodeUnits.whole(1, 10, 3, offered=0b101)
    held = Held.of([hold(1, 10, 11, 2, 4), hold(2, 12, 12, 0, 2)])
    answer = place_moving(pool([ill]), held, Shape(units=1), window(0, 4))
    assert isinstance(answer, Rearranged)
    assert answer.moves in (
        (Moved(1, 1, ((640, 768),), 1, ((704, 832),)),),
        (Moved(2, 1, ((768, 832),), 1, ((640, 704),)),),
    )


# --- a dead node ------------------------------------------------------------------------------------------------------


def test_only_the_dead_nodes_share_is_replaced_and_near_the_rest():
    where = [{"leaf": "a"}, {"leaf": "a"}, {"leaf": "b"}, {"leaf": "a"}]
    dead = NodeUnits.whole(2, 20, 4, offered=0, leaf="a")
    nodes = [node(1, 4, **where[0]), dead, node(3, 4, **where[2]), node(4, 4, **where[3])]
    mine = [hold(i, 10 * i, 10 * i + 3, 0, 9, owner=9, started=True, within="leaf", apart=True) for i in (1, 2)]
    answer = replace_moving(pool(nodes), Held.of(mine), 1, window(3, 9))
    assert gpus(answer.placement) == [40, 41, 42, 43]
    late = Held.of([*mine, hold(5, 40, 40, 5, 7)])
    moved = replace_moving(pool(nodes), late, 1, window(3, 9))
    assert moves(moved) == [(5, 40, 30)]
    stuck = Held.of([*mine, hold(5, 40, 40, 5, 7, pinned=True)])
    refused = replace_moving(pool(nodes), stuck, 1, window(3, 9))
    assert isinstance(refused, NoPlace)
    assert refused.pinned


def test_a_share_that_may_lie_anywhere_is_replaced_in_pieces():
    dead = NodeUnits.whole(1, 10, 4, offered=0)
    nodes = [dead, node(2, 2), node(3, 2)]
    answer = replace_moving(pool(nodes), Held.of([hold(1, 10, 13, 0, 9, started=True)]), 0, window(3, 9))
    assert gpus(answer.placement) == [20, 21, 30, 31]


# --- preferred closeness ----------------------------------------------------------------------------------------------


def test_a_preferred_level_is_tried_first_and_given_up():
    nodes = [node(1, 2, rack="a", leaf="x"), node(2, 2, rack="b", leaf="x"), node(3, 2, rack="b", leaf="y")]
    near = place(pool(nodes), Shape(units=4, near="rack"), window(0, 1))
    assert ([p.node_id for p in near.parts], near.near) == ([2, 3], True), "not one leaf over two racks"
    assert [p.node_id for p in place(pool(nodes), Shape(units=4), window(0, 1)).parts] == [1, 2]
    full = pool(nodes, taken((30, 31, 0, 9)))
    far = place(full, Shape(units=4, near="rack"), window(0, 1))
    assert ([p.node_id for p in far.parts], far.near) == ([1, 2], False)
    assert isinstance(place(full, Shape(units=4, within="rack"), window(0, 1)), NoPlace)


def test_a_preferred_level_lies_inside_the_required_one():
    nodes = [node(i, 2, rack="a", leaf=f"l{i // 2}") for i in range(1, 5)]
    answer = place(pool(nodes), Shape(units=4, within="rack", near="leaf"), window(0, 1))
    assert ([p.node_id for p in answer.parts], answer.near, answer.level) == ([2, 3], True, "leaf")
    far = place(pool(nodes, taken((20, 20, 0, 9))), Shape(units=4, within="rack", near="leaf"), window(0, 1))
    assert (far.near, far.level) == (False, "rack")
    assert earliest(pool(nodes), Shape(units=6, near="leaf"), HOUR, DAY, HORIZON) == DAY, "worth no wait"
    for wrong in ({"near": "rack", "within": "leaf"}, {"near": "leaf", "within": "leaf"}, {"near": "room"}):
        with pytest.raises(ValueError, match="level"):
            Shape(units=1, **wrong)


# --- the answer -------------------------------------------------------------------------------------------------------


def test_the_same_question_gets_the_same_answer_in_whatever_order_holds_come():
    busy = [hold(i, 10 * (i % 4 + 1) + i % 3, 10 * (i % 4 + 1) + i % 3, i, i + 2) for i in range(12)]
    four = pool([node(i, 3) for i in range(1, 5)])
    shape = Shape(nodes=3, per_node=3)
    one = place_moving(four, Held.of(busy), shape, window(0, 13))
    assert place_moving(four, Held.of(busy), shape, window(0, 13)) == one


def test_moves_come_in_the_order_of_their_ids_also_when_packed():
    ids = [UUID(int=n) for n in (7, 3, 5)]
    held = Held.of([hold(i, 10 + i, 10 + i, 0, 9) for i in range(3)])
    packed = Held(PackedIds(b"".join(i.bytes for i in ids)), *(getattr(held, n) for n in Held.__slots__[1:]))
    two = pool([node(1, 4), node(2, 4)])
    answer = place_moving(two, packed, Shape(nodes=1, per_node=4), window(1, 2))
    assert gpus(answer.placement) == [20, 21, 22, 23], "nobody moves"
    full = pool([node(1, 4), node(2, 4)], taken((23, 23, 0, 9)))
    answer = place_moving(full, packed, Shape(nodes=1, per_node=4), window(1, 2))
    assert [m.hold for m in answer.moves] == sorted(ids)


def test_a_search_without_steps_gives_up_and_says_so():
    answer = place_moving(pool([node(1, 2)]), Held.of(XYZ), Shape(units=1), window(0, 6), steps=1)
    assert isinstance(answer, NoPlace)
    assert answer.gave_up


def test_holds_of_other_pools_are_harmless():
    other = Hold(9, 9, 77, ((64 * 900, 64 * 901),), epoch(DAY), FOREVER)
    answer = place_moving(pool([node(1, 2)]), Held.of([*XYZ, other]), Shape(units=1), window(0, 6))
    assert moves(answer) == [(3, 11, 10)]
    assert np.all(Held.of([other]).busy.end == FOREVER)
