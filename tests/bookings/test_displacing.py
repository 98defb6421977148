"""An operator takes a booking's units away: for a reason, told to its people, written down, and charged to nobody (case 78)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import psycopg
import pytest

from app.bookings.displacing import Displacement, displace, quote_displace
from app.bookings.edits import Key
from app.kernel.errors import Conflict, Forbidden, Invalid, NotFound, Refused
from app.plumbing.queue import NoQueue
from tests.world import OPERATOR, START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(1))
    yield made
    made.close()


def take(world: World, label: str, why: str = "A flood forecast needs the node.", **words) -> Displacement:
    with world.work() as work:
        return displace(work, NoQueue(), OPERATOR, label, why, **words)


def test_case_78_an_override_has_a_reason_is_written_down_told_and_cannot_exceed_what_there_is(world: World) -> None:
    waiting = world.book(start=(START + 10 * HOUR).isoformat(), units=8, duration="PT4H")
    running = world.book(units=8, duration="PT4H")
    world.settle()
    world.set_clock(START + HOUR)
    # a reason, an operator, a booking that is there
    with pytest.raises(Invalid) as wrong:
        take(world, running.label, " ")
    assert wrong.value.reasons[0].field == "why"
    with world.work("physics") as work, pytest.raises(Forbidden):
        displace(work, NoQueue(), world.actor("physics-lead"), running.label, "I want it.")
    with pytest.raises(NotFound):
        take(world, "B-999999")
    with pytest.raises(Conflict):
        take(world, running.label, version=99)
    assert world.look(running).state == "ACTIVE"
    # what it would mean is shown first, and is what then happens
    with world.work() as work:
        shown = quote_displace(work, OPERATOR, running.label)
    assert (shown.back, shown.tenant) == (Decimal("57.60"), "Institute of Physics")  # 8 units, 3 h, 2.40
    key = Key("k", b"body")
    done = take(world, running.label, key=key)
    assert done.back == shown.back
    assert take(world, running.label, key=key).booking.id == running.id
    world.settle()
    ended = world.look(running)
    assert (ended.state, ended.released_at) == ("ENDED", START + HOUR)
    assert take(world, waiting.public_id).back == waiting.quoted
    assert world.look(waiting).state == "CANCELLED"
    with pytest.raises(Conflict):
        take(world, waiting.label)
    with psycopg.connect(world.owner_url) as owner:
        told = owner.execute(
            "SELECT account_id, booking_id, payload->>'why' FROM outbox WHERE kind = 'booking_displaced'"
        )
        assert set(told.fetchall()) == {
            (world.people[person], booking.id, "A flood forecast needs the node.")
            for person in ("physics-member", "physics-lead") for booking in (running, waiting)
        }  # fmt: skip
        for table in ("audit", "platform_audit"):
            rows = owner.execute(
                f"SELECT actor, subject, why FROM {table} WHERE action = 'displace booking' ORDER BY seq"
            )
            assert rows.fetchall() == [
                ("Olga Operator", f"booking {b.label}", "A flood forecast needs the node.") for b in (running, waiting)
            ]
        why = owner.execute(
            "SELECT why FROM history WHERE booking_id = %s AND event = 'cancel'", [waiting.id]
        ).fetchone()
        assert why[0] == "Displaced by an operator: A flood forecast needs the node."
        committed = owner.execute("SELECT count(*) FROM holds WHERE live AND upper(during) > %s", [START + HOUR])
        assert committed.fetchone()[0] == 0
    # its units are booked like any others, and never more than there are
    world.book("bio-member", project="atlas", units=8, duration="PT2H")
    with pytest.raises(Refused):
        world.book("physics-member", units=1, start=(START + 90 * timedelta(minutes=1)).isoformat(), duration="PT1H")
