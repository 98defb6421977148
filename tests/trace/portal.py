"""The portal that a trace is replayed against: a simulated cluster with the trace's nodes, prices, one project, web
processes, and a clock that stands still until it is moved.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import psycopg
import uvicorn

from app import rounds
from app.accounts import actions as accounts
from app.bookings.lifecycle import Pace
from app.inventory import queries as inventory
from app.kernel.actor import SYSTEM, Actor
from app.main import create_app
from app.plumbing.db import Database
from app.pricing import actions as pricing
from app.rounds import Haste
from tests.trace.clients import Clients, wait_until_answering
from tests.world import FINANCE, START, World, make_world

DAY = 86400
HORIZON = 150 * DAY
PRICES = {
    "g2": "0.83",
    "g3": "1.37",
    "t4": "0.3525",
    "p100": "0.61",
    "v100m16": "1.095",
    "v100m32": "1.2525",
    "a10": "0.7733",
}
"""Money per unit-hour; odd on purpose, so that rounding has something to do."""
LATER = {kind: str(Decimal(price) * Decimal("1.1")) for kind, price in PRICES.items()}
"""What counts from the twentieth day on, published before anybody books."""
HASTE = Haste(Pace(every=timedelta(days=200)), frozenset({"reconcile.look", "reconcile.usage"}))
"""Money comes from events; what the units did meanwhile is not asked of the cluster."""
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Portal:
    """A portal that answers, and its clock."""

    world: World
    clients: Clients
    tokens: tuple[str, ...]
    admin: str
    """A token that sees the tenant's statements."""
    folder: Path
    owner: psycopg.Connection
    """Of whom alone the clock may be set."""
    _stands: datetime = START

    def __post_init__(self) -> None:
        # nobody else moves the clock: asking the database where it stands would be every seventh statement
        database = self.world.plumbing.database
        own = Database(database.engine, database.wall, lambda: self._stands)
        self._plumbing = replace(self.world.plumbing, database=own)

    def move(self, at: datetime) -> None:
        """Set the clock, and do what is due then."""
        self.owner.execute("UPDATE clock SET frozen = %s", [at])
        self._stands = at
        self.settle()

    def settle(self) -> int:
        """Do what is due at this instant."""
        return rounds.do_all(self._plumbing, HASTE)

    def pass_until(self, until: datetime | None) -> int:
        """Step from one due instant to the next, until `until` (which is left to the caller) or nothing is due; returns
        how many steps that were."""
        steps = 0
        while True:
            at = rounds.next_instant(self._plumbing)
            if at is None or (until is not None and at >= until):
                return steps
            self.move(at)
            steps += 1


@contextmanager
def open_portal(
    database: Any, folder: Path, valkey_url: str, nodes: str, *, processes: int = 2, connections: int = 16
) -> Iterator[Portal]:
    """Build it, start web processes (0: a server in a thread of this process), and take everything down again."""
    prices = {kind: Decimal(price) for kind, price in PRICES.items()}
    config = {"auto_workload": False}
    world = make_world(database, folder, valkey_url, csv=nodes, prices=prices, backend=config)
    try:
        with world.work() as work:
            later = {kind: Decimal(price) for kind, price in LATER.items()}
            pricing.publish_version(work, FINANCE, "standard", "CHF", START + timedelta(days=20), later, "from then on")
            pools = inventory.pools_for(work, None, None)
        for pool in pools:
            world.set_policy(pool.name, min_length=1, max_length=HORIZON, horizon=HORIZON, grid=1, made_ahead=0)
        tokens = tuple(make_token(world, world.actor("physics-member"), f"client {i}") for i in range(connections))
        with world.work("physics") as work:
            admin = accounts.create_account(work, SYSTEM, login="admin@physics.example", name="physics-admin")
            accounts.add_member(work, SYSTEM, admin, "admin")
        actor = Actor(admin, "physics-admin", world.tenants["physics"], frozenset({"admin"}))
        with ExitStack() as running:
            ports = running.enter_context(
                web_processes(world, folder, processes) if processes else _web_in_thread(world)
            )
            clients = running.enter_context(closing(Clients(ports, tokens)))
            owner = running.enter_context(psycopg.connect(database.owner_url, autocommit=True))
            yield Portal(world, clients, tokens, make_token(world, actor, "statements"), folder, owner)
    finally:
        world.close()


@contextmanager
def web_processes(world: World, folder: Path, processes: int) -> Iterator[list[int]]:
    """Web processes, as `berth web` is started; the ports on which they answer."""
    programs: list[subprocess.Popen[bytes]] = []
    ports: list[int] = []
    try:
        with (folder / "web.log").open("wb") as log:
            for _ in range(processes):
                program, port = _start_web(world, folder, log)
                programs.append(program)
                ports.append(port)
        wait_until_answering(ports, lambda: any(p.poll() is not None for p in programs))
        yield ports
    finally:
        for program in programs:
            program.terminate()
        for program in programs:
            program.wait(20)


@contextmanager
def _web_in_thread(world: World) -> Iterator[list[int]]:
    """The same server in a thread of this process: nothing to start, for small traces."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        application = create_app(plumbing=world.plumbing)
        server = uvicorn.Server(uvicorn.Config(application, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            wait_until_answering([listening.getsockname()[1]], lambda: not thread.is_alive())
            yield [listening.getsockname()[1]]
        finally:
            server.should_exit = True
            thread.join(20)


def make_token(world: World, actor: Actor, label: str) -> str:
    with world.work("physics") as work:
        made = replace(actor, scopes=frozenset({"read", "book"}))
        return accounts.create_token(work, made, label=label, scopes=("read", "book")).secret


def _start_web(world: World, folder: Path, log: IO[bytes]) -> tuple[subprocess.Popen[bytes], int]:
    """One web process on a socket that is open already, so that no port can be lost to anybody."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        settings = world.plumbing.settings
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith("BERTH_") and k != "DATABASE_OWNER_URL"
        } | {
            "DATABASE_URL": str(settings.database_url),
            "REDIS_URL": str(settings.redis_url),
            "BERTH_ENVIRONMENT": "test",
            "BERTH_DATA": str(folder),
            "BERTH_LOG_LEVEL": "WARNING",
        }
        words = [sys.executable, "-m", "app.cli", "web", "--port", str(port), "--fd", str(listening.fileno())]
        program = subprocess.Popen(
            words,
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            pass_fds=[listening.fileno()],
        )
    return program, port
