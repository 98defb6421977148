"""PUBLIC. The contract as tests that any backend inherits, and doubles that wrap one: Faulty, Slow, Never.

A third party writes

    class TestMine(BackendContract):
        @pytest.fixture
        def clock(self): ...      # a MovableClock, or one whose `move` really waits
        @pytest.fixture
        def backend(self, clock): ...
        @pytest.fixture
        def nodes(self): ...      # at least two nodes of the cluster that are free, as Place with all their GPUs

and runs pytest. Needs pytest; nothing of the portal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from app.backends.contract import (
    ERROR_KINDS,
    STATES,
    Access,
    Backend,
    BackendError,
    ErrorKind,
    Inventory,
    Observation,
    Order,
    Place,
    Probe,
    Ref,
    Stray,
    Usage,
    Workload,
    WorkloadSeen,
)
from app.kernel.ids import new_id
from app.kernel.window import Window

VERBS = ("probe", "inventory", "ensure", "observe", "release", "launch", "stop", "access", "usage", "strays")


class MovableClock:
    """A product clock that stands still until it is moved."""

    def __init__(self, now: datetime = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def move(self, by: timedelta | float) -> datetime:
        """Forward by a length or by seconds; answers with the new instant."""
        self.now += by if isinstance(by, timedelta) else timedelta(seconds=by)
        return self.now

    def move_to(self, instant: datetime) -> datetime:
        """Forward to an instant; never back."""
        self.now = max(self.now, instant)
        return self.now


class BackendContract:
    """Everything that `app.backends.contract` promises and that can be seen from outside.

    The attributes suit a clock that can be moved. Against a real cluster shorten `lead` and `length`, and raise `looks`
    and give `pause` something to do while the cluster works.
    """

    lead = timedelta(minutes=10)
    length = timedelta(hours=1)
    installation = "contract"
    account = "contract"
    people: tuple[str, ...] = ("ann",)
    looks = 20

    @pytest.fixture
    def clock(self) -> MovableClock:
        """The product clock of the backend under test."""
        return MovableClock()

    @pytest.fixture
    def backend(self, clock: MovableClock) -> Backend:
        """The backend under test: fresh, with nothing of this installation on it."""
        raise NotImplementedError("a subclass brings the backend")

    @pytest.fixture
    def nodes(self) -> tuple[Place, ...]:
        """At least two free nodes with all their GPUs."""
        raise NotImplementedError("a subclass names the nodes")

    def pause(self, clock: MovableClock) -> None:
        """Between two looks at something that takes its time."""
        clock.move(1)

    # --- what the tests are written in --------------------------------------------------------------------------------

    def order(self, clock: MovableClock, *places: Place, ref: Ref | None = None, **changes: Any) -> Order:
        """An order for these places, from `lead` after now, for `length`; without a workload of its own."""
        start = (clock() + self.lead).replace(microsecond=0)
        words: dict[str, Any] = {
            "ref": ref or Ref.of(self.installation, new_id()),
            "project": "contract",
            "account": self.account,
            "places": places,
            "window": Window(start, start + self.length),
            "people": self.people,
            "settings": {"workload": "none"},
        }
        return Order(**{**words, **changes})

    def settled(self, backend: Backend, clock: MovableClock, ref: Ref, *states: str) -> Observation:
        """What is there once it is in one of these states; fails when it does not get there."""
        for _ in range(self.looks):
            seen = backend.observe(ref)
            if seen.state in states:
                return seen
            self.pause(clock)
        raise AssertionError(f"still {seen.state} ({seen.why!r}), and not {' or '.join(states)}")

    def started(self, backend: Backend, clock: MovableClock, order: Order) -> Observation:
        """The order brought about, and its window begun."""
        backend.ensure(order)
        self.settled(backend, clock, order.ref, "ready")
        clock.move_to(order.window.start)
        return self.settled(backend, clock, order.ref, "ready")

    def gone(self, backend: Backend, clock: MovableClock, ref: Ref) -> Observation:
        """Released, and seen to be gone."""
        backend.release(ref)
        return self.settled(backend, clock, ref, "gone")

    @staticmethod
    def refused(kind: str, act: Callable[[], object]) -> BackendError:
        """The error of an act that has to fail with this kind."""
        with pytest.raises(BackendError) as caught:
            act()
        assert caught.value.kind == kind, caught.value
        assert caught.value.sentence.endswith("."), "an error has a sentence for people"
        return caught.value

    # --- looking ------------------------------------------------------------------------------------------------------

    def test_is_a_backend(self, backend: Backend) -> None:
        assert isinstance(backend, Backend)
        assert backend.limit_seconds > 0

    def test_probe_says_what_it_can(self, backend: Backend) -> None:
        probe = backend.probe()
        assert probe.ok, probe
        assert probe.version
        assert probe.capabilities is not None
        assert probe.steps
        assert all(step.sentence for step in probe.steps)

    def test_inventory_has_the_nodes(self, backend: Backend, nodes: tuple[Place, ...]) -> None:
        inventory = backend.inventory()
        by_name = {n.name: n for n in inventory.nodes}
        assert list(by_name) == sorted(by_name)
        assert inventory.source
        assert inventory.observed_at.utcoffset() == timedelta(0)
        for place in nodes:
            facts = by_name[place.node]
            assert facts.gpus == len(place.gpus)
            assert facts.state == "ready"
            assert facts.kind
            taken = {g for use in facts.external for g in use.gpus} | {u.gpu for u in facts.unhealthy}
            assert taken <= set(range(facts.gpus))

    def test_an_unknown_ref_is_absent_and_releasing_it_is_success(self, backend: Backend, clock: MovableClock) -> None:
        ref = Ref.of(self.installation, new_id())
        assert backend.observe(ref).state == "absent"
        assert backend.release(ref).state == "gone"
        assert backend.release(ref).state == "gone"
        assert ref not in {s.ref for s in backend.strays()}
        assert backend.usage(ref, clock() - timedelta(hours=1), clock(), 60).samples == ()
        self.refused("not_found", lambda: backend.access(ref, self.people[0]))
        self.refused("not_found", lambda: backend.stop(ref, "w1"))

    # --- bringing about -----------------------------------------------------------------------------------------------

    def test_made_ahead_it_is_ready_at_the_start(
        self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]
    ) -> None:
        order = self.order(clock, nodes[0])
        first = backend.ensure(order)
        assert first.state in ("preparing", "ready")
        seen = self.started(backend, clock, order)
        assert seen.ref == order.ref
        assert seen.in_place_since is not None
        assert seen.in_place_since <= order.window.start
        assert seen.lost == ()
        assert seen.window in (None, order.window)
        assert seen.observed_at <= clock()
        assert seen.state in STATES
        self.gone(backend, clock, order.ref)

    def test_asking_again_does_nothing(self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]) -> None:
        order = self.order(clock, nodes[0])
        backend.ensure(order)
        before = self.settled(backend, clock, order.ref, "ready")
        assert backend.ensure(order).state == "ready"
        after = backend.observe(order.ref)
        assert (after.since, after.in_place_since, after.places) == (before.since, before.in_place_since, before.places)
        assert [s.ref for s in backend.strays()].count(order.ref) == 1
        self.gone(backend, clock, order.ref)

    def test_asking_at_the_same_moment_makes_one(
        self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]
    ) -> None:
        order = self.order(clock, nodes[0])

        def ask(_: int) -> str:
            try:
                return backend.ensure(order).state
            except BackendError as e:
                return "" if e.transient else e.kind

        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(ask, range(4))) <= {"preparing", "ready", ""}
        backend.ensure(order)
        self.settled(backend, clock, order.ref, "ready")
        assert [s.ref for s in backend.strays()].count(order.ref) == 1
        self.gone(backend, clock, order.ref)

    def test_a_longer_window(self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]) -> None:
        order = self.order(clock, nodes[0])
        before = self.started(backend, clock, order)
        window = Window(order.window.start, order.window.end + self.length)
        longer = self.order(clock, nodes[0], ref=order.ref, window=window)
        if "end" in self.can(backend).in_place:
            backend.ensure(longer)
            after = self.settled(backend, clock, order.ref, "ready")
            assert after.in_place_since == before.in_place_since
            assert after.window in (None, window)
            clock.move_to(order.window.end)
            assert backend.observe(order.ref).state == "ready"
        else:
            self.refused("unsupported", lambda: backend.ensure(longer))
            assert backend.observe(order.ref).state == "ready"
        self.gone(backend, clock, order.ref)

    def test_units_of_another_are_a_conflict_and_nothing_changes(
        self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]
    ) -> None:
        if self.can(backend).enforcement != "hard":
            pytest.skip("this cluster only limits, it does not hold units")
        first = self.order(clock, nodes[0])
        backend.ensure(first)
        self.settled(backend, clock, first.ref, "ready")
        second = self.order(clock, nodes[0], nodes[1])
        self.refused("conflict", lambda: backend.ensure(second))
        assert backend.observe(second.ref).state == "absent"
        assert backend.observe(first.ref).state == "ready"
        alone = self.order(clock, nodes[1])  # the half that was free has stayed free
        backend.ensure(alone)
        self.gone(backend, clock, first.ref)
        self.gone(backend, clock, alone.ref)

    def test_windows_that_touch_are_no_conflict(
        self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]
    ) -> None:
        first = self.order(clock, nodes[0])
        second = self.order(clock, nodes[0], window=Window(first.window.end, first.window.end + self.length))
        backend.ensure(first)
        assert backend.ensure(second).state in ("preparing", "ready")
        self.gone(backend, clock, first.ref)
        self.gone(backend, clock, second.ref)

    def test_orders_that_cannot_be(self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]) -> None:
        past = Window(clock() - timedelta(hours=2), clock() - timedelta(hours=1))
        for kind, order in (
            ("not_found", self.order(clock, Place("there-is-no-such-node", (0,)))),
            ("invalid", self.order(clock)),
            ("invalid", self.order(clock, nodes[0], window=past)),
        ):
            self.refused(kind, lambda order=order: backend.ensure(order))  # type: ignore[misc]
            assert backend.observe(order.ref).state == "absent"
            assert order.ref not in {s.ref for s in backend.strays()}

    def test_part_of_a_node(self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]) -> None:
        if len(nodes[0].gpus) < 2:
            pytest.skip("the node has one GPU")
        part = self.order(clock, Place(nodes[0].node, nodes[0].gpus[:1]))
        if not self.can(backend).partial_nodes:
            self.refused("unsupported", lambda: backend.ensure(part))
            assert backend.observe(part.ref).state == "absent"
            return
        rest = self.order(clock, Place(nodes[0].node, nodes[0].gpus[1:]))
        backend.ensure(part)
        backend.ensure(rest)
        self.settled(backend, clock, part.ref, "ready")
        self.settled(backend, clock, rest.ref, "ready")
        self.gone(backend, clock, part.ref)
        self.gone(backend, clock, rest.ref)

    # --- taking down --------------------------------------------------------------------------------------------------

    def test_released_it_is_gone_and_stays_gone(
        self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]
    ) -> None:
        order = self.order(clock, nodes[0])
        self.started(backend, clock, order)
        clock.move(self.length / 4)
        assert backend.release(order.ref).state in ("ending", "gone")
        gone = self.settled(backend, clock, order.ref, "gone")
        assert gone.empty_since is not None
        assert order.window.start <= gone.empty_since <= clock()
        assert backend.release(order.ref).state == "gone"
        assert order.ref not in {s.ref for s in backend.strays()}
        self.refused("not_found", lambda: backend.access(order.ref, self.people[0]))

    def test_released_before_the_start(self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]) -> None:
        order = self.order(clock, nodes[0])
        backend.ensure(order)
        gone = self.gone(backend, clock, order.ref)
        assert gone.empty_since is not None
        self.refused("not_found", lambda: backend.access(order.ref, self.people[0]))

    def test_freed_units_can_be_had_by_another(
        self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]
    ) -> None:
        first = self.order(clock, nodes[0])
        self.started(backend, clock, first)
        self.gone(backend, clock, first.ref)
        second = self.order(clock, nodes[0])
        self.started(backend, clock, second)
        self.gone(backend, clock, second.ref)

    def test_strays_are_ours_alone(self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]) -> None:
        other = self.order(clock, nodes[0], ref=Ref.of("elsewhere", new_id()))
        backend.ensure(other)
        strays = backend.strays()
        assert all(Ref.parse(s.ref.name) for s in strays)
        assert list(strays) == sorted(strays, key=lambda s: s.ref.name)
        assert {s.ref.installation for s in strays if s.ref == other.ref} == {"elsewhere"}
        self.gone(backend, clock, other.ref)

    # --- people and work ----------------------------------------------------------------------------------------------

    def test_access_is_for_its_people(self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]) -> None:
        order = self.order(clock, nodes[0])
        self.started(backend, clock, order)
        access = backend.access(order.ref, self.people[0])
        assert access.user == self.people[0]
        assert access.ways
        assert all(way.title and (way.commands or way.url) for way in access.ways)
        assert (access.credential is None) == (access.expires_at is None)
        if access.credential is not None:
            assert access.expires_at is not None
            assert access.expires_at > clock()
            assert access.credential not in repr(access)
        self.refused("permission", lambda: backend.access(order.ref, "nobody-of-this-booking"))
        self.gone(backend, clock, order.ref)

    def test_a_workload_is_launched_once_and_stopped(
        self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]
    ) -> None:
        order = self.order(clock, nodes[0])
        workload = Workload("w1", "notebook", user=self.people[0], gpus=1)
        if not self.can(backend).launch:
            self.started(backend, clock, order)
            self.refused("unsupported", lambda: backend.launch(order.ref, workload))
            self.gone(backend, clock, order.ref)
            return
        self.refused("not_found", lambda: backend.launch(order.ref, workload))
        self.started(backend, clock, order)
        assert backend.launch(order.ref, workload).state in ("waiting", "running")
        assert backend.launch(order.ref, workload).id == "w1"
        clock.move(self.length / 4)
        units = order.units
        self.refused(
            "capacity", lambda: backend.launch(order.ref, Workload("w2", "training", self.people[0], gpus=units))
        )
        stopped = backend.stop(order.ref, "w1")
        assert stopped.ended is not None
        assert backend.stop(order.ref, "w1").ended == stopped.ended
        self.refused("not_found", lambda: backend.stop(order.ref, "never-launched"))
        self.gone(backend, clock, order.ref)

    # --- use ----------------------------------------------------------------------------------------------------------

    def test_samples_cover_the_booking_once(
        self, backend: Backend, clock: MovableClock, nodes: tuple[Place, ...]
    ) -> None:
        can = self.can(backend)
        if not can.metrics:
            pytest.skip("this cluster has no metrics")
        order = self.order(clock, nodes[0], nodes[1])
        self.started(backend, clock, order)
        if can.launch:
            backend.launch(order.ref, Workload("w1", "training", user=self.people[0]))
        clock.move(self.length / 2)
        now = clock().replace(microsecond=0)
        usage = backend.usage(order.ref, order.window.start - self.lead, now + self.length, 60)
        assert usage.until <= now
        ours = {(p.node, g) for p in order.places for g in p.gpus}
        assert {(s.node, s.gpu) for s in usage.samples} == ours
        for unit in ours:
            mine = [s for s in usage.samples if (s.node, s.gpu) == unit]
            assert mine[0].at >= order.window.start
            for earlier, later in pairwise(mine):
                assert earlier.at + timedelta(seconds=earlier.seconds) <= later.at
            assert mine[-1].at + timedelta(seconds=mine[-1].seconds) <= usage.until
        for s in usage.samples:
            assert 0 < s.seconds <= 60
            assert s.utilisation is None or 0 <= s.utilisation <= 1
            assert s.power_w is None or s.power_w >= 0
        if can.launch:
            assert [w.id for w in usage.workloads] == ["w1"]
            assert any(s.in_use for s in usage.samples)
        for step in (0, 59, 901):
            self.refused("invalid", lambda step=step: backend.usage(order.ref, order.window.start, now, step))  # type: ignore[misc]
        self.gone(backend, clock, order.ref)
        later = backend.usage(order.ref, order.window.start, usage.until, 60)
        assert later.samples == tuple(s for s in usage.samples if s.at >= order.window.start)

    def can(self, backend: Backend) -> Any:
        """Its capabilities."""
        capabilities = backend.probe().capabilities
        assert capabilities is not None
        return capabilities


# --- doubles ----------------------------------------------------------------------------------------------------------


class _Wrapping:
    """All verbs of a backend, each through `_meet`."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.limit_seconds = backend.limit_seconds

    def _meet(self, verb: str, act: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def probe(self) -> Probe:
        return self._meet("probe", self.backend.probe)

    def inventory(self) -> Inventory:
        return self._meet("inventory", self.backend.inventory)

    def ensure(self, order: Order) -> Observation:
        return self._meet("ensure", lambda: self.backend.ensure(order))

    def observe(self, ref: Ref) -> Observation:
        return self._meet("observe", lambda: self.backend.observe(ref))

    def release(self, ref: Ref) -> Observation:
        return self._meet("release", lambda: self.backend.release(ref))

    def launch(self, ref: Ref, workload: Workload) -> WorkloadSeen:
        return self._meet("launch", lambda: self.backend.launch(ref, workload))

    def stop(self, ref: Ref, workload_id: str) -> WorkloadSeen:
        return self._meet("stop", lambda: self.backend.stop(ref, workload_id))

    def access(self, ref: Ref, user: str) -> Access:
        return self._meet("access", lambda: self.backend.access(ref, user))

    def usage(self, ref: Ref, since: datetime, until: datetime, step: int) -> Usage:
        return self._meet("usage", lambda: self.backend.usage(ref, since, until, step))

    def strays(self) -> tuple[Stray, ...]:
        return self._meet("strays", self.backend.strays)


class Faulty(_Wrapping):
    """A backend whose next calls fail as told: refused before they act, or their answer lost after it.

    `calls` counts what was asked of it, `acted` what reached the backend behind.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.calls = dict.fromkeys(VERBS, 0)
        self.acted = dict.fromkeys(VERBS, 0)
        self._refusals: dict[str, list[ErrorKind]] = {}
        self._losses: dict[str, list[ErrorKind]] = {}

    def refuse(self, verb: str, kind: ErrorKind = "unreachable", times: int = 1) -> Faulty:
        """The next `times` calls of the verb raise this and do nothing."""
        assert verb in VERBS
        assert kind in ERROR_KINDS
        self._refusals.setdefault(verb, []).extend([kind] * times)
        return self

    def lose_answer(self, verb: str, kind: ErrorKind = "timeout", times: int = 1) -> Faulty:
        """The next `times` calls of the verb act and then raise this."""
        assert verb in VERBS
        assert kind in ("timeout", "unreachable")
        self._losses.setdefault(verb, []).extend([kind] * times)
        return self

    def _meet(self, verb: str, act: Callable[[], Any]) -> Any:
        self.calls[verb] += 1
        if self._refusals.get(verb):
            raise BackendError(self._refusals[verb].pop(0), "The cluster refused this call.", "double")
        answer = act()
        self.acted[verb] += 1
        if self._losses.get(verb):
            raise BackendError(self._losses[verb].pop(0), "The cluster's answer was lost.", "double")
        return answer


class Slow(_Wrapping):
    """A backend whose calls take `seconds` of the wall clock before they act; from its limit on they end in timeout.

    `wait` is how time passes: a test hands in one that only counts.
    """

    def __init__(
        self, backend: Backend, seconds: float, wait: Callable[[float], object], verbs: Iterable[str] = VERBS
    ) -> None:
        super().__init__(backend)
        self.seconds, self.wait, self.verbs = seconds, wait, frozenset(verbs)

    def _meet(self, verb: str, act: Callable[[], Any]) -> Any:
        if verb in self.verbs:
            self.wait(min(self.seconds, self.limit_seconds))
            if self.seconds >= self.limit_seconds:
                raise BackendError("timeout", "The cluster did not answer in time.", "double")
        return act()


class Never(_Wrapping):
    """A cluster that accepts calls and never answers: every verb waits out its limit and acts on nothing."""

    def __init__(self, backend: Backend, wait: Callable[[float], object]) -> None:
        super().__init__(backend)
        self.wait = wait

    def _meet(self, verb: str, act: Callable[[], Any]) -> Any:
        self.wait(self.limit_seconds)
        raise BackendError("timeout", "The cluster did not answer in time.", "double")
