"""Claiming: what one uses already, on units nobody has booked, becomes a booking from now on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from app.accounts import cluster_users
from app.bookings import claiming
from app.bookings.claiming import Wish
from app.bookings.edits import Key
from app.kernel.errors import Forbidden, NotFound, Refused
from app.plumbing.queue import NoQueue
from tests.bookings.shelf import bill, codes, every_row, rows
from tests.world import START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(1))
    yield made
    made.close()


def in_use(world: World, person: str, gpus: tuple[int, ...]) -> int:
    """A job of that person on these GPUs, seen by Berth; the number of the use."""
    with world.work() as work:
        names = cluster_users.names_on(work, world.cluster_id, [world.people[person]])
    world.backend.faults.foreign_job("n0", gpus, what="my job", who=names[world.people[person]])
    world.sync()
    return rows(world, "SELECT id FROM external_use WHERE ended_at IS NULL ORDER BY id DESC")[0][0]


def claim(world: World, use: int, person: str = "physics-member", project: str = "plasma", key: str | None = None,
          length: timedelta = 4 * HOUR):  # fmt: skip
    actor = world.actor(person)
    with world.plumbing.database.work(actor.tenant_id) as work:
        made = Key(key, b"x") if key else None
        return claiming.claim(work, NoQueue(), actor, use, Wish(project, "Mine", length), made)


def test_claimed_the_units_are_mine_from_now_on_and_the_work_goes_on(world: World) -> None:
    use = in_use(world, "physics-member", (2, 3))
    with pytest.raises(Refused):
        world.book("bio-member", project="atlas", units=8, duration="PT1H")
    with world.work("physics") as work:
        plan = claiming.quote_claim(work, world.actor("physics-member"), use, Wish("plasma", "Mine", 4 * HOUR))
        assert [u.id for u in claiming.own_uses(work, world.actor("physics-member"))] == [use]
        assert claiming.own_uses(work, world.actor("physics-lead")) == ()
    booked = claim(world, use)
    assert (booked.units, booked.starts_at, booked.quoted) == (2, START, plan.offer.cost.amount)
    world.settle()
    assert world.look(booked).state == "ACTIVE"
    assert world.look(booked).provided_at == START
    held = rows(world, "SELECT lower(units) / 64, upper(units) / 64 FROM holds WHERE booking_id = %s", booked.id)
    assert held == [(2, 4)]
    world.pass_time(5 * HOUR)
    bill(world, booked)
    assert rows(world, "SELECT sum(quantity) FROM charges") == [(2 * 4 * 3600 * 840,)]


def test_anothers_use_or_one_that_has_ended_is_not_there(world: World) -> None:
    use = in_use(world, "physics-member", (2, 3))
    before = every_row(world)
    for person, project in (("physics-lead", "plasma"), ("bio-member", "atlas")):
        with pytest.raises(NotFound):
            claim(world, use, person, project)
    with pytest.raises(Forbidden):
        claim(world, use, "physics-viewer")
    with pytest.raises(NotFound):
        claim(world, use + 1)
    assert every_row(world) == before


def test_units_that_somebody_has_booked_are_not_claimed_or_only_until_then(world: World) -> None:
    # booked before the job came: the job is an intruder, its use no right
    a = world.book("bio-member", project="atlas", start=(START + 2 * HOUR).isoformat(), units=8, duration="PT1H")
    use = in_use(world, "physics-member", (2, 3))
    before = every_row(world)
    with pytest.raises(Refused) as refused:
        claim(world, use)
    assert codes(refused) == {"booked_by_others"}
    assert refused.value.refusal.reasons[0].limit == "2026-11-30T14:00:00Z"
    assert every_row(world) == before
    claim(world, use, length=2 * HOUR)
    assert world.look(a).state == "BOOKED"


def test_the_same_key_claims_once(world: World) -> None:
    use = in_use(world, "physics-member", (2, 3))
    assert claim(world, use, key="k").id == claim(world, use, key="k").id
    with pytest.raises(Refused):
        claim(world, use)


def test_what_was_claimed_can_be_extended_although_the_use_goes_on(world: World) -> None:
    use = in_use(world, "physics-member", (2, 3))
    booked = claim(world, use, length=HOUR)
    world.settle()
    world.sync()
    after = world.do("extend", booked, by=HOUR, end=None)
    assert after.ends_at == booked.ends_at + HOUR


def test_a_claim_does_not_reach_into_a_maintenance(world: World) -> None:
    use = in_use(world, "physics-member", (2, 3))
    with world.work() as work:
        work.pg.execute(
            """WITH m AS (INSERT INTO maintenances (cluster_id, name, why, during, made_by, made_at, version)
                            VALUES (%s, 'Cooling', '', tstzrange(%s, %s), 'x', %s, 1) RETURNING id)
               INSERT INTO maintenance_nodes SELECT m.id, n.id FROM m, nodes n""",
            [world.cluster_id, START + 2 * HOUR, START + 3 * HOUR, START],
        )
        work.pg.execute("UPDATE pools SET capacity_version = nextval('capacity_versions')")
    before = every_row(world)
    with pytest.raises(Refused) as refused:
        claim(world, use)
    assert codes(refused) == {"units_taken_after"}
    assert every_row(world) == before
    claim(world, use, length=2 * HOUR)
