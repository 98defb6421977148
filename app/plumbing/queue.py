"""Sends tasks by name, after commit. A message is a hint: losing it costs one sweep, so a silent broker stops nobody."""

from __future__ import annotations

from typing import Any, Protocol

from app.plumbing.db import Work
from app.plumbing.log import get_log

log = get_log("queue")


class Queue(Protocol):
    """What can send a task by name."""

    def send(self, name: str, *args: Any) -> None:
        """Send now. Never raises: the row is the truth."""


class NoQueue:
    """For use cases whose caller works off what is due by itself: tests, the demo's history."""

    def send(self, name: str, *args: Any) -> None:
        """Nothing leaves."""


class CeleryQueue:
    """Sends through the broker. Tasks of a name that begins with `reconcile.` go to the queue of backend calls."""

    def __init__(self, redis_url: str) -> None:
        from celery import Celery

        self._celery = Celery("berth", broker=redis_url)
        self._celery.conf.update(
            broker_connection_retry_on_startup=False,
            broker_transport_options={"socket_timeout": 2, "socket_connect_timeout": 2},
            task_ignore_result=True,
        )

    def send(self, name: str, *args: Any) -> None:
        """Send without waiting for more than two seconds."""
        queue = "backend" if name.startswith("reconcile.") else "default"
        try:
            self._celery.send_task(name, args=args, queue=queue, retry=False, ignore_result=True)
        except Exception as error:  # the broker may fail in many ways; the sweep finds the row in all of them
            log.warning("message not sent, the sweep will find the work", task=name, error=str(error))


def send_after_commit(work: Work, queue: Queue, name: str, *args: Any) -> None:
    """Send once the transaction is safely written; nothing is sent when it is rolled back."""
    work.after_commit(lambda: queue.send(name, *args))
