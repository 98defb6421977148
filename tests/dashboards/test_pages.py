"""Home, timeline, project and clusters as people see them; another tenant's bookings are busy time and nothing else."""

from __future__ import annotations

import csv
import io
import re
from datetime import datetime
from decimal import Decimal
from uuid import uuid4

import psycopg

from app.inventory.connections import backend_of
from tests.dashboards.conftest import HOUR, START, Company


def test_another_tenant_sees_only_busy(company: Company) -> None:
    mine = company.book("acme", "Tokamak secret", 8, START + HOUR)
    company.book("acme", "Second secret", 3, START + HOUR)
    own = company.browser("acme").see("/timeline").text
    assert f'href="/bookings/{mine["number"]}"' in own
    assert "Tokamak secret" in own
    assert "k-mine" in own
    colleague = company.browser("acme", "lead").see("/timeline").text
    assert "Tokamak secret" in colleague
    assert re.search(r'class="b-bar k-project', colleague)
    for page in (
        company.browser("beta").see("/timeline"),
        company.people.browser(company.people.platform["operator"]).see("/timeline"),
    ):
        assert page.status_code == 200
        assert "secret" not in page.text
        assert mine["number"] not in page.text
        assert mine["id"] not in page.text
        assert "acme" not in page.text.lower()
        assert "plasma-" not in page.text
        bars = re.findall(r'class="b-bar (k-\w+)', page.text)
        assert bars == ["k-busy"] * 2
    beta = company.browser("beta")
    for address in (f"/bookings/{mine['number']}", f"/api/v1/bookings/{mine['id']}"):
        assert beta.get(address).status_code in (303, 404, 401), address


def test_another_project_of_ones_own_tenant_is_busy_too(company: Company) -> None:
    admin = company.people.token(company.person("acme", "tenant-admin"), "acme", "read", "book")
    body = {"project": "vision", "name": "Vision only", "kind": "h100-sxm-80gb", "units": 2, "duration": "PT6H"}
    answer = company.people.api(admin).post("/api/v1/bookings", json=body | {"start": (START + HOUR).isoformat()})
    assert answer.status_code == 201, answer.text
    member = company.browser("acme").see("/timeline").text
    assert "Vision only" not in member
    assert re.findall(r'class="b-bar (k-\w+)', member) == ["k-busy"]
    assert "Vision only" not in company.browser("acme").see("/").text
    assert "Vision only" in company.browser("acme", "tenant-admin").see("/timeline").text


def test_the_timelines_free_band_counts_what_is_free(company: Company) -> None:
    company.book("acme", "A", 20, START + HOUR)
    text = company.browser("beta").see("/timeline?range=day").text
    assert "48 of 48 units of sim are free now. 6 nodes are free as a whole." in text
    # 13:00 in Zurich is 12:00 UTC; the booking lies from 14:00 to 20:00
    for instant, free in (("13:30", 48), ("14:00", 28), ("19:30", 28), ("20:00", 48)):
        assert free_at(text, instant) == free, instant
    company.set_clock(START + 2 * HOUR)
    assert "28 of 48 units of sim are free now." in company.browser("beta").see("/timeline").text
    company.book("acme", "B", 28)
    later = company.browser("beta").see("/timeline").text
    assert "0 of 48 units of sim are free now. A whole node is free from today, 20:00." in later


def free_at(text: str, clock: str) -> int:
    """What the free band of the whole page says of a time of day."""
    band = text[text.index("Free units of sim over time") :]
    band = band[: band.index("</svg>")]
    steps = [(t, int(n)) for t, n in re.findall(r"<title>[^<]*?(\d\d:\d\d): (\d+) of 48 units free", band)]
    assert steps, band
    return [n for t, n in steps if t <= clock][-1]


def test_what_is_out_of_service_is_drawn_as_what_it_is(company: Company) -> None:
    faults = backend_of(company.plumbing, company.cluster).faults
    faults.node_dies("n00")
    faults.node_ill("n01", 5, xid=79)
    faults.foreign_job("n02", (0, 1), what="job of group-x")
    faults.node_drains("n03", "New firmware.")
    company.set_clock(START + HOUR)
    company.go_to(START + HOUR)
    text = company.browser("acme").see("/timeline").text
    assert re.search(r"Down: It stopped answering", text)
    assert re.search(r"Faulty: XID 79", text)
    assert "External use" in text
    assert "group-x" not in text, "what runs there may say whose it is"
    assert re.search(r"Drained: New firmware", text)
    assert "29 of 48 units of sim are free now." in text
    operator = company.people.browser(company.people.platform["operator"]).see("/timeline").text
    assert "External use: job of group-x" in operator


def test_other_days_lengths_and_groups(company: Company) -> None:
    company.book("acme", "Some other day", 8, START + 24 * 5 * HOUR)
    browser = company.browser("acme")
    assert "Some other day" not in browser.see("/timeline?range=3d").text
    assert "Some other day" in browser.see("/timeline?range=week").text
    assert "Some other day" in browser.see("/timeline?range=day&from=2026-12-05").text
    assert "Rack r1" in browser.see("/timeline?by=rack").text or "r1" in browser.see("/timeline").text
    assert "Leaf l1" in browser.see("/timeline?by=leaf").text or "l1" in browser.see("/timeline?by=leaf").text
    for odd in ("from=yesterday", "range=century", "by=colour", "cluster=nowhere", "kind=nothing", "from=9999-99-99"):
        assert browser.see(f"/timeline?{odd}").status_code == 200, odd


def test_home_shows_now_next_and_what_is_free(company: Company) -> None:
    empty = company.browser("acme").see("/")
    assert empty.status_code == 200
    assert "Nothing is booked." in empty.text
    running = company.book("acme", "Runs now", 8)
    company.book("acme", "Comes later", 16, START + 24 * HOUR)
    company.go_to(START + HOUR)
    text = company.browser("acme").see("/").text
    assert "1 booking is active, 1 is booked" in text
    assert text.index("Runs now") < text.index("Comes later")
    assert f"/bookings/{running['number']}" in text
    assert "n00" in text
    assert re.search(r'<b class="strong">40</b>', text), "40 of 48 are free now"
    assert "whole nodes: 5 × 8" in text
    assert "2.40" in text
    colleague = company.browser("acme", "lead").see("/").text
    assert "Booked by acme-member." in colleague
    stranger = company.browser("beta").see("/").text
    assert "Runs now" not in stranger
    assert re.search(r'<b class="strong">40</b>', stranger)


def test_people_of_the_platform_begin_at_their_own_work(company: Company) -> None:
    for role, where in (("operator", "/operator/clusters"), ("finance", "/finance"), ("auditor", "/audit")):
        answer = company.people.browser(company.people.platform[role]).see("/")
        assert (answer.status_code, answer.headers["location"]) == (303, where)


def test_a_projects_month_adds_up_to_its_bookings(company: Company) -> None:
    first = company.book("acme", "First", 8)
    company.book("acme", "Second", 3)
    company.go_to(START + 7 * HOUR)
    token = company.people.token(company.person("acme"), "acme", "read")
    charged = Decimal(company.people.api(token).get(f"/api/v1/bookings/{first['id']}").json()["charged"]["amount"])
    assert charged == Decimal("115.20")
    browser = company.browser("acme", "lead")
    text = browser.see("/projects/plasma").text
    assert "158.40" in text  # 11 units x 6 h x 2.40
    assert "acme-member" in text
    assert "66.0" in text
    by_kind = browser.see("/projects/plasma?by=kind").text
    assert "H100-SXM-80GB" in by_kind
    listed = browser.get("/projects/plasma.csv")
    rows = list(csv.DictReader(io.StringIO(listed.text)))
    assert sum(Decimal(r["amount"]) for r in rows) == Decimal("158.40")
    assert sum(Decimal(r["unit_hours"]) for r in rows) == 66
    assert "158.40" in browser.see("/projects").text
    assert "October" not in browser.see("/projects/plasma?month=nonsense").text


def test_a_projects_month_has_what_still_runs(company: Company) -> None:
    company.book("acme", "Runs on", 8)
    company.go_to(START + 2 * HOUR)
    browser = company.browser("acme", "lead")
    text = browser.see("/projects/plasma").text
    assert "16.0 GPU-hours" in text
    assert "of this month is of bookings that still run" in text
    assert "38.40" in text
    assert "76.80" in text, "four hours of eight units are still held"
    assert "38.40" in browser.see("/projects").text
    assert "38.40" in browser.see("/projects/plasma?by=kind").text
    # past midnight in Zurich the first day is in the ledger, and the sum goes on
    company.book("acme", "Over midnight", 1, START + 10 * HOUR)
    company.go_to(START + 12 * HOUR)
    for page, amount in (("/projects/plasma?month=2026-11", "117.60"), ("/projects/plasma?month=2026-12", "2.40")):
        assert amount in browser.see(page).text, page


def test_projects_of_others_are_not_found(company: Company) -> None:
    # the member of acme is in plasma, not in vision
    member = company.browser("acme")
    assert member.see("/projects/vision").status_code == 404
    assert member.get("/projects/vision.csv").status_code == 404
    assert "Vision" not in member.see("/projects").text
    assert company.browser("acme", "tenant-admin").see("/projects/vision").status_code == 200
    assert member.see("/projects/nowhere").status_code == 404


def test_the_operators_clusters(company: Company) -> None:
    company.book("acme", "Tokamak secret", 8)
    company.go_to(START + HOUR)
    operator = company.people.browser(company.people.platform["operator"])
    page = operator.see("/operator/clusters")
    assert page.status_code == 200
    assert "1 cluster. It answers." in page.text
    assert "Connected" in page.text
    assert "6 nodes are defined." in page.text
    assert "Tokamak" not in page.text
    answer = operator.submit("/operator/clusters/sim/writes", on="")
    assert answer.status_code == 303
    assert "observing only" in operator.see("/operator/clusters").text
    operator.submit("/operator/clusters/sim/writes", on="1")
    assert "observing only" not in operator.see("/operator/clusters").text
    backend_of(company.plumbing, company.cluster).faults.call_refused("inventory")
    operator.submit("/operator/clusters/sim/test")
    assert "Looking now" in operator.see("/operator/clusters?cluster=sim").text
    company.go_to(START + HOUR)
    failed = operator.see("/operator/clusters?cluster=sim").text
    assert "sim does not answer." in failed
    assert "The cluster refused this call." in failed
    fragment = operator.get("/operator/clusters/sim/test", headers={"HX-Request": "true"})
    assert fragment.status_code == 200
    assert "<html" not in fragment.text
    for person in (company.person("acme", "tenant-admin"), company.people.platform["finance"]):
        browser = company.people.browser(person)
        assert browser.see("/operator/clusters").status_code == 403
        assert browser.submit("/operator/clusters/sim/writes", on="").status_code == 403


def test_a_lost_unit_shows_as_drift_and_on_the_owners_home(company: Company) -> None:
    company.book("acme", "Tokamak", 8)
    company.go_to(START + HOUR)
    backend_of(company.plumbing, company.cluster).faults.node_ill("n00", 3)
    company.go_to(START + 2 * HOUR)
    assert "has lost units" in company.browser("acme").see("/").text
    assert "degraded" in company.people.browser(company.people.platform["operator"]).see("/operator/clusters").text
    assert "has lost units" not in company.browser("beta").see("/").text


def test_an_idle_booking_is_on_the_lists_until_the_condition_is_over(company: Company) -> None:
    """Whoever finds it idle writes the condition; the lists show what is written, to those who can do something."""
    booking = company.book("acme", "Forgotten", 8, workload="none")
    busy = company.book("acme", "Tokamak", 8)
    company.go_to(START + HOUR / 60)
    company.set_clock(START + 2 * HOUR)  # and nobody has looked since
    told = "“Forgotten” has been idle for 1 h 30 min"
    assert "has been idle" not in company.browser("acme").see("/").text
    assert "is idle" not in company.browser("acme").see("/projects/plasma").text
    write_idle(company, booking["number"], since=START + HOUR / 2)

    home = company.browser("acme").see("/").text
    assert told in home
    assert "Idle 1 h 30 min" in home
    assert home.count("has been idle") == 1
    assert f'href="/bookings/{busy["number"]}"' in home
    project = company.browser("acme").see("/projects/plasma").text
    assert "1 booking of the project is idle" in project
    assert "Idle 1 h 30 min" in project
    page = company.browser("acme").see(f"/bookings/{booking['number']}").text
    assert page.count("Idle 1 h 30 min") == 1
    assert "“Forgotten” has been idle since today, 13:30" in page
    assert "idle" not in company.browser("beta").see("/").text.lower()

    with psycopg.connect(company.owner_url) as owner:
        owner.execute("UPDATE conditions SET until = %s WHERE type = 'idle'", [START + 2 * HOUR])
    assert "has been idle" not in company.browser("acme").see("/").text
    assert "of the project is idle" not in company.browser("acme").see("/projects/plasma").text


def write_idle(company: Company, number: str, since: datetime) -> None:
    with psycopg.connect(company.owner_url) as owner:
        written = owner.execute(
            """INSERT INTO conditions (tenant_id, id, booking_id, type, since, why)
               SELECT tenant_id, %s, id, 'idle', %s, 'nothing runs on its units'
                 FROM bookings WHERE 'B-' || number = %s""",
            [uuid4(), since, number],
        )
    assert written.rowcount == 1
