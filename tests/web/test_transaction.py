"""One request is one transaction, committed before the answer leaves; messages leave only after it."""

from __future__ import annotations

import psycopg
from fastapi import APIRouter

from app.plumbing.queue import send_after_commit
from app.web.deps import InTransaction, Parts
from tests.accounts.world import World


class Recording:
    """A queue that remembers, and looks whether what it tells of is there for others."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sent: list[tuple[str, int]] = []
        self.place = ""

    def send(self, name: str, *args) -> None:
        with self.world.work() as other:
            found = other.pg.execute("SELECT count(*) FROM accounts WHERE name = 'written'").fetchone()[0]
        self.sent.append((name, found))


def install(world: World, *, fail: bool = False, deferred: bool = False) -> Recording:
    queue, router = Recording(world), APIRouter()
    with world.work() as work:
        work.pg.execute("UPDATE accounts SET name = 'before'")
    place = f"/api/v1/write-{fail}-{deferred}"

    @router.post(place, status_code=201)
    def write(work: InTransaction, parts: Parts) -> dict[str, str]:
        work.pg.execute("UPDATE accounts SET name = 'written' WHERE id = %s", [world.platform["operator"]])
        send_after_commit(work, queue, "bookings.sweep")
        if deferred:  # violated at COMMIT and not before
            work.pg.execute("CREATE TEMP TABLE twice (one int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP")
            work.pg.execute("INSERT INTO twice VALUES (1), (1)")
        if fail:
            raise RuntimeError("after the write")
        return {"status": "written"}

    world.app.include_router(router)
    queue.place = place
    return queue


def written(world: World) -> int:
    with world.work() as work:
        return work.pg.execute("SELECT count(*) FROM accounts WHERE name = 'written'").fetchone()[0]


def test_it_is_committed_when_the_message_leaves_and_the_answer_comes(world: World) -> None:
    queue = install(world)
    assert world.browser().post(queue.place).status_code == 201
    assert queue.sent == [("bookings.sweep", 1)]
    assert written(world) == 1


def test_a_commit_that_fails_is_no_success(world: World) -> None:
    queue = install(world, deferred=True)
    answer = world.browser().post(queue.place)
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal"
    assert queue.sent == []
    assert written(world) == 0


def test_a_failure_takes_its_messages_along(world: World) -> None:
    queue = install(world, fail=True)
    assert world.browser().post(queue.place).status_code == 500
    assert queue.sent == []
    assert written(world) == 0


def test_the_tenant_does_not_outlive_its_request(world: World) -> None:
    router = APIRouter()

    @router.get("/api/v1/seen")
    def seen(work: InTransaction) -> list[int]:
        return [
            work.pg.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("tenants", "projects", "memberships")
        ]

    world.app.include_router(router)
    api = world.api(world.token(world.tenants["acme"].people["member"], "acme"))
    for _ in range(20):
        assert api.get("/api/v1/me").status_code == 200
        assert world.browser().get("/api/v1/seen").json() == [0, 0, 0]


def test_a_database_that_went_away_is_found_again(world: World) -> None:
    """Connections that died in the pool cost at most an honest 503 each, and are replaced."""
    api = world.api(world.token(world.tenants["acme"].people["member"], "acme"))
    assert api.get("/api/v1/projects").status_code == 200
    with psycopg.connect(world.database.superuser_url, autocommit=True) as superuser:
        ended = superuser.execute(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE datname = %s AND usename = 'berth_app'",
            [world.database.name],
        ).fetchone()[0]
    assert ended > 0
    answers = [api.get("/api/v1/projects") for _ in range(ended + 1)]
    assert answers[-1].status_code == 200
    for answer in answers:
        assert answer.status_code in (200, 503)
        if answer.status_code == 503:
            assert answer.json()["code"] == "database_away"
            assert answer.headers["retry-after"]
