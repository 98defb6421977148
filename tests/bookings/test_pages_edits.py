"""The pages on which a booking is changed and one's own use is claimed, as a browser sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from app.accounts import cluster_users
from tests.bookings.shelf import rows
from tests.bookings.test_pages import People, text_of
from tests.world import START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path, valkey_url) -> Iterator[World]:
    made = make_world(database, tmp_path, valkey_url, csv=nodes_csv(1))
    yield made
    made.close()


def key_in(answer) -> str:
    return re.search(r'name="idempotency_key" value="([^"]+)"', answer.text)[1]


def test_every_change_shows_its_effect_and_does_what_it_showed(world: World) -> None:
    browser = People(world)("physics-lead")
    a = world.book("physics-lead", start=(START + 2 * HOUR).isoformat(), units=8, duration="PT4H")
    page = browser.see(f"/bookings/{a.label}/change")
    said = text_of(page)
    assert page.status_code == 200
    assert "Give CHF 38.40 back" in said  # 4 of 8 units
    assert "Hand over to physics-member" in said
    assert "Share" in said
    moved = browser.see(f"/bookings/{a.label}/change?start=2026-11-30T20:00&hours=2&cluster=sim")
    assert "Move for CHF 38.40 in all" in text_of(moved)
    form = {"start": "2026-11-30T20:00", "hours": "2", "cluster": "sim", "idempotency_key": key_in(moved)}
    done = browser.submit(f"/bookings/{a.label}/move", **form)
    assert done.status_code == 303
    after = world.look(a)
    assert (after.starts_at.hour, after.ends_at - after.starts_at) == (19, 2 * HOUR)  # 20:00 in Zurich
    browser.submit(f"/bookings/{a.label}/units", **{"by": "2", "idempotency_key": "u"})
    browser.submit(f"/bookings/{a.label}/shrink", **{"by": "PT1H", "idempotency_key": "s"})
    browser.submit(f"/bookings/{a.label}/share", **{"idempotency_key": "h"})
    browser.submit(
        f"/bookings/{a.label}/hand_over", **{"by": str(world.people["physics-member"]), "idempotency_key": "o"}
    )
    after = world.look(a)
    assert (after.units, after.ends_at - after.starts_at, after.shared, after.booked_by) == (
        2,
        HOUR,
        True,
        "physics-member",
    )
    history = text_of(browser.see(f"/bookings/{a.label}"))
    for words in ("Moved by physics-lead", "Made smaller by physics-lead", "Shared by", "Handed over by physics-lead"):
        assert words in history


def test_what_cannot_be_done_says_why_and_changes_nothing(world: World) -> None:
    browser = People(world)()
    a = world.book(start=(START + 2 * HOUR).isoformat(), units=8, duration="PT4H")
    world.book("bio-member", project="atlas", start=(START + 8 * HOUR).isoformat(), units=1, duration="PT1H")
    moved = browser.see(f"/bookings/{a.label}/change?start=2026-11-30T21:00&hours=4&cluster=sim")
    assert "Not enough H100" in text_of(moved)
    browser.submit(f"/bookings/{a.label}/move", **{"start": "2026-11-30T21:00", "hours": "4", "cluster": "sim"})
    assert "was not moved" in text_of(browser.see(f"/bookings/{a.label}"))
    assert world.look(a) == a
    viewer = People(world)("physics-viewer").see(f"/bookings/{a.label}/change")
    assert "physics-member has it" in text_of(viewer)


def test_a_late_cancel_shows_its_fee_and_charges_just_that(world: World) -> None:
    ((pool,),) = rows(world, "SELECT name FROM pools")
    world.set_policy(pool, cancel_notice=24 * 3600, cancel_fee_percent=50)
    browser = People(world)()
    a = world.book(start=(START + 2 * HOUR).isoformat(), units=1, duration="PT4H")
    assert "Cancel, nothing is charged" in text_of(browser.see(f"/bookings/{a.label}"))
    world.set_clock(START + HOUR)
    assert "Cancel for CHF 4.80" in text_of(browser.see(f"/bookings/{a.label}"))
    browser.submit(f"/bookings/{a.label}/cancel", **{"idempotency_key": "c"})
    assert world.look(a).state == "CANCELLED"
    from app import rounds

    rounds.do_all(world.plumbing, rounds.Haste(without=frozenset({"reconcile.usage", "reconcile.look"})))
    assert rows(world, "SELECT kind, quantity * unit_price / 3024000, why FROM charges") == [
        ("fee", Decimal("4.80"), "Cancelled late: 50 % of the price.")
    ]
    assert rows(world, "SELECT count(*) FROM metering") == [(0,)]


def test_ones_own_use_is_shown_and_claimed(world: World) -> None:
    with world.work() as work:
        names = cluster_users.names_on(work, world.cluster_id, [world.people["physics-member"]])
    world.backend.faults.foreign_job("n0", (0, 1), what="my job", who=names[world.people["physics-member"]])
    world.sync()
    browser = People(world)()
    page = browser.see("/uses?project=plasma&duration=PT2H")
    assert "Claim for CHF 9.60" in text_of(page)
    href = re.search(r'action="(/uses/\d+/claim)"', page.text)[1]
    answer = browser.submit(href, **{"project": "plasma", "duration": "PT2H", "idempotency_key": key_in(page)})
    assert answer.headers["location"].startswith("/bookings/B-")
    assert rows(world, "SELECT units, quoted FROM bookings") == [(2, Decimal("9.60"))]
    assert "Nothing to claim" in text_of(People(world)("physics-lead").see("/uses"))
