"""What one process is made of: settings, database, queue, clocks, broker, backends. Web and workers build it alike.

Knows how to put the parts together and nothing of what they are used for. Building opens no connection except the one
that looks at the database's role: a process whose role passes row-level security does not start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import redis

from app.kernel.clock import Clock, wall_now
from app.plumbing.db import Database, make_engine, refuse_dangerous_role
from app.plumbing.queue import CeleryQueue, Queue
from app.settings import Settings, WrongSettings


@dataclass(frozen=True, slots=True)
class Plumbing:
    """The parts of one process, frozen. Whoever made it closes it."""

    settings: Settings
    database: Database
    queue: Queue
    wall: Clock
    redis: redis.Redis
    """For rate limits and live updates: whatever lives there may vanish at any moment."""
    backends: Callable[[], Any]
    """Answers the registry of backends; called when one is needed, so that the web starts without loading any."""

    def close(self) -> None:
        """Give connections back."""
        self.queue.close()
        self.database.close()
        self.redis.close()


def make_plumbing(settings: Settings, *, queue: Queue | None = None, wall: Clock = wall_now) -> Plumbing:
    """Build the parts for the app's role. Raises `DangerousRole` for a role that must not run web or workers."""
    if not settings.database_url or not settings.redis_url:
        raise WrongSettings("DATABASE_URL and REDIS_URL have to be set; `berth up` sets them for the embedded servers")
    engine = make_engine(settings.database_url)
    try:
        with engine.connect() as connection:
            refuse_dangerous_role(connection.connection.driver_connection)
    except BaseException:
        engine.dispose()
        raise
    return Plumbing(
        settings=settings,
        database=Database(engine, wall),
        queue=queue or CeleryQueue(settings.redis_url),
        wall=wall,
        redis=redis.Redis.from_url(settings.redis_url, socket_timeout=0.5, socket_connect_timeout=0.5),
        backends=_backends,
    )


def _backends() -> Any:
    """`app.backends.registry`, loaded when somebody asks for it."""
    if find_spec("app.backends.registry") is None:
        raise RuntimeError("this installation has no registry of backends")
    return import_module("app.backends.registry")
