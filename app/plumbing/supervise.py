"""Runs programs as child processes: one tidy log, restarts with back-off, a clean end. Knows none of the programs."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.kernel.clock import monotonic, wall_now
from app.plumbing.embedded import child_command

_COLOURS = ("36", "32", "33", "35", "34", "91", "92", "93")
_LONGEST_PAUSE = 30.0
_SETTLED = 60.0  # seconds after which a program that ends is started again without a pause


@dataclass(frozen=True)
class Program:
    """What is to run. `once`: it ends by itself when its work is done, and is started again only if it failed."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    """All of it: nothing is inherited."""
    grace: float = 15.0
    """Seconds between asking it to stop and killing it."""
    once: bool = False
    keep_open: tuple[int, ...] = ()
    """File descriptors that it inherits."""


class _Child:
    """One program over all its lives."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.process: subprocess.Popen[bytes] | None = None
        self.started = 0.0
        self.failures = 0
        self.start_at = 0.0
        self.done = False
        self.rest = b""


class Log:
    """Lines of several processes, each with the time and the name in front; colours where a person looks."""

    def __init__(self) -> None:
        self._colours = sys.stdout.isatty()
        self._names: dict[str, str] = {}

    def __call__(self, name: str, text: str) -> None:
        """Write one line. Never raises: a log that nobody reads any more stops nothing."""
        colour = self._names.setdefault(name, _COLOURS[len(self._names) % len(_COLOURS)])
        head = f"{wall_now().astimezone():%H:%M:%S} {name:<8} |"
        try:
            print(f"\x1b[{colour}m{head}\x1b[0m {text}" if self._colours else f"{head} {text}", flush=True)
        except OSError:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  for the rest of the process


class Supervisor:
    """Starts programs and keeps them running. Use it from the main thread: children end with the thread."""

    def __init__(self, log: Callable[[str, str], None]) -> None:
        self._log = log
        self._children: dict[str, _Child] = {}
        self._selector = selectors.DefaultSelector()

    def start(self, program: Program) -> None:
        """Start it now."""
        child = self._children[program.name] = _Child(program)
        self._launch(child)

    def watch(self, seconds: float) -> None:
        """Pass on what the programs say for this long, and start again what has ended."""
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0:
            for key, _ in self._selector.select(min(left, 0.2)):
                self._read(key.data)
            self._look_after()

    def pids(self) -> dict[str, int]:
        """What runs at this moment."""
        return {name: one.process.pid for name, one in self._children.items() if one.process is not None}

    def finished(self, name: str) -> bool:
        """Whether a program that runs once has done its work."""
        return self._children[name].done

    def stop(self, hurry: Callable[[], bool] = lambda: False) -> None:
        """Ask all to stop, wait for each as long as it may take, kill what is left. `hurry` ends the patience."""
        running = [one for one in self._children.values() if one.process is not None]
        asked = monotonic()
        for child in running:
            child.process.send_signal(signal.SIGTERM)
        while running:
            for key, _ in self._selector.select(0.1):
                self._read(key.data)
            for child in list(running):
                if child.process.poll() is None:
                    if not hurry() and monotonic() - asked < child.program.grace:
                        continue
                    if not hurry():
                        self._log(child.program.name, "did not stop in time and is killed")
                    child.process.kill()
                    child.process.wait()
                self._close(child)
                running.remove(child)
        self._children.clear()

    def _launch(self, child: _Child) -> None:
        program = child.program
        child.process = subprocess.Popen(
            child_command(list(program.command), signal.SIGTERM),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**program.environment, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # a Ctrl-C of the terminal is for us; they are asked in order
            pass_fds=program.keep_open,
        )
        os.set_blocking(child.process.stdout.fileno(), False)
        child.started = monotonic()
        self._selector.register(child.process.stdout, selectors.EVENT_READ, child)

    def _read(self, child: _Child) -> None:
        if child.process is None:
            return
        try:
            piece = os.read(child.process.stdout.fileno(), 65536)
        except BlockingIOError:
            return
        if not piece:  # closed; its end is noticed elsewhere
            self._selector.unregister(child.process.stdout)
            return
        *lines, child.rest = (child.rest + piece).split(b"\n")
        for line in lines:
            self._log(child.program.name, line.decode(errors="replace").rstrip())

    def _close(self, child: _Child) -> None:
        """Its last words, then nothing is left of it."""
        stream = child.process.stdout
        if stream.fileno() in self._selector.get_map():
            self._read(child)
        if stream.fileno() in self._selector.get_map():
            self._selector.unregister(stream)
        if child.rest:
            self._log(child.program.name, child.rest.decode(errors="replace").rstrip())
            child.rest = b""
        stream.close()
        child.process = None

    def _look_after(self) -> None:
        for child in self._children.values():
            if child.done:
                continue
            if child.process is None:
                if monotonic() >= child.start_at:
                    self._launch(child)
            elif (code := child.process.poll()) is not None:
                lived = monotonic() - child.started
                self._close(child)
                if code == 0 and child.program.once:
                    child.done = True
                    continue
                child.failures = 1 if lived > _SETTLED else child.failures + 1
                pause = min(_LONGEST_PAUSE, 2.0 ** (child.failures - 1)) if child.failures > 1 else 0.5
                child.start_at = monotonic() + pause
                self._log(child.program.name, f"ended by itself ({_how(code)}); starting again in {pause:g} s")


def _how(code: int) -> str:
    if code >= 0:
        return f"exit {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
