"""Sixty-four clients that book at once, all of them in one pool and under the same limits, with 100,000 bookings there.

Each books 8 units of one node for an hour, every booking at an hour of its own, so that what they contend for are the
locks. The use case
in one process with 64 threads, against the statements of the same bookings by psycopg on 64 connections (pipelined, their
places found before the watch runs): `to_floor_ratio` is bookings a second of the one over the other. `deadlocks` counts
those that anybody was shown, of either.

`alternatives_ms` is what would work instead, for a request that is refused in that pool: the median beside the median of
the quote that refuses it (`refused_ms`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from datetime import timedelta
from statistics import median
from typing import Any

import psycopg
from psycopg.errors import DeadlockDetected

from app.bookings import alternatives, offers
from app.bookings.actions import quote
from app.bookings.schemas import Ask, BookingIn
from app.kernel.actor import Actor
from app.kernel.clock import monotonic
from app.kernel.errors import Refused
from benchmarks.booking import DAYS, bare, fill, site, use_case
from tests.world import H100, START, World

NAME = "contending"
SIZES = {"full": (776, 100_000, 64, 5, 20), "small": (60, 800, 8, 2, 3)}
"""Nodes, bookings there already, clients, bookings of each, refused requests."""


def run(size: str = "full") -> dict[str, float]:
    """Figures as the module says."""
    nodes, present, clients, each, refused = SIZES[size]
    with site(nodes) as (world, superuser_url), ExitStack() as stack:
        fill(superuser_url, world, nodes, present)
        actor = world.actor("physics-member")
        # an hour for each booking: places are found before anything is written, and none may be found twice
        hours = random.Random(7).sample(range(1, DAYS * 24 - 2), clients * each)
        asks = [[_ask(hour, client) for hour in hours[client * each :][:each]] for client in range(clients)]
        url = world.plumbing.settings.database_url
        connections = [
            stack.enter_context(closing(psycopg.connect(url, options="-c timezone=UTC"))) for _ in range(clients)
        ]
        floor = [
            [bare(world, actor, body, connection, pipelined=True) for body in bodies]
            for bodies, connection in zip(asks, connections, strict=True)
        ]
        floor_per_s, floor_deadlocks = _together(floor)
        ours = [[lambda body=body: use_case(world, actor, body) for body in bodies] for bodies in asks]
        ours_per_s, our_deadlocks = _together(ours)
        refused_ms, alternatives_ms = _refused(world, actor, refused, nodes)
    return {
        "clients": clients,
        "bookings_each": each,
        "floor_per_s": floor_per_s,
        "use_case_per_s": ours_per_s,
        "to_floor_ratio": ours_per_s / floor_per_s,
        "deadlocks": floor_deadlocks + our_deadlocks,
        "refused_ms": refused_ms,
        "alternatives_ms": alternatives_ms,
    }


def _ask(hour: int, client: int) -> dict[str, Any]:
    """One node for an hour."""
    start = START + timedelta(hours=hour)
    return {"project": "plasma", "name": f"Client {client}", "kind": H100, "units": 8, "within": "node",
            "start": start.isoformat(), "duration": "PT1H"}  # fmt: skip


def _together(work: Sequence[Sequence[Callable[[], None]]]) -> tuple[float, int]:
    """Bookings a second of as many threads as there are lists of them, all beginning at once; deadlocks seen."""
    ready = threading.Barrier(len(work) + 1)
    failures: list[BaseException] = []
    deadlocks = 0
    counting = threading.Lock()

    def act(deeds: Sequence[Callable[[], None]]) -> None:
        nonlocal deadlocks
        ready.wait()
        for deed in deeds:
            try:
                deed()
            except DeadlockDetected:
                with counting:
                    deadlocks += 1
            except BaseException as error:  # raised again below
                failures.append(error)
                return

    threads = [threading.Thread(target=act, args=(deeds,)) for deeds in work]
    for thread in threads:
        thread.start()
    ready.wait()
    began = monotonic()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(map(len, work)) / (monotonic() - began), deadlocks


def _refused(world: World, actor: Actor, many: int, nodes: int) -> tuple[float, float]:
    """Medians: the quote that refuses a request for most of the pool, and what would work instead."""
    whole, alone = [], []
    chance = random.Random(11)
    for _ in range(many):
        start = START + timedelta(hours=chance.randrange(1, DAYS * 24 - 8))
        ask = Ask.of(BookingIn.model_validate(
            {"project": "plasma", "kind": H100, "nodes": nodes - 2, "per_node": 8, "start": start.isoformat(), "duration": "PT4H"}
        ))  # fmt: skip
        with world.plumbing.database.work(actor.tenant_id) as work:
            began = monotonic()
            try:
                quote(work, actor, ask)
            except Refused as refused:
                whole.append((monotonic() - began) * 1000)
                desk = offers.open_desk(work, actor, ask.project, ask.exactly)
                bare_refusal = Refused(type(refused.refusal)(refused.refusal.reasons))
                began = monotonic()
                found = alternatives.explain(desk, ask, bare_refusal)
                alone.append((monotonic() - began) * 1000)
                if not found.refusal.alternatives:
                    raise RuntimeError("a refusal without an alternative measures nothing") from None
            else:
                raise RuntimeError("a request that was to be refused fits")
    return median(whole), median(alone)
