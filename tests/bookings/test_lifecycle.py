"""The table of moves as a graph, and its picture in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.bookings.lifecycle import (
    EVENTS,
    FINAL,
    HOLDS,
    MAY_OWN,
    MOVES,
    OUTCOMES,
    Event,
    IllegalMove,
    Outcome,
    State,
    diagram,
    may,
    move,
)

PAGE = Path(__file__).parents[2] / "docs" / "booking-states.md"


def reachable_from(state: State | None, without: State | None = None) -> set[State]:
    seen: set[State] = set()
    edge = {to for (origin, _), to in MOVES.items() if origin == state}
    while edge := {s for s in edge if s not in seen and s != without}:
        seen |= edge
        edge = {to for (origin, _), to in MOVES.items() if origin in edge}
    return seen


def test_the_page_shows_the_table_as_it_is():
    assert PAGE.read_text() == diagram(), "python -m app.bookings.lifecycle > docs/booking-states.md"


def test_every_state_can_be_reached_from_the_beginning():
    assert reachable_from(None) == set(State)


def test_final_states_are_the_ones_without_a_way_out():
    assert {s for s in State if not any(origin == s for origin, _ in MOVES)} == FINAL


@pytest.mark.parametrize("state", sorted(set(State) - FINAL))
def test_no_state_is_a_dead_end(state):
    assert reachable_from(state) & FINAL


@pytest.mark.parametrize("state", sorted(MAY_OWN - {State.ENDING}))
def test_every_road_that_may_own_something_leaves_through_ending(state):
    assert reachable_from(state, without=State.ENDING) & FINAL == set()
    assert reachable_from(State.ENDING) == {State.ENDED}


def test_only_a_booking_that_asked_nothing_of_a_cluster_is_cancelled_directly():
    assert {origin for (origin, event), to in MOVES.items() if to is State.CANCELLED} == {
        State.WAITING,
        State.REQUESTED,
        State.BOOKED,
    }


def test_each_event_that_leads_into_ending_has_an_outcome_and_no_other_has():
    into_ending = {event for (_, event), to in MOVES.items() if to is State.ENDING}
    assert into_ending == set(OUTCOMES)
    assert set(OUTCOMES.values()) == set(Outcome)


def test_every_event_is_used_and_explained():
    assert {event for _, event in MOVES} == set(Event) == set(EVENTS)


def test_an_active_booking_was_provided_and_nothing_else_makes_one():
    assert [pair for pair, to in MOVES.items() if to is State.ACTIVE] == [(State.STARTING, Event.PROVIDE)]


def test_states_that_may_own_something_hold_units():
    assert MAY_OWN <= HOLDS
    assert not FINAL & HOLDS


def test_a_move_that_is_not_in_the_table_is_refused_in_words():
    assert not may(State.ENDED, Event.CANCEL)
    with pytest.raises(IllegalMove, match="a booking that is ENDED cannot cancel"):
        move(State.ENDED, Event.CANCEL)
    with pytest.raises(IllegalMove, match="not made yet"):
        move(None, Event.PROVIDE)
