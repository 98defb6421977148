"""From metered time to the ledger and the statement, on the real database."""

from __future__ import annotations

import threading
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.accounts.queries import tenant as tenant_of
from app.billing import actions, queries, rules
from app.kernel.money import SCALE, line_amount
from app.usage.actions import meter
from tests.billing.world import NOW, World, hours

MARCH = date(2026, 3, 1)


def bill(world: World, booking, now, tenant=None) -> int:
    """Meter and charge, as the workers do."""
    with world.work(tenant) as work:
        meter(work, booking, now)
        return actions.charge(work, booking)


def ledger(world: World, booking=None):
    return world.rows(
        """SELECT id, kind, interval_id, price_id, starts_at, ends_at, month, quantity, unit_price, why, project, person
             FROM charges WHERE %s::uuid IS NULL OR booking_id = %s ORDER BY starts_at, kind""",
        [booking, booking],
    )


def draft(world: World, month: date = MARCH, tenant=None) -> rules.Statement:
    tenant = tenant or world.tenant
    with world.work(tenant) as work:
        return rules.statement("T", month, world.currency, queries.groups_of(work, [tenant], month))


def charged(world: World, booking) -> Decimal:
    with world.work() as work:
        return queries.charged(work, [booking])[booking]


def test_reserved_time_is_billed_whatever_was_used(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(10), units=4, provided_at=NOW)
    assert bill(world, booking, hours(9)) == 0
    assert bill(world, booking, hours(10)) == 1
    said = draft(world)
    assert (said.net, said.credits, said.total, charged(world, booking)) == (80, 0, 80, 80)
    assert rules.statement_json(said, str) == {
        "number": None,
        "state": "draft",
        "tenant": "T",
        "period": "2026-03",
        "currency": "CHF",
        "lines": [
            {
                "what": "Run: 4 × H100",
                "booking": str(booking),
                "number": "B-1",
                "charge": "use",
                "kind": "h100",
                "cost_center": "4410",
                "project": "Plasma",
                "unit_hours": "40.00",
                "unit_price": "2.00",
                "amount": "80.00",
            }
        ],
        "expected_credits": [],
        "net": "80.00",
        "credits": "0.00",
        "tax": "0.00",
        "total": "80.00",
    }


def test_a_start_90_seconds_late_costs_90_seconds_less(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(1), units=8, provided_at=NOW + timedelta(seconds=90))
    bill(world, booking, hours(1))
    assert draft(world).net == Decimal("15.60")  # 8 x (3600 - 90) s at 2.00, of a quote of 16.00


def test_an_early_release_costs_to_the_second(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(4), units=8, provided_at=NOW, released_at=hours(1), state="ENDING")
    bill(world, booking, hours(1))
    assert draft(world).net == Decimal("16.00")


def test_a_no_show_pays_until_its_release(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(10), units=4, provided_at=NOW, released_at=hours(0.5), state="ENDING")
    bill(world, booking, hours(0.5))
    assert draft(world).net == Decimal("4.00")


def test_a_lost_unit_is_charged_and_credited_once(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(10), units=2, provided_at=NOW)
    world.add_outage(booking, 0, hours(1), hours(3))
    world.add_outage(booking, 0, hours(2), hours(4))
    world.add_outage(booking, 5, hours(2), hours(4))  # not a unit of this booking
    bill(world, booking, hours(10))
    assert draft(world).net == 40  # nothing is taken back before the booking has ended
    world.set_booking(booking, state="ENDED", outcome="completed")
    assert bill(world, booking, hours(10.1)) == 1
    said = draft(world)
    assert [(g.kind, g.amount) for g in said.groups] == [("use", 40), ("credit", -6)]
    assert (said.net, said.credits, said.total, charged(world, booking)) == (40, -6, 34, 34)
    assert bill(world, booking, hours(11)) == 0


def draft_seen(world: World, month: date = MARCH) -> rules.Statement:
    """The draft with what is expected, as pages and the API show it."""
    with world.work() as work:
        return queries.statement_of(work, tenant_of(work, world.tenant), month)


def test_the_credit_is_said_while_the_booking_goes_on_and_is_the_one_that_comes(world):
    """A booking of seven days loses a unit twice: its credit so far is what the ledger would take back now."""
    world.add_node()
    booking = world.add_booking(NOW, hours(168), units=4, provided_at=NOW)
    assert draft_seen(world).expected == ()
    world.add_outage(booking, 0, hours(1), hours(11))
    world.add_outage(booking, 0, hours(6), hours(11))
    world.add_outage(booking, 2, hours(20), None)
    for passed, credit in ((1, 0), (2, 2), (11, 20), (19, 20), (21, 22), (48, 76)):
        world.move_to(hours(passed))
        bill(world, booking, hours(passed))
        said = draft_seen(world)
        assert sum((e.amount for e in said.expected), Decimal(0)) == -credit, passed
        assert (said.credits, said.total) == (0, said.net), "what is expected is in no sum"
    (expected,) = said.expected
    assert (expected.number, expected.name, expected.unit_price, expected.quantity) == (1, "Run", 2, -38 * SCALE)
    assert rules.statement_json(said, str)["expected_credits"] == [
        {"booking": str(booking), "number": "B-1", "kind": "h100", "unit_hours": "-38.00", "unit_price": "2.00",
         "amount": "-76.00"}
    ]  # fmt: skip
    # released now, it is taken back: one line, and nothing is expected any more
    world.set_booking(booking, state="ENDED", outcome="released", released_at=hours(48))
    bill(world, booking, hours(48))
    said = draft_seen(world)
    assert [(g.kind, g.amount) for g in said.groups if g.kind == "credit"] == [("credit", -76)]
    assert said.expected == ()


def test_a_credit_over_the_end_of_a_month_is_expected_in_each_as_it_will_be_said(world):
    world.add_node()
    start = hours(29 * 24 + 13 + 1 / 3)  # 31 March, 22:20
    booking = world.add_booking(start, start + timedelta(hours=4), provided_at=start, prices=[
        (start, start + timedelta(hours=4), world.price, "0.05")])  # fmt: skip
    world.add_outage(booking, 0, start, start + timedelta(hours=3, minutes=20))
    world.move_to(start + timedelta(hours=3, minutes=30))
    said = [draft_seen(world, month).expected[0].amount for month in (MARCH, date(2026, 4, 1))]
    assert said == [Decimal("-0.08"), Decimal("-0.09")]
    world.set_booking(booking, state="ENDED", outcome="completed")
    bill(world, booking, start + timedelta(hours=4))
    assert [draft(world, month).credits for month in (MARCH, date(2026, 4, 1))] == said


def test_what_is_not_billed_expects_no_credit(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(10), provided_at=NOW)
    world.add_outage(booking, 0, hours(1), hours(2))
    world.move_to(hours(3))
    assert len(draft_seen(world).expected) == 1
    world.owner.execute("UPDATE clusters SET billed = false")
    assert draft_seen(world).expected == ()


def test_an_outage_that_lasts_is_credited_to_the_end(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(10), provided_at=NOW, released_at=hours(5), state="ENDED")
    world.add_outage(booking, 0, hours(3), None)
    bill(world, booking, hours(5))
    assert (draft(world).net, draft(world).credits, draft(world).total) == (10, -4, 6)


def test_a_frozen_price_stays_whatever_is_published_later(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(6), units=8, provided_at=NOW)
    world.add_price("h100", "2.50", hours(3.5), hours(0.1))
    bill(world, booking, hours(6))
    assert [(row[3], row[8]) for row in ledger(world)] == [(world.price, Decimal("2.00"))]
    assert draft(world).net == 96


def test_a_price_known_at_confirmation_splits_the_bill(world):
    world.add_node()
    second = world.add_price("h100", "2.50", hours(3.5), NOW)
    prices = [(NOW, hours(3.5), world.price, "2.00"), (hours(3.5), hours(6), second, "2.50")]
    booking = world.add_booking(NOW, hours(6), units=8, provided_at=NOW, prices=prices)
    bill(world, booking, hours(6))
    said = draft(world)
    assert [(g.unit_price, g.amount) for g in said.groups] == [(Decimal("2.00"), 56), (Decimal("2.50"), 50)]
    assert said.net == 106


def test_months_add_up_to_the_whole_and_the_last_cent_is_in_the_last(world):
    world.add_node()
    start = hours(29 * 24 + 13, NOW) + timedelta(minutes=20)  # 31 March, 22:20
    prices = [(start, start + timedelta(hours=4), world.price, "0.05")]
    booking = world.add_booking(start, start + timedelta(minutes=200), provided_at=start, prices=prices)
    bill(world, booking, start + timedelta(hours=4))
    assert [draft(world, month).net for month in (MARCH, date(2026, 4, 1))] == [Decimal("0.08"), Decimal("0.09")]
    assert charged(world, booking) == Decimal("0.17")


def test_intervals_and_charges_dropped_and_rebuilt_are_the_same_rows(world):
    world.add_node()
    second = world.add_price("h100", "2.50", hours(20.5), NOW)
    prices = [(NOW, hours(20.5), world.price, "2.00"), (hours(20.5), hours(40), second, "2.50")]
    booking = world.add_booking(NOW, hours(40), units=3, provided_at=hours(0.025), prices=prices)
    world.add_outage(booking, 1, hours(12), hours(30))
    for now in (1, 16, 17, 24, 33):
        bill(world, booking, hours(now))
    world.set_booking(booking, released_at=hours(35), state="ENDING")
    bill(world, booking, hours(35))
    world.set_booking(booking, state="ENDED", outcome="released")
    bill(world, booking, hours(36))
    before, said = ledger(world), draft(world)
    assert [row[1] for row in before].count("use") == 3  # two days and a price change
    assert len(before) == 5
    world.owner.execute("DELETE FROM charges")
    world.owner.execute("DELETE FROM intervals")
    world.set_booking(booking, metered_until=None)
    bill(world, booking, hours(99))
    assert ledger(world) == before
    assert draft(world) == said


def test_eight_workers_at_once_charge_once(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(72), units=8, provided_at=NOW, state="ENDED")
    world.add_outage(booking, 0, NOW, hours(1))
    gate, errors = threading.Barrier(8), []

    def one() -> None:
        gate.wait()
        try:
            bill(world, booking, hours(72))
        except Exception as error:  # told below, in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=one) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert errors == []
    assert len(ledger(world)) == 5
    assert draft(world).total == 8 * 72 * 2 - 2


def test_the_ledger_cannot_be_changed_by_the_app(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(1), provided_at=NOW)
    bill(world, booking, hours(1))
    for sql in ("UPDATE charges SET quantity = 1", "DELETE FROM charges", "DELETE FROM intervals"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), world.work() as work:
            work.pg.execute(sql)


def test_a_cluster_that_is_not_billed_costs_nothing(world):
    world.add_node()
    world.owner.execute("UPDATE clusters SET billed = false")
    booking = world.add_booking(NOW, hours(1), provided_at=NOW, state="ENDED")
    assert bill(world, booking, hours(1)) == 0
    assert world.rows("SELECT count(*) FROM intervals") == [(1,)]
    assert draft(world).groups == ()


def test_names_on_the_bill_are_those_of_the_time(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(24), provided_at=NOW)
    bill(world, booking, hours(15))
    world.owner.execute("UPDATE projects SET name = 'Renamed'")
    world.set_booking(booking, cost_centre="4711")
    bill(world, booking, hours(24))
    assert [row[10] for row in ledger(world)] == ["Plasma", "Renamed"]
    assert [(g.cost_centre, g.amount) for g in draft(world).groups] == [("4410", 30), ("4711", 18)]


def test_a_statement_holds_one_tenants_charges(world):
    world.add_node()
    tenant, project = world.add_tenant("bio", "Bio Lab")
    mine = world.add_booking(NOW, hours(1), provided_at=NOW)
    theirs = world.add_booking(NOW, hours(2), first=1, provided_at=NOW, tenant=tenant, project=project)
    bill(world, mine, hours(3))
    bill(world, theirs, hours(3), tenant)
    assert (draft(world).net, draft(world, tenant=tenant).net) == (2, 4)
    with world.work() as work:
        assert queries.groups_of(work, [world.tenant, tenant], MARCH)[0].booking_id == mine
        assert len(queries.groups_of(work, [world.tenant, tenant], MARCH)) == 1
        with work.read_all():
            assert len(queries.groups_of(work, [world.tenant, tenant], MARCH)) == 2


def test_when_all_is_metered_charged_and_collected_nothing_is_due(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(1), provided_at=NOW, state="ENDED")
    world.owner.execute("UPDATE metering SET collect_at = NULL")
    bill(world, booking, hours(1))
    assert world.rows("SELECT * FROM metering") == []


EXACT = st.integers(-(10**15), 10**15)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EXACT, st.integers(0, 6), st.sampled_from([("JPY", 0), ("CHF", 2), ("KWD", 3)]), st.booleans())
def test_sql_rounds_a_line_as_the_kernel_does(world, whole, decimals, currency, near_a_tie):
    name, places = currency
    exact = Decimal(whole).scaleb(-decimals)
    if near_a_tie:  # (n + 1/2) minor units, exactly
        exact = (Decimal(2 * whole + 1) * 1512000).scaleb(-places)
    (found,) = world.rows("SELECT line_amount(%s, %s)", [exact, places])
    assert found == (line_amount(Fraction(exact) / 3024000, name),)
