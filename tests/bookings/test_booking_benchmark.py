"""The benchmark of booking runs, and every way of booking in it books: no figure of something that was refused."""

from __future__ import annotations

from benchmarks import booking


def test_the_benchmark_of_booking_runs_small() -> None:
    figures = booking.run("small")
    present = booking.SIZES["small"][1]
    assert figures["bookings_present"] == present
    assert figures["holds_present"] > 0.5 * present
    assert all(value > 0 for value in figures.values())
    assert {"to_bare_ratio", "to_pipelined_ratio", "http_ms", "threads_per_s", "connections_per_s"} <= set(figures)
