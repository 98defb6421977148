"""The product's own processes, started, killed and stopped by pid, over databases and brokers of one test module.

A `Site` is an installation whose web and worker processes are real; what they do is looked at from outside: by HTTP, in
the database, and in the log of the simulated cluster. Knows how to start and stop, not what ought to come of it.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.message import Message
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from app.accounts import actions as accounts
from app.backends.contract import Ref
from app.bookings import queries
from app.bookings.facts import Booking
from app.kernel.actor import SYSTEM, Actor
from app.kernel.clock import monotonic, wall_now
from app.plumbing.embedded import child_command
from app.plumbing.queue import CeleryQueue
from tests.world import World

BERTH = [sys.executable, "-m", "app.cli"]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240.0
"""Seconds of the wall clock after which a wait has failed, on a machine that has other things to do as well."""

T = TypeVar("T")


def wait_until(look: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """What `look` answers as soon as that is true. A wait that ends otherwise is a failure with its sentence."""
    until = monotonic() + seconds
    while True:
        if answer := look():
            return answer
        assert monotonic() < until, f"not within {seconds:.0f} s: {what}"
        threading.Event().wait(0.05)


class Process:
    """One `berth …` process. Its words go to a file."""

    def __init__(
        self, name: str, words: list[str], environment: dict[str, str], folder: Path, fds: tuple[int, ...] = ()
    ):
        self.name = name
        self.said = folder / f"{name}.log"
        with self.said.open("ab") as out:
            # whatever ends the tests ends it as well
            command = child_command([*BERTH, *words], signal.SIGKILL)
            self.popen = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=ROOT, pass_fds=fds
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def alive(self) -> bool:
        return self.popen.poll() is None

    def kill(self) -> None:
        """As the kernel or a power cut does it: nothing is said, nothing is tidied up."""
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait(30)

    def stop(self) -> None:
        """Ask it to end, and wait."""
        if self.alive():
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def text(self) -> str:
        return self.said.read_text(errors="replace")


class Web(Process):
    """A web process on a port of its own."""

    def __init__(self, name: str, environment: dict[str, str], folder: Path) -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(512)
            self.port: int = listening.getsockname()[1]
            fd = listening.fileno()
            super().__init__(name, ["web", "--port", str(self.port), "--fd", str(fd)], environment, folder, (fd,))

    def ready(self) -> bool:
        assert self.alive(), self.text()
        client = Client(self)
        try:
            return client.get("/readyz").status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            client.close()


@dataclass(frozen=True)
class Answer:
    """What came back. `body` is the JSON, or the text where it is none."""

    status: int
    body: Any
    headers: dict[str, str]

    @property
    def codes(self) -> list[str]:
        """The codes of the reasons of a refusal."""
        return [r["code"] for r in self.body.get("reasons", [])]


class Client:
    """A program with a token and one connection to one web process. Not for several threads."""

    def __init__(self, web: Web | int, token: str | None = None, timeout: float = 60) -> None:
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", web if isinstance(web, int) else web.port, timeout=timeout
        )
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._used = monotonic()

    def get(self, path: str) -> Answer:
        return self.send("GET", path)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        """`body` goes as JSON; `headers` with low lines for hyphens."""
        return self.send("POST", path, body, **headers)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Bytes go as they are, everything else as JSON."""
        given = {k.replace("_", "-"): v for k, v in headers.items()}
        if monotonic() - self._used > 2:
            self._connection.close()  # the server may be closing it at this moment: it keeps idle ones for five seconds
        raw = body
        if body is not None and not isinstance(body, bytes):
            raw = json.dumps(body).encode()
            given.setdefault("Content-Type", "application/json")
        try:
            self._connection.request(method, path, raw, {**self._headers, **given})
            answer = self._connection.getresponse()
            text = answer.read()
        except BaseException:
            self._connection.close()
            raise
        finally:
            self._used = monotonic()
        if "json" in answer.headers.get("Content-Type", ""):
            return Answer(answer.status, json.loads(text), _titled(answer.headers))
        return Answer(answer.status, text.decode(errors="replace"), _titled(answer.headers))

    def close(self) -> None:
        self._connection.close()


def _titled(headers: Message) -> dict[str, str]:
    """Names in one spelling: servers differ."""
    return {name.title(): value for name, value in headers.items()}


@dataclass
class Site:
    """An installation with real processes. `stop` ends all of them."""

    world: World
    folder: Path
    environment: dict[str, str]
    queue: CeleryQueue
    superuser_url: str
    processes: list[Process] = field(default_factory=list)

    def web(self, name: str = "web") -> Web:
        """One more web process; it may not answer yet (`wait_ready`)."""
        web = Web(name, self.environment, self.folder)
        self.processes.append(web)
        return web

    def worker(self, queue: str, *words: str) -> Process:
        return self.program(f"worker-{queue}", "worker", queue, *words)

    def program(self, name: str, *words: str) -> Process:
        process = Process(f"{name}-{len(self.processes)}", list(words), self.environment, self.folder)
        self.processes.append(process)
        return process

    def wait_ready(self, *webs: Web) -> None:
        for web in webs:
            wait_until(web.ready, f"{web.name} answers")

    def client(self, web: Web | int, person: str = "physics-member", timeout: float = 60) -> Client:
        return Client(web, self.token(person), timeout)

    def token(self, person: str, *scopes: str) -> str:
        """A new API token of a person, for reading and booking unless said."""
        actor = self.world.actor(person)
        with self.world.plumbing.database.work(actor.tenant_id) as work:
            return accounts.create_token(work, actor, label="faults", scopes=scopes or ("read", "book")).secret

    def operator_token(self) -> str:
        """The token of a new operator of the platform, for reading and managing."""
        with self.world.plumbing.database.work() as work:
            account = accounts.create_account(work, SYSTEM, login="operator@berth.example", name="Olga")
            accounts.grant_platform_role(work, SYSTEM, account, "operator")
            actor = Actor(account, "Olga", platform_roles=frozenset({"operator"}))
            return accounts.create_token(work, actor, label="operator", scopes=("read", "manage")).secret

    def sweep(self) -> None:
        """One sweep's message, as beat sends it."""
        self.queue.send("sweep")

    def run_clock(self) -> None:
        """From here on the product clock is the wall's."""
        with psycopg.connect(self.world.owner_url, autocommit=True) as owner:
            owner.execute("UPDATE clock SET movable = true, frozen = NULL, shift = interval '0'")

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the database says, all tenants, as a superuser sees it."""
        with psycopg.connect(self.superuser_url) as connection:
            return connection.execute(sql, values).fetchall()

    def one(self, sql: str, *values: Any) -> Any:
        return self.rows(sql, *values)[0][0]

    def ref(self, booking: Booking) -> Ref:
        """The name of a booking's object on the cluster."""
        with self.world.plumbing.database.work(booking.tenant_id) as work:
            allocation = queries.allocation_of(work, booking.id)
        assert allocation is not None
        return Ref(allocation.name)

    def acts(self, booking: Booking, backend: Any = None) -> list[str]:
        """What was really done for a booking on the cluster, in order."""
        backend = backend or self.world.backend
        return [e.command for e in backend.entries(self.ref(booking)) if e.acted]

    def wait_state(self, booking: Booking, *states: str, seconds: float = PATIENCE) -> Booking:
        def look() -> Booking | None:
            found = self.world.look(booking)
            return found if found.state in states else None

        return wait_until(look, f"{booking.label} becomes {' or '.join(states)}", seconds)

    def stop(self) -> None:
        for process in self.processes:
            if process.alive():
                process.popen.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.stop()
        self.processes.clear()


def environment_of(world: World, folder: Path, valkey_url: str, app_url: str, **more: str) -> dict[str, str]:
    """What a process of this installation is told."""
    ours = {k: v for k, v in os.environ.items() if k not in ("DATABASE_OWNER_URL", "SECRET_KEY") and "BERTH_" not in k}
    return ours | {
        "DATABASE_URL": app_url,
        "REDIS_URL": valkey_url,
        "BERTH_DATA": str(folder),
        "BERTH_ENVIRONMENT": "test",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "default",
        **more,
    }


def round_now() -> datetime:
    """The wall's instant in whole seconds."""
    return wall_now().replace(microsecond=0)


def next_quarter(at: datetime, ahead: timedelta = timedelta(0)) -> datetime:
    """The next instant on a grid of fifteen minutes, at least `ahead` from `at`."""
    step = 900
    return datetime.fromtimestamp(-(-int((at + ahead).timestamp()) // step) * step, at.tzinfo)
