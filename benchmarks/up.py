"""`berth up` against the bare database server that it carries: time to the first page, and memory.

- `fresh_s`: from the command in an empty folder to the first page (the sign-in page, whole): making and starting the
  servers, migrations, web. `restart_s`: the same in a folder that is there already.
- `postgres_fresh_s`, `postgres_restart_s`: making and starting the same PostgreSQL alone until it answers a connection.
- `fresh_cpu_s`, `restart_cpu_s`: what all of its processes together had computed by then: on a machine that is busy with
  other things these say more than seconds of the clock.
- `memory_mb`: of all processes of `berth up` (servers, web, two workers, beat) once all have settled, each shared page
  counted once (proportional set size); `postgres_memory_mb` of the bare server.

`_ratio` is a quotient of this run; each time is the best of so many runs, as other programs on the machine only add.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from app.kernel.clock import monotonic
from app.plumbing.embedded import EmbeddedPostgres

NAME = "up"
SIZES = {"full": (3, 15.0), "small": (1, 3.0)}
"""How often each is done, and how many seconds all processes have to settle before their memory is read."""
_PATIENCE = 240.0
_ROOT = Path(__file__).resolve().parents[1]


def run(size: str = "full") -> dict[str, float]:
    """Figures as the module says."""
    times, settling = SIZES[size]
    runs: dict[str, list[float]] = {}
    for _ in range(times):
        with tempfile.TemporaryDirectory(prefix="berth-up-") as name:
            for when in ("fresh", "restart"):
                with _up(Path(name) / "berth") as (seconds, program):
                    runs.setdefault(f"{when}_cpu_s", []).append(_cpu(program.pid))
                    runs.setdefault(f"{when}_s", []).append(seconds)
                    if when == "restart":
                        time.sleep(settling)
                        runs.setdefault("processes", []).append(len(_tree(program.pid)))
                        runs.setdefault("memory_mb", []).append(_memory(program.pid))
                with _postgres(Path(name) / "bare") as (seconds, pid):
                    runs.setdefault(f"postgres_{when}_s", []).append(seconds)
                    if when == "restart":
                        runs.setdefault("postgres_memory_mb", []).append(_memory(pid))
    best = {name: min(values) for name, values in runs.items()}
    return {
        **best,
        "fresh_ratio": best["fresh_s"] / best["postgres_fresh_s"],
        "restart_ratio": best["restart_s"] / best["postgres_restart_s"],
        "memory_ratio": best["memory_mb"] / best["postgres_memory_mb"],
    }


@contextmanager
def _up(folder: Path) -> Iterator[tuple[float, subprocess.Popen[bytes]]]:
    """Seconds to the first page, and the program; stopped as by Ctrl-C afterwards."""
    port = _free_port()
    names = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL")
    environment = {k: v for k, v in os.environ.items() if k not in names and not k.startswith("BERTH_")}
    words = [sys.executable, "-m", "app.cli", "up", "--port", str(port), "--data", str(folder)]
    with tempfile.TemporaryFile() as lines:
        began = monotonic()
        program = subprocess.Popen(
            words, cwd=_ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=lines, stderr=lines
        )
        try:
            _until(lambda: _page(port), lambda: program.poll() is not None)
            yield monotonic() - began, program
        finally:
            program.send_signal(signal.SIGINT)
            program.wait(60)


@contextmanager
def _postgres(folder: Path) -> Iterator[tuple[float, int]]:
    """Seconds until the bare server answers, and its process."""
    server = EmbeddedPostgres(folder)
    began = monotonic()
    server.start()
    try:
        assert server.pid is not None
        yield monotonic() - began, server.pid
    finally:
        server.stop()


def _page(port: int) -> bool:
    """Whether the sign-in page comes whole."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/sign-in")
        answer = connection.getresponse()
        return answer.status == 200 and b"</html>" in answer.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _until(answers: Callable[[], bool], ended: Callable[[], bool]) -> None:
    until = monotonic() + _PATIENCE
    while not answers():
        if ended() or monotonic() > until:
            raise RuntimeError("berth up did not come up")
        time.sleep(0.02)


def _tree(pid: int) -> list[psutil.Process]:
    top = psutil.Process(pid)
    return [top, *top.children(recursive=True)]


def _memory(pid: int) -> float:
    """Megabytes of a process and all that it started, shared pages counted once."""
    total = 0
    for process in _tree(pid):
        try:
            total += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue  # a helper that has ended meanwhile
    return total / 1e6


def _cpu(pid: int) -> float:
    """Seconds that a process and all that it started, ended ones included, have computed."""
    total = 0.0
    for process in _tree(pid):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # counted with its parent
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]
