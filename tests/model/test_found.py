"""What random histories have found, each fault as small as it gets. A fault of a verb has its test beside the verb's own."""

from __future__ import annotations

from app.bookings.capacity import Busy, NodeUnits, PoolSnapshot
from app.bookings.held import Held, Hold
from app.bookings.placement import NoPlace
from app.bookings.recolour import Rearranged, extend_moving
from tests.bookings.rearranging import window


def test_a_booking_on_units_that_are_out_of_service_is_not_extended() -> None:
    """None of its units was offered, so all of those offered were free: it was extended onto units others had booked."""
    own = Hold(1, 1, 1, ((0, 64),), 0, 10, pinned=True, started=True)
    other = Hold(2, 2, 1, ((0, 64),), 20, 30)
    held = Held.of([own, other])
    for offered, answer in ((0b11, Rearranged), (0b10, NoPlace), (0b00, NoPlace)):
        node = NodeUnits.whole(1, 0, 2, offered=offered)
        pool = PoolSnapshot.of(1, 1, "k", [node], Busy.of_rows([]))
        for until in (15, 25):
            assert isinstance(extend_moving(pool, held, 0, window(0, until)), answer), (offered, until)
