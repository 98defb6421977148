"""What people see of a credit before it is in the ledger: on the statement, on the month, over the API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest

from app.kernel.ids import BOOKING, public
from tests.billing.test_finance_web import Firm
from tests.billing.world import hours
from tests.servers import Addresses, TestDatabase
from tests.web.markup import Markup


@pytest.fixture
def firm(database: TestDatabase, servers: Addresses) -> Iterator[Firm]:
    made = Firm(database, servers)  # the clock stands a day after the first booking
    yield made
    made.web.close()
    made.money.close()


def test_a_long_booking_with_a_lost_unit_says_what_will_be_taken_back(firm: Firm) -> None:
    start = hours(12)
    running = firm.money.add_booking(start, start + timedelta(days=7), units=4, node=0, provided_at=start, name="Long")
    assert firm.api("physics-finance").get("/api/v1/statements/2026-03").json()["expected_credits"] == []
    firm.money.add_outage(running, 1, hours(20), None)  # four hours of one unit up to now

    draft = firm.api("physics-finance").get("/api/v1/statements/2026-03").json()
    (expected,) = draft["expected_credits"]
    assert (expected["number"], expected["unit_hours"], expected["amount"]) == ("B-3", "-4.00", "-8.00")
    assert (draft["credits"], draft["total"]) == ("-2.00", "78.00"), "it is in no sum"
    charges = firm.api("physics-member").get(f"/api/v1/bookings/{public(BOOKING, running)}/charges").json()
    assert charges["expected_credit"] == {"currency": "CHF", "amount": "-8.00"}
    over = firm.api("physics-member").get("/api/v1/bookings/B-1/charges").json()
    assert (over["charged"]["amount"], over["expected_credit"]["amount"]) == ("78.00", "0.00")

    for browser in (firm.browser("physics-finance"), firm.browser("platform-finance")):
        page = browser.see("/statements/physics/2026-03")
        assert Markup(page.text).faults == []
        said = " ".join(Markup(page.text).text.split()).replace("−", "-")
        assert "Credits expected so far" in said
        assert re.search(r"Long, H100 \(B-3\) ?-4\.00 ?2\.00 ?-8\.00", said), said[-1500:]
        assert "The difference is" not in said
    month = " ".join(Markup(firm.browser("platform-finance").see("/finance").text).text.split()).replace("−", "-")
    assert re.search(r"Credits expected so far, Institute of Physics ?1 booking with units that were not there", month)
    other = firm.browser("bio-finance").see("/statements/bio/2026-03").text
    assert "Credits expected" not in other
