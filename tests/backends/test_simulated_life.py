"""A booking's life on the simulated cluster: made ahead or late, blocked, lost units, changed, over, released."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from app.backends.contract import BackendError, Order, Place, Ref, Workload
from app.backends.simulated import SimulatedBackend
from app.backends.testing import MovableClock
from app.kernel.ids import new_id
from app.kernel.window import Window

Orders = Callable[..., Order]


def error(act: Callable[[], object]) -> BackendError:
    with pytest.raises(BackendError) as caught:
        act()
    return caught.value


def test_made_late_it_is_provided_from_then(backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
    late = order("n0", start=-90)
    seen = backend.ensure(late)
    assert seen.state == "ready"
    assert seen.in_place_since == late.window.start + timedelta(seconds=90)


def test_a_slow_start_is_not_in_place_until_it_is(
    backend: SimulatedBackend, clock: MovableClock, order: Orders
) -> None:
    backend.faults.slow_start(90)
    slow = order("n0", start=0)
    assert backend.ensure(slow).state == "preparing"
    clock.move(89)
    assert backend.observe(slow.ref).in_place_since is None
    clock.move(1)
    seen = backend.observe(slow.ref)
    assert (seen.state, seen.in_place_since) == ("ready", slow.window.start + timedelta(seconds=90))
    assert backend.ensure(order("n1", start=0)).state == "ready", "one start was slow, not all"


def test_a_dead_node_blocks_until_it_is_back(backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
    made = order("n0", "n1", start=600)
    backend.ensure(made)
    backend.faults.node_dies("n1", at=made.window.start - timedelta(seconds=60))
    clock.move_to(made.window.start)
    seen = backend.observe(made.ref)
    assert (seen.state, seen.in_place_since) == ("blocked", None)
    assert "n1" in seen.why
    back = clock.move(125)
    backend.faults.node_returns("n1")
    seen = backend.observe(made.ref)
    assert (seen.state, seen.in_place_since, seen.lost) == ("ready", back, ())


def test_a_node_that_came_back_before_the_start_blocks_nothing(
    backend: SimulatedBackend, clock: MovableClock, order: Orders
) -> None:
    made = order("n0", start=600)
    backend.ensure(made)
    clock.move(60)
    backend.faults.node_dies("n0")
    assert backend.observe(made.ref).state == "blocked"
    back = clock.move(60)
    backend.faults.node_returns("n0")
    clock.move_to(made.window.start)
    seen = backend.observe(made.ref)
    assert (seen.state, seen.in_place_since) == ("ready", back)


def test_losses_are_told_with_their_times_and_move_nothing(
    backend: SimulatedBackend, clock: MovableClock, order: Orders
) -> None:
    made = order("n0", "n1")
    backend.ensure(made)
    start = clock.move_to(made.window.start)
    ill = clock.move(600)
    backend.faults.node_ill("n0", 3)
    died = clock.move(600)
    backend.faults.node_dies("n0", until=died + timedelta(seconds=300))
    seen = backend.observe(made.ref)
    assert seen.state == "degraded"
    assert [(x.node, x.gpus, x.since, x.until) for x in seen.lost] == [
        ("n0", (3,), ill, None),
        ("n0", (0, 1, 2, 4, 5, 6, 7), died, None),
    ]
    assert seen.in_place_since is not None
    assert seen.in_place_since <= start
    back = clock.move(300)
    seen = backend.observe(made.ref)
    assert [(x.gpus, x.since, x.until) for x in seen.lost] == [
        ((3,), ill, None),
        ((0, 1, 2, 4, 5, 6, 7), died, back),
    ]
    assert seen.state == "degraded"
    clock.move(10)
    backend.faults.gpu_mended("n0", 3)
    seen = backend.observe(made.ref)
    assert (seen.state, seen.since) == ("ready", clock())
    clock.move_to(made.window.end)
    backend.release(made.ref)
    assert len(backend.observe(made.ref).lost) == 2, "what was lost is known after the end"


def test_a_node_taken_away_behind_the_back(backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
    made = order("n0", "n1")
    backend.ensure(made)
    clock.move_to(made.window.start)
    taken = clock.move(60)
    backend.faults.take_away("n1", made.ref)
    backend.faults.take_away("n1", made.ref)
    seen = backend.observe(made.ref)
    assert seen.state == "degraded"
    assert [(x.node, len(x.gpus), x.since, x.until) for x in seen.lost] == [("n1", 8, taken, None)]
    facts = {n.name: n for n in backend.inventory().nodes}["n1"]
    assert [use.gpus for use in facts.external] == [tuple(range(8))]
    assert facts.state == "ready"
    assert error(lambda: backend.ensure(order("n1", start=9000))).kind == "conflict"
    backend.release(made.ref)
    assert error(lambda: backend.ensure(order("n1", start=9000))).kind == "conflict", "it is still somebody else's"
    backend.faults.node_returns("n1")
    assert backend.ensure(order("n1", start=9000)).state == "ready"


def test_the_end_of_the_window_stops_the_work(backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
    made = order("n0", workload="inference")
    backend.ensure(made)
    clock.move_to(made.window.end)
    seen = backend.observe(made.ref)
    assert (seen.state, seen.empty_since) == ("ending", made.window.end)
    usage = backend.usage(made.ref, made.window.start, clock(), 900)
    assert [(w.kind, w.state, w.ended) for w in usage.workloads] == [("inference", "stopped", made.window.end)]
    follower = order("n0", start=0)
    assert backend.ensure(follower).state == "ready"
    clock.move(100)
    gone = backend.release(made.ref)
    assert (gone.state, gone.empty_since, gone.since) == ("gone", made.window.end, clock())


def test_work_gets_its_grace(
    make: Callable[..., SimulatedBackend], backend: SimulatedBackend, clock: MovableClock, order: Orders
) -> None:
    gentle = make(grace_seconds=20)
    made = order("n0", workload="inference")
    gentle.ensure(made)
    clock.move_to(made.window.start + timedelta(minutes=30))
    assert gentle.release(made.ref).state == "ending"
    assert error(lambda: gentle.ensure(order("n0", start=10))).kind == "conflict"
    assert gentle.ensure(order("n0", start=20)).state == "ready"
    clock.move(20)
    seen = gentle.observe(made.ref)
    assert (seen.state, seen.empty_since) == ("gone", clock())
    idle = order("n1", start=0)
    gentle.ensure(idle)
    clock.move(60)
    assert gentle.release(idle.ref).state == "gone", "nothing ran, nothing to wait for"


def test_a_node_that_does_not_answer_is_never_empty(
    backend: SimulatedBackend, clock: MovableClock, order: Orders
) -> None:
    made = order("n0", "n1")
    backend.ensure(made)
    clock.move_to(made.window.start + timedelta(minutes=5))
    backend.faults.node_dies("n1")
    clock.move(60)
    seen = backend.release(made.ref)
    assert (seen.state, seen.empty_since) == ("ending", None)
    assert "n1" in seen.why
    assert made.ref in {s.ref for s in backend.strays()}
    blocked = order("n1", start=0)
    assert backend.ensure(blocked).state == "blocked"
    back = clock.move(600)
    backend.faults.node_returns("n1")
    seen = backend.observe(made.ref)
    assert (seen.state, seen.empty_since) == ("gone", back)
    assert backend.observe(blocked.ref).in_place_since == back


def test_a_ref_that_was_released_is_not_made_again(backend: SimulatedBackend, order: Orders) -> None:
    made = order("n0")
    backend.ensure(made)
    backend.release(made.ref)
    assert error(lambda: backend.ensure(made)).kind == "conflict"


class TestChanging:
    def test_units_given_back_are_free_at_once(
        self, backend: SimulatedBackend, clock: MovableClock, order: Orders
    ) -> None:
        made = order("n0", workload="training")
        backend.ensure(made)
        clock.move_to(made.window.start + timedelta(minutes=30))
        window = made.window
        half = order("n0", gpus=(0, 1, 2, 3), ref=made.ref, window=window, workload="training")
        seen = backend.ensure(half)
        assert seen.state == "ready"
        assert seen.places == (Place("n0", (0, 1, 2, 3)),)
        assert backend.ensure(order("n0", gpus=(4, 5, 6, 7), start=0)).state == "ready"
        clock.move_to(window.end)
        samples = backend.usage(made.ref, window.start, window.end, 900).samples
        seconds = {g: sum(s.seconds for s in samples if s.gpu == g) for g in range(8)}
        assert set(seconds.values()) == {1800, 7200}
        assert seconds[7] == 1800

    def test_a_replaced_node(self, backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
        made = order("n0", "n1")
        backend.ensure(made)
        clock.move_to(made.window.start)
        died = clock.move(60)
        backend.faults.node_dies("n1")
        replaced = clock.move(120)
        seen = backend.ensure(order("n0", "n2", ref=made.ref, window=made.window))
        assert seen.state == "ready"
        assert seen.in_place_since is not None
        assert seen.in_place_since <= made.window.start
        assert [(x.node, x.since, x.until) for x in seen.lost] == [("n1", died, replaced)]

    def test_a_replaced_node_before_it_began(
        self, backend: SimulatedBackend, clock: MovableClock, order: Orders
    ) -> None:
        made = order("n0", "n1")
        backend.ensure(made)
        clock.move_to(made.window.start)
        backend.faults.node_dies("n1")
        replaced = clock.move(120)
        seen = backend.ensure(order("n0", "n2", ref=made.ref, window=made.window))
        assert (seen.state, seen.in_place_since, seen.lost) == ("ready", replaced, ())

    def test_an_edit_that_cannot_be_changes_nothing(
        self, backend: SimulatedBackend, clock: MovableClock, order: Orders
    ) -> None:
        made = order("n0")
        backend.ensure(made)
        follower = order("n0", window=Window(made.window.end, made.window.end + timedelta(hours=1)))
        backend.ensure(follower)
        before = backend.observe(made.ref)
        longer = order("n0", ref=made.ref, window=Window(made.window.start, made.window.end + timedelta(seconds=1)))
        assert error(lambda: backend.ensure(longer)).kind == "conflict"
        assert backend.observe(made.ref) == before
        clock.move_to(made.window.start)
        earlier = order("n0", ref=made.ref, window=Window(made.window.start - timedelta(hours=1), made.window.end))
        assert error(lambda: backend.ensure(earlier)).kind == "invalid"

    def test_extended_after_its_end_it_has_a_hole(
        self, backend: SimulatedBackend, clock: MovableClock, order: Orders
    ) -> None:
        made = order("n0", workload="inference")
        backend.ensure(made)
        clock.move_to(made.window.end + timedelta(minutes=10))
        window = Window(made.window.start, made.window.end + timedelta(hours=1))
        backend.ensure(order("n0", ref=made.ref, window=window, workload="inference"))
        clock.move_to(window.end)
        samples = backend.usage(made.ref, window.start, window.end, 900).samples
        hole = [s for s in samples if made.window.end <= s.at < made.window.end + timedelta(minutes=10)]
        assert hole == []
        assert sum(s.seconds for s in samples if s.gpu == 0) == 7200 + 3000

    def test_people_come_and_go(self, backend: SimulatedBackend, order: Orders) -> None:
        made = order("n0")
        backend.ensure(made)
        backend.ensure(order("n0", ref=made.ref, window=made.window, people=("bob",)))
        assert backend.access(made.ref, "bob").ways
        assert error(lambda: backend.access(made.ref, "ann")).kind == "permission"


class TestWork:
    def test_it_trains_by_itself_unless_told_not_to(
        self, backend: SimulatedBackend, clock: MovableClock, order: Orders
    ) -> None:
        silent, loud = order("n0"), order("n1", settings={})
        backend.ensure(silent)
        backend.ensure(loud)
        clock.move_to(silent.window.start + timedelta(minutes=10))
        since = silent.window.start
        assert backend.usage(silent.ref, since, clock(), 60).workloads == ()
        (own,) = backend.usage(loud.ref, since, clock(), 60).workloads
        assert (own.kind, own.state) == ("training", "running")

    def test_the_orders_own_workload(self, backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
        made = replace(order("n0"), workload=Workload("job-7", "job", "ann", gpus=4, seconds=1200))
        backend.ensure(made)
        clock.move_to(made.window.end - timedelta(seconds=1))
        usage = backend.usage(made.ref, made.window.start, clock(), 60)
        (job,) = usage.workloads
        assert (job.id, job.state) == ("job-7", "finished")
        assert job.started is not None
        assert job.ended == job.started + timedelta(seconds=1200)
        used = {g: sum(s.seconds for s in usage.samples if s.gpu == g and s.in_use) for g in range(8)}
        assert [used[g] for g in range(8)] == [1200] * 4 + [0] * 4

    def test_some_trainings_are_done_early(self, backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
        refs = [Ref.of("test", new_id()) for _ in range(32)]
        window = order("n0", hours=8).window
        for i, ref in enumerate(refs):
            backend.ensure(order(f"n{i // 8}", gpus=(i % 8,), ref=ref, window=window, settings={}))
        clock.move_to(window.end)
        done = [backend.usage(ref, window.start, window.end, 900).workloads[0].state for ref in refs]
        assert 2 <= done.count("finished") <= 22
        assert set(done) == {"finished", "stopped"}

    def test_launched_work_fails_with_its_gpu_and_leaves_the_rest(
        self, backend: SimulatedBackend, clock: MovableClock, order: Orders
    ) -> None:
        made = order("n0")
        backend.ensure(made)
        clock.move_to(made.window.start)
        backend.launch(made.ref, Workload("a", "training", "ann", gpus=4))
        backend.launch(made.ref, Workload("b", "notebook", "ann", gpus=1))
        assert error(lambda: backend.launch(made.ref, Workload("c", "shell", "ann", gpus=4))).kind == "capacity"
        assert error(lambda: backend.launch(made.ref, Workload("d", "dance", "ann"))).kind == "invalid"  # type: ignore[arg-type]
        ill = clock.move(600)
        backend.faults.node_ill("n0", 2)
        clock.move(60)
        seen = {w.id: w for w in backend.usage(made.ref, made.window.start, clock(), 60).workloads}
        assert (seen["a"].state, seen["a"].ended) == ("failed", ill)
        assert "XID" in seen["a"].why
        assert seen["b"].state == "running"
        backend.launch(made.ref, Workload("e", "training", "ann", gpus=6))
        clock.move(60)
        usage = backend.usage(made.ref, clock() - timedelta(seconds=1), clock(), 60)
        assert {s.gpu for s in usage.samples if s.in_use} == {0, 1, 3, 4, 5, 6, 7}

    def test_a_hanging_training_holds_its_gpus_and_computes_nothing(
        self, backend: SimulatedBackend, clock: MovableClock, order: Orders
    ) -> None:
        made = order("n0", workload="inference")
        backend.ensure(made)
        hung = clock.move_to(made.window.start + timedelta(minutes=30))
        backend.faults.workload_hangs(made.ref)
        clock.move(1800)
        samples = backend.usage(made.ref, hung, clock(), 60).samples
        assert {s.utilisation for s in samples} == {0.0}
        assert all(s.in_use for s in samples)


def test_others_jobs_are_external_and_never_overlap_holds(
    backend: SimulatedBackend, clock: MovableClock, order: Orders
) -> None:
    until = clock() + timedelta(hours=1)
    job = backend.faults.foreign_job("n0", [0, 1], until=until, what="job 4711 of bio")
    (use,) = {n.name: n for n in backend.inventory().nodes}["n0"].external
    assert (use.gpus, use.until, use.what) == ((0, 1), until, "job 4711 of bio")
    assert error(lambda: backend.ensure(order("n0", start=600))).kind == "conflict"
    after = order("n0", start=3600)
    assert backend.ensure(after).state == "ready"
    assert error(lambda: backend.faults.foreign_job("n0", [5])).kind == "conflict", "a reservation keeps it out"
    backend.faults.foreign_ends(job)
    assert backend.ensure(order("n0", start=600, hours=0.5)).state == "ready"


def test_a_drained_node_is_told_and_goes_on(backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
    made = order("n0")
    backend.ensure(made)
    clock.move_to(made.window.start)
    backend.faults.node_drains("n0", "Firmware")
    facts = {n.name: n for n in backend.inventory().nodes}["n0"]
    assert (facts.state, facts.why) == ("drained", "Firmware")
    assert backend.observe(made.ref).state == "ready"


def test_inventory_tells_health(backend: SimulatedBackend, clock: MovableClock) -> None:
    since = clock()
    backend.faults.node_ill("n1", 5, xid=48)
    backend.faults.node_dies("n2", until=since + timedelta(hours=1))
    nodes = {n.name: n for n in backend.inventory().nodes}
    assert [(u.gpu, u.since) for u in nodes["n1"].unhealthy] == [(5, since)]
    assert "48" in nodes["n1"].unhealthy[0].why
    assert nodes["n1"].state == "ready"
    assert nodes["n2"].state == "down"
    assert len(set(nodes["n1"].uuids)) == 8
    clock.move(3600)
    assert {n.name: n.state for n in backend.inventory().nodes}["n2"] == "ready"


def test_a_lost_gpu_is_not_in_use_and_can_be_seen_empty(
    backend: SimulatedBackend, clock: MovableClock, order: Orders
) -> None:
    made = order("n0", workload="inference")
    backend.ensure(made)
    ill = clock.move_to(made.window.start + timedelta(minutes=20))
    backend.faults.node_ill("n0", 6)
    clock.move(600)
    samples = backend.usage(made.ref, ill, clock(), 60).samples
    assert {s.gpu: s.in_use for s in samples} == {g: g != 6 for g in range(8)}
    assert {s.utilisation for s in samples if s.gpu == 6} == {None}
    seen = backend.release(made.ref)
    assert (seen.state, seen.empty_since) == ("gone", clock()), "the node answers, so it can say that it is empty"


def test_what_never_began_leaves_nothing_behind(backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
    made = order("n0")
    backend.ensure(made)
    backend.faults.node_dies("n0")
    clock.move_to(made.window.start + timedelta(minutes=5))
    assert backend.observe(made.ref).state == "blocked"
    seen = backend.release(made.ref)
    assert (seen.state, seen.in_place_since, seen.empty_since) == ("gone", None, clock())
