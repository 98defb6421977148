"""What random histories have found, each fault as small as it gets. A fault of a verb has its test beside the verb's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from app.bookings.capacity import Busy, NodeUnits, PoolSnapshot
from app.bookings.evidence import apply_observation
from app.bookings.held import Held, Hold
from app.bookings.lifecycle import BookingView, Event, Outage, Seen, State, follow, leave, tick
from app.bookings.placement import NoPlace
from app.bookings.recolour import Rearranged, extend_moving
from tests.bookings.rearranging import at, window


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


def extended_while_the_cluster_was_away(known: tuple[Outage, ...] = ()) -> BookingView:
    """Booked and provided for an hour, extended by another of which the cluster never heard."""
    view = BookingView(
        State.ACTIVE, window(0, 3600), units=(0, 1), provided_at=at(0), asked=True, ensured=1, outages=known
    )
    return replace(view, window=window(0, 7200), wanted=2)


@pytest.mark.parametrize(
    "seen",
    [
        Seen("gone", at(7210), at(0), at(3600)),  # released by us after its own end, empty since that end
        Seen("gone", at(3600), at(0), at(3600)),
        Seen("ending", at(3600), at(0)),
    ],
)
def test_an_extension_that_the_cluster_never_heard_of_is_not_charged(seen: Seen) -> None:
    view, now = extended_while_the_cluster_was_away(), at(7210)
    view = follow(view, tick(view, now))
    assert (view.state, view.left_by) == (State.ENDING, Event.END)
    view = follow(view, apply_observation(view, seen, now))
    assert sorted((o.unit, o.since, o.until) for o in view.outages) == [(u, at(3600), at(7200)) for u in (0, 1)]
    assert apply_observation(view, replace(seen, state="ending"), now) == (), "said once"


def test_what_is_known_to_be_lost_of_it_counts_once_and_a_release_counts_from_its_own_time() -> None:
    known = (Outage(0, at(3000), at(4000)), Outage(0, at(5000), at(5500)))
    view = extended_while_the_cluster_was_away(known)
    view = follow(view, leave(view, Event.RELEASE, at(6000)))
    view = follow(view, apply_observation(view, Seen("gone", at(6001), at(0), at(3600)), at(6001)))
    lost = {u: sum((o.until - o.since for o in view.outages if o.unit == u), timedelta(0)).seconds for u in (0, 1)}
    assert lost == {0: 3000, 1: 2400}


def test_what_ended_by_the_last_order_was_provided_until_it_was_left() -> None:
    view = replace(extended_while_the_cluster_was_away(), ensured=2)
    view = follow(view, leave(view, Event.RELEASE, at(6000)))
    assert not [
        c for c in apply_observation(view, Seen("gone", at(5990), at(0), at(5990)), at(6001)) if hasattr(c, "outage")
    ]


def test_an_outage_that_turns_out_to_have_lasted_longer_counts_for_the_rest_too() -> None:
    """The unit was back for no second: the cluster joins the two losses, the first of which was told as over."""
    view = BookingView(State.ACTIVE, window(0, 7200), units=(0,), provided_at=at(0), asked=True, ensured=1)

    def told(now: int, since: int, until: int | None) -> None:
        nonlocal view
        lost = (Outage(0, at(since), None if until is None else at(until)),)
        seen = Seen("ready" if until else "degraded", at(since), at(0), None, lost)
        view = follow(view, apply_observation(view, seen, at(now)))

    told(1000, 600, 900)
    told(1500, 600, None)
    assert [(o.since, o.until) for o in view.outages] == [(at(600), at(900)), (at(900), None)]
    told(1600, 600, None)
    told(2000, 600, 1800)
    told(2100, 300, 2000)
    assert sorted((o.since, o.until) for o in view.outages) == [
        (at(300), at(600)),
        (at(600), at(900)),
        (at(900), at(1800)),
        (at(1800), at(2000)),
    ]
