"""The database cut off and crashed while people book: a sentence instead of an error, and what was confirmed stands.

A PostgreSQL of this module's own, with all the durability that the product has; the product clock runs.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.plumbing.embedded import EmbeddedPostgres, EmbeddedValkey
from app.plumbing.migrate import upgrade
from app.plumbing.roles import APP, OWNER, ensure_roles, url_of
from tests.faults.conftest import open_site
from tests.faults.processes import Answer, Client, Site, next_quarter, round_now, wait_until
from tests.servers import TestDatabase
from tests.world import H100, nodes_csv

pytestmark = [pytest.mark.xdist_group("faults-database"), pytest.mark.timeout(600)]
CLIENTS = 6


@pytest.fixture(scope="module")
def postgres(module_folder: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(module_folder)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def site(postgres: EmbeddedPostgres, valkey: EmbeddedValkey, module_folder: Path) -> Iterator[Site]:
    """One web process, both workers and beat over sixteen nodes."""
    app_url, owner_url, superuser_url = (
        url_of(postgres.url, user=user, database="berth") for user in (APP, OWNER, "postgres")
    )
    ensure_roles(postgres.url, owner_url=owner_url, app_url=app_url)
    upgrade(owner_url)
    database = TestDatabase("berth", app_url, owner_url, superuser_url)
    with open_site(database, module_folder, valkey.url, csv=nodes_csv(16), at=round_now()) as made:
        made.environment["BERTH_LEASE_SECONDS"] = "5"
        made.run_clock()
        for name in ("backend", "default"):
            made.worker(name)
        made.program("beat", "beat")
        made.wait_ready(made.web())
        yield made


class Insisting(threading.Thread):
    """Books one unit after the other and asks again with the same key until it is told; keeps every answer."""

    def __init__(self, client: Client, name: str, ends: threading.Event, body: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.answers: list[Answer] = []
        self.booked: dict[str, str] = {}
        self._client, self._name, self._ends, self._body = client, name, ends, body
        self.start()

    def run(self) -> None:
        for number in itertools.count():
            if self._ends.is_set():
                break
            key = f"{self._name}-{number}"
            while True:
                answer = self._client.post("/api/v1/bookings", {**self._body, "name": key}, Idempotency_Key=key)
                self.answers.append(answer)
                if answer.status == 201:
                    self.booked[key] = answer.body["number"]
                    break
                if answer.status != 503:
                    return
                threading.Event().wait(0.05)
        self._client.close()


def people_booking(site: Site, start: str, tag: str, ends: threading.Event) -> list[Insisting]:
    web = next(p for p in site.processes if p.name == "web")
    body = {"project": "plasma", "kind": H100, "units": 1, "start": start, "duration": "PT15M"}
    return [Insisting(site.client(web), f"{tag}-{n}", ends, body) for n in range(CLIENTS)]  # type: ignore[arg-type]


def check_answers(people: list[Insisting]) -> None:
    """Every answer was a booking, a plain "all taken", or a problem that says when to come back."""
    answers = [a for person in people for a in person.answers]
    for answer in answers:
        assert answer.status in (201, 409, 503), answer
        if answer.status == 409:
            assert answer.codes == ["no_units_free"]
        if answer.status == 503:
            assert answer.body["code"] in ("database_away", "busy")
            assert "Try again" in answer.body["detail"]
            assert int(answer.headers["Retry-After"]) > 0
    assert any(a.status == 503 for a in answers), "nobody noticed the cut: the test cuts nothing"


def check_bookings(site: Site, people: list[Insisting], tag: str) -> None:
    """Each confirmed one stands, once, and nothing that nobody foresaw was written down."""
    web = next(p for p in site.processes if p.name == "web")
    assert "unforeseen error" not in web.text()
    standing = site.rows("SELECT name, 'B-' || number FROM bookings WHERE name LIKE %s", f"{tag}-%")
    assert len(standing) == len(dict(standing)), "a key was booked twice"
    confirmed = {key: number for person in people for key, number in person.booked.items()}
    assert confirmed == dict(standing)
    broken = """SELECT b.id FROM bookings b WHERE (SELECT count(*) FROM holds h WHERE h.booking_id = b.id) <> 1
                   OR (SELECT count(*) FROM history h WHERE h.booking_id = b.id AND event = 'book') <> 1"""
    assert site.rows(broken) == []


def test_connections_cut_again_and_again_while_people_book(site: Site) -> None:
    ends = threading.Event()
    start = next_quarter(round_now(), timedelta(days=1)).isoformat()
    running = site.world.book(name="now", units=8, duration="PT1H")
    people = people_booking(site, start, "cut", ends)
    with psycopg.connect(site.superuser_url, autocommit=True) as admin:
        for cut in range(100):
            if cut >= 12 and any(a.status == 503 for person in people for a in person.answers):
                break
            wait_until(
                lambda: sum(len(p.booked) for p in people) or not any(p.is_alive() for p in people), "some are booked"
            )
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [APP])
            threading.Event().wait(0.3)
    ends.set()
    for person in people:
        person.join(60)
        assert not person.is_alive()
    check_answers(people)
    site.world.plumbing.database.engine.dispose()  # this process' own connections were cut as well
    check_bookings(site, people, "cut")
    # the workers went on, whatever they were at
    site.wait_state(running, "ACTIVE")
    site.world.do("release", running)
    site.wait_state(running, "ENDED")
    assert site.acts(running) == ["ensure", "release"]


def test_the_database_crashes_and_comes_back(site: Site, postgres: EmbeddedPostgres) -> None:
    ends = threading.Event()
    start = next_quarter(round_now(), timedelta(days=2)).isoformat()
    running = site.world.book(name="now", units=8, duration="PT1H")
    people = people_booking(site, start, "crash", ends)
    wait_until(lambda: sum(len(p.booked) for p in people) >= CLIENTS, "some are booked")
    assert postgres.pid is not None
    os.kill(postgres.pid, signal.SIGKILL)
    wait_until(lambda: postgres.pid is None, "it is gone")
    wait_until(lambda: any(a.status == 503 for p in people for a in p.answers), "people are told")
    postgres.start()
    many = sum(len(p.booked) for p in people)
    wait_until(lambda: sum(len(p.booked) for p in people) > many or not any(p.is_alive() for p in people), "it goes on")
    ends.set()
    for person in people:
        person.join(60)
        assert not person.is_alive()
    check_answers(people)
    site.world.plumbing.database.engine.dispose()
    check_bookings(site, people, "crash")
    site.wait_state(running, "ACTIVE")
    site.world.do("release", running)
    site.wait_state(running, "ENDED")
    assert site.acts(running) == ["ensure", "release"]
    assert all(p.alive() for p in site.processes)


def test_away_for_a_while_every_address_says_so_and_readiness_too(site: Site, postgres: EmbeddedPostgres) -> None:
    web = next(p for p in site.processes if p.name == "web")
    client = site.client(web)  # type: ignore[arg-type]
    postgres.stop()
    try:
        for path in ("/api/v1/bookings", "/api/v1/me", "/api/v1/nodes"):
            told = client.get(path)
            assert (told.status, told.body["code"]) == (503, "database_away")
            assert "cannot be reached" in told.body["detail"]
        page = client.get("/sign-in")
        assert page.status in (200, 503)
        assert "Traceback" not in page.body
        assert client.get("/readyz").status == 503
        assert client.get("/healthz").status == 200
    finally:
        postgres.start()
    site.world.plumbing.database.engine.dispose()
    wait_until(lambda: client.get("/readyz").status == 200, "it is ready again")
    assert client.get("/api/v1/bookings").status == 200
    client.close()
