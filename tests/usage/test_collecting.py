"""Measurements from a cluster: taken in once, split by the hour, asked for again only where they are missing."""

from __future__ import annotations

import itertools
import threading
from datetime import datetime, timedelta

import pytest

from app.backends.contract import BackendError, Ref, Sample, Usage, WorkloadSeen
from app.kernel.window import Window
from app.usage import actions, queries
from app.usage.reconcile import collect_one
from tests.billing.world import NOW, World, hours

HOUR = 3600 * 840


class Cluster:
    """Answers `usage` for node-0: each GPU of `busy` was held over the given hours; `gap` was not measured."""

    limit_seconds = 30.0

    def __init__(self, busy: dict[int, tuple[float, float]], gpus: int = 8, gap: tuple[float, float] | None = None):
        self.busy, self.gpus, self.gap = busy, gpus, gap
        self.asked: list[tuple[Ref, datetime, datetime, int]] = []
        self.fails: BackendError | None = None
        self.until: datetime | None = None

    def usage(self, ref: Ref, since: datetime, until: datetime, step: int) -> Usage:
        self.asked.append((ref, since, until, step))
        if self.fails:
            raise self.fails
        until = min(until, self.until or until)
        samples = []
        for gpu in range(self.gpus):
            edges = {since, until}
            for start, end in (self.busy.get(gpu, (0, 0)), self.gap or (0, 0)):
                edges |= {e for e in (hours(start), hours(end)) if since < e < until}
            grid = since - timedelta(seconds=since.timestamp() % step)
            while (grid := grid + timedelta(seconds=step)) < until:
                edges.add(grid)
            ordered = sorted(edges)
            for start, end in itertools.pairwise(ordered):
                hour = (start - NOW) / timedelta(hours=1)
                if self.gap and self.gap[0] <= hour < self.gap[1]:
                    continue
                held = self.busy.get(gpu, (0, 0))[0] <= hour < self.busy.get(gpu, (0, 0))[1]
                seconds = int((end - start).total_seconds())
                samples.append(Sample("node-0", gpu, start, seconds, 0.9 if held else 0.0, 60.0, 500.0, 60.0, held))
        ran = (WorkloadSeen("w1", "training", "running", hours(0.5), None, gpus=4),)
        return Usage(tuple(samples), ran, until)


def collect(world: World, cluster: Cluster, booking, tenant=None) -> bool:
    return collect_one(world.db, lambda _work, _id: cluster, tenant or world.tenant, booking)


def splits(world: World, booking):
    with world.work() as work:
        return [(u.split.used, u.split.unused, u.split.unknown) for u in queries.usage_of(work, booking)]


@pytest.fixture
def booking(world: World):
    world.add_node()
    return world.add_booking(NOW, hours(4), units=4, provided_at=NOW)


def test_use_is_split_by_the_hour_and_adds_up(world, booking):
    world.move_to(hours(4))
    cluster = Cluster({0: (0.5, 4), 1: (0, 4), 2: (1, 2)}, gap=(3, 3.5))
    assert collect(world, cluster, booking)
    assert [(u / HOUR, n / HOUR, x / HOUR) for u, n, x in splits(world, booking)] == [
        (1.5, 2.5, 0),
        (3, 1, 0),
        (2, 2, 0),
        (1, 1, 2),
    ]
    assert world.rows("SELECT DISTINCT extract(minute FROM starts_at) FROM usage") == [(0,)]
    (energy,) = world.rows("SELECT sum(energy_wh) FROM usage")[0]
    assert float(energy) == pytest.approx(4 * 500 * 3.5)


def test_units_of_others_on_the_node_are_not_kept(world, booking):
    world.move_to(hours(1))
    collect(world, Cluster({7: (0, 4)}), booking)
    assert world.rows("SELECT DISTINCT gpus FROM samples") == [([0, 1, 2, 3],)]
    assert splits(world, booking) == [(0, 4 * HOUR, 0)]
    assert world.rows("SELECT first_used_at FROM bookings") == [(None,)]


def test_each_collection_asks_only_for_what_is_missing(world, booking):
    cluster = Cluster({0: (0, 4)})
    for now in (0.5, 1.25, 4):
        world.move_to(hours(now))
        assert collect(world, cluster, booking)
    assert [(since, until, step) for _, since, until, step in cluster.asked] == [
        (NOW, hours(0.5), 60),
        (hours(0.5), hours(1.25), 60),
        (hours(1.25), hours(4), 60),
    ]
    assert splits(world, booking) == [(HOUR, 3 * HOUR, 0)] * 4
    assert world.rows("SELECT collect_at FROM metering") == [(None,)]
    assert not collect(world, cluster, booking)  # complete
    assert len(cluster.asked) == 3


def test_a_running_hour_is_split_up_to_where_measurements_reach(world, booking):
    world.move_to(hours(0.5))
    cluster = Cluster({0: (0, 4)})
    cluster.until = hours(0.4)
    collect(world, cluster, booking)
    assert splits(world, booking) == [(0.4 * HOUR, 1.2 * HOUR, 0)]
    assert world.rows("SELECT ends_at FROM usage") == [(hours(0.4),)]
    assert world.rows("SELECT sampled_until FROM allocations") == [(hours(0.4),)]


def test_the_last_collection_comes_after_an_early_release(world, booking):
    cluster = Cluster({0: (0, 4)})
    world.move_to(hours(1))
    collect(world, cluster, booking)
    world.move_to(hours(1.5))
    world.set_booking(booking, released_at=hours(1.25), state="ENDING")
    with world.db.work() as work:
        assert queries.due_collections(work, hours(1.5)) == [(world.tenant, booking)]
    collect(world, cluster, booking)
    assert cluster.asked[-1][1:3] == (hours(1), hours(1.25))
    assert sum(sum(s) for s in splits(world, booking)) == 4 * 1.25 * HOUR
    with world.db.work() as work:
        assert queries.due_collections(work, hours(9)) == []


def test_an_extension_made_while_the_cluster_answers_is_collected_too(world, booking):
    world.move_to(hours(4))

    class Slow(Cluster):
        def usage(self, *words):
            if len(self.asked) == 0:
                world.set_booking(booking, ends_at=hours(6))
            return super().usage(*words)

    cluster = Slow({0: (0, 6)})
    world.owner.execute(
        "INSERT INTO booking_prices VALUES (%s, %s, %s, %s, %s, 2)",
        [world.tenant, booking, hours(4), hours(6), world.price],
    )
    collect(world, cluster, booking)
    world.move_to(hours(6))
    collect(world, cluster, booking)
    assert sum(sum(s) for s in splits(world, booking)) == 4 * 6 * HOUR


def test_bookings_is_told_when_a_unit_was_first_held(world, booking):
    world.move_to(hours(2))
    cluster, told = Cluster({1: (0.75, 4)}), []
    collect_one(world.db, lambda _w, _i: cluster, world.tenant, booking, lambda _w, b, at: told.append((b, at)))
    assert told == [(booking, hours(0.75))]
    world.owner.execute("UPDATE allocations SET sampled_until = NULL")
    collect(world, cluster, booking)
    assert world.rows("SELECT first_used_at FROM bookings") == [(hours(0.75),)]


def test_workloads_are_kept_as_they_were_last_seen(world, booking):
    world.move_to(hours(1))
    collect(world, Cluster({}), booking)
    with world.work() as work:
        assert queries.workloads_of(work, booking) == [("w1", "training", "w1", "running", "", 4, hours(0.5), None)]


def test_a_cluster_that_fails_is_asked_again_later_and_longer(world, booking):
    world.move_to(hours(1))
    cluster = Cluster({})
    cluster.fails = BackendError("timeout", "no answer")
    waits = []
    for _ in range(8):
        world.owner.execute("UPDATE metering SET collect_at = %s", [hours(1)])
        assert not collect(world, cluster, booking)
        ((at, lease),) = world.rows("SELECT collect_at, leased_until FROM metering")
        waits.append(int((at - hours(1)).total_seconds()))
        assert lease is None
    assert waits == [60, 120, 240, 480, 960, 1800, 1800, 1800]
    assert splits(world, booking) == []
    cluster.fails = None
    assert collect(world, cluster, booking)
    assert world.rows("SELECT failures FROM metering") == [(0,)]


def test_after_a_week_without_an_answer_the_time_stays_unknown(world, booking):
    world.move_to(hours(4) + timedelta(days=7, seconds=1))
    cluster = Cluster({})
    cluster.fails = BackendError("unreachable", "no connection")
    collect(world, cluster, booking)
    assert world.rows("SELECT collect_at FROM metering") == [(None,)]


def test_what_is_old_is_asked_for_in_coarse_steps(world, booking):
    world.move_to(hours(60))
    cluster = Cluster({0: (0, 4)})
    collect(world, cluster, booking)
    assert cluster.asked[0][3] == 900
    assert splits(world, booking) == [(HOUR, 3 * HOUR, 0)] * 4


def test_two_collectors_at_once_write_once(world, booking):
    world.move_to(hours(2))
    cluster, meet, errors = Cluster({0: (0, 4)}), threading.Barrier(2), []

    class Together(Cluster):
        def usage(self, *words):
            meet.wait(10)  # both are past the lease: the first one's was taken away
            return super().usage(*words)

    together = Together({0: (0, 4)})

    def one() -> None:
        try:
            collect(world, together, booking)
        except Exception as error:  # told below, in the test's own thread
            errors.append(error)

    first = threading.Thread(target=one)
    first.start()
    while not world.rows("SELECT FROM metering WHERE leased_until IS NOT NULL"):
        pass
    assert not collect(world, cluster, booking)  # somebody has it
    world.owner.execute("UPDATE metering SET leased_until = NULL")
    second = threading.Thread(target=one)
    second.start()
    first.join()
    second.join()
    assert errors == []
    assert splits(world, booking) == [(HOUR, 3 * HOUR, 0)] * 2
    assert world.rows("SELECT count(*) FROM samples") == [(120,)]


def test_old_measurements_are_thinned_and_the_split_stays(world, booking):
    world.move_to(hours(4))
    collect(world, Cluster({0: (0.1, 4), 1: (0, 4)}), booking)
    before = splits(world, booking)
    assert world.rows("SELECT count(*) FROM samples") == [(240,)]
    with world.db.work() as work:  # for every tenant, as the workers do
        assert actions.thin(work, hours(47)) == 0
        assert actions.thin(work, hours(49)) == 4
        assert work.tenant_id is None
    assert world.rows("SELECT count(*) FROM samples") == [(4 + 180,)]
    with world.work() as work:
        (first, second, *_) = queries.samples_of(work, booking, Window(NOW, hours(1)))
        assert (first.seconds, first.in_use) == (900, [None, True, False, False])
        assert first.utilisation == pytest.approx([0.54, 0.9, 0, 0])
        assert second.in_use == [True, True, False, False]
        assert actions.thin(work, hours(49)) == 0
    assert splits(world, booking) == before
