"""The demo's history: the same plan each time, the same company after a kill -9, and books that agree with its clusters."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from app.demo.company import ALPS, DELTA, nodes_csv
from app.demo.history import BOOKINGS, DAYS, Span, plan
from tests.demo.conftest import ENDS, SPAN, Lived, start_history

pytestmark = [pytest.mark.xdist_group("history"), pytest.mark.timeout(1200)]

# what its workloads do hangs on the names of a cluster's objects, which are new each time: used and unused only together
_BOOKINGS = """
SELECT b.number, b.name, t.slug, p.slug, b.state, b.outcome, b.kind, c.name, b.units, b.starts_at, b.ends_at, b.quoted,
       b.provided_at, b.released_at, b.emptied_at, b.booked_by, b.booked_at, b.metered_until, b.version,
       (SELECT array_agg(n.name ORDER BY n.name) FROM holds h JOIN nodes n ON n.id = h.node_id WHERE h.booking_id = b.id),
       (SELECT array_agg((c.kind, c.quantity, c.exact, c.currency, c.starts_at)::text ORDER BY c.starts_at, c.kind)
          FROM charges c WHERE c.booking_id = b.id),
       (SELECT array_agg((u.starts_at, u.ends_at, u.used + u.unused, u.unknown)::text ORDER BY u.starts_at)
          FROM usage u WHERE u.booking_id = b.id),
       (SELECT array_agg((h.at, h.actor, h.event, h.before, h.after)::text ORDER BY h.at, h.event)
          FROM history h WHERE h.booking_id = b.id)
  FROM bookings b JOIN tenants t ON t.tenant_id = b.tenant_id
  JOIN projects p ON p.tenant_id = b.tenant_id AND p.id = b.project_id JOIN clusters c ON c.id = b.cluster_id
 ORDER BY b.name, b.booked_at"""


def test_the_plan_is_the_same_for_the_same_span() -> None:
    whole = Span(ENDS - timedelta(days=DAYS), ENDS)
    assert plan(whole) == plan(whole)
    assert plan(whole) != plan(replace(whole, bookings=BOOKINGS - 1))
    books = [deed for deed in plan(whole) if deed.verb == "book"]
    assert len(books) == BOOKINGS + 7
    assert len({deed.number for deed in books}) == len(books)
    assert all(whole.began <= deed.at < ENDS and not deed.at.microsecond for deed in plan(whole))
    assert [deed.at for deed in plan(whole)] == sorted(deed.at for deed in plan(whole))


def test_the_plan_keeps_8_h100_free_for_a_visitor() -> None:
    """Even if every H100 that anybody asks for on the last days were held at once."""
    late = [
        deed
        for deed in plan(Span(ENDS - timedelta(days=DAYS), ENDS))
        if deed.verb == "book" and deed.at > ENDS - timedelta(days=2) and deed.words["kind"] in ("any", "h100-sxm-80gb")
    ]
    granted = [d for d in late if "Everything at once" not in d.words["name"]]
    held = sum(d.words.get("units") or d.words["nodes"] * d.words["per_node"] for d in granted)
    assert held <= 36 * 8 - 8 - 8  # one node of the 36 is ill


def test_the_company_is_there(lived: Lived) -> None:
    assert lived.rows("SELECT count(*) FROM tenants") == [(2,)]
    kinds = dict(lived.rows("SELECT p.kind, count(*) FROM nodes n JOIN pools p ON p.id = n.pool_id GROUP BY 1"))
    assert sum(kinds.values()) == 60
    assert len(kinds) == 3
    assert nodes_csv(ALPS).count("\n") + nodes_csv(DELTA).count("\n") == 62
    people = json.loads((lived.folder / "people.json").read_text())
    assert (lived.folder / "people.json").stat().st_mode & 0o077 == 0
    assert all(person["token"] and person["password"] for person in people)
    assert len({person["role"] for person in people}) == 9
    roles = {role for (role,) in lived.rows("SELECT role FROM memberships UNION SELECT role FROM platform_roles")}
    assert roles == {"viewer", "member", "lead", "admin", "finance", "auditor", "operator"}


def test_a_visitor_finds_life(lived: Lived) -> None:
    states = Counter(state for (state,) in lived.rows("SELECT state FROM bookings"))
    assert states["ENDED"] >= 10
    assert lived.rows("SELECT FROM bookings WHERE state = 'ACTIVE' AND kind = 'h100-sxm-80gb'")
    assert lived.rows("SELECT FROM bookings WHERE state = 'BOOKED' AND starts_at > %s", ENDS)
    refused = lived.rows("SELECT wanted::text FROM refusals WHERE wanted::text LIKE '%%Everything at once%%'")
    assert len(refused) == 1
    ill = lived.rows(
        """SELECT n.name, f.gpu - n.first_gpu, f.why FROM unit_faults f JOIN nodes n ON n.id = f.node_id
            WHERE f.until IS NULL"""
    )
    assert [one[:2] for one in ill] == [("alps-0506", 5)]
    assert "XID" in ill[0][2]


def test_the_clock_runs_again(lived: Lived) -> None:
    assert lived.rows("SELECT frozen IS NULL FROM clock") == [(True,)]
    assert (lived.folder / "history-done").exists()


def test_each_booking_was_asked_for_once_on_its_cluster(lived: Lived) -> None:
    acted: Counter[tuple[str, str]] = Counter()
    for cluster in (ALPS, DELTA):
        with sqlite3.connect(lived.folder / f"{cluster}.sqlite") as log:
            acted.update(log.execute("SELECT ref, command FROM log WHERE acted = 1 AND ref <> ''").fetchall())
    rows = lived.rows(
        """SELECT DISTINCT a.name, b.asked, b.state, b.outcome, a.wanted FROM bookings b
             JOIN holds h ON h.booking_id = b.id JOIN allocations a ON a.id = h.allocation_id"""
    )
    assert {name for name, *_ in rows} >= {ref for ref, _ in acted}
    asked = [row for row in rows if row[1]]
    assert len(asked) >= 15
    for name, _, state, outcome, wanted in asked:
        # once to begin with, and once more for each change of it (an extension)
        assert 1 <= acted[name, "ensure"] <= wanted, name
        assert wanted > 1 or acted[name, "ensure"] == 1, name
        assert acted[name, "release"] <= 1
        if state == "ENDED" and outcome == "released":
            assert acted[name, "release"] == 1
    assert not [name for name, was_asked, *_ in rows if not was_asked and acted[name, "ensure"]]


def test_what_ended_as_planned_was_charged_as_quoted(lived: Lived) -> None:
    """Lost units and late starts apart, which have their own tests."""
    rows = lived.rows(
        """SELECT b.number, b.quoted, (SELECT line_amount(sum(exact), 2) FROM charges c WHERE c.booking_id = b.id)
             FROM bookings b
            WHERE outcome = 'completed' AND provided_at = starts_at
              AND NOT EXISTS (SELECT FROM outages o WHERE o.booking_id = b.id)"""
    )
    assert len(rows) >= 10
    assert [number for number, quoted, charged in rows if charged != quoted] == []
    assert lived.rows("SELECT FROM bookings WHERE outcome = 'released' AND released_at < ends_at")


def test_all_that_is_over_was_measured(lived: Lived) -> None:
    left = lived.rows(
        """SELECT b.number FROM bookings b WHERE state = 'ENDED' AND provided_at IS NOT NULL AND provided_at < released_at
              AND NOT EXISTS (SELECT FROM usage u WHERE u.booking_id = b.id AND u.used + u.unused > 0)"""
    )
    assert left == []
    assert not lived.rows(
        "SELECT FROM metering m JOIN bookings b ON b.id = m.booking_id WHERE b.state IN ('ENDED', 'CANCELLED')"
    )


def test_a_history_that_is_broken_off_ends_like_one_that_is_not(
    lived: Lived, new_life: Callable[[str], Lived], tmp_path: Path
) -> None:
    life = new_life("broken")
    broken_at = []
    for wanted in (4, 15):  # bookings that are there when it is killed
        process = start_history(life, tmp_path / "said")
        try:
            while len(life.rows("SELECT FROM bookings")) < wanted:
                assert process.poll() is None, (tmp_path / "said").read_text()
                try:
                    process.wait(0.02)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
            process.wait()
        assert not (life.folder / "history-done").exists()
        broken_at.append(len(life.rows("SELECT FROM bookings")))
    assert broken_at[0] < broken_at[1] < len(lived.rows("SELECT FROM bookings"))
    process = start_history(life, tmp_path / "said")
    assert process.wait(900) == 0, (tmp_path / "said").read_text()
    assert (tmp_path / "said").read_text() == ""
    # numbers have gaps where a transaction was cut off; everything else is the same
    different = [
        (whole[1], column, broken[column], whole[column])
        for broken, whole in zip(life.rows(_BOOKINGS), lived.rows(_BOOKINGS), strict=True)
        for column in range(1, len(whole))
        if broken[column] != whole[column]
    ]
    assert different == []
    assert life.rows(_TOTALS) == lived.rows(_TOTALS)


_TOTALS = (
    """SELECT (SELECT count(*) FROM refusals), (SELECT sum(exact) FROM charges), (SELECT count(*) FROM intervals)"""
)


def test_up_does_not_run_a_demo(lived: Lived, tmp_path: Path) -> None:
    """Its clock can be moved: whoever wants a demo starts one."""
    ended = subprocess.run(
        [sys.executable, "-m", "app.cli", "up", "--port", "0", "--data", str(tmp_path / "data")],
        env=lived.environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 1
    assert "belongs to a demo or a test" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_default_span_is_a_month_of_400() -> None:
    assert (BOOKINGS, DAYS, SPAN.bookings) == (400, 31, 24)
