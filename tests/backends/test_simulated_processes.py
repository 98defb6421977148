"""Several real processes over one log, one of them killed, one of them forked; and the same answers everywhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

from app.backends.contract import Order, Place, Ref
from app.backends.simulated import SimulatedBackend
from app.backends.simulated.state import fold
from app.backends.testing import MovableClock

_HEAD = """
import os, sys
from datetime import UTC, datetime, timedelta
from uuid import UUID
from app.backends.contract import BackendError, Order, Place, Ref
from app.backends.simulated import SimulatedBackend
from app.kernel.window import Window
NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
backend = SimulatedBackend({"path": sys.argv[1], "limit_seconds": 60}, lambda: NOW)
def order(number, node, gpu, hour):
    start = NOW + timedelta(hours=hour)
    window = Window(start, start + timedelta(hours=1))
    return Order(Ref.of("proc", UUID(int=number)), "p", "p", (Place(node, (gpu,)),), window)
"""

_RACE = (
    _HEAD
    + """
me = int(sys.argv[2])
backend.observe(order(1, "n0", 0, 0).ref)
print("ready", flush=True)
sys.stdin.readline()
won = lost = 0
for hour in range(40):
    backend.ensure(order(hour + 1, "n1", 0, hour))              # the same booking, from everyone
    try:
        backend.ensure(order(1000 * me + hour, "n0", 0, hour))  # another booking of the same unit
        won += 1
    except BackendError as e:
        assert e.kind == "conflict", e
        lost += 1
print(won, lost, flush=True)
"""
)

_LOOP = (
    _HEAD
    + """
for hour in range(100000):
    made = order(hour + 1, "n0", 0, hour)
    backend.ensure(made)
    print(made.ref.name, flush=True)
"""
)

_FORK = (
    _HEAD
    + """
backend.ensure(order(1, "n0", 0, 0))
children = []
for child in range(3):
    pid = os.fork()
    if pid == 0:
        for hour in range(1, 15):
            backend.ensure(order(child * 100 + 100 + hour, "n%d" % child, 1, hour))
        os._exit(0)
    children.append(pid)
for hour in range(1, 15):
    backend.ensure(order(900 + hour, "n3", 0, hour))
codes = [os.waitpid(pid, 0)[1] for pid in children]
assert codes == [0, 0, 0], codes
print(len(backend.strays()), flush=True)
"""
)

_DIGEST = """
import sys
from datetime import datetime
from hashlib import sha256
from app.backends.contract import Ref
from app.backends.simulated import SimulatedBackend
now = datetime.fromisoformat(sys.argv[2])
backend = SimulatedBackend({"path": sys.argv[1]}, lambda: now)
words = [backend.inventory(), backend.strays()]
for name in sys.argv[4:]:
    words += [backend.observe(Ref(name)), backend.usage(Ref(name), datetime.fromisoformat(sys.argv[3]), now, 60)]
print(sha256(repr(words).encode()).hexdigest())
"""


def start(script: str, *args: object, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", script, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **env},
    )


def test_processes_race_for_the_same_units(backend: SimulatedBackend) -> None:
    racers = [start(_RACE, backend.path, i + 1) for i in range(4)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    answers = [racer.communicate("go\n")[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 4
    won = [int(answer.split()[0]) for answer in answers]
    assert sum(won) == 40, "each hour of the unit went to exactly one"
    lines = backend.entries()
    made = [line.ref for line in lines if line.command == "ensure" and line.acted]
    assert len(made) == len(set(made)) == 80
    assert sum(not line.acted for line in lines) == 3 * 40
    assert len(backend.strays()) == 80
    with backend._log.look() as cluster:
        assert cluster == fold(lines)


def test_a_killed_process_loses_nothing_that_was_answered(backend: SimulatedBackend) -> None:
    process = start(_LOOP, backend.path)
    assert process.stdout is not None
    told = [process.stdout.readline().strip() for _ in range(60)]
    process.send_signal(signal.SIGKILL)
    told += process.stdout.read().split("\n")
    process.stdout.close()
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    names = {name for name in told if Ref.parse(name)}
    there = {stray.ref.name for stray in backend.strays()}
    assert len(names) >= 60
    assert names <= there
    assert len(there - names) <= 1, "at most the one whose answer was cut off"


def test_a_forked_process_opens_its_own(backend: SimulatedBackend) -> None:
    process = start(_FORK, backend.path)
    out, _ = process.communicate()
    assert (process.returncode, out) == (0, f"{1 + 14 * 4}\n")


def test_the_same_log_and_instant_give_the_same_answers_everywhere(
    backend: SimulatedBackend, clock: MovableClock, order: Callable[..., Order]
) -> None:
    made = [order("n0", settings={}), order("n1", workload="notebook", start=0), order("n2", workload="inference")]
    for o in made:
        backend.ensure(o)
    began = clock()
    clock.move(1800)
    backend.faults.node_ill("n0", 2)
    backend.faults.node_dies("n2", until=clock() + timedelta(minutes=5))
    backend.faults.metrics_gap(clock(), clock() + timedelta(minutes=3), "n1")
    clock.move(3601)
    backend.release(made[1].ref)
    words: list[object] = [backend.inventory(), backend.strays()]
    for o in made:
        words += [backend.observe(o.ref), backend.usage(o.ref, began, clock(), 60)]
    here = sha256(repr(words).encode()).hexdigest()
    names = [o.ref.name for o in made]
    for hashseed in ("1", "2"):
        other = start(_DIGEST, backend.path, clock().isoformat(), began.isoformat(), *names, PYTHONHASHSEED=hashseed)
        assert other.communicate()[0].strip() == here


def test_two_backends_of_one_process_share_a_fold(
    backend: SimulatedBackend, make: Callable[..., SimulatedBackend], order: Callable[..., Order]
) -> None:
    other = make()
    made = order("n0")
    other.ensure(made)
    assert backend.observe(made.ref).state == "ready"
    assert other._log is backend._log
    assert backend.observe(made.ref).places == (Place("n0", tuple(range(8))),)
