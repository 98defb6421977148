"""A web process killed in the middle of a booking: all of it stands or nothing, and the same key makes it one booking.

The product clock stands still.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.faults.processes import Answer, Client, Site, Web, wait_until
from tests.world import H100, START, nodes_csv

pytestmark = [pytest.mark.xdist_group("faults-web"), pytest.mark.timeout(600)]
WRITTEN = ("bookings", "holds", "allocations", "due", "commitments", "history", "booking_prices", "idempotency")


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site(csv=nodes_csv(2))


def body_of(hour: int = 1) -> dict[str, Any]:
    start = START + timedelta(hours=hour)
    return {
        "project": "plasma",
        "name": "Run",
        "kind": H100,
        "units": 4,
        "start": start.isoformat(),
        "duration": "PT1H",
    }


def counts(site: Site) -> dict[str, int]:
    """Rows in every table that a booking writes to."""
    return {table: site.one(f"SELECT count(*) FROM {table}") for table in WRITTEN}


@contextmanager
def locked_pools(site: Site) -> Iterator[None]:
    """Somebody else is in the middle of the same pools: a booking waits inside its transaction."""
    with psycopg.connect(site.superuser_url) as other:
        other.execute("SELECT FROM pools FOR NO KEY UPDATE")
        yield
        other.rollback()


def waiting(site: Site) -> int:
    """How many transactions wait for a lock of somebody's."""
    return site.one(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )


class Asker(threading.Thread):
    """Sends one request and keeps what came of it: an answer, or that the connection broke."""

    def __init__(self, client: Client, path: str, body: Any, **headers: str) -> None:
        super().__init__(daemon=True)
        self.answer: Answer | None = None
        self.broken: Exception | None = None
        self._client = client
        self._send = lambda: client.post(path, body, **headers)
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._send()
        except (OSError, http.client.HTTPException) as error:
            self.broken = error
        finally:
            self._client.close()


def killed_while_it_waits(site: Site, web: Web, body: Any, **headers: str) -> None:
    with locked_pools(site):
        asked = Asker(site.client(web), "/api/v1/bookings", body, **headers)
        wait_until(lambda: waiting(site), "the booking waits inside its transaction")
        web.kill()
        asked.join(30)
        assert asked.broken is not None
        assert asked.answer is None
    wait_until(lambda: not waiting(site), "the server noticed")
    ours = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND starts_with(state, 'idle in trans')"
    wait_until(lambda: not site.one(ours), "its transaction is gone")


def test_killed_before_the_commit_nothing_is_written_and_the_same_key_books_once(site: Site) -> None:
    first, second = site.web("web1"), site.web("web2")
    site.wait_ready(first, second)
    before = counts(site)
    killed_while_it_waits(site, first, body_of(), Idempotency_Key="one")
    assert counts(site) == before

    client = site.client(second)
    made = client.post("/api/v1/bookings", body_of(), Idempotency_Key="one")
    assert made.status == 201
    again = client.post("/api/v1/bookings", body_of(), Idempotency_Key="one")
    assert (again.status, again.body) == (201, made.body)
    assert site.one("SELECT count(*) FROM bookings") == 1
    client.close()


def test_killed_between_commit_and_answer_the_same_key_answers_with_the_booking_that_stands(site: Site) -> None:
    first, second = site.web("web1"), site.web("web2")
    site.wait_ready(first, second)
    with psycopg.connect(site.superuser_url, autocommit=True) as admin:
        # deferred: it waits inside COMMIT, when the client has said its last word
        admin.execute("""CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS
                         'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END'""")
        admin.execute("""CREATE CONSTRAINT TRIGGER slowly AFTER INSERT ON history DEFERRABLE INITIALLY DEFERRED
                         FOR EACH ROW EXECUTE FUNCTION slowly()""")
        admin.execute("SELECT pg_advisory_lock(1)")
        asked = Asker(site.client(first), "/api/v1/bookings", body_of(), Idempotency_Key="two")
        wait_until(lambda: waiting(site), "the booking waits inside its commit")
        first.kill()
        asked.join(30)
        assert asked.answer is None
        assert site.one("SELECT count(*) FROM bookings") == 0
        admin.execute("SELECT pg_advisory_unlock(1)")
    wait_until(lambda: site.one("SELECT count(*) FROM bookings"), "the commit is done, and nobody was told")
    stands = site.one("SELECT number FROM bookings")
    after = counts(site)

    client = site.client(second)
    told = client.post("/api/v1/bookings", body_of(), Idempotency_Key="two")
    assert (told.status, told.body["number"]) == (201, f"B-{stands}")
    assert counts(site) == after
    other = client.post("/api/v1/bookings", body_of(hour=5), Idempotency_Key="two")
    assert (other.status, other.body["code"]) == (409, "idempotency_key_reused")
    assert counts(site) == after
    client.close()


def test_a_graceful_end_finishes_what_was_begun(site: Site) -> None:
    """Asked to stop in the middle of a booking, the process answers it first."""
    web = site.web()
    site.wait_ready(web)
    with locked_pools(site):
        asked = Asker(site.client(web), "/api/v1/bookings", body_of())
        wait_until(lambda: waiting(site), "the booking waits inside its transaction")
        web.popen.terminate()
        with pytest.raises(AssertionError):
            wait_until(lambda: not web.alive(), "it ends although somebody waits for an answer", 0.5)
    asked.join(30)
    assert asked.answer is not None
    assert asked.answer.status == 201
    assert web.popen.wait(30) is not None
