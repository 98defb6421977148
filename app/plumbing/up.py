"""The whole product from one command: embedded servers where none are named, migrations, web, workers, beat.

`berth up` and `berth demo` are this with different programs beside it. Knows the programs by their command lines and
no business word; what may go wrong for a person's reasons is a `Refusal` with one sentence.
"""

from __future__ import annotations

import errno
import fcntl
import http.client
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import psycopg

from app.kernel.clock import monotonic
from app.plumbing.db import DangerousRole, refuse_dangerous_role
from app.plumbing.embedded import EmbeddedPostgres, EmbeddedValkey, ServerFailed
from app.plumbing.migrate import upgrade
from app.plumbing.roles import APP, OWNER, ensure_roles, url_of
from app.plumbing.supervise import Log, Program, Supervisor
from app.settings import Settings

DATABASE = "berth"


class Refusal(RuntimeError):
    """It cannot start, or not like this; the text is a sentence for the person at the terminal."""


class Stopped(BaseException):
    """The person or the machine asked us to end."""


class Up:
    """One running installation. In this order:

        with Up(settings) as up:        # Ctrl-C from here on ends in an orderly stop
            settings = up.start_servers()
            up.start_programs()
            up.wait_until_answering()
            up.watch()                  # until it is stopped

    `settings` from `start_servers` has the addresses of the servers in it.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.log = Log()
        self._supervisor = Supervisor(self.log)
        self._servers: list[EmbeddedPostgres | EmbeddedValkey] = []
        self._names: dict[int, str] = {}
        self._lock: int | None = None
        self._socket: socket.socket | None = None
        self._killed_before = False
        self._signals = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> Up:
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[one] = signal.signal(one, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        self._signals = max(self._signals, 1)  # from here on a signal only hurries
        if kind is Stopped:
            self.say("stopping")
        self._supervisor.stop(hurry=lambda: self._signals > 1)
        for server in reversed(self._servers):
            server.stop()
        if self._socket is not None:
            self._socket.close()
        if self._lock is not None:
            os.truncate(self._lock, 0)  # what is still in it tells the next one that we did not come this far
            os.close(self._lock)
        for one, handler in self._before.items():
            signal.signal(one, handler)  # type: ignore[arg-type]
        if kind is Stopped:
            self.say("stopped")
        return kind is Stopped

    def say(self, text: str) -> None:
        """A line of our own in the log."""
        self.log("berth", text)

    def start_servers(self, *, moved_clock: bool = False) -> Settings:
        """Take the folder and the port, start what is not named by an address, and migrate. Raises `Refusal`.

        `moved_clock`: whether a database whose product clock can be moved is welcome (to demo and tests alone).
        """
        self._take_folder()
        self._take_port()
        self._start_database()
        self._start_broker()
        self.say("bringing the database up to date")
        try:
            upgrade(str(self.settings.database_owner_url))
        except psycopg.Error as error:
            raise Refusal(f"The database could not be migrated: {error}") from error
        self._look_at_database(moved_clock)
        return self.settings

    def start_programs(self, *names: str) -> None:
        """Start web, the two workers and beat; or those of them that are named: web, backend, tasks, beat."""
        for program in self._programs():
            if not names or program.name.rstrip("0123456789") in names:
                self._supervisor.start(program)

    def start_program(self, name: str, *words: str, once: bool = False, as_owner: bool = False) -> None:
        """Start one more `berth …` command beside the others, with the same settings; see `Program`.

        `as_owner`: it is told the owner's address too, as it moves the product clock.
        """
        environment = self._environment()
        if as_owner:
            environment["DATABASE_OWNER_URL"] = str(self.settings.database_owner_url)
        self._supervisor.start(Program(name, (*_BERTH, *words), environment, once=once))

    def finished(self, name: str) -> bool:
        """Whether a program that runs once has done its work."""
        return self._supervisor.finished(name)

    def pids(self) -> dict[str, int]:
        """The processes of this moment, servers included."""
        servers = {self._names[id(one)]: one.pid for one in self._servers if one.pid}
        return servers | self._supervisor.pids()

    def wait_until_answering(self, seconds: float = 60.0) -> None:
        """Until the pages can be served. Raises `Refusal` when that takes too long."""
        until = monotonic() + seconds
        while not _answers(self.settings):
            if monotonic() > until:
                raise Refusal(f"The pages did not answer within {seconds:.0f} s; the lines above say why.")
            self.watch_for(0.1)

    def watch(self, until: Callable[[], bool] = lambda: False) -> None:
        """Pass on the programs' lines and keep everything running until we are stopped, or `until` says so."""
        while not until():
            self.watch_for(0.5)

    def watch_for(self, seconds: float) -> None:
        """The same for so many seconds."""
        self._supervisor.watch(seconds)
        for server in self._servers:
            if server.pid is None:
                self.say(f"{self._names[id(server)]} ended by itself; starting again")
                try:
                    server.start()
                except ServerFailed as error:
                    raise Refusal(str(error)) from error

    # ---- what has to be there first

    def _take_folder(self) -> None:
        folder = self.settings.data
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise Refusal(f"The data folder {folder} cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = (folder / "lock").read_text().strip() or "another process"
            raise Refusal(f"Berth already runs on {folder} ({other}): stop it, or choose another --data.") from None
        self._killed_before = os.fstat(self._lock).st_size > 0
        os.truncate(self._lock, 0)
        os.pwrite(self._lock, f"process {os.getpid()}, {self.settings.address}\n".encode(), 0)

    def _take_port(self) -> None:
        """Bound from the very start, so that nobody takes it meanwhile, and kept while the web starts again."""
        host, port = self.settings.host, self.settings.port
        # the pages of one that was killed may be saying their last words on it
        patience = monotonic() + (10 if self._killed_before else 0)
        while self._socket is None:
            try:
                self._socket = _listen(host, port)
            except OSError as error:
                if error.errno == errno.EADDRINUSE and monotonic() < patience:
                    self.watch_for(0.2)
                    continue
                reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
                raise Refusal(f"Port {port} on {host} {reason}: choose another with --port.") from error
        if port == 0:
            self.settings = self.settings.with_values(port=self._socket.getsockname()[1])

    def _start_database(self) -> None:
        settings = self.settings
        if bool(settings.database_url) != bool(settings.database_owner_url):
            raise Refusal(
                "DATABASE_URL (the role berth_app) and DATABASE_OWNER_URL (the role berth_owner) have to be set "
                "together, or neither for the embedded server."
            )
        if settings.database_url:
            return
        server = EmbeddedPostgres(settings.data)
        self._keep("postgres", server)
        superuser = server.url
        owner_url = url_of(superuser, user=OWNER, database=DATABASE)
        app_url = url_of(superuser, user=APP, database=DATABASE)
        ensure_roles(superuser, owner_url=owner_url, app_url=app_url)
        self.settings = settings.with_values(database_url=app_url, database_owner_url=owner_url)

    def _start_broker(self) -> None:
        if not self.settings.redis_url:
            server = EmbeddedValkey(self.settings.data)
            self._keep("valkey", server)
            self.settings = self.settings.with_values(redis_url=server.url)

    def _keep(self, name: str, server: EmbeddedPostgres | EmbeddedValkey) -> None:
        began = monotonic()
        self._servers.append(server)
        self._names[id(server)] = name
        try:
            server.start()
        except ServerFailed as error:
            raise Refusal(str(error)) from error
        self.say(f"{name} is ready after {monotonic() - began:.1f} s")

    def _look_at_database(self, moved_clock: bool) -> None:
        try:
            with psycopg.connect(str(self.settings.database_url), connect_timeout=10) as connection:
                refuse_dangerous_role(connection)
                movable = connection.execute("SELECT movable FROM clock").fetchone() == (True,)
        except (DangerousRole, psycopg.Error) as error:
            raise Refusal(str(error)) from error
        if movable and not moved_clock:
            raise Refusal(
                "The product clock of this database can be moved, so it belongs to a demo or a test: "
                f"`berth demo --data {self.settings.data}` runs it, `berth up` does not."
            )

    # ---- the programs

    def _programs(self) -> list[Program]:
        environment = self._environment()
        listening = self._socket
        assert listening is not None
        listening.set_inheritable(True)
        fd, count = listening.fileno(), self.settings.web_processes
        web = [
            Program(
                "web" if count == 1 else f"web{number}",
                (*_BERTH, "web", "--fd", str(fd)),
                environment,
                keep_open=(fd,),
            )
            for number in range(1, count + 1)
        ]
        return [
            *web,
            Program("backend", (*_BERTH, "worker", "backend"), environment),
            Program("tasks", (*_BERTH, "worker", "default"), environment),
            Program("beat", (*_BERTH, "beat"), environment),
        ]

    def _environment(self) -> dict[str, str]:
        return self.settings.with_values(log_instants=False).as_environment()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals == 1:
            raise Stopped


_BERTH = (sys.executable, "-m", "app.cli")


def _listen(host: str, port: int) -> socket.socket:
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        # with SO_REUSEADDR two may bind as long as nobody listens: the first to listen has the port
        listening.listen(512)
    except OSError:
        listening.close()
        raise
    return listening


def _answers(settings: Settings) -> bool:
    """Whether `/readyz` says yes on the port that we listen on."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    connection = http.client.HTTPConnection(host, settings.port, timeout=2)
    try:
        connection.request("GET", "/readyz", headers={"Host": settings.address.partition("://")[2].partition("/")[0]})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def schedule_file(data: Path) -> Path:
    """Where beat remembers what it sent last."""
    folder = data / "beat"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "schedule"
