"""Rules as operators say them on their page and over the API, and as whoever books meets them: the same by both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from app.accounts import actions
from app.bookings import policy_form
from app.inventory.policy import Policy, said_as
from app.kernel.actor import SYSTEM
from tests.bookings.test_approvals_web import api
from tests.bookings.test_pages import FORM, People, text_of
from tests.world import H100, START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)
POOL = f"sim/{H100}"
ROUTE = f"/api/v1/clusters/sim/pools/{H100}/policy"


@pytest.fixture(scope="module")
def browse(module_database, tmp_path_factory, servers) -> Iterator[People]:
    made = make_world(module_database, tmp_path_factory.mktemp("world"), servers.valkey_url, csv=nodes_csv(2))
    with made.work() as work:
        made.people["operator"] = actions.create_account(work, SYSTEM, login="olga@example.test", name="Olga")
        actions.grant_platform_role(work, SYSTEM, made.people["operator"], "operator")
    yield People(made)
    made.close()


@pytest.fixture
def world(browse: People) -> Iterator[World]:
    yield browse.world
    browse.world.set_policy(H100)


def at(hours: float) -> str:
    return (START + hours * HOUR).isoformat()


ASKS: dict[str, dict[str, Any]] = {
    "too long, off the grid": {"hours": "9.1"},
    "too many at once": {"units": "5", "within": "", "hours": "1"},
    "beyond the horizon": {"hours": "2", "when": "exact", "start": (START + 60 * HOUR).isoformat(timespec="minutes")},
    "in the past": {"hours": "2", "when": "exact", "start": (START - 6 * HOUR).isoformat(timespec="minutes")},
}


@pytest.mark.parametrize("ask", ASKS)
def test_case_79_page_and_program_are_refused_alike(world: World, browse: People, ask: str) -> None:
    world.set_policy(H100, max_length=8 * 3600, horizon=48 * 3600, max_units_user=4, ahead_hours_user=3, ahead_free=0)
    said = FORM | {"units": "1", "within": "", **ASKS[ask]}
    body = {
        "project": "plasma", "name": said["name"], "kind": H100, "units": int(said["units"]),
        "start": said["start"] or "asap", "duration": f"PT{round(float(said['hours']) * 3600)}S",
    }  # fmt: skip
    program = api(world, browse, "physics-member").post("/api/v1/bookings", json=body)
    page = browse().submit("/book", **said)
    assert program.status_code == page.status_code
    assert program.status_code in (409, 422)
    told = program.json()["reasons"]
    assert told
    for reason in told:
        assert reason["limit"] is None or reason["asked"] is not None or reason["code"] == "start_in_past"
        shown = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "", reason["message"]).split(".")[0]
        assert shown.split(" by ")[0].split(": it is")[0] in text_of(page), reason


def test_an_operator_looks_whom_a_rule_touches_and_then_says_it(world: World, browse: People) -> None:
    booking = world.book(start=at(10), duration="PT12H", units=2)
    operator = browse("operator")
    page = operator.see("/operator/policies")
    assert f"{H100} on sim" in text_of(page)
    assert "Institute of Physics, Plasma" in text_of(page)
    etag = re.search(r'name="etag" value="([^"]+)"', page.text)[1]  # type: ignore[index]
    form = {"pool": POOL, "tenant": "", "project": "", "etag": etag, "max_length": "8 h", "no_show": "never"}
    seen = operator.submit("/operator/policies", step="preview", **form)
    assert seen.status_code == 200
    said = text_of(seen)
    assert "1 of 1 booking would be refused today, and 0 would have to be approved." in said
    assert booking.label in said
    assert "A booking lasts at most 8 h. You asked for 12 h." in said
    assert world.quote(duration="PT9H").offer.pool.policy == Policy()
    wrong = operator.submit("/operator/policies", step="save", **form | {"min_length": "soon", "grid": "x"})
    assert wrong.status_code == 422
    assert text_of(wrong).count("A length is written like") == 2
    unfit = operator.submit("/operator/policies", step="save", **form | {"min_length": "9 h"})
    assert (unfit.status_code, "min_length is longer than max_length." in text_of(unfit)) == (422, True)
    saved = operator.submit("/operator/policies", step="save", **form)
    assert saved.status_code == 303
    assert "are saved" in text_of(operator.see(saved.headers["location"]))
    again = operator.submit("/operator/policies", step="save", **form | {"max_length": "1 h"})
    assert again.status_code == 409
    assert "have changed since you looked" in text_of(again)
    # and for one project
    place = f"/operator/policies?pool={POOL}&whom=physics/plasma"
    etag = re.search(r'name="etag" value="([^"]+)"', operator.see(place).text)[1]  # type: ignore[index]
    form = {
        "pool": POOL,
        "tenant": "physics",
        "project": "plasma",
        "etag": etag,
        "max_length": "1 day 12 h",
        "open": "no",
    }
    assert operator.submit("/operator/policies", step="save", **form).status_code == 303
    assert "longest booking: 36 h, may book: no" in text_of(operator.see(place))
    assert browse().see("/operator/policies").status_code == 403
    operator.submit("/operator/policies", step="save", pool=POOL, tenant="physics", project="plasma")
    world.do("cancel", booking)


def test_a_limit_of_money_stands_on_the_quote_and_at_home_in_the_currency(world: World, browse: People) -> None:
    project = world.projects["plasma"]
    world.set_limit("physics", money=Decimal("60.50"), project_id=project)
    member = browse()
    seen = text_of(member.submit("/book/quote", **FORM | {"hours": "2"}))  # 8 units, 2 h, 2.40
    assert "CHF in November 2026" in seen
    assert "60.50 → 22.10 available" in seen
    booking = world.book(units=8, duration="PT2H")
    assert "CHF 22.10 available" in text_of(member.see("/"))
    refused = text_of(member.submit("/book/quote", **FORM | {"hours": "2"}))
    assert "22.10 available" in refused
    assert "Too much CHF in November 2026" in refused
    world.do("cancel", booking)
    world.set_limit("physics", project_id=project)


def test_rules_over_the_api(world: World, browse: People) -> None:
    operator, member = api(world, browse, "operator"), api(world, browse, "physics-member")
    now = operator.get(ROUTE)
    assert now.json()["policy"] == {}
    assert now.json()["effective"]["max_length"] == 604_800
    dry = operator.put(ROUTE, json={"policy": {"max_length": 3600}}, params={"dry_run": True}).json()
    assert dry["changes"] == [{"rule": "max_length", "before": 604_800, "after": 3600}]
    assert operator.get(ROUTE).json() == now.json()
    match = {"If-Match": now.headers["etag"]}
    said = operator.put(ROUTE, json={"policy": {"approval_money": "1500.50"}}, headers=match)
    assert (said.status_code, said.json()["policy"]) == (200, {"approval_money": "1500.50"})
    assert operator.put(ROUTE, json={"policy": {}}, headers=match).status_code == 409
    assert operator.put(ROUTE, json={"policy": {"grid": []}}).status_code == 422
    over = operator.put(f"{ROUTE}/overrides?tenant=physics&project=plasma", json={"policy": {"max_length": 7200}})
    assert (over.status_code, over.json()["effective"]["max_length"]) == (200, 7200)
    (mine,) = member.get("/api/v1/policies?project=plasma").json()["items"]
    assert (mine["policy"]["max_length"], mine["policy"]["approval_money"], mine["open"]) == (7200, "1500.50", True)
    assert member.get("/api/v1/policies?project=atlas").status_code == 404
    assert member.get(ROUTE).status_code == 403
    assert member.put(ROUTE, json={"policy": {}}).status_code == 403
    operator.put(f"{ROUTE}/overrides?tenant=physics&project=plasma", json={"policy": {}})


def test_every_rule_has_its_place_on_the_page_and_is_read_as_it_is_shown() -> None:
    names = [name for _, rows in policy_form.GROUPS for name, _ in rows]
    assert sorted(names) == sorted(Policy.__dataclass_fields__)
    policy = Policy.of(
        {"max_length": 93_600, "no_show": None, "approval_money": "20000.50", "skips": 4, "requests_hold": False}
    )
    typed = {n: policy_form.text_of(n, said_as(getattr(policy, n))) for n in policy_form.field_names(of_pool=True)}
    written = policy_form.read_form(typed, of_pool=True)
    assert not written.errors
    assert Policy.of(written.words, written.gap_seconds or 0) == policy
    assert [policy_form.read_length(t) for t in ("7 days", "1 h 30 min", "90s", "soon", "3", "")] == [
        604_800, 5400, 90, None, None, None,
    ]  # fmt: skip


def test_the_guide_names_every_rule_with_its_default() -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", guide, re.MULTILINE)
    names = [name for _, rows in policy_form.GROUPS for name, _ in rows]
    assert listed == [(name, policy_form.default_text(name)) for name in names]
