"""Sixteen people's programs at once: HTTP connections of their own, each with its token, against real web processes."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.kernel.clock import monotonic

_IDLE_SECONDS = 2.0
_PATIENCE = 5
"""How often a request is sent again that a busy machine could not answer in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: `body` is the JSON, `seconds` from sending to the last byte."""

    status: int
    body: dict[str, Any]
    seconds: float


class Client:
    """One connection, kept open."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._token = token
        self._last = 0.0

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None, key: str | None = None) -> Answer:
        """One request; an answer that is not JSON is an error of the portal's and raises ValueError."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body)
        began = monotonic()
        if began - self._last > _IDLE_SECONDS:
            self._connection.close()  # the server may have closed it by now; asking opens it anew
        self._connection.request(method, path, data, headers)
        response = self._connection.getresponse()
        raw = response.read()
        self._last = monotonic()
        return Answer(response.status, json.loads(raw), self._last - began)

    def close(self) -> None:
        self._connection.close()


class Clients:
    """As many connections as there are tokens, dealt out over the ports."""

    def __init__(self, ports: Sequence[int], tokens: Sequence[str]) -> None:
        self._first = ports[0]
        self._clients = tuple(Client(ports[i % len(ports)], token) for i, token in enumerate(tokens))
        self.asked_again = 0
        """How often the answer was 503, "not now", and the same was asked once more under the same key."""

    def post_all(self, path: str, bodies: Sequence[tuple[str, dict[str, Any]]]) -> list[Answer]:
        """Post (key, body) pairs by all clients at once, each taking the next one; answers in the order of the bodies."""
        answers: list[Answer | None] = [None] * len(bodies)
        failures: list[BaseException] = []
        numbers = iter(range(len(bodies)))
        turn = threading.Lock()

        def work(client: Client) -> None:
            try:
                while not failures:
                    with turn:
                        number = next(numbers, None)
                    if number is None:
                        return
                    key, body = bodies[number]
                    answer = client.ask("POST", path, body, key)
                    for _ in range(_PATIENCE):
                        if answer.status != 503:
                            break
                        with turn:
                            self.asked_again += 1
                        answer = client.ask("POST", path, body, key)
                    answers[number] = answer
            except BaseException as error:  # raised again below, in the thread that waits
                failures.append(error)

        threads = [threading.Thread(target=work, args=(c,)) for c in self._clients[: max(1, len(bodies))]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return [a for a in answers if a is not None]

    def post(self, path: str, body: dict[str, Any], key: str | None = None) -> Answer:
        """One request by the first client, nobody else asking."""
        return self._clients[0].ask("POST", path, body, key)

    def get_as(self, token: str, path: str) -> dict[str, Any]:
        """What a GET answers to that token. Raises RuntimeError for anything but 200."""
        client = Client(self._first, token)
        try:
            answer = client.ask("GET", path)
        finally:
            client.close()
        if answer.status != 200:
            raise RuntimeError(f"GET {path}: {answer.status} {answer.body}")
        return answer.body

    def close(self) -> None:
        for client in self._clients:
            client.close()


def wait_until_answering(ports: Sequence[int], ended: Callable[[], bool], seconds: float = 600) -> None:
    """Until there is an answer on every port. Raises RuntimeError when `ended` says so or the time is over."""
    until = monotonic() + seconds
    for port in ports:
        while True:
            probe = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            try:
                probe.request("GET", "/healthz")
                if probe.getresponse().status == 200:
                    break
            except OSError:
                pass
            finally:
                probe.close()
            if ended() or monotonic() > until:
                raise RuntimeError("a web process does not answer; its lines are in web.log")
            time.sleep(0.1)
