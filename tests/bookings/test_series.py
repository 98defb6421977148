"""Series and classes on a real database: each occurrence its own booking, conflicts listed, edits whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from app.accounts import actions as accounts
from app.bookings import classes, series
from app.bookings.edits import Key
from app.bookings.series import SeriesAsk
from app.kernel.actor import SYSTEM
from app.kernel.errors import Conflict, Forbidden, NotFound, Refused
from tests.world import START, NoQueue, World, make_world, nodes_csv

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
BERLIN = ZoneInfo("Europe/Berlin")
NINE = datetime.fromisoformat(f"{START + 3 * DAY:%Y-%m-%d}T09:00")


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(2))
    yield made
    made.close()


def asked(world: World, rule: str = "FREQ=DAILY;COUNT=4", on_conflict: str = "none", **words: Any) -> SeriesAsk:
    start = words.pop("local_start", NINE)
    end = words.pop("local_end", start + 2 * HOUR)
    ask = world.ask(**{"units": 8, "within": "node", **words})
    return SeriesAsk(ask, rule, "Europe/Berlin", start, end, on_conflict)


def make(world: World, wanted: SeriesAsk, person: str = "physics-member", key: str | None = None) -> series.Made:
    actor = world.actor(person)
    with world.plumbing.database.work(actor.tenant_id) as work:
        return series.book_series(work, NoQueue(), actor, wanted, Key(key, b"1") if key else None)


def rows(world: World) -> list[tuple]:
    with world.work("physics") as work:
        return [
            sorted(work.pg.execute(f"SELECT {what}").fetchall())
            for what in (
                "id, state, starts_at, ends_at FROM bookings", "id, rule, ended_at FROM series",
                "booking_id, during::text, live FROM holds", "booking_id, starts_at, quantity FROM commitments",
            )
        ]  # fmt: skip


def test_each_occurrence_is_a_booking_of_its_own_at_its_local_time(world: World) -> None:
    made = make(world, asked(world))
    assert len(made.booked) == 4
    assert [b.starts_at.astimezone(BERLIN).strftime("%d %H:%M") for b in made.booked] == [
        f"{(NINE + n * DAY):%d} 09:00" for n in range(4)
    ]
    assert {b.series_id for b in made.booked} == {made.series.id}
    assert made.total == sum(b.quoted for b in made.booked) > 0
    world.do("cancel", made.booked[1])  # an edit of this one alone is a verb on it
    seen = _see(world, made)
    assert [s.booking.state for s in seen.slots] == ["BOOKED", "CANCELLED", "BOOKED", "BOOKED"]


def _see(world: World, made: series.Made, person: str = "physics-member") -> series.Made:
    actor = world.actor(person)
    with world.plumbing.database.work(actor.tenant_id) as work:
        return series.see_series(work, actor, made.series.id)


def block(world: World, day: int) -> None:
    """Take everything on the n-th day of the series."""
    at = (NINE + day * DAY).replace(tzinfo=BERLIN)
    world.book("bio-member", project="atlas", start=at.isoformat(), nodes=2, per_node=8)


def test_conflicts_are_listed_and_nothing_is_booked_or_the_rest_is(world: World) -> None:
    block(world, 2)
    before = rows(world)
    with pytest.raises(Refused) as refused:
        make(world, asked(world))
    (reason,) = refused.value.refusal.reasons
    assert reason.code == "no_units_free"
    assert reason.message.startswith(f"{(NINE + 2 * DAY):%a} {(NINE + 2 * DAY).day}")
    (alternative,) = refused.value.refusal.alternatives
    assert (alternative.kind_of_change, alternative.request["on_conflict"]) == ("skip", "skip")
    assert rows(world) == before
    made = make(world, asked(world, on_conflict="skip"))
    assert [slot.booking is not None for slot in made.slots] == [True, True, False, True]
    assert str(made.total) == alternative.price["amount"]


def test_a_preview_says_all_and_changes_nothing(world: World) -> None:
    block(world, 1)
    before = rows(world)
    actor = world.actor("physics-member")
    with world.plumbing.database.work(actor.tenant_id) as work:
        shown = series.preview_series(work, NoQueue(), actor, asked(world))
    assert (len(shown.booked), len(shown.conflicts)) == (3, 1)
    assert rows(world) == before


def test_case_15_a_series_that_overlaps_itself_is_refused_though_units_are_free(world: World) -> None:
    with pytest.raises(Refused) as refused:
        make(world, asked(world, "FREQ=WEEKLY;COUNT=2", local_end=NINE + 8 * DAY))
    assert [r.code for r in refused.value.refusal.reasons] == ["series_overlaps_itself"]
    assert refused.value.status == 422


def test_occurrences_count_together_against_the_quota(world: World) -> None:
    world.set_limit("physics", hours=50)
    with pytest.raises(Refused) as refused:
        make(world, asked(world))  # 4 x 8 units x 2 h = 64
    assert {r.code for r in refused.value.refusal.reasons} == {"quota_hours"}
    assert len(refused.value.refusal.reasons) == 1, "the fourth alone is too much"
    assert len(make(world, asked(world, on_conflict="skip")).booked) == 3


def test_one_key_is_one_series(world: World) -> None:
    first, second = (make(world, asked(world), key="k") for _ in range(2))
    assert first.series.id == second.series.id
    assert [b.id for b in first.booked] == [b.id for b in second.booked]


def test_this_and_the_following_are_cancelled_and_the_series_ends_before(world: World) -> None:
    made = make(world, asked(world))
    actor = world.actor("physics-member")
    with world.plumbing.database.work(actor.tenant_id) as work:
        after = series.cancel_series(work, NoQueue(), actor, made.series.id, made.booked[2].occurs_at)
    assert [b.id for b in after.dropped] == [b.id for b in made.booked[2:]]
    assert [s.booking.state for s in after.slots] == ["BOOKED", "BOOKED", "CANCELLED", "CANCELLED"]
    assert "UNTIL=" in after.series.rule
    with world.plumbing.database.work(actor.tenant_id) as work, pytest.raises(Conflict):
        series.cancel_series(work, NoQueue(), actor, made.series.id, made.booked[3].occurs_at)


def test_the_following_at_another_time_splits_the_series_and_a_conflict_leaves_all_as_it_was(world: World) -> None:
    made = make(world, asked(world))
    actor = world.actor("physics-member")
    since = made.booked[2].occurs_at
    later = asked(world, "FREQ=DAILY;COUNT=3", local_start=NINE + 2 * DAY + HOUR)  # overlaps its own old times
    with world.plumbing.database.work(actor.tenant_id) as work:
        after = series.change_series(work, NoQueue(), actor, made.series.id, later, since)
    assert after.series.split_from == made.series.id
    assert [b.starts_at.astimezone(BERLIN).hour for b in after.booked] == [10, 10, 10]
    assert [s.booking.state for s in _see(world, made).slots] == ["BOOKED", "BOOKED", "CANCELLED", "CANCELLED"]
    block(world, 6)
    before = rows(world)
    again = asked(world, "FREQ=DAILY;COUNT=5", local_start=NINE + 3 * DAY)
    with pytest.raises(Refused):
        with world.plumbing.database.work(actor.tenant_id) as work:
            series.change_series(work, NoQueue(), actor, after.series.id, again, None)
    assert rows(world) == before


def test_what_has_begun_is_left_alone_by_an_edit_of_all(world: World) -> None:
    made = make(world, asked(world))
    world.pass_time(made.booked[1].starts_at + HOUR - START)
    actor = world.actor("physics-member")
    with world.plumbing.database.work(actor.tenant_id) as work:
        after = series.cancel_series(work, NoQueue(), actor, made.series.id)
    assert [s.booking.state for s in after.slots] == ["ENDED", "ACTIVE", "CANCELLED", "CANCELLED"]


def test_others_series_are_not_there_and_not_theirs_to_change(world: World) -> None:
    made = make(world, asked(world))
    with pytest.raises(NotFound):
        _see(world, made, "bio-member")
    viewer = world.actor("physics-viewer")
    with world.plumbing.database.work(viewer.tenant_id) as work, pytest.raises(Forbidden):
        series.cancel_series(work, NoQueue(), viewer, made.series.id)


# --- classes ----------------------------------------------------------------------------------------------------------


def pupils(world: World, many: int) -> list[str]:
    found = []
    with world.work("physics") as work:
        for n in range(many):
            login = f"pupil{n}@physics.example"
            account = accounts.create_account(work, SYSTEM, login=login, name=f"Pupil {n}")
            accounts.add_member(work, SYSTEM, account, "member", world.projects["plasma"])
            world.people[f"physics-pupil{n}"] = account
            found.append(login)
    return found


def teach(world: World, people: list[str], person: str = "physics-lead", **words: Any) -> classes.ClassMade:
    actor = world.actor(person)
    with world.plumbing.database.work(actor.tenant_id) as work:
        return classes.book_class(work, NoQueue(), actor, world.ask(**{"units": 1, **words}), people)


def test_a_class_is_a_booking_each_at_one_time_and_nobodys_own_limit_counts(world: World) -> None:
    people = pupils(world, 12)
    world.set_limit("physics", units=1, project_id=world.projects["plasma"], account_id=world.people["physics-pupil0"])
    world.book("physics-pupil0", units=1, duration="PT1H")
    made = teach(world, people)
    assert len(made.bookings) == 12
    assert {b.starts_at for b in made.bookings} == {START}
    assert {b.account_id for b in made.bookings} == {world.people[f"physics-pupil{n}"] for n in range(12)}
    assert {b.booked_by for b in made.bookings} == {f"Pupil {n}" for n in range(12)}


def test_a_class_is_all_or_nothing(world: World) -> None:
    people = pupils(world, 17)
    before = rows(world)
    with pytest.raises(Refused) as refused:
        teach(world, people, start=(START + DAY).isoformat())
    assert "no_room_for_class" in {r.code for r in refused.value.refusal.reasons}
    assert rows(world) == before


def test_a_class_as_soon_as_possible_waits_until_all_fit(world: World) -> None:
    people = pupils(world, 10)
    world.book("bio-member", project="atlas", units=8, duration="PT3H")
    made = teach(world, people)
    assert {b.starts_at for b in made.bookings} == {START + 3 * HOUR}


def test_the_projects_quota_counts_a_class_and_its_verbs_are_the_leads(world: World) -> None:
    people = pupils(world, 3)
    made = teach(world, people, start=(START + DAY).isoformat())
    with pytest.raises(Forbidden):
        world.do("cancel", made.bookings[0], "physics-pupil0")
    assert world.do("cancel", made.bookings[0], "physics-lead").state == "CANCELLED"
    with pytest.raises(Forbidden):
        teach(world, people, "physics-member")
    with pytest.raises(Refused) as refused:
        teach(world, [*people, "nobody@physics.example"])
    assert "nobody@physics.example" in str(refused.value)
    world.set_limit("physics", units=2)
    with pytest.raises(Refused):
        teach(world, people)


def test_a_whole_class_is_cancelled_by_one_verb(world: World) -> None:
    made = teach(world, pupils(world, 4), start=(START + DAY).isoformat())
    lead = world.actor("physics-lead")
    with world.plumbing.database.work(lead.tenant_id) as work:
        after = classes.cancel_class(work, NoQueue(), lead, made.one.id)
    assert {b.state for b in after.bookings} == {"CANCELLED"}
