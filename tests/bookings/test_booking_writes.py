"""What booking answers with, and its last judge: the exclusion constraint, when everything before it was deceived."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.bookings.capacity import Busy
from app.kernel.errors import Refused
from tests.world import START, make_world


def test_what_booking_answers_with_is_what_is_written(database, tmp_path) -> None:
    world = make_world(database, tmp_path)
    whole = world.book(nodes=2, per_node=8, within="leaf", duration="PT2H", reference="grant 12", workload="notebook")
    later = world.book(units=3, start=(START + timedelta(hours=5)).isoformat(), cost_center="77")
    assert world.look(whole) == whole
    assert world.look(later) == later
    world.close()


def test_a_unit_that_looked_free_and_is_held_is_refused_by_the_constraint(database, tmp_path, monkeypatch) -> None:
    world = make_world(database, tmp_path)
    world.book("bio-member", project="atlas", nodes=4, per_node=8, start=START.isoformat(), duration="PT2H")
    monkeypatch.setattr("app.bookings.queries.taken", lambda *_: Busy.nothing())
    monkeypatch.setattr(Busy, "touches", lambda *_: False)
    with pytest.raises(Refused) as refused:
        world.book(units=8, within="node", start=START.isoformat())
    assert [r.code for r in refused.value.refusal.reasons] == ["no_units_free"]
    assert "has just taken" in refused.value.refusal.reasons[0].message
    with world.work("physics") as work:
        assert work.pg.execute("SELECT count(*) FROM bookings").fetchone()[0] == 0
        assert work.pg.execute("SELECT count(*) FROM commitments").fetchone()[0] == 0
    world.close()
