"""More requests at once than connections: they wait their turn, and nobody is left holding what another waits for."""

from __future__ import annotations

import anyio
import httpx2

from app.web.deps import IN_FLIGHT
from tests.accounts.world import ADDRESS, World


def test_a_crowd_gets_its_answers(world: World) -> None:
    """A request takes a connection before it takes a thread for its own work. Without a gate in front of both, requests
    that wait for a connection hold all threads, and those that have one wait for a thread: nothing moves for 30 s."""
    token = world.token(world.tenants["acme"].people["member"], "acme")
    crowd = 160
    pool = world.plumbing.database.engine.pool
    assert IN_FLIGHT < pool.size() + pool._max_overflow < crowd

    async def all_at_once() -> list[int]:
        found: list[int] = []
        async with (
            world.app.router.lifespan_context(world.app),
            httpx2.AsyncClient(
                transport=httpx2.ASGITransport(world.app),
                base_url=ADDRESS,
                headers={"Authorization": f"Bearer {token}"},
                timeout=60,
            ) as client,
            anyio.create_task_group() as group,
        ):

            async def one() -> None:
                found.append((await client.get("/api/v1/projects")).status_code)

            for _ in range(crowd):
                group.start_soon(one)
        return found

    assert anyio.run(_within, all_at_once) == [200] * crowd


async def _within(work) -> list[int]:
    with anyio.fail_after(60):
        return await work()


def test_a_slow_sender_holds_no_connection(world: World) -> None:
    """A form that comes in drop by drop is read before a connection is taken."""
    taken: list[int] = []

    async def send_slowly() -> None:
        parts = [b"csrf_token=", b"x"]

        async def receive() -> dict:
            taken.append(world.plumbing.database.engine.pool.checkedout())
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

        async def send(_message: dict) -> None:
            pass

        headers = [(b"host", b"127.0.0.1:8000"), (b"content-type", b"application/x-www-form-urlencoded")]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": "/me/sessions/00/end", "raw_path": b"/me/sessions/00/end", "query_string": b"", "headers": headers,
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000),
        }  # fmt: skip
        await world.app(scope, receive, send)

    anyio.run(send_slowly)
    assert taken == [0, 0]
