"""The timeline of a thousand nodes with twenty thousand holds: collapsed, small enough, quick enough."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

from app.inventory import actions, queries, reconcile
from app.kernel.actor import SYSTEM
from app.kernel.ids import new_id
from tests.dashboards.conftest import START, Company

NODES = 1000
HOLDS_A_NODE = 20
CPU_SECONDS = 1.5
"""Of the web process, for the whole page; 0.3 s were seen on a busy machine of two cores."""


def fill(company: Company, path: Path) -> None:
    """A big cluster, held by nobody in particular, three hours of every four."""
    lines = "".join(f"big-{i:04d},h200-sxm-141gb,8,{'' if i >= 800 else f'r{i // 20}'}\n" for i in range(NODES))
    with company.plumbing.database.work() as work:
        actions.connect_cluster(work, SYSTEM, "big", "simulated", {"path": str(path / "big.sqlite")})
        actions.import_nodes(work, SYSTEM, "big", f"name,kind,gpus,rack\n{lines}")
        cluster = queries.cluster_named(work, "big")
    reconcile.define_on_backend(company.plumbing, SYSTEM, "big")
    reconcile.sync_cluster(company.plumbing, cluster.id)
    tenant = company.people.tenants["acme"]
    with company.plumbing.database.work(tenant.seen.id) as work:
        booking, allocation = new_id(), new_id()
        pool = queries.pools_for(work, cluster="big")[0]
        work.pg.execute(
            """INSERT INTO bookings (id, tenant_id, project_id, kind, cluster_id, pool_id, units, starts_at, ends_at,
                 booked_at, name, cost_centre, reference, state, share840, asked, currency, quoted, zone, booked_by,
                 version) VALUES (%s, %s, %s, %s, %s, %s, 1, %s, %s, %s, 'Much', '1', '', 'BOOKED', 840, false, 'CHF',
                 0, 'UTC', 'x', 1)""",
            [booking, tenant.seen.id, tenant.projects["plasma"].id, pool.kind, cluster.id, pool.id, START,
             START + timedelta(days=7), START],
        )  # fmt: skip
        work.pg.execute(
            """INSERT INTO allocations (id, cluster_id, installation, generation, name, gone, wanted, ensured, failures)
               VALUES (%s, %s, 'abcdef', 1, 'berth-test', false, 1, 0, 0)""",
            [allocation, cluster.id],
        )
        work.pg.execute(
            """INSERT INTO holds (id, booking_id, allocation_id, node_id, units, during, live, pinned)
               SELECT gen_random_uuid(), %s, %s, n.id,
                      int4multirange(int4range(64 * n.first_gpu, 64 * (n.first_gpu + 4 + i %% 5))),
                      tstzrange(%s + i * interval '4 hours', %s + i * interval '4 hours' + interval '3 hours'),
                      true, false
                 FROM nodes n, generate_series(0, %s - 1) i WHERE n.cluster_id = %s""",
            [booking, allocation, START, START, HOLDS_A_NODE, cluster.id],
        )


def test_a_thousand_nodes(company: Company, tmp_path: Path) -> None:
    fill(company, tmp_path)
    browser = company.browser("beta")
    browser.see("/timeline?cluster=big&range=week")  # what is kept for the capacity's version is kept now
    before = time.process_time()
    page = browser.see("/timeline?cluster=big&range=week")
    spent = time.process_time() - before
    assert page.status_code == 200
    assert "4,000 of 8,000 units of big are free now." in page.text
    assert page.text.count("b-tl__r--rack") == 40 + 4, "racks, and the nodes of no known rack by name"
    assert "b-tl__r--node" not in page.text
    assert len(page.content) < 1_500_000
    assert spent < CPU_SECONDS
    opened = browser.see("/timeline?cluster=big&range=week&open=Rack+r7")
    assert opened.text.count("b-tl__r--node") == 20
    assert opened.text.count('class="b-bar k-busy') == 20 * HOLDS_A_NODE
    assert "Much" not in opened.text
