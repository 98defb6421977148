"""Workers killed at the worst moment, messages lost, doubled and stale: nothing double, nothing lost, one sweep later.

The product clock runs; web and workers are real processes, and what the cluster was told stands in its own log.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from app.bookings.facts import Booking
from app.kernel.clock import monotonic
from tests.faults.processes import Process, Site, round_now, wait_until
from tests.world import nodes_csv

LIMIT = 3
"""How long the simulated cluster may take; a lease is ten seconds longer, at least."""
LEASE = LIMIT + 10
pytestmark = [pytest.mark.xdist_group("faults-workers"), pytest.mark.timeout(600)]


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    made = make_site(csv=nodes_csv(2), at=round_now(), backend={"limit_seconds": LIMIT})
    made.environment["BERTH_LEASE_SECONDS"] = "5"
    made.run_clock()
    return made


def kill_between_act_and_apply(site: Site, worker: Process, booking: Booking, command: str) -> None:
    """Wait until the cluster has done it; its answer is on the way for LIMIT seconds more."""
    wait_until(lambda: command in site.acts(booking), f"the cluster did {command}")
    worker.kill()


def test_case_27_a_worker_killed_between_the_call_and_its_answer_does_nothing_twice(site: Site) -> None:
    site.world.backend.faults.call_slow("ensure", LIMIT - 0.5, when="after")
    worker = site.worker("backend")
    booking = site.world.book(units=8, duration="PT1H")
    site.queue.send("reconcile.cluster", site.world.cluster_id)
    kill_between_act_and_apply(site, worker, booking, "ensure")
    assert site.world.look(booking).state == "STARTING"
    (token,) = site.rows("SELECT lease_token FROM due")[0]
    assert token is not None, "the dead worker's lease"

    worker = site.worker("backend")
    site.worker("default")
    wait_until(
        lambda: site.one("SELECT count(*) FROM due WHERE leased_until < clock_timestamp()"), "the lease ends", 60
    )
    site.sweep()
    active = site.wait_state(booking, "ACTIVE")
    assert site.acts(booking) == ["ensure"], "made once"
    assert active.provided_at is not None
    (made,) = [e for e in site.world.backend.entries(site.ref(booking)) if e.command == "ensure" and e.acted]
    assert active.provided_at.timestamp() == made.at, "provided when the cluster did it, not when it was noticed"

    # the same on the way out: the answer to the release is lost with the worker
    site.world.backend.faults.call_slow("release", LIMIT - 0.5, when="after")
    site.world.do("release", booking)
    site.queue.send("reconcile.cluster", site.world.cluster_id)
    kill_between_act_and_apply(site, worker, booking, "release")
    assert site.world.look(booking).state == "ENDING"
    site.worker("backend")
    wait_until(
        lambda: site.one("SELECT count(*) FROM due WHERE leased_until < clock_timestamp()"), "the lease ends", 60
    )
    site.sweep()
    ended = site.wait_state(booking, "ENDED")
    assert ended.outcome == "released"
    assert site.acts(booking) == ["ensure", "release"]
    assert site.one("SELECT count(*) FROM due") == 0
    assert site.one("SELECT count(*) FROM holds WHERE live") == 0
    assert site.one("SELECT count(*) FROM history WHERE event = 'provide'") == 1
    assert site.one("SELECT count(*) FROM history WHERE event = 'emptied'") == 1


def test_an_answer_that_comes_after_its_lease_ended_changes_nothing(site: Site) -> None:
    """The first worker is not dead, only slow: somebody else has taken its work and finished it."""
    site.world.backend.faults.call_slow("ensure", LIMIT - 0.5, when="after")
    site.worker("backend")
    booking = site.world.book(units=8, duration="PT1H")
    site.queue.send("reconcile.cluster", site.world.cluster_id)
    wait_until(lambda: "ensure" in site.acts(booking), "the cluster made it")
    # its lease ends now, as it would for a machine that stood still for half a minute; cancelled meanwhile, and done
    with site.world.work() as work:
        work.pg.execute("UPDATE due SET leased_until = clock_timestamp() - interval '1 second'")
    site.world.do("cancel", booking)
    while site.world.look(booking).state != "ENDED":
        site.world.settle()
    assert site.acts(booking) == ["ensure", "release"]
    wait_until(lambda: "call_fault_met" in {e.command for e in site.world.backend.entries()}, "the slow call was met")
    began = monotonic()
    while monotonic() - began < LIMIT:  # the slow answer arrives in this time
        ended = site.world.look(booking)
        assert (ended.state, ended.outcome, ended.provided_at) == ("ENDED", "cancelled", None)
    assert site.one("SELECT count(*) FROM due") == 0
    assert site.one("SELECT count(*) FROM history WHERE event = 'provide'") == 0


def test_case_28_the_same_message_twenty_times_is_one_booking_on_the_cluster(site: Site) -> None:
    bookings = [site.world.book(name=f"Run {n}", units=1, duration="PT1H") for n in range(6)]
    for _ in range(20):
        site.queue.send("reconcile.cluster", site.world.cluster_id)
    site.worker("backend")
    for booking in bookings:
        site.wait_state(booking, "ACTIVE")
        site.world.do("release", booking)
    for _ in range(20):
        site.queue.send("reconcile.cluster", site.world.cluster_id)
    site.worker("default")
    site.sweep()
    for booking in bookings:
        assert site.wait_state(booking, "ENDED").outcome == "released"
        assert site.acts(booking) == ["ensure", "release"]
    events = site.rows("SELECT booking_id, event, count(*) FROM history GROUP BY 1, 2 HAVING count(*) > 1")
    assert events == []


def test_the_broker_flushed_the_rows_are_found_within_one_sweep(site: Site) -> None:
    """A flush takes every waiting message, and the names of queues with them."""
    backend, default = site.worker("backend"), site.worker("default")
    first = site.world.book(units=1, duration="PT1H")
    site.sweep()
    site.wait_state(first, "ACTIVE")
    with redis.Redis.from_url(site.environment["REDIS_URL"]) as client:
        waiting = site.world.book(units=1, duration="PT1H")
        site.queue.send("reconcile.cluster", site.world.cluster_id)
        site.queue._waiting.join()  # it is at the broker
        client.flushall()
        # stale ones: of a cluster that never was, of a booking that is no more, with a task nobody knows
        site.queue.send("reconcile.cluster", 4711)
        site.queue.send("reconcile.usage", None, [[str(first.tenant_id), str(first.tenant_id)]])
        site.queue.send("usage.meter", str(first.tenant_id), str(first.tenant_id))
        site.queue.send("reconcile.nothing")
    site.sweep()
    site.wait_state(waiting, "ACTIVE")
    assert site.acts(waiting) == ["ensure"]
    assert backend.alive()
    assert default.alive()


def test_the_timetable_itself_finds_the_work_when_every_message_is_lost(site: Site) -> None:
    """Beat, both workers, nothing else: a booking whose message was never sent becomes active, and ends in time."""
    booking = site.world.book(units=2, duration="PT1H")
    site.worker("backend")
    site.worker("default")
    site.program("beat", "beat")
    site.wait_state(booking, "ACTIVE")
    site.world.do("release", booking)
    assert site.wait_state(booking, "ENDED").outcome == "released"
    assert site.acts(booking) == ["ensure", "release"]
    # measured and charged by the same timetable, to the second of the release
    seen = site.world.look(booking)
    length = (seen.released_at - seen.provided_at).total_seconds()
    charged = "SELECT coalesce(sum(quantity), 0) / 840 FROM charges WHERE kind = 'use'"
    wait_until(lambda: site.one(charged) == 2 * length, "charged to the second")
