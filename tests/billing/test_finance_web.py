"""Who sees which money, over the API and on pages, and that it adds up there."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from app.accounts import actions as accounts
from app.billing import actions as billing
from app.kernel.actor import SYSTEM
from app.usage.actions import meter
from tests.accounts import world as people
from tests.billing.world import NOW, World, hours
from tests.servers import Addresses, TestDatabase
from tests.web.markup import Markup

LATER = hours(24)


class Firm:
    """Physics with 80.00 less a credit of 2.00, bio with 4.00, in March; people of the roles that matter."""

    def __init__(self, database: TestDatabase, servers: Addresses) -> None:
        self.money = World(database)
        self.web = people.World(database, servers.valkey_url, people=False)
        self.money.add_node()
        self.money.add_node()
        self.bio, project = self.money.add_tenant("bio", "=Bio Lab")
        self.first = self.money.add_booking(NOW, hours(10), units=4, provided_at=NOW, state="ENDED")
        self.money.add_outage(self.first, 0, hours(1), hours(2))
        self.second = self.money.add_booking(
            NOW, hours(1), units=2, node=1, provided_at=NOW, state="ENDED", tenant=self.bio, project=project
        )
        self.money.move_to(LATER)
        for booking, tenant in ((self.first, self.money.tenant), (self.second, self.bio)):
            with self.money.work(tenant) as work:
                meter(work, booking, LATER)
                billing.charge(work, booking)
        self.ids = {}
        for tenant, slug in ((self.money.tenant, "physics"), (self.bio, "bio")):
            for role in ("finance", "admin", "auditor", "member"):
                with self.web.plumbing.database.work(tenant) as work:
                    person = self.ids[f"{slug}-{role}"] = self.web.account(work, f"{slug}-{role}")
                    in_project = (self.money.project if slug == "physics" else project) if role == "member" else None
                    accounts.add_member(work, SYSTEM, person, role, in_project)
        for role in ("finance", "auditor", "operator"):
            with self.web.plumbing.database.work() as work:
                person = self.ids[f"platform-{role}"] = self.web.account(work, f"platform-{role}")
                accounts.grant_platform_role(work, SYSTEM, person, role)

    def api(self, person: str):
        """A program of that person, with a token for the own tenant (or for none)."""
        tenant = {"physics": self.money.tenant, "bio": self.bio}.get(person.partition("-")[0])
        with self.web.plumbing.database.work(tenant) as work:
            actor = self._actor(work, person, tenant)
            made = accounts.create_token(
                work, actor, label="t", scopes=("read", "bill", "manage"), days=9, project_id=None
            )
        return self.web.api(made.secret)

    def browser(self, person: str):
        browser = self.web.browser(self.ids[person])
        tenant = {"physics": self.money.tenant, "bio": self.bio}.get(person.partition("-")[0])
        self.money.owner.execute("UPDATE sessions SET tenant_id = %s WHERE account_id = %s", [tenant, self.ids[person]])
        return browser

    def _actor(self, work, person, tenant):
        from app.kernel.actor import Actor

        rows = work.pg.execute(
            "SELECT project_id, role FROM memberships WHERE account_id = %s", [self.ids[person]]
        ).fetchall()
        platform = work.pg.execute("SELECT role FROM platform_roles WHERE account_id = %s", [self.ids[person]])
        return Actor(
            self.ids[person], person, tenant,
            tenant_roles=frozenset(r for p, r in rows if p is None),
            platform_roles=frozenset(r for (r,) in platform),
            project_roles={p: r for p, r in rows if p is not None},
        )  # fmt: skip


@pytest.fixture(scope="module")
def firm(module_database: TestDatabase, servers: Addresses) -> Iterator[Firm]:
    made = Firm(module_database, servers)
    yield made
    made.web.close()
    made.money.close()


def test_a_tenants_people_of_money_see_its_statement(firm):
    for role in ("finance", "admin", "auditor"):
        answer = firm.api(f"physics-{role}").get("/api/v1/statements", params={"month": "2026-03"})
        assert answer.status_code == 200, answer.text
        (draft,) = answer.json()["items"]
        assert (draft["tenant"], draft["number"], draft["state"]) == ("Institute of Physics", None, "draft")
        assert (draft["net"], draft["credits"], draft["tax"], draft["total"]) == ("80.00", "-2.00", "0.00", "78.00")
        assert [line["amount"] for line in draft["lines"]] == ["80.00", "-2.00"]
        assert sum(Decimal(line["amount"]) for line in draft["lines"]) == Decimal(draft["total"])
        assert all(line["booking"].startswith("bk_") for line in draft["lines"])


def test_a_month_without_charges_is_an_empty_draft(firm):
    answer = firm.api("physics-finance").get("/api/v1/statements/2026-01").json()
    assert (answer["lines"], answer["total"], answer["period"]) == ([], "0.00", "2026-01")


def test_without_a_month_all_months_with_charges_come(firm):
    answer = firm.api("physics-finance").get("/api/v1/statements").json()
    assert [d["period"] for d in answer["items"]] == ["2026-03"]
    assert answer["next"] is None


def test_members_see_no_statement(firm):
    answer = firm.api("physics-member").get("/api/v1/statements")
    assert (answer.status_code, answer.json()["code"]) == (403, "role")
    assert firm.browser("physics-member").see("/statements").status_code == 403


def test_another_tenants_statement_is_not_there(firm):
    api = firm.api("bio-finance")
    assert api.get("/api/v1/statements/2026-03", params={"tenant": "physics"}).status_code == 404
    assert api.get("/api/v1/statements/2026-03").json()["total"] == "4.00"
    assert firm.browser("bio-finance").see("/statements/physics/2026-03").status_code == 404


def test_the_platforms_finance_sees_all_tenants_and_it_is_recorded(firm):
    api = firm.api("platform-finance")
    drafts = api.get("/api/v1/statements", params={"month": "2026-03"}).json()["items"]
    assert sorted((d["tenant"], d["total"]) for d in drafts) == [
        ("=Bio Lab", "4.00"),
        ("Institute of Physics", "78.00"),
    ]
    one = api.get("/api/v1/statements/2026-03", params={"tenant": "physics"}).json()
    assert one["total"] == "78.00"
    assert api.get("/api/v1/statements/2026-03").status_code == 422
    assert api.get("/api/v1/statements", params={"tenant": "nobody"}).status_code == 404
    rows = firm.money.rows("SELECT DISTINCT subject FROM platform_audit WHERE action = 'read statements'")
    assert {("all tenants",), ("tenant physics",)} <= set(rows)


@pytest.mark.parametrize("month", ["2026-3", "2026-13", "last", "2026-03-01", "../x"])
def test_a_month_written_otherwise_is_told(firm, month):
    answer = firm.api("physics-finance").get("/api/v1/statements", params={"month": month[:7]})
    if month[:7] == "2026-03":
        assert answer.status_code == 200
    else:
        assert (answer.status_code, answer.json()["code"]) == (422, "month")


@pytest.mark.parametrize("month", ["0001-01", "1999-12", "2200-01", "9999-12"])
def test_months_of_no_real_year_are_told_everywhere(firm, month):
    """The first and last months that a calendar knows have no neighbours: they were an error of ours."""
    api, browser = firm.api("platform-finance"), firm.browser("platform-finance")
    for path in (f"/api/v1/statements?month={month}", f"/api/v1/statements/{month}?tenant=physics",
                 f"/api/v1/statements/{month}/csv?tenant=physics", f"/api/v1/reports/{month}/csv"):  # fmt: skip
        answer = api.get(path)
        assert (answer.status_code, answer.json()["code"]) == (422, "month"), path
    for path in (f"/finance/month/{month}", f"/finance/{month}/report.csv", f"/statements/physics/{month}",
                 f"/statements/physics/{month}/lines.csv"):  # fmt: skip
        assert browser.see(path).status_code == 422, path
    for near in ("2000-01", "2199-12"):
        assert browser.see(f"/finance/month/{near}").status_code == 200
    # a project's page shows the running month instead
    assert firm.browser("physics-member").see(f"/projects/plasma?month={month}").status_code == 200


@pytest.mark.parametrize(
    "instant", ["0001-01-01T00:00:00+00:00", "0001-01-01T00:00:00+14:00", "1999-12-31T00:00:00+00:00",
                "2100-01-01T00:00:00+00:00", "9999-12-31T23:59:59-12:00"]
)  # fmt: skip
def test_prices_of_no_real_year_are_told(firm, instant):
    body = {"price_group": "far", "currency": "CHF", "effective_at": instant, "prices": {"h100": "1.80"}}
    answer = firm.api("platform-finance").post("/api/v1/prices", json=body)
    assert answer.status_code == 422, answer.text
    fields = {"book": "internal/CHF", "valid_from": instant[:16], "note": "", "price.h100": "2.50", "price.h200": ""}
    browser = firm.browser("platform-finance")
    browser.see("/finance/prices")
    for step in ("preview", "publish"):
        page = browser.submit("/finance/prices", step=step, **fields)
        if step == "publish" or not instant.startswith("2100"):  # a preview of a year that can be written is shown
            assert page.status_code == 422, page.text
    assert firm.money.rows("SELECT count(*) FROM price_versions WHERE price_group = 'far'") == [(0,)]


def test_a_charge_can_be_opened_down_to_intervals_and_prices(firm):
    api, draft = firm.api("physics-member"), firm.api("physics-finance").get("/api/v1/statements/2026-03").json()
    booking = draft["lines"][0]["booking"]
    answer = api.get(f"/api/v1/bookings/{booking}/charges").json()
    assert answer["charged"] == {"currency": "CHF", "amount": "78.00"}
    rows = answer["items"]
    assert sum(Fraction(row["exact"]) for row in rows) == 78
    assert [(row["charge"], row["unit_hours"]) for row in rows] == [("use", "40.00"), ("credit", "-1.00")]
    assert rows[0]["interval"]["positions"] == "{[0,256)}"
    assert rows[0]["interval"]["evidence"]["source"] == "events"
    assert rows[1]["interval"] is None
    assert rows[0]["price_version"]["published_by"] == "Nina F."
    assert firm.api("bio-finance").get(f"/api/v1/bookings/{booking}/charges").status_code == 404


def test_the_report_adds_up_to_the_statements_and_no_name_is_a_formula(firm):
    answer = firm.api("platform-finance").get("/api/v1/reports/2026-03/csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.text.endswith("\r\n")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert sum(Decimal(row["amount"]) for row in rows) == Decimal("82.00")
    assert {row["tenant"] for row in rows} == {"Institute of Physics", "'=Bio Lab"}
    for row in rows:
        parts = ("used_unit_hours", "unused_unit_hours", "unknown_unit_hours")
        assert sum(Decimal(row[part]) for part in parts) == Decimal(row["reserved_unit_hours"])


def test_the_finance_page_shows_the_month_and_every_kind_adds_up(firm):
    page = firm.browser("platform-finance").see("/finance")
    assert page.status_code == 200, page.text
    for expected in ("March 2026", "82.00", "Institute of Physics", "=Bio Lab", "78.00", "Report by project"):
        assert expected in page.text
    # two nodes of eight from 1 March 00:00 in Zurich to 3 March 09:00 UTC: 58 h; 40 + 2 unit-hours reserved
    assert "928.0 GPU-hours installed" in page.text
    assert re.search(r"Free</th><td class=\"n\">886\.0", page.text)
    assert re.search(r"Reserved, use not known</th><td class=\"n\">42\.0", page.text)


def test_months_before_and_after_can_be_opened(firm):
    browser = firm.browser("platform-auditor")
    for month in ("2026-02", "2026-03", "2026-09"):
        assert browser.see(f"/finance/month/{month}").status_code == 200
    assert browser.see("/finance/month/2026-99").status_code == 422
    assert "text/csv" in browser.see("/finance/2026-03/report.csv").headers["content-type"]


def test_the_month_is_not_for_operators_or_tenants(firm):
    for person in ("platform-operator", "physics-finance"):
        assert firm.browser(person).see("/finance").status_code == 403


def test_a_statement_page_opens_down_to_bookings_and_its_proof_holds(firm):
    for person in ("physics-finance", "platform-finance"):
        browser = firm.browser(person)
        assert "/statements/physics/2026-03" in browser.see("/statements").text
        page = browser.see("/statements/physics/2026-03")
        assert page.status_code == 200, page.text
        for expected in ("Draft statement", "78.00", "cost centre 4410", "Credit: Run", "B-1"):
            assert expected in page.text
        assert "The difference is" not in page.text
        lines = browser.see("/statements/physics/2026-03/lines.csv")
        assert [row["amount"] for row in csv.DictReader(io.StringIO(lines.text))] == ["80.00", "-2.00"]


def test_finance_publishes_prices_on_a_page_after_seeing_what_changes(firm):
    browser = firm.browser("platform-finance")
    page = browser.see("/finance/prices")
    assert page.status_code == 200, page.text
    assert "In force" in page.text
    local = (LATER + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M")
    fields = {"book": "internal/CHF", "valid_from": local, "note": "", "price.h100": "2.50", "price.h200": ""}
    preview = browser.submit("/finance/prices", step="preview", **fields)
    assert preview.status_code == 200, preview.text
    assert "if you publish it" in preview.text
    assert firm.money.rows("SELECT count(*) FROM price_versions WHERE price_group = 'internal'") == [(1,)]
    wrong = browser.submit("/finance/prices", step="publish", **(fields | {"price.h100": "2,50"}))
    assert wrong.status_code == 422
    assert "is not a number" in wrong.text
    published = browser.submit("/finance/prices", step="publish", **fields)
    assert published.status_code == 303
    assert "Coming" in browser.see(published.headers["location"]).text
    again = firm.api("platform-finance").get("/api/v1/prices", params={"group": "internal", "currency": "CHF"})
    assert [v["prices"] for v in again.json()["items"]] == [{"h100": "2.50"}, {"h100": "2.00"}]


def test_the_book_shown_first_is_the_one_that_tenants_pay_by(firm):
    body = {"price_group": "aardvark", "currency": "CHF", "effective_at": "2026-06-01T00:00:00+02:00",
            "prices": {"h100": "1.80"}}  # fmt: skip
    assert firm.api("platform-finance").post("/api/v1/prices", json=body).status_code == 201
    assert "Price book internal" in firm.browser("platform-finance").see("/finance/prices").text
    assert "Price book aardvark" in firm.browser("platform-finance").see("/finance/prices?book=aardvark/CHF").text


def test_prices_are_published_by_finance_alone(firm):
    body = {"price_group": "academic", "currency": "CHF", "effective_at": "2026-06-01T00:00:00+02:00",
            "prices": {"h100": "1.80"}}  # fmt: skip
    for person in ("physics-finance", "platform-operator", "platform-auditor"):
        assert firm.api(person).post("/api/v1/prices", json=body).status_code == 403
        assert firm.browser(person).submit("/finance/prices", step="publish").status_code == 403
    api = firm.api("platform-finance")
    answer = api.post("/api/v1/prices", json=body | {"effective_at": "2026-06-01T00:00:00"})
    assert (answer.status_code, answer.json()["code"]) == (422, "offset_missing")
    assert api.post("/api/v1/prices", json=body | {"prices": {"h100": "-1"}}).status_code == 422
    made = api.post("/api/v1/prices", json=body)
    assert (made.status_code, made.json()["prices"]) == (201, {"h100": "1.80"})


def test_the_pages_of_money_are_sound_html(firm):
    browser = firm.browser("platform-finance")
    for path in ("/finance", "/finance/month/2026-01", "/statements", "/statements/physics/2026-03", "/finance/prices"):
        page = browser.see(path)
        assert page.status_code == 200
        assert Markup(page.text).faults == [], path
