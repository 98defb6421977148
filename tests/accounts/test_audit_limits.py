"""How much of the audit one sees at once, and who sees none."""

from __future__ import annotations

import csv
import io

from tests.accounts.world import World


def _fill(world: World, count: int) -> None:
    with world.work("acme") as work:
        work.pg.execute(
            """INSERT INTO audit (tenant_id, at, product_at, actor, action, subject)
               SELECT berth_tenant(), %s, %s, 'Filler', 'fill', 'row ' || n FROM generate_series(1, %s) n""",
            [work.wall, work.wall, count],
        )


def test_a_page_holds_fifty_rows_and_leads_to_the_next(world: World) -> None:
    _fill(world, 120)
    browser = world.browser(world.tenants["acme"].people["tenant-auditor"])
    page, seen = browser.see("/audit?action=fill"), []
    for rows in (50, 50, 20):
        found = [int(part.split("<")[0]) for part in page.text.split("row ")[1:] if part[:1].isdigit()]
        assert len(found) == rows
        seen += found
        following = page.text.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
        if "before=" in following:
            page = browser.see(following.replace("&amp;", "&"))
    assert seen == list(range(120, 0, -1))


def test_a_file_holds_ten_thousand_rows_and_is_told(world: World) -> None:
    _fill(world, 10_050)
    auditor = world.api(world.token(world.tenants["acme"].people["tenant-auditor"], "acme", "read"))
    answer = auditor.get("/audit.csv?action=fill")
    rows = list(csv.reader(io.StringIO(answer.text)))[1:]
    assert len(rows) == 10_000
    assert (rows[0][3], rows[-1][3]) == ("row 10050", "row 51")
    with world.work("acme") as work:
        told = work.pg.execute("SELECT actor FROM audit WHERE action = 'export audit'").fetchall()
    assert told == [("acme-tenant-auditor",)]


def test_a_token_of_one_project_sees_none_of_the_tenants_audit(world: World) -> None:
    admin = world.tenants["acme"].people["tenant-admin"]
    bound = world.api(world.token(admin, "acme", "read", project="plasma"))
    refused = bound.get("/audit.csv")
    assert refused.status_code == 403
    assert "bound to one project" in refused.text
    assert world.api(world.token(admin, "acme", "read")).get("/audit.csv").status_code == 200
