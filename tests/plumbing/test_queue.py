"""Messages to a broker that does not answer, refuses, or comes back: whoever sends never waits for it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
import redis

from app.plumbing.queue import QUIET, CeleryQueue

PATIENCE = 30
"""Seconds of the wall clock after which something that has to happen has not."""


class Clock:
    """Seconds that go on when the test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Port:
    """A port of ours that counts who comes. What it does with them is the test's: take and keep silent, or hang up."""

    def __init__(self, *, hang_up: bool) -> None:
        self.came = threading.Semaphore(0)
        self.most, self._hang_up, self._kept = 0, hang_up, []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listening.getsockname()[1]}/0"
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.most += 1
            if self._hang_up:
                connection.close()
            else:
                self._kept.append(connection)
            self.came.release()

    def let_go(self) -> None:
        """Hang up on those who wait."""
        for connection in self._kept:
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._kept.clear()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(PATIENCE)
        self.let_go()


@pytest.fixture
def silent() -> Iterator[Port]:
    port = Port(hang_up=False)
    yield port
    port.close()


@pytest.fixture
def refusing() -> Iterator[Port]:
    port = Port(hang_up=True)
    yield port
    port.close()


def wait_quiet(queue: CeleryQueue) -> None:
    """Until the broker has been found not to answer."""
    for _ in range(PATIENCE * 100):
        if queue._quiet():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it still believes in the broker")


def test_a_broker_that_takes_the_call_and_never_answers_holds_nobody_up(silent: Port) -> None:
    """The proof is the order: a hundred sends are back while the first call is still unanswered."""
    clock = Clock()
    queue = CeleryQueue(silent.url, clock)
    queue.send("reconcile.cluster", 1)
    assert silent.came.acquire(timeout=PATIENCE)
    for number in range(100):
        queue.send("reconcile.cluster", number)
    assert not queue._quiet(), "the first call has failed already: nothing was proven"
    silent.let_go()
    wait_quiet(queue)
    queue.close()
    assert silent.most < 10, "those that waited were tried one by one"


def test_after_a_failure_nothing_is_tried_for_a_while_and_then_again(refusing: Port) -> None:
    clock = Clock()
    queue = CeleryQueue(refusing.url, clock)
    queue.send("sweep")
    wait_quiet(queue)
    before = refusing.most
    clock.seconds = QUIET - 0.1
    for _ in range(20):
        queue.send("sweep")
    assert queue._waiting.empty()
    assert refusing.most == before
    clock.seconds = QUIET
    queue.send("sweep")
    wait_quiet(queue)
    assert refusing.most > before
    queue.close()


def test_a_port_where_nobody_listens_raises_nothing() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        queue = CeleryQueue(f"redis://127.0.0.1:{free.getsockname()[1]}/0", Clock())
        queue.send("sweep")
        wait_quiet(queue)
        queue.close()


def test_a_thousand_that_wait_are_enough(silent: Port) -> None:
    queue = CeleryQueue(silent.url, Clock())
    for number in range(1500):
        queue.send("reconcile.cluster", number)
    assert queue._waiting.qsize() <= 1000
    silent.let_go()
    wait_quiet(queue)


def test_messages_arrive_in_their_queues_and_closing_sends_the_last(valkey_url: str) -> None:
    queue = CeleryQueue(valkey_url)
    with redis.Redis.from_url(valkey_url) as broker:
        broker.delete("backend", "default")
        queue.send("reconcile.cluster", 7)
        queue.send("sweep")
        queue.close()
        assert (broker.llen("backend"), broker.llen("default")) == (1, 1)
        broker.delete("backend", "default")
