"""Moving: another time or cluster in one edit; a failed move leaves everything as it was; two that swap."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from app.bookings import moving
from app.bookings.moving import To
from app.kernel.errors import Conflict, Forbidden, Refused
from app.pricing import actions as pricing
from tests.bookings.shelf import codes, every_row, rows
from tests.world import FINANCE, H100, START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(1, gpus=4))
    yield made
    made.close()


def at(hours: float) -> str:
    return (START + hours * HOUR).isoformat()


def move(world: World, booking, person: str = "physics-member", **words):
    version = words.pop("version", None)
    return world.do(moving.move, booking, person, to=To(**words), version=version)


def test_moved_it_has_the_price_of_then_and_its_old_place_is_free(world: World) -> None:
    a = world.book(start=at(2), units=4, duration="PT1H")
    with world.work() as work:
        prices = {H100: Decimal("1.20")}
        pricing.publish_version(work, FINANCE, "standard", "CHF", START + 5 * HOUR, prices, "cheaper")
    with world.work("physics") as work:
        plan = moving.quote_move(work, world.actor("physics-member"), a.id, To(start=START + 5 * HOUR))
    assert plan.change == Decimal("-4.80")
    after = move(world, a, start=START + 5 * HOUR)
    assert (after.starts_at, after.ends_at, after.quoted) == (START + 5 * HOUR, START + 6 * HOUR, Decimal("4.80"))
    assert (after.number, after.id, after.version) == (a.number, a.id, a.version + 1)
    world.book("bio-member", project="atlas", start=at(2), units=4, duration="PT1H")
    world.pass_time(7 * HOUR)
    ended = world.look(a)
    assert (ended.state, ended.outcome, ended.provided_at) == ("ENDED", "completed", START + 5 * HOUR)


def test_it_may_move_into_its_own_place(world: World) -> None:
    a = world.book(start=at(2), units=4, duration="PT2H")
    world.set_limit("physics", units=4)
    assert move(world, a, start=START + 3 * HOUR).starts_at == START + 3 * HOUR
    assert rows(world, "SELECT count(*) FROM holds WHERE live AND booking_id = %s", a.id) == [(1,)]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({"start": START + 5 * HOUR}, "no_units_free"),
        ({"start": START + timedelta(minutes=121)}, "start_off_grid"),
        ({"start": START - HOUR}, "start_in_past"),
        ({"length": timedelta(days=9)}, "too_long"),
        ({"start": START + 2 * HOUR}, "not_moved"),
        ({"cluster": "nowhere"}, "unknown_cluster"),
    ],
)
def test_a_move_that_fails_leaves_all_as_it_was(world: World, words: dict, code: str) -> None:
    a = world.book(start=at(2), units=4, duration="PT1H")
    world.book("bio-member", project="atlas", start=at(5), units=1, duration="PT1H")
    before = every_row(world)
    with pytest.raises(Refused) as refused:
        move(world, a, **words)
    assert code in codes(refused)
    assert every_row(world) == before


def test_over_quota_there_it_stays_where_it_is(world: World) -> None:
    world.set_limit("physics", units=3)
    a = world.book(start=at(2), units=2, duration="PT1H")
    world.book(start=at(5), units=2, duration="PT1H")
    before = every_row(world)
    with pytest.raises(Refused) as refused:
        move(world, a, start=START + 5 * HOUR)
    assert "quota_units" in codes(refused)
    assert every_row(world) == before


def test_moved_earlier_it_starts_then(world: World) -> None:
    a = world.book(start=at(5), units=4, duration="PT1H")
    move(world, a, start=START + HOUR)
    world.pass_time(2 * HOUR + timedelta(minutes=1))
    assert world.look(a).provided_at == START + HOUR
    assert world.look(a).state == "ENDED"


def test_once_it_is_being_put_in_place_it_moves_no_more(world: World) -> None:
    a = world.book(start=at(1), units=4, duration="PT1H")
    world.set_clock(START + timedelta(minutes=55))
    before = every_row(world)
    with pytest.raises(Conflict):
        move(world, a, start=START + 5 * HOUR)
    assert every_row(world) == before


def test_who_may_not_and_who_looked_too_long_ago_move_nothing(world: World) -> None:
    a = world.book(start=at(2), units=4, duration="PT1H")
    before = every_row(world)
    with pytest.raises(Forbidden):
        move(world, a, "physics-viewer", start=START + 5 * HOUR)
    with pytest.raises(Conflict):
        move(world, a, start=START + 5 * HOUR, version=a.version + 1)
    assert every_row(world) == before


def test_case_33_a_booking_that_fits_by_count_is_not_refused_for_bookkeeping(database, tmp_path) -> None:
    world = make_world(database, tmp_path, csv=nodes_csv(1, gpus=2))
    x = world.book("bio-member", project="atlas", start=at(1), units=1, duration="PT2H")
    z = world.book("bio-member", project="atlas", start=at(3), units=2, duration="PT2H")
    world.do("cancel", z, "bio-member")
    y = world.book("bio-member", project="atlas", start=at(3), units=1, duration="PT2H")
    held = "SELECT lower(r) / 64 FROM holds, unnest(units) r WHERE live AND booking_id = %s"
    if rows(world, held, x.id) == rows(world, held, y.id):  # placement chose well: put them the other way
        with world.work("bio") as work:
            work.pg.execute(
                "UPDATE holds SET units = int4multirange(int4range(lower(units) # 64, (lower(units) # 64) + 64))"
                " WHERE booking_id = %s", [y.id],
            )  # fmt: skip
    assert rows(world, held, x.id) != rows(world, held, y.id)
    quote = world.quote(start=at(1), units=1, duration="PT4H")
    w = world.book(start=at(1), units=1, duration="PT4H", quote=quote.digest)
    assert rows(world, held, x.id) == rows(world, held, y.id) != rows(world, held, w.id)
    assert [b.quoted for b in (world.look(x), world.look(y))] == [x.quoted, y.quoted]
    world.close()


def test_case_32_where_what_occupies_them_is_pinned_it_is_refused(database, tmp_path) -> None:
    world = make_world(database, tmp_path, csv=nodes_csv(1, gpus=2))
    x = world.book("bio-member", project="atlas", start=at(1), units=1, duration="PT2H")
    y = world.book("bio-member", project="atlas", start=at(3), units=1, duration="PT2H")
    with world.work("bio") as work:
        work.pg.execute("UPDATE holds SET units = '{[0,64)}', pinned = true WHERE booking_id = %s", [x.id])
        work.pg.execute("UPDATE holds SET units = '{[64,128)}', pinned = true WHERE booking_id = %s", [y.id])
    before = every_row(world)
    with pytest.raises(Refused) as refused:
        world.book(start=at(1), units=1, duration="PT4H")
    assert codes(refused) == {"no_units_free"}
    assert every_row(world) == before
    assert refused.value.refusal.alternatives
    world.close()


def test_what_recolouring_moved_is_told_to_the_booking_and_its_owner_only_where_names_were_more_than_a_plan(
    database, tmp_path
) -> None:
    from app import rounds

    world = make_world(database, tmp_path, csv=nodes_csv(1, gpus=2))
    a = world.book(units=1, duration="PT1H")
    filler = world.book(units=1, duration="PT1H")
    world.settle()
    b = world.book("bio-member", project="atlas", start=at(1), units=1, duration="PT2H")
    held = "SELECT lower(r) / 64 FROM holds, unnest(units) r WHERE live AND booking_id = %s"
    stays = a if rows(world, held, a.id) == rows(world, held, b.id) else filler
    world.do("extend", stays, by=HOUR, end=None)
    hints = [h for h in rounds.find_work(world.plumbing) if h.name == "bookings.replanned"]
    assert [h.args for h in hints] == [(str(b.tenant_id), str(b.id))]
    rounds.TASKS["bookings.replanned"](world.plumbing, *hints[0].args)
    assert rows(world, "SELECT count(*) FROM hold_moves") == [(0,)]
    assert rows(world, "SELECT event FROM history WHERE booking_id = %s ORDER BY seq", b.id) == [("book",), ("replan",)]
    assert rows(world, "SELECT count(*) FROM outbox WHERE kind = 'booking_replanned'") == [(0,)]
    world.close()
