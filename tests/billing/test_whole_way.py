"""Booked, provided, measured, charged and on the statement, on the simulated cluster; the independent bill agrees."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from app import rounds
from app.accounts.queries import tenant
from app.billing import api, queries
from app.bookings.api import booking_json
from app.bookings.lifecycle import Pace
from app.kernel.window import Window
from app.pricing import actions as pricing
from app.pricing import api as prices_api
from app.pricing import queries as prices
from app.quotas import queries as quotas
from app.usage import queries as usage
from tests.world import FINANCE, H100, START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)
SELDOM = Pace(every=timedelta(days=2))
spec = importlib.util.spec_from_file_location("independent_bill", Path(__file__).parents[1] / "oracle" / "bill.py")
oracle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(oracle)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(2))
    yield made
    made.close()


def live(world: World, until) -> None:
    """Step the clock through everything that falls due, as the demo's history does; measurements come at the end."""
    haste = rounds.Haste(SELDOM, frozenset({"reconcile.look", "reconcile.usage"}))
    while True:
        rounds.do_all(world.plumbing, haste)
        following = rounds.next_instant(world.plumbing)
        if following is None or following >= until:
            break
        world.set_clock(following)
    world.set_clock(until)
    rounds.do_all(world.plumbing, rounds.Haste(SELDOM, frozenset({"reconcile.look"}), fine_for=timedelta(0)))


def test_the_ledger_says_what_the_quote_said_and_the_independent_bill_says_it_too(world: World) -> None:
    world.set_limit("physics", hours=1000)
    world.set_clock(START)
    with world.work() as work:  # over the end of November: a new price from 1 December, 03:00 UTC
        pricing.publish_version(work, FINANCE, "standard", "CHF", START + 15 * HOUR, {H100: Decimal("2.713")}, "next")
    whole = world.book(units=8, duration="PT20H")
    short = world.book(units=3, start=(START + HOUR).isoformat(), duration="PT10H")
    live(world, START + 3 * HOUR)
    world.do("release", short)
    live(world, START + 22 * HOUR)
    assert world.look(whole).outcome == "completed"

    with world.work("physics") as work:
        charged = queries.charged(work, [whole.id, short.id])
        bookings = [json.loads(json.dumps(booking_json(world.look(b), charged[b.id]))) for b in (whole, short)]
        seen = tenant(work, world.tenants["physics"])
        drafts = [api.in_json(queries.statement_of(work, seen, date(2026, m, 1))) for m in (11, 12)]
        versions = [prices_api._in_json(v) for v in prices.versions(work, "standard", "CHF")]
        report = queries.month_report(work, [seen.id], date(2026, 11, 1))
        split = usage.usage_of(work, whole.id)
        (scope,) = quotas.all_scopes(work)
        month = quotas.month_total(work, scope, date(2026, 11, 1), work.product_now())
    assert charged[whole.id] == whole.quoted
    assert charged[short.id] == Decimal("14.40")  # 3 units, two hours
    found = oracle.bill(versions, bookings, ZoneInfo("Europe/Zurich"), "CHF")
    assert oracle.differences(found, bookings, drafts) == []
    assert [d["state"] for d in drafts] == ["draft", "draft"]
    assert len(drafts[1]["lines"]) == 2  # December: the old price until 04:00 local time, then the new one
    # used, unused and unknown add up to what was reserved, and the workload was seen
    assert sum(line.split.used + line.split.unused + line.split.unknown for line in split) == 8 * 20 * 3600 * 840
    assert sum(line.amount for line in report) == Decimal(drafts[0]["total"])
    assert all(line.unknown == 0 for line in report)
    # November holds eleven hours of the first, two of the second; the release gave back the rest at once
    assert (month.used, month.held) == ((8 * 11 + 3 * 2) * 3600 * 840, 0)


def test_every_unit_second_of_the_month_is_somewhere(world: World) -> None:
    world.book(units=8, duration="PT4H")
    live(world, START + 6 * HOUR)
    with world.work() as work, work.read_all():
        kinds, _ = queries.capacity(work, Window(START, START + 6 * HOUR))
    found = kinds[H100]
    assert found.installed == 16 * 6 * 3600 * 840
    assert found.parts["reserved"] == 8 * 4 * 3600 * 840
    assert sum(found.parts.values()) == found.installed
    assert found.used > 0
    assert found.unknown == 0
