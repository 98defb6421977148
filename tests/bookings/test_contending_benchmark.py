"""The benchmark of many clients at once runs, and nobody in it is shown a deadlock."""

from __future__ import annotations

from benchmarks import contending


def test_the_benchmark_of_contending_clients_runs_small() -> None:
    figures = contending.run("small")
    assert figures["deadlocks"] == 0
    assert figures["use_case_per_s"] > 0
    assert figures["alternatives_ms"] > 0
