"""What a stranger does after `make demo`, word for word, in a real browser; and the same for scripts.

Opens the page, signs in, books 8 H100 as soon as possible, sees them become active within seconds, sees use and cost,
releases early, and finds the line on the month's draft statement. Money is worked out here once more, with fractions.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from app.kernel.clock import monotonic, wall_now
from tests.journeys.conftest import BERTH, Demo, Person, Visit

pytestmark = [pytest.mark.xdist_group("demo"), pytest.mark.timeout(2400)]  # the first of them waits for a month

ZONE = ZoneInfo("Europe/Zurich")
H100 = "h100-sxm-80gb"
PRICE = Decimal("2.40")


def exactly(units: int, seconds: int) -> Fraction:
    return Fraction(units * seconds) * Fraction(PRICE) / 3600


def to_the_cent(money: Fraction) -> Decimal:
    """Half away from zero."""
    return Decimal(floor(money * 100 + Fraction(1, 2))).scaleb(-2)


def amount(text: str, after: str = "") -> Decimal:
    found = re.search(rf"{re.escape(after)}\s*CHF\s+([\d,]+\.\d\d)", text, re.IGNORECASE)
    assert found, f"no amount after {after!r} in {text!r}"
    return Decimal(found[1].replace(",", ""))


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def seconds_of(booking: dict[str, Any]) -> int:
    return int((instant(booking["released_at"]) - instant(booking["provided_at"])).total_seconds())


def months_of(booking: dict[str, Any]) -> list[str]:
    """One, or two when it ran across the midnight of a month's last day."""
    ends = (instant(booking["provided_at"]), instant(booking["released_at"]) - timedelta(seconds=1))
    return sorted({f"{at.astimezone(ZONE):%Y-%m}" for at in ends})


def asked(api: Any, path: str) -> dict[str, Any]:
    answer = api.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def until(what: Callable[[], Any], seconds: float) -> Any:
    """The first answer that is something."""
    late = monotonic() + seconds
    while not (found := what()):
        assert monotonic() < late, f"waited {seconds} s in vain"
    return found


def test_a_stranger_books_uses_releases_and_finds_the_line(demo: Demo, visit: Callable[[], Visit]) -> None:
    robin = demo.person("project:member", "plasma")
    window = visit()
    page = window.page

    # opens the page, signs in
    window.sign_in(robin)
    assert page.inner_text("h1") == "Your GPUs"

    # books 8 H100 as soon as possible
    page.click("main >> text=Book GPUs")
    page.wait_for_url("**/book")
    page.fill("#f-name", "A stranger's first run")
    page.locator("label.b-choice", has_text="H100").click()
    page.locator(".b-seg label", has_text="Any units").click()
    page.fill("#f-units", "8")
    page.locator(".b-seg label", has_text="As soon as possible").click()
    page.fill("#f-hours", "2")
    own_quote = to_the_cent(exactly(8, 2 * 3600))
    confirm = page.locator("#quote button", has_text=f"Confirm: book for CHF {own_quote}")
    confirm.wait_for()
    assert "starts at once" in page.inner_text("#quote")
    assert "8 H100-SXM-80GB" in page.inner_text("#quote")
    with demo.api(robin) as api:
        body = {"project": "plasma", "kind": H100, "units": 8, "within": "node", "start": "asap", "duration": "PT2H"}
        quoted = api.post("/quotes", json=body)
        assert quoted.status_code == 200, quoted.text
        assert Decimal(quoted.json()["price"]["amount"]) == own_quote
        assert quoted.json()["price"]["parts"][0]["unit_price"] == str(PRICE)
    confirm.click()
    page.wait_for_url("**/bookings/B-*")
    number = page.url.rsplit("/", 1)[1]
    assert f"Booked: {number} for CHF {own_quote}" in page.inner_text("main")

    # sees them become active within seconds: nobody reloads the page
    confirmed = monotonic()
    page.locator("#bk-badge", has_text="Active").wait_for()
    took = monotonic() - confirmed
    assert took < 60, f"active only after {took:.0f} s"
    with demo.api(robin) as api:
        booking = asked(api, f"/bookings/{number}")
        assert booking["state"] == "ACTIVE"
        assert booking["units"] == 8
        assert booking["kind"] == H100
        assert Decimal(booking["price"]["amount"]) == own_quote
    provided = instant(booking["provided_at"])
    assert provided - instant(booking["booked_at"]) < timedelta(seconds=60)

    # sees use and cost: the first samples come after about a minute, and its training begins within three
    page.locator("#bk-units td", has_text="GB").first.wait_for(timeout=240_000)
    assert page.locator("#bk-units tbody tr").count() == 8
    page.locator("#bk-workloads", has_text="Running").wait_for(timeout=300_000)
    page.locator("#bk-live", has_text=re.compile(r"Used\s*(?!0\.0 %)[\d.]+ %")).wait_for(timeout=180_000)
    page.locator("[data-chart] canvas").first.wait_for()
    earliest = wall_now()
    page.reload()
    latest = wall_now()
    shown = amount(page.inner_text("#bk-live"), "Cost so far")
    elapsed = [(at - provided).total_seconds() for at in (earliest, latest)]
    assert to_the_cent(exactly(8, int(elapsed[0]) - 1)) <= shown <= to_the_cent(exactly(8, int(elapsed[1]) + 1))
    at_end = to_the_cent(exactly(8, int((instant(booking["end"]) - provided).total_seconds())))
    assert f"CHF {at_end} at the end" in page.inner_text("#bk-live")

    # releases early
    button = page.locator("#verb-release button")
    assert re.search(r"Release all 8 units, get CHF [\d.]+ back", button.inner_text())
    button.click()
    page.locator("main", has_text=f"{number} is released").wait_for()
    said = amount(page.inner_text("main"), "You pay")
    page.locator("#bk-badge", has_text="Ended").wait_for(timeout=120_000)
    with demo.api(robin) as api:
        booking = until(lambda: charged(asked(api, f"/bookings/{number}")), 120)
    own = to_the_cent(exactly(8, seconds_of(booking)))
    assert Decimal(booking["charged"]["amount"]) == own == said
    assert booking["outcome"] == "released"
    page.reload()
    assert amount(page.inner_text("#bk-live"), "Charged") == own
    assert f"quoted CHF {own_quote}" in page.inner_text("#bk-live")

    # and finds the line on the month's draft statement
    find_line_on_page(demo, visit(), booking)
    find_line_by_api(demo, booking)


def charged(booking: dict[str, Any]) -> dict[str, Any] | None:
    """The booking once it has ended and its time is money."""
    return booking if booking["state"] == "ENDED" and Decimal(booking["charged"]["amount"]) else None


def find_line_on_page(demo: Demo, window: Visit, booking: dict[str, Any]) -> None:
    felix = demo.person("tenant:finance", "physics")
    page = window.page
    window.sign_in(felix)
    page.click("#side >> text=Statements")
    page.wait_for_url("**/statements")
    on_page = Fraction(0)
    for month in months_of(booking):
        page.goto(f"{demo.url}/statements")
        page.click(f"main a[href='/statements/physics/{month}']")
        page.wait_for_url(f"**/statements/physics/{month}")
        assert "Draft statement" in page.inner_text("h1")
        row = page.locator(".b-drill tbody tr", has=page.locator("th", has_text=f"{booking['number']},"))
        assert row.count() == 1
        details = page.locator("details", has=row)
        details.locator("summary").click()
        cells = row.locator("td").all_inner_texts()
        assert cells[1] == "8"
        on_page += Fraction(cells[-1].replace(",", ""))
        # the line that stands on the statement is the sum of its bookings' lines, each rounded by itself
        line = page.locator("tr.drill-row", has=row).locator("xpath=preceding-sibling::tr[1]")
        with demo.api(felix) as api:
            lines = asked(api, f"/statements/{month}")["lines"]
        mine = next(one for one in lines if one["number"] == booking["number"])
        keys = ("project", "cost_center", "kind", "unit_price", "charge")
        group = [one for one in lines if all(one[key] == mine[key] for key in keys)]
        assert line.locator("td").last.inner_text().replace(",", "") == str(sum(Decimal(g["amount"]) for g in group))
        assert details.locator("tbody tr").count() == len(group)
    assert abs(on_page - exactly(8, seconds_of(booking))) <= Fraction(len(months_of(booking)), 20_000)


def find_line_by_api(demo: Demo, booking: dict[str, Any]) -> None:
    hours, money = Fraction(0), Decimal(0)
    with demo.api(demo.person("tenant:finance", "physics")) as api:
        for month in months_of(booking):
            draft = asked(api, f"/statements/{month}")
            (line,) = [one for one in draft["lines"] if one["number"] == booking["number"]]
            assert line["unit_price"] == str(PRICE)
            assert line["cost_center"] == "4711"
            hours += Fraction(line["unit_hours"])
            money += Decimal(line["amount"])
            assert Decimal(draft["total"]) == sum(Decimal(one["amount"]) for one in draft["lines"])
    assert money == to_the_cent(exactly(8, seconds_of(booking)))
    assert abs(hours - Fraction(8 * seconds_of(booking), 3600)) < Fraction(1, 1000)


def test_the_same_by_script(demo: Demo) -> None:
    """The journey by the API alone, with a token."""
    robin: Person = demo.person("project:member", "plasma")
    with demo.api(robin) as api:
        body = {"project": "plasma", "name": "By script", "kind": H100, "units": 8, "start": "asap", "duration": "PT1H"}
        quote = api.post("/quotes", json=body)
        assert quote.status_code == 200, quote.text
        made = api.post("/bookings", json={**body, "quote": quote.json()["digest"]}, headers={"Idempotency-Key": "one"})
        assert made.status_code == 201, made.text
        again = api.post(
            "/bookings", json={**body, "quote": quote.json()["digest"]}, headers={"Idempotency-Key": "one"}
        )
        assert again.json()["id"] == made.json()["id"]
        path = f"/bookings/{made.json()['id']}"
        active = until(lambda: (b := asked(api, path))["state"] == "ACTIVE" and b, 60)
        until(lambda: wall_now() > instant(active["provided_at"]) + timedelta(seconds=5), 30)
        released = api.post(f"{path}/release")
        assert released.status_code == 200, released.text
        booking = until(lambda: charged(asked(api, path)), 120)
    assert Decimal(booking["charged"]["amount"]) == to_the_cent(exactly(8, seconds_of(booking)))
    assert 5 <= seconds_of(booking) < 120
    find_line_by_api(demo, booking)


def test_the_check_that_comes_with_it_agrees(demo: Demo) -> None:
    ended = subprocess.run(
        [*BERTH, "demo", "--check", "--data", str(demo.data)], capture_output=True, text=True, timeout=900
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Quote, page, API and statement agree" in ended.stdout


def test_the_demo_is_the_company_that_was_promised(demo: Demo) -> None:
    roles = {person.role for person in demo.people}
    assert roles >= {
        *(f"project:{role}" for role in ("viewer", "member", "lead")),
        *(f"tenant:{role}" for role in ("admin", "finance", "auditor")),
        *(f"platform:{role}" for role in ("operator", "finance", "auditor")),
    }
    assert {person.tenant for person in demo.people} == {"physics", "bio", None}
    with demo.api(demo.person("platform:operator", None)) as api:
        nodes = asked(api, "/nodes?limit=500")["items"]
    assert len(nodes) == 60
    assert len({node["kind"] for node in nodes}) == 3
    bookings = []
    for tenant in ("physics", "bio"):
        with demo.api(demo.person("tenant:admin", tenant)) as api:
            page = asked(api, "/bookings?limit=500")
            assert page["next"] is None
            bookings += page["items"]
    assert 350 <= len(bookings) <= 450
    assert any(b["state"] == "ACTIVE" and b["kind"] == H100 for b in bookings)
    assert any(b["state"] == "BOOKED" and instant(b["start"]) > wall_now() for b in bookings)


def test_everybody_gets_in(demo: Demo, visit: Callable[[], Visit]) -> None:
    """Each of the people finds a first page without a complaint of the browser."""
    for person in demo.people:
        window = visit()
        window.sign_in(person)
        assert window.page.locator("h1").inner_text()
        window.page.context.close()
