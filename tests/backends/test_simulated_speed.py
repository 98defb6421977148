"""Ratios measured within one run: how a call's time grows with what is there, and what a fold costs over its bytes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from app.backends.contract import Order, Place, Ref
from app.backends.simulated import NodeSpec, SimulatedBackend
from app.backends.testing import MovableClock
from app.kernel.clock import monotonic
from app.kernel.window import Window

NODES = 1213


def order(clock: MovableClock, number: int, slot: int) -> Order:
    """Booking `number` on one GPU of its own; 8 a node, then the next hour."""
    node, gpu, hour = slot % NODES, slot // NODES % 8, slot // NODES // 8
    start = clock() + timedelta(hours=1 + hour)
    places = (Place(f"n{node:04}", (gpu,)),)
    window = Window(start, start + timedelta(hours=1))
    return Order(Ref.of("speed", UUID(int=number + 1)), "p", "p", places, window, ("ann",))


def filled(folder: Path, clock: MovableClock, count: int) -> SimulatedBackend:
    """A cluster with `count` bookings, written into its log in one go in the words of a booking made the usual way."""
    backend = SimulatedBackend({"path": folder / f"log-{count}.sqlite"}, clock)
    backend.define(NodeSpec(f"n{i:04}", "H100", 8) for i in range(NODES))
    backend.ensure(order(clock, 0, 0))
    line = backend.entries()[-1]
    rows = []
    for i in range(1, count):
        o = order(clock, i, i)
        body = json.loads(json.dumps(dict(line.body)))
        body["order"]["places"] = [[o.places[0].node, list(o.places[0].gpus)]]
        body["order"]["start"], body["order"]["end"] = (int(t.timestamp()) for t in (o.window.start, o.window.end))
        rows.append((line.at, o.ref.name, json.dumps(body)))
    with sqlite3.connect(backend.path) as db:
        db.executemany("INSERT INTO log (at, ref, command, acted, body) VALUES (?, ?, 'ensure', 1, ?)", rows)
    db.close()
    return backend


def best(act: Callable[[int], object], rounds: int = 5, calls: int = 40) -> float:
    """Seconds of the quickest round."""
    times = []
    for r in range(rounds):
        began = monotonic()
        for i in range(calls):
            act(r * calls + i)
        times.append(monotonic() - began)
    return min(times)


def test_a_call_does_not_grow_with_the_cluster(tmp_path: Path) -> None:
    clock = MovableClock()
    few, many = filled(tmp_path, clock, 100), filled(tmp_path, clock, 10_000)
    try:
        for backend in (few, many):
            backend.observe(order(clock, 0, 0).ref)
        observe = [best(lambda i, b=b: b.observe(order(clock, i % 100, 0).ref)) for b in (few, many)]
        ensure = [best(lambda i, b=b: b.ensure(order(clock, 90_000 + i, 30_000 + i))) for b in (few, many)]
        release = [best(lambda i, b=b: b.release(order(clock, 90_000 + i, 0).ref)) for b in (few, many)]
        assert observe[1] < 5 * observe[0]
        assert ensure[1] < 5 * ensure[0]
        assert release[1] < 5 * release[0]
    finally:
        few.close()
        many.close()


def test_opening_costs_a_few_readings_of_the_log(tmp_path: Path) -> None:
    clock = MovableClock()
    backend = filled(tmp_path, clock, 5_000)
    try:
        lines = [json.dumps(dict(e.body)) for e in backend.entries()]
        reading = best(lambda i: [json.loads(line) for line in lines], calls=1)

        def reopen(i: int) -> None:
            backend.close()
            backend.observe(order(clock, 0, 0).ref)

        assert best(reopen, calls=1) < 15 * reading
        assert len(backend.strays()) == 5_000
    finally:
        backend.close()
