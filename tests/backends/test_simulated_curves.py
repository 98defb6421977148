"""What the simulated cards measure: within bounds, like the work that runs on them, the same however it is asked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from statistics import fmean

import pytest

from app.backends.contract import Order, Sample
from app.backends.simulated import NodeSpec, SimulatedBackend
from app.backends.testing import MovableClock
from app.kernel.window import Window

Orders = Callable[..., Order]


@pytest.fixture
def day(backend: SimulatedBackend, clock: MovableClock, order: Orders) -> Callable[[str], list[Sample]]:
    """A day of a kind of work on eight GPUs, by the minute, without its first half hour."""

    def day(kind: str) -> list[Sample]:
        made = order("n0", hours=24, workload=kind)
        backend.ensure(made)
        clock.move_to(made.window.end)
        since = made.window.start + timedelta(minutes=30)
        return [s for s in backend.usage(made.ref, since, made.window.end, 60).samples if s.in_use]

    return day


def means(samples: list[Sample]) -> tuple[float, float, float, float]:
    """Utilisation, memory (GB), power (W), temperature (C)."""
    columns = zip(*((s.utilisation, s.memory_gb, s.power_w, s.temperature_c) for s in samples), strict=True)
    return tuple(fmean(c) for c in columns)  # type: ignore[return-value, arg-type]


def test_training_is_busy_warm_and_full(day: Callable[[str], list[Sample]]) -> None:
    samples = day("training")
    use, memory, power, heat = means(samples)
    assert 0.88 < use < 0.97
    assert 60 < memory < 82
    assert 560 < power < 690
    assert 60 < heat < 80
    plateau = sorted(s.utilisation or 0 for s in samples)[len(samples) // 2]
    assert 0.93 < plateau < 0.975
    dips = sum(1 for s in samples if (s.utilisation or 0) < 0.7) / len(samples)
    assert 0.01 < dips < 0.1, "it saves checkpoints now and then"


def test_a_notebook_comes_in_bursts(day: Callable[[str], list[Sample]]) -> None:
    samples = day("notebook")
    use, _, power, heat = means(samples)
    assert 0.08 < use < 0.45
    assert power < 400
    assert heat < 55
    quiet = sum(1 for s in samples if (s.utilisation or 0) < 0.02) / len(samples)
    assert 0.35 < quiet < 0.85


def test_inference_follows_the_hour(day: Callable[[str], list[Sample]]) -> None:
    samples = day("inference")
    noon = means([s for s in samples if 12 <= s.at.hour < 18])[0]
    night = means([s for s in samples if 1 <= s.at.hour < 5])[0]
    assert noon > 2 * night


def test_idle_work_computes_nothing(day: Callable[[str], list[Sample]]) -> None:
    use, memory, power, heat = means(day("idle"))
    assert use == 0
    assert memory < 2
    assert 60 < power < 95
    assert heat < 40


@pytest.mark.parametrize("kind", ["training", "notebook", "inference", "shell", "job", "idle"])
def test_bounds(kind: str, day: Callable[[str], list[Sample]]) -> None:
    for s in day(kind):
        assert s.utilisation is not None
        assert 0 <= s.utilisation <= 1
        assert s.memory_gb is not None
        assert 0 < s.memory_gb < 85.6
        assert s.power_w is not None
        assert 30 < s.power_w <= 700
        assert s.temperature_c is not None
        assert 15 <= s.temperature_c < 90


def test_heat_lags_behind_work(backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
    made = order("n0", hours=2, workload="training")
    backend.ensure(made)
    clock.move_to(made.window.end)
    usage = backend.usage(made.ref, made.window.start, made.window.end, 60)
    mine = [s for s in usage.samples if s.gpu == 0]
    (run,) = usage.workloads
    assert run.started is not None
    heat = {int((s.at - run.started).total_seconds()): s.temperature_c or 0.0 for s in mine if s.in_use}
    cold, plateau = mine[0].temperature_c or 0.0, max(heat.values())
    early = min(t for t in heat if t >= 60)
    assert cold + 3 < heat[early] < plateau - 8


def test_cards_and_bookings_differ(day: Callable[[str], list[Sample]]) -> None:
    samples = day("training")
    by_card = {g: [s.power_w for s in samples if s.gpu == g] for g in range(8)}
    assert len({tuple(v) for v in by_card.values()}) == 8


def test_coarse_samples_are_means_of_fine_ones(backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
    made = order("n0", gpus=(0, 1), hours=6, workload="training")
    backend.ensure(made)
    clock.move_to(made.window.end)
    ask = lambda step: backend.usage(made.ref, made.window.start, made.window.end, step).samples  # noqa: E731
    fine, coarse = ask(60), ask(900)
    for c in coarse:
        parts = [f for f in fine if f.gpu == c.gpu and c.at <= f.at < c.at + timedelta(seconds=c.seconds)]
        assert sum(p.seconds for p in parts) == c.seconds
        for column in ("utilisation", "power_w", "temperature_c", "memory_gb"):
            mean = sum(getattr(p, column) * p.seconds for p in parts) / c.seconds
            assert getattr(c, column) == pytest.approx(mean, abs=0.1)
        assert {p.in_use for p in parts} == {c.in_use}


def test_asked_in_parts_or_at_once(backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
    made = order("n0", gpus=(3,), workload="notebook")
    backend.ensure(made)
    window = made.window
    parts: list[Sample] = []
    since = window.start
    for minutes in (7, 31, 60, 90, 130):
        clock.move_to(window.start + timedelta(minutes=minutes))
        part = backend.usage(made.ref, since, clock(), 60)
        parts += part.samples
        since = part.until
    assert tuple(parts) == backend.usage(made.ref, window.start, window.end, 60).samples
    odd = window.start + timedelta(minutes=40, seconds=17)
    split = (
        *backend.usage(made.ref, window.start, odd, 900).samples,
        *backend.usage(made.ref, odd, window.end, 900).samples,
    )
    assert sum(s.seconds for s in split) == window.seconds
    whole = backend.usage(made.ref, window.start, window.end, 900).samples
    for column in ("utilisation", "power_w"):
        total = [sum(getattr(s, column) * s.seconds for s in some) for some in (split, whole)]
        assert total[0] == pytest.approx(total[1], rel=1e-3)


def test_another_seed_gives_another_life(
    tmp_path_factory: pytest.TempPathFactory, clock: MovableClock, order: Orders, specs: tuple[NodeSpec, ...]
) -> None:
    made, told = order("n0", workload="training"), []
    backends = [
        SimulatedBackend({"path": tmp_path_factory.mktemp("s") / "log", "seed": seed}, clock) for seed in (1, 1, 2)
    ]
    for b in backends:
        b.define(specs)
        b.ensure(made)
    clock.move_to(made.window.end)
    for b in backends:
        told.append(b.usage(made.ref, made.window.start, made.window.end, 60))
        b.close()
    assert told[0] == told[1]
    assert told[0].samples != told[2].samples


def test_what_is_not_known_of_a_node_is_not_made_up(
    backend: SimulatedBackend, clock: MovableClock, order: Orders
) -> None:
    backend.define([NodeSpec("bare", "T4", 1)])
    made = order("bare", gpus=(0,), workload="training")
    backend.ensure(made)
    clock.move_to(made.window.end)
    for s in backend.usage(made.ref, made.window.start, made.window.end, 900).samples:
        assert (s.memory_gb, s.power_w) == (None, None)
        assert s.utilisation is not None


def test_nothing_is_measured_outside_the_booking(backend: SimulatedBackend, clock: MovableClock, order: Orders) -> None:
    made = order("n0", gpus=(0,), workload="training")
    backend.ensure(made)
    far = Window(made.window.start - timedelta(days=1), made.window.end + timedelta(days=1))
    assert backend.usage(made.ref, far.start, far.end, 900).samples == ()
    clock.move_to(made.window.start + timedelta(minutes=20))
    usage = backend.usage(made.ref, far.start, far.end, 900)
    assert usage.until == clock()
    assert sum(s.seconds for s in usage.samples) == 1200
    backend.release(made.ref)
    clock.move_to(far.end)
    assert sum(s.seconds for s in backend.usage(made.ref, far.start, far.end, 900).samples) == 1200
