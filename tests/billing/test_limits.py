"""Limits over the API: set by whoever may, counting what was booked before they existed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.billing.test_finance_web import Firm
from tests.billing.world import NOW, hours
from tests.servers import Addresses, TestDatabase


@pytest.fixture
def firm(database: TestDatabase, servers: Addresses) -> Iterator[Firm]:
    made = Firm(database, servers)  # physics: 40 unit-hours were reserved; the clock stands a day later
    yield made
    made.web.close()
    made.money.close()


def test_a_limit_set_later_counts_what_is_used_and_booked(firm):
    firm.money.add_booking(hours(30), hours(35), units=8, node=1, state="BOOKED")
    firm.money.add_booking(hours(40), hours(41), held=False, state="CANCELLED")
    firm.money.add_booking(NOW - timedelta(days=60), NOW - timedelta(days=59), held=False, state="ENDED")
    firm.money.add_booking(NOW, hours(3), held=False, state="ENDED")  # never provided
    api = firm.api("physics-admin")
    limit = {"project": "plasma", "kind": None, "units": 96, "hours": 6000}
    for _ in range(2):
        answer = api.put("/api/v1/limits", json=limit)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {
            "subject": "project", "name": "Plasma", "kind": None, "units": 96, "hours": 6000, "month": "2026-03",
            "used_hours": "40.00", "held_hours": "40.00", "money": None, "currency": None, "used_money": None,
            "held_money": None, "over": [],
        }  # fmt: skip
    assert [one["name"] for one in api.get("/api/v1/limits").json()["items"]] == ["Plasma"]


def test_a_persons_limit_and_a_kinds_count_only_theirs(firm):
    api = firm.api("physics-admin")
    person = api.put("/api/v1/limits", json={"person": "physics-finance@example.test", "hours": 1})
    assert (person.status_code, person.json()["used_hours"]) == (200, "0.00")
    kind = api.put("/api/v1/limits", json={"project": "plasma", "kind": "h200", "hours": 1})
    assert kind.json()["used_hours"] == "0.00"
    assert api.put("/api/v1/limits", json={"project": "plasma", "kind": "h100"}).json()["used_hours"] == "40.00"


def test_who_may_and_who_may_not(firm):
    own = {"units": 8}
    assert firm.api("physics-admin").put("/api/v1/limits", json=own).status_code == 403  # the tenant's own: operators
    operator = firm.api("platform-operator")
    assert operator.put("/api/v1/limits", json=own).status_code == 404  # no tenant named
    assert operator.put("/api/v1/limits?tenant=physics", json=own).json()["units"] == 8
    assert firm.api("physics-member").put("/api/v1/limits", json={"project": "plasma"}).status_code == 403
    assert firm.api("bio-admin").put("/api/v1/limits?tenant=physics", json={"project": "plasma"}).status_code == 200
    assert firm.money.rows("SELECT DISTINCT tenant_id, subject FROM scopes ORDER BY subject") == [
        (firm.bio, "project"),  # one's own tenant, whatever is asked for
        (firm.money.tenant, "tenant"),
    ]


def test_a_limit_of_money_counts_what_is_booked_at_its_prices(firm):
    firm.money.add_booking(hours(30), hours(35), units=8, node=1, state="BOOKED")
    api = firm.api("physics-admin")
    said = api.put("/api/v1/limits", json={"project": "plasma", "money": "250.50"})
    assert said.status_code == 200, said.text
    price = firm.money.rows("SELECT DISTINCT per_hour FROM booking_prices")[0][0]
    money = f"{40 * price:.2f}"
    assert said.json() | {"money": "250.50", "currency": "CHF", "used_money": money, "held_money": money} == said.json()
    assert api.put("/api/v1/limits", json={"project": "plasma", "money": "-1"}).status_code == 422


def test_case_76_a_limit_below_what_is_booked_keeps_the_bookings_and_names_those_beyond_it(firm):
    first = firm.money.add_booking(hours(30), hours(35), units=8, node=1, state="BOOKED")
    last = firm.money.add_booking(hours(40), hours(42), units=4, node=0, state="BOOKED")
    labels = dict(firm.money.rows("SELECT id, 'B-' || number FROM bookings"))
    api = firm.api("physics-admin")
    said = api.put("/api/v1/limits", json={"project": "plasma", "units": 6, "hours": 50, "money": "1"}).json()
    assert (said["used_hours"], said["held_hours"]) == ("40.00", "48.00")
    over = {o["what"]: o for o in said["over"]}
    assert over["units at the same time"] == {
        "what": "units at the same time", "taken": "8", "limit": "6", "by": "2", "kept": [labels[first]],
    }  # fmt: skip
    assert over["GPU-hours in March 2026"] == {
        "what": "GPU-hours in March 2026", "taken": "88", "limit": "50", "by": "38", "kept": [labels[last], labels[first]],
    }  # fmt: skip
    assert over["CHF in March 2026"]["kept"] == [labels[last], labels[first]]
    states = dict(firm.money.rows("SELECT id, state FROM bookings"))
    assert states[first] == states[last] == "BOOKED"
    assert api.get("/api/v1/limits").json()["items"] == [said]
    raised = api.put("/api/v1/limits", json={"project": "plasma", "units": 8, "hours": 84}).json()
    assert [(o["by"], o["kept"]) for o in raised["over"]] == [("4", [labels[last]])]


@pytest.mark.parametrize("wrong", [{"project": "nothing"}, {"person": "nobody@example.test"}])
def test_what_is_not_there_is_not_found(firm, wrong):
    assert firm.api("physics-admin").put("/api/v1/limits", json=wrong).status_code == 404


@pytest.mark.parametrize("wrong", [{"units": -1}, {"hours": "x"}, {"project": "plasma", "kind": "nothing"}, {"x": 1}])
def test_what_is_wrong_in_itself_is_422(firm, wrong):
    assert firm.api("physics-admin").put("/api/v1/limits", json=wrong).status_code == 422
