"""Fetches measurements of the demo's history in a process beside the one that lives it: both cores have something to do.

What it collects is what the rounds would collect, later: the simulated clusters answer from their logs, and the answer
for a time that is over does not depend on when one asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection

from psycopg import OperationalError
from sqlalchemy.exc import DBAPIError

from app.backends.contract import Backend
from app.inventory import queries as inventory
from app.inventory.connections import backend_of
from app.plumbing.db import Work
from app.plumbing.queue import NoQueue
from app.plumbing.runtime import Plumbing, make_plumbing
from app.settings import Settings
from app.usage import queries as usage
from app.usage import reconcile as collecting

WAITED = timedelta(days=2)
"""By then nearly every booking is over, and is asked for once."""
FINE_FOR = timedelta(hours=3)
"""How young measurements are when every minute of them is kept."""
_PAUSE = 0.3


@contextmanager
def measured_beside(settings: Settings) -> Iterator[None]:
    """While the block runs measurements are collected by another process, which ends with it, or with this one."""
    context = get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    beside = context.Process(target=measure, args=(settings, theirs), name="measuring", daemon=True)
    beside.start()
    theirs.close()
    try:
        yield
    finally:
        ours.close()
        beside.join()


def measure(settings: Settings, over: Connection) -> None:
    """Collect what has been due for a while, until the other end of `over` is closed or whoever has it is gone."""
    plumbing = make_plumbing(settings, queue=NoQueue())
    try:
        pause = 0.0
        while not over.poll(pause):
            pause = 0.0 if collect(plumbing, WAITED) else _PAUSE
    except (OperationalError, DBAPIError):
        if not over.poll(0):  # else the database stops because whoever started us has
            raise
    finally:
        plumbing.close()


def collect(plumbing: Plumbing, waited: timedelta) -> int:
    """Collect for some bookings whose measurements have been due for so long; how many they were."""

    def backend_for(work: Work, cluster_id: int) -> Backend:
        return backend_of(plumbing, inventory.cluster_with_id(work, cluster_id))

    with plumbing.database.work() as work:
        found = usage.due_collections(work, work.product_now(), limit=5, waited=waited)
    for tenant_id, booking_id in found:
        collecting.collect_one(plumbing.database, backend_for, tenant_id, booking_id, fine_for=FINE_FOR)
    return len(found)
