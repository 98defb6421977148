"""What serves a request: any of some kinds, by memory, or better; and when: between two instants."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest
from pydantic import ValidationError

from app.bookings.schemas import Ask, BookingIn
from app.kernel.errors import Refused
from tests.world import H100, H200, START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)
PRICES = {H100: Decimal("2.40"), H200: Decimal("3.60")}


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    csv = nodes_csv() + nodes_csv(2, H200, prefix="h").split("\n", 1)[1]
    made = make_world(database, tmp_path, csv=csv, prices=PRICES)
    yield made
    made.close()


def reasons(refused: pytest.ExceptionInfo[Refused]) -> dict[str, tuple[str | None, str | None]]:
    return {r.code: (r.limit, r.asked) for r in refused.value.refusal.reasons}


def book_again(world: World, refused: pytest.ExceptionInfo[Refused]) -> list[str]:
    """Every alternative is bookable as it is offered; what each changes."""
    changes = []
    for alternative in refused.value.refusal.alternatives:
        world.quote(**alternative.request)
        changes.append(alternative.kind_of_change)
    return changes


# --- kinds by need ----------------------------------------------------------------------------------------------------


def test_any_kind_with_enough_memory_is_the_cheapest_that_has_it(world: World) -> None:
    assert world.quote(kind="any").offer.pool.kind == H100
    assert world.quote(kind="any", memory_gb=100).offer.pool.kind == H200
    assert world.quote(kind="any", kinds=[H200]).offer.pool.kind == H200


def test_more_memory_than_any_unit_has_is_refused_with_the_most_there_is(world: World) -> None:
    with pytest.raises(Refused) as refused:
        world.quote(kind="any", memory_gb=1000)
    assert reasons(refused) == {"no_such_memory": ("141 GB", "1000 GB")}
    assert refused.value.status == 422
    assert "kind" in book_again(world, refused)


def test_a_kind_among_several_that_nobody_offers_is_named(world: World) -> None:
    with pytest.raises(Refused) as refused:
        world.quote(kind="any", kinds=[H100, "h1000"])
    assert reasons(refused) == {"unknown_kind": (None, "h1000")}


def test_case_41_a_better_kind_only_where_that_was_ticked_and_then_at_its_own_price(world: World) -> None:
    start = (START + 24 * HOUR).isoformat()
    world.book(start=start, nodes=4, per_node=8)  # every H100
    with pytest.raises(Refused):
        world.quote(start=start)
    better = world.quote(start=start, or_better=True)
    assert better.offer.pool.kind == H200
    assert better.offer.cost.amount == Decimal("3.60")
    asked = world.quote(start=(START + 30 * HOUR).isoformat(), or_better=True)
    assert asked.offer.pool.kind == H100, "the kind that was named, where it is free"
    with pytest.raises(Refused):  # nothing is as good as an H200 there, and no H100 is taken for it
        world.quote(kind=H200, or_better=True, nodes=40, per_node=8)


@pytest.mark.parametrize(
    "words",
    [
        {"kind": H100, "memory_gb": 80},
        {"kind": H100, "kinds": [H200]},
        {"kind": "any", "or_better": True},
        {"start": START.isoformat(), "latest": (START + HOUR).isoformat()},
        {"within": "node", "near": "rack"},
        {"within": "leaf", "near": "leaf"},
    ],
)
def test_words_that_contradict_each_other_are_told(words: dict) -> None:
    body = {"project": "p", "kind": H100, "units": 1, "start": "asap", "duration": "PT1H"} | words
    with pytest.raises(ValidationError):
        BookingIn.model_validate(body)


def test_what_is_posted_again_means_the_same() -> None:
    body = {
        "project": "p", "kind": "any", "kinds": [H100], "memory_gb": 40, "units": 8, "within": "rack", "near": "node",
        "start": "asap", "duration": "PT1H", "earliest": START.isoformat(), "latest": (START + 9 * HOUR).isoformat(),
    }  # fmt: skip
    ask = Ask.of(BookingIn.model_validate(body))
    assert Ask.of(BookingIn.model_validate(ask.to_post())) == ask


# --- between two instants ---------------------------------------------------------------------------------------------


def test_some_hours_between_two_instants_take_the_first_that_fit(world: World) -> None:
    busy = START + 10 * HOUR
    world.book(start=busy.isoformat(), nodes=4, per_node=8, duration="PT3H")
    words = {"units": 32, "duration": "PT2H", "earliest": busy.isoformat()}
    found = world.quote(**words, latest=(busy + 6 * HOUR).isoformat())
    assert (found.offer.window.start, found.offer.window.end) == (busy + 3 * HOUR, busy + 5 * HOUR)
    booked = world.book(**words, latest=(busy + 6 * HOUR).isoformat())
    assert booked.starts_at == busy + 3 * HOUR


def test_no_such_hours_between_two_instants_is_refused_and_other_times_are_offered(world: World) -> None:
    busy = START + 10 * HOUR
    world.book(start=busy.isoformat(), nodes=4, per_node=8, duration="PT3H")
    with pytest.raises(Refused) as refused:
        world.book(units=32, duration="PT2H", earliest=busy.isoformat(), latest=(busy + 4 * HOUR).isoformat())
    assert "no_time_found" in reasons(refused)
    assert "time" in book_again(world, refused)


def test_a_time_that_is_too_short_or_over_is_a_fault_of_the_request(world: World) -> None:
    with pytest.raises(Refused) as refused:
        world.quote(duration="PT2H", earliest=(START + HOUR).isoformat(), latest=(START + 2 * HOUR).isoformat())
    assert reasons(refused) == {"window_too_short": ("1 h", "2 h")}
    assert refused.value.status == 422
    assert "time" in book_again(world, refused)
    with pytest.raises(Refused) as refused:
        world.quote(latest=(START - HOUR).isoformat())
    assert set(reasons(refused)) == {"start_in_past"}


def test_bug_report_5_a_free_time_inside_one_day_is_found(world: World) -> None:
    """Booked 10 to 12; looked for between 9 and 13 of the same day: 9 to 10 and 12 to 13, nothing else."""
    ten = START.replace(hour=10) + timedelta(days=1)
    world.book(start=ten.isoformat(), nodes=4, per_node=8, duration="PT2H")
    words = {"units": 32, "duration": "PT1H", "latest": (ten + 3 * HOUR).isoformat()}
    first = world.book(**words, earliest=(ten - HOUR).isoformat())
    second = world.book(**words, earliest=(ten - HOUR).isoformat())
    assert [first.starts_at, second.starts_at] == [ten - HOUR, ten + 2 * HOUR]
    with pytest.raises(Refused):
        world.book(**words, earliest=(ten - HOUR).isoformat())


def test_the_preferred_closeness_is_kept_where_it_can_be_and_refuses_nothing(world: World) -> None:
    near = world.quote(units=8, near="node")
    assert len(near.node_names) == 1
    for _ in range(4):
        world.book(units=4, within="node", duration="PT1H")
    assert world.quote(units=20, near="node").offer.placement.units == 20
