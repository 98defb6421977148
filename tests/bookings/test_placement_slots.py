"""Slices, layouts that change, and shares of a node's CPU and memory: what is a unit when, and what is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.bookings.capacity import FOREVER, Busy, NodeUnits, PoolSnapshot, Shape, Slot, epoch
from app.bookings.earliest import earliest, longest
from app.bookings.held import Held, Hold
from app.bookings.host import HostUse, uncovered
from app.bookings.layouts import first_change, may_change
from app.bookings.placement import NoPlace, Placement, place
from app.bookings.recolour import Rearranged, place_moving
from app.kernel.window import Window

DAY = datetime(2026, 12, 1, tzinfo=UTC)


def sec(h: float) -> int:
    return epoch(DAY + timedelta(hours=h))


def window(start: float, end: float) -> Window:
    return Window(DAY + timedelta(hours=start), DAY + timedelta(hours=end))


def pool(kind: str, slots: list[Slot], busy: Busy | None = None) -> PoolSnapshot:
    return PoolSnapshot.of(1, 1, kind, [NodeUnits.of_slots(1, slots)], busy or Busy.nothing())


def slices(gpu: int, since: int = 0, until: int = FOREVER) -> list[Slot]:
    """Seven 1g slices of a GPU: 8 positions each, the eighth memory slice is nobody's."""
    return [Slot(64 * gpu + 8 * i, 64 * gpu + 8 * i + 8, since, until) for i in range(7)]


SLICED_FROM, WHOLE_FROM = sec(10), sec(20)
G3 = 3 * 64
WHOLE = pool(
    "h100",
    [Slot(G3, G3 + 64, 0, SLICED_FROM), Slot(G3, G3 + 64, WHOLE_FROM), Slot(64, 128)],
)
SLICED = pool("h100-1g.10gb", slices(3, SLICED_FROM, WHOLE_FROM))


def test_a_sliced_gpu_is_not_offered_whole():
    assert isinstance(place(WHOLE, Shape(units=2), window(9, 10)), Placement)
    for start, end in ((9, 11), (11, 12), (19, 21), (9, 21)):
        answer = place(WHOLE, Shape(units=2), window(start, end))
        assert isinstance(answer, NoPlace)
        assert answer.free.units == 1
    assert isinstance(place(WHOLE, Shape(units=2), window(20, 30)), Placement)


def test_slices_are_units_only_while_their_layout_is_valid():
    assert isinstance(place(SLICED, Shape(units=7), window(10, 20)), Placement)
    assert isinstance(place(SLICED, Shape(units=1), window(9, 11)), NoPlace)
    assert isinstance(place(SLICED, Shape(units=1), window(19, 21)), NoPlace)
    assert longest(SLICED, Shape(units=7), DAY + timedelta(hours=10)) == 10 * 3600
    found = earliest(WHOLE, Shape(units=2), 2 * 3600, DAY + timedelta(hours=9), DAY + timedelta(days=9))
    assert found == DAY + timedelta(hours=20)


def test_whoever_holds_a_slice_keeps_the_whole_gpu_from_others():
    """Even if an inventory says both at once: positions are one tree."""
    held = Busy.of_rows([(G3, G3 + 8, sec(10), sec(12))])
    both = pool("h100", [Slot(G3, G3 + 64)], held)
    assert isinstance(place(both, Shape(units=1), window(11, 13)), NoPlace)
    assert isinstance(place(both, Shape(units=1), window(12, 13)), Placement)
    whole = Busy.of_rows([(G3, G3 + 64, sec(11), sec(13))])
    assert isinstance(place(SLICED.with_busy(whole), Shape(units=1), window(10, 12)), NoPlace)


def test_absent_units_stay_absent_whatever_is_held():
    assert isinstance(place(WHOLE.with_busy(Busy.nothing()), Shape(units=2), window(11, 12)), NoPlace)


def test_slots_on_the_same_positions_at_different_times_are_one_unit():
    assert len(WHOLE.unit_lower) == 2
    with pytest.raises(ValueError, match="at once"):
        NodeUnits.of_slots(1, [Slot(0, 64, 0, 100), Slot(0, 64, 99)])
    with pytest.raises(ValueError, match="share positions"):
        pool("x", [Slot(0, 16), Slot(8, 24)])


def test_a_slot_that_is_ill_is_not_offered():
    ill = pool("h100", [Slot(0, 64, offered=False), Slot(64, 128)])
    answer = place(ill, Shape(units=2), window(0, 1))
    assert isinstance(answer, NoPlace)
    assert (answer.offered.units, answer.installed.units, answer.never) == (1, 2, False)


def test_a_hold_moves_between_slices_of_its_node_only_while_they_are_there():
    two = PoolSnapshot.of(
        1, 1, "h100-1g.10gb", [NodeUnits.of_slots(1, [Slot(0, 8), Slot(64, 72, SLICED_FROM)])], Busy.nothing()
    )
    late = Hold(1, 1, 1, ((0, 8),), sec(12), sec(14))
    answer = place_moving(two, Held.of([late]), Shape(units=1), window(9, 15))
    assert isinstance(answer, Rearranged)
    assert [(m.hold, m.to_positions) for m in answer.moves] == [(1, ((64, 72),))]
    early = Hold(1, 1, 1, ((0, 8),), sec(9), sec(14))
    assert isinstance(place_moving(two, Held.of([early]), Shape(units=1), window(9, 15)), NoPlace)


def test_a_layout_changes_only_while_the_gpu_is_idle_and_with_a_gap():
    busy = Busy.of_rows([(G3 + 8, G3 + 16, sec(8), sec(12)), (64, 128, sec(0), FOREVER)])
    assert first_change(busy, 3, sec(9), gap=600) == sec(12) + 600
    assert first_change(busy, 3, sec(15)) == sec(15)
    assert not may_change(busy, 3, sec(12), gap=600)
    assert not may_change(busy, 3, sec(5)), "a slice is held later on"
    assert may_change(busy, 3, sec(12) + 600, gap=600)
    assert first_change(busy, 1, sec(0)) == FOREVER, "nobody knows the end of what runs there"
    assert first_change(busy, 0, sec(2)) == sec(2)


# --- CPU and memory ---------------------------------------------------------------------------------------------------

NODE = NodeUnits.whole(1, 0, 8)


def left(busy: Busy, at: float) -> int:
    one = PoolSnapshot.of(1, 1, "h100", [NODE], busy)
    answer = place(one, Shape(units=9), window(at, at + 0.1))
    assert isinstance(answer, NoPlace)
    return answer.free.units


def test_what_others_take_of_cpu_or_memory_takes_units_with_it():
    uses = [
        HostUse(32_000, 0, (), sec(1), sec(5)),  # half of the cores
        HostUse(0, 900_000, (), sec(3), sec(4)),  # nine tenths of the memory
    ]
    busy = uncovered(NODE, 64_000, 1_000_000, uses)
    assert [left(busy, h) for h in (0, 1, 3, 4, 5)] == [8, 4, 0, 4, 8]


def test_external_jobs_that_use_only_their_own_share_take_no_more_units():
    mine = ((0, 64), (64, 128))
    busy = uncovered(NODE, 64_000, None, [HostUse(16_000, 0, mine, sec(1), sec(5))])
    assert len(busy) == 0
    more = uncovered(NODE, 64_000, None, [HostUse(17_000, 0, mine, sec(1), sec(5))])
    assert left(more, 2) == 7, "the units that it has are told elsewhere"


def test_a_node_whose_cores_nobody_counted_loses_nothing():
    assert len(uncovered(NODE, None, None, [HostUse(64_000, 1, (), sec(1), sec(5))])) == 0
    assert len(uncovered(NODE, 64_000, 10, [])) == 0
