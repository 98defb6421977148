"""Booking by the use cases, on a real database and the simulated cluster: what is promised, refused and kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from app.kernel.errors import Conflict, Forbidden, NotFound, Refused
from tests.world import H100, START, World, make_world

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path)
    yield made
    made.close()


def codes(refused: pytest.ExceptionInfo[Refused]) -> set[str]:
    return {r.code for r in refused.value.refusal.reasons}


def test_a_booking_as_soon_as_possible_becomes_active_at_once_and_is_charged_what_was_quoted(world: World) -> None:
    quote = world.quote(units=8, within="node", duration="PT6H")
    booking = world.book(units=8, within="node", duration="PT6H", quote=quote.digest)
    assert booking.state == "BOOKED"
    assert booking.starts_at == START
    assert booking.quoted == quote.offer.cost.amount == Decimal("115.20")
    world.settle()
    assert world.look(booking).state == "ACTIVE"
    assert world.look(booking).provided_at == START
    world.pass_time(7 * HOUR)
    ended = world.look(booking)
    assert (ended.state, ended.outcome, ended.released_at) == ("ENDED", "completed", START + 6 * HOUR)


def test_released_early_it_is_charged_to_that_second_and_the_units_go_back(world: World) -> None:
    booking = world.book(nodes=4, per_node=8, duration="PT6H")
    world.settle()
    with pytest.raises(Refused):
        world.book("bio-member", project="atlas", start=START.isoformat(), units=1)
    world.set_clock(START + timedelta(minutes=17, seconds=3))
    world.do("release", booking)
    world.settle()
    ended = world.look(booking)
    assert (ended.state, ended.outcome) == ("ENDED", "released")
    assert ended.released_at == START + timedelta(minutes=17, seconds=3)
    world.book("bio-member", project="atlas", units=32, duration="PT1H")


def test_cancelled_before_anything_was_asked_of_the_cluster_nothing_is_left(world: World) -> None:
    booking = world.book(start=(START + 5 * HOUR).isoformat(), units=8)
    cancelled = world.do("cancel", booking)
    assert cancelled.state == "CANCELLED"
    assert world.backend.strays() == ()
    with world.work() as work:
        assert work.pg.execute("SELECT count(*) FROM holds WHERE live").fetchone()[0] == 0
        assert work.pg.execute("SELECT count(*) FROM due").fetchone()[0] == 0


def test_cancelled_while_it_starts_it_leaves_through_ending_and_nothing_runs(world: World) -> None:
    booking = world.book(start=(START + HOUR).isoformat(), units=8)
    world.pass_time(timedelta(minutes=55))
    assert world.look(booking).state == "STARTING"
    assert world.do("cancel", booking).state == "ENDING"
    world.settle()
    ended = world.look(booking)
    assert (ended.state, ended.outcome, ended.provided_at) == ("ENDED", "cancelled", None)
    assert world.backend.strays() == ()


def test_an_active_booking_cannot_be_cancelled_only_released(world: World) -> None:
    booking = world.book()
    world.settle()
    with pytest.raises(Conflict, match="Release it instead"):
        world.do("cancel", booking)
    assert world.look(booking).state == "ACTIVE"


def test_extended_on_the_same_units_at_the_price_of_what_is_added(world: World) -> None:
    booking = world.book(units=8, duration="PT2H")
    world.settle()
    later = world.do("extend", booking, by=HOUR, end=None)
    assert later.ends_at == START + 3 * HOUR
    assert later.quoted == Decimal("57.60")
    world.pass_time(timedelta(hours=2, minutes=30))
    assert world.look(booking).state == "ACTIVE"
    world.pass_time(HOUR)
    assert world.look(booking).outcome == "completed"


def test_a_failed_extension_leaves_the_booking_as_it_was(world: World) -> None:
    booking = world.book(nodes=4, per_node=8, start=START.isoformat(), duration="PT2H")
    world.book("bio-member", project="atlas", start=(START + 2 * HOUR).isoformat(), units=1)
    before = world.look(booking)
    with pytest.raises(Refused) as refused:
        world.do("extend", booking, by=HOUR, end=None)
    assert codes(refused) == {"units_taken_after"}
    assert "2026-11-30T14:00:00Z" in refused.value.refusal.reasons[0].message
    assert world.look(booking) == before


def test_touching_bookings_do_not_conflict(world: World) -> None:
    world.book(start=START.isoformat(), nodes=4, per_node=8, duration="PT2H")
    world.book("bio-member", project="atlas", start=(START + 2 * HOUR).isoformat(), nodes=4, per_node=8)


def test_every_reason_at_once_with_limit_and_asked(world: World) -> None:
    world.set_limit("physics", units=4, hours=10, project_id=world.projects["plasma"])
    with pytest.raises(Refused) as refused:
        world.book(units=64, start=(START - 2 * HOUR).isoformat(), duration="P8D")
    assert codes(refused) >= {"start_in_past", "too_long", "too_many_units", "quota_units", "quota_hours"}
    assert refused.value.status == 422
    for reason in refused.value.refusal.reasons:
        assert reason.message
        assert reason.asked


def test_each_alternative_can_be_booked_as_offered(world: World) -> None:
    world.book("bio-member", project="atlas", start=START.isoformat(), nodes=4, per_node=8, duration="PT2H")
    with pytest.raises(Refused) as refused:
        world.book(units=8, within="node", start=START.isoformat(), duration="PT1H")
    assert codes(refused) == {"no_units_free"}
    alternatives = refused.value.refusal.alternatives
    assert {a.kind_of_change for a in alternatives} >= {"time"}
    for alternative in alternatives:
        made = world.book(**alternative.request)
        assert str(made.quoted) == alternative.price["amount"]
        world.do("cancel", made)


def test_two_kinds_of_alternatives_where_more_than_one_thing_helps(world: World) -> None:
    world.book("bio-member", project="atlas", start=(START + HOUR).isoformat(), nodes=4, per_node=8, duration="PT2H")
    with pytest.raises(Refused) as refused:
        world.book(units=8, within="node", start=START.isoformat(), duration="PT2H")
    kinds = [a.kind_of_change for a in refused.value.refusal.alternatives]
    assert len(kinds) == len(set(kinds)) >= 2


def test_same_key_same_body_is_one_booking_another_body_is_refused(world: World) -> None:
    first = world.book(key="k1", units=8)
    assert world.book(key="k1", units=8).id == first.id
    with pytest.raises(Conflict) as conflict:
        world.book(key="k1", units=4)
    assert conflict.value.code == "idempotency_key_reused"
    with world.work("physics") as work:
        assert work.pg.execute("SELECT count(*) FROM bookings").fetchone()[0] == 1


def test_a_refused_request_leaves_its_key_free(world: World) -> None:
    with pytest.raises(Refused):
        world.book(key="k1", units=1000)
    assert world.book(key="k1", units=1).units == 1


def test_a_quote_that_has_changed_is_not_booked(world: World) -> None:
    quote = world.quote(units=8)
    world.book("bio-member", project="atlas", nodes=4, per_node=8, duration="PT1H")
    with pytest.raises(Conflict) as conflict:
        world.book(units=8, quote=quote.digest)
    assert conflict.value.code == "quote_changed"


def test_a_viewer_may_not_book_and_another_tenant_does_not_see(world: World) -> None:
    with pytest.raises(Forbidden):
        world.book("physics-viewer")
    booking = world.book()
    with pytest.raises(NotFound):
        world.do("cancel", booking, "bio-lead")
    with pytest.raises(Refused) as refused:
        world.book("bio-member")
    assert codes(refused) == {"unknown_project"}


def test_a_member_changes_only_what_is_his_own_a_lead_everything(world: World) -> None:
    booking = world.book("physics-lead")
    with pytest.raises(Forbidden):
        world.do("cancel", booking, "physics-member")
    own = world.book("physics-member", start=(START + HOUR).isoformat())
    assert world.do("cancel", own, "physics-lead").state == "CANCELLED"


def test_unknown_kind_names_the_nearest(world: World) -> None:
    with pytest.raises(Refused) as refused:
        world.book(kind="h100-sxm")
    assert refused.value.status == 422
    assert H100 in refused.value.refusal.reasons[0].fix


def test_case_31_six_on_one_node_when_three_and_three_are_free(world: World) -> None:
    """Refused as "one node", with the next time and the same over two nodes now."""
    for units in (5, 5, 8, 8):
        world.book("bio-member", project="atlas", start=START.isoformat(), units=units, within="node", duration="PT3H")
    with pytest.raises(Refused) as refused:
        world.book(units=6, within="node", start=START.isoformat(), duration="PT3H")
    assert "The most that one node has free is 3" in refused.value.detail
    offered = {a.kind_of_change: a.request for a in refused.value.refusal.alternatives}
    assert (offered["shape"]["nodes"], offered["shape"]["per_node"]) == (2, 3)
    assert offered["time"]["start"] == (START + 3 * HOUR).isoformat()


def test_case_77_the_price_list_changes_between_booking_and_extension(world: World) -> None:
    from app.pricing.actions import publish_version
    from tests.world import FINANCE

    booking = world.book(units=8, duration="PT2H")
    with world.work() as work:
        publish_version(work, FINANCE, "standard", "CHF", START + timedelta(minutes=30), {H100: Decimal("3.00")}, "")
    world.set_clock(START + timedelta(minutes=40))
    later = world.do("extend", booking, by=HOUR, end=None)
    assert later.quoted == Decimal("38.40") + Decimal("24.00")


def test_two_kinds_of_alternatives_even_where_one_change_is_not_enough(world: World) -> None:
    """Twelve nodes in one rack of two, above the quota as well: fewer, and fewer at another time or for less long."""
    world.set_limit("physics", units=16, hours=100, project_id=world.projects["plasma"])
    with pytest.raises(Refused) as refused:
        world.book(nodes=12, per_node=8, within="rack", duration="PT12H")
    offered = refused.value.refusal.alternatives
    assert len({a.kind_of_change for a in offered}) >= 2
    for alternative in offered:
        world.do("cancel", world.book(**alternative.request))


def test_a_key_answers_only_to_whoever_used_it(world: World) -> None:
    """The same words of a colleague are another request, and nobody is shown a booking that he may not see."""
    booking = world.book("physics-member", key="tut-1", units=2)
    with pytest.raises(Conflict) as conflict:
        world.book("physics-lead", key="tut-1", units=2)
    assert conflict.value.code == "idempotency_key_reused"
    assert world.book("physics-member", key="tut-1", units=2).id == booking.id


def test_what_an_extension_would_cost_is_asked_under_the_rules_of_the_extension(world: World) -> None:
    from app.bookings import extending

    booking = world.book("physics-member", units=4, duration="PT2H")
    world.set_limit("physics", units=4, hours=10, account_id=world.people["physics-member"])

    def dry_run(person: str) -> None:
        actor = world.actor(person)
        with world.plumbing.database.work(actor.tenant_id) as work:
            extending.quote_extension(work, actor, booking.id, HOUR, None)

    with pytest.raises(Forbidden):
        dry_run("physics-viewer")
    dry_run("physics-lead")
    world.set_limit("physics", units=0, hours=10, account_id=world.people["physics-member"])
    with pytest.raises(Refused) as refused:
        dry_run("physics-lead")
    assert "quota_units" in codes(refused)
    world.do("cancel", booking)
    world.settle()
    with pytest.raises(Conflict):
        dry_run("physics-lead")


def test_a_cluster_that_berth_only_looks_at_sells_no_more_time(world: World) -> None:
    booking = world.book(units=4, duration="PT2H")
    world.settle()
    with world.work() as work:
        work.pg.execute("UPDATE clusters SET writes = false")
    with pytest.raises(Refused) as refused:
        world.do("extend", booking, by=HOUR, end=None)
    assert "nothing_offered" in codes(refused)
    assert world.look(booking).ends_at == booking.ends_at
