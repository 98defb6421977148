"""A cluster that hangs holds up two calls of its own and one look, and nobody else: not the other cluster, not the rest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from app.bookings.facts import Booking
from app.inventory import actions as inventory
from app.inventory import queries as inventory_queries
from app.inventory.connections import backend_of
from app.inventory.reconcile import define_on_backend, sync_cluster
from tests.faults.processes import Site, round_now, wait_until
from tests.world import OPERATOR, nodes_csv

SLOW = 9
LOOKS = {"probe", "inventory", "strays"}
pytestmark = [pytest.mark.xdist_group("faults-workers"), pytest.mark.timeout(600)]


def add_cluster(site: Site, name: str) -> Any:
    """A second simulated cluster beside `sim`; returns its backend."""
    plumbing = site.world.plumbing
    with plumbing.database.work() as work:
        config = {"path": str(site.folder / f"{name}.sqlite"), "seed": 8}
        made = inventory.connect_cluster(work, OPERATOR, name, "simulated", config)
        inventory.import_nodes(work, OPERATOR, name, nodes_csv(2, prefix="p"))
    define_on_backend(plumbing, OPERATOR, name)
    sync_cluster(plumbing, made.id)
    with plumbing.database.work() as work:
        return backend_of(plumbing, inventory_queries.cluster_named(work, name))


def at_once(site: Site, verbs: Callable[[str], bool]) -> int:
    """The most calls that were on the hung cluster at one time: each meets the fault and stays for SLOW seconds."""
    met = [e.at for e in site.world.backend.entries() if e.command == "call_fault_met" and verbs(e.body["verb"])]
    return max((sum(at <= other < at + SLOW - 1 for other in met) for at in met), default=0)


def test_a_hung_cluster_holds_up_nobody_else(make_site: Callable[..., Site]) -> None:
    site = make_site(csv=nodes_csv(2), at=round_now(), backend={"limit_seconds": SLOW + 1})
    site.run_clock()
    other = add_cluster(site, "calm")
    site.worker("backend")
    site.worker("default")
    site.program("beat", "beat")
    old = [site.world.book(name=f"old {n}", cluster="sim", units=1, duration="PT2H") for n in range(10)]
    for booking in old:
        site.wait_state(booking, "ACTIVE")

    site.world.backend.faults.call_slow("*", SLOW, count=100_000)
    # everything is due on it at once: measurements of ten bookings, a look, ten bookings more
    with psycopg.connect(site.superuser_url) as admin:
        admin.execute("UPDATE metering SET collect_at = berth_now()")
        admin.execute("UPDATE clusters SET retry_at = NULL")
    stuck = [site.world.book(name=f"stuck {n}", cluster="sim", units=1, duration="PT1H") for n in range(6)]
    wait_until(lambda: at_once(site, lambda verb: verb not in LOOKS) >= 2, "both call slots are on the hung cluster")

    calm: list[Booking] = []
    for n in range(5):
        calm.append(site.world.book(name=f"calm {n}", cluster="calm", units=1, duration="PT1H"))
        active = site.wait_state(calm[-1], "ACTIVE", seconds=30)
        assert site.acts(active, other) == ["ensure"]
    # the other worker does its own work: reserved time is metered and charged
    site.world.do("release", calm[0])
    ended = site.wait_state(calm[0], "ENDED", seconds=30)
    assert ended.provided_at is not None
    assert ended.released_at is not None
    length = (ended.released_at - ended.provided_at) // timedelta(seconds=1)
    charged = "SELECT coalesce(sum(quantity), 0) / 840 FROM charges WHERE kind = 'use' AND booking_id = %s"
    wait_until(lambda: site.one(charged, ended.id) == length, "charged to the second")

    assert at_once(site, lambda verb: verb not in LOOKS) == 2, "never more than two calls at once"
    assert at_once(site, lambda verb: verb in LOOKS) <= 1
    # slow, not lost: each call was answered in the end
    site.wait_state(stuck[0], "ACTIVE", "STARTING")
