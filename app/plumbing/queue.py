"""Sends tasks by name, after commit. A message is a hint: losing it costs one sweep, so a silent broker stops nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Full
from queue import Queue as Waiting
from typing import Any, Protocol

from app.kernel.clock import monotonic
from app.plumbing.db import Work
from app.plumbing.log import get_log

log = get_log("queue")

QUIET = 5.0
"""Seconds for which nothing is tried after the broker has failed: as long as a sweep takes to find the work itself."""
_MOST_WAITING = 1000
_PATIENCE = 1.0
"""Seconds that a process which ends gives its last messages."""


class Queue(Protocol):
    """What can send a task by name."""

    def send(self, name: str, *args: Any) -> None:
        """Send soon. Never raises and never waits: the row is the truth."""

    def close(self) -> None:
        """Nothing is sent any more."""


class NoQueue:
    """For use cases whose caller works off what is due by itself: tests, the demo's history."""

    def send(self, name: str, *args: Any) -> None:
        """Nothing leaves."""

    def close(self) -> None:
        """There is nothing to end."""


class CeleryQueue:
    """Sends through the broker. Tasks of a name that begins with `reconcile.` go to the queue of backend calls.

    One thread of the process's own talks to the broker, so whoever sends never waits for it. Once the broker has
    failed, messages are dropped for `QUIET` seconds, those in hand too. `now` counts seconds.
    """

    def __init__(self, redis_url: str, now: Callable[[], float] = monotonic) -> None:
        from celery import Celery

        self._celery = Celery("berth", broker=redis_url)
        self._celery.conf.update(
            broker_connection_retry_on_startup=False,
            broker_transport_options={"socket_timeout": 2, "socket_connect_timeout": 2},
            task_ignore_result=True,
        )
        self._now = now
        self._quiet_until = float("-inf")
        self._waiting: Waiting[tuple[str, tuple[Any, ...]] | None] = Waiting(_MOST_WAITING)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def send(self, name: str, *args: Any) -> None:
        """Hand it to the thread that sends; dropped while the broker is known not to answer."""
        if self._quiet():
            return
        self._start()
        try:
            self._waiting.put_nowait((name, args))
        except Full:
            log.warning("message not sent, the sweep will find the work", task=name, error="too many wait")

    def close(self) -> None:
        """Send what waits, for a second at most."""
        thread = self._thread
        if thread is None:
            return
        try:
            self._waiting.put_nowait(None)
        except Full:
            return  # the broker has not answered for a long time: the thread ends with the process
        thread.join(_PATIENCE)

    def _quiet(self) -> bool:
        return self._now() < self._quiet_until

    def _start(self) -> None:
        """With the first message: a process that was forked before has its own thread."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="berth-queue", daemon=True)
                self._thread.start()

    def _send_all(self) -> None:
        while (message := self._waiting.get()) is not None:
            if not self._quiet():
                self._send(*message)
            self._waiting.task_done()

    def _send(self, name: str, args: tuple[Any, ...]) -> None:
        to = "backend" if name.startswith("reconcile.") else "default"
        try:
            self._celery.send_task(name, args=args, queue=to, retry=False, ignore_result=True)
        except Exception as error:  # the broker may fail in many ways; the sweep finds the row in all of them
            self._quiet_until = self._now() + QUIET
            log.warning("message not sent, the sweep will find the work", task=name, error=str(error))


def send_after_commit(work: Work, queue: Queue, name: str, *args: Any) -> None:
    """Send once the transaction is safely written; nothing is sent when it is rolled back."""
    work.after_commit(lambda: queue.send(name, *args))
