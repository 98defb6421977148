"""What the periodic clean-up takes away, and what it leaves."""

from __future__ import annotations

from datetime import timedelta

from app import rounds
from app.kernel.ids import new_id
from tests.accounts.world import World


def test_old_idempotency_keys_of_every_tenant_go_and_young_ones_stay(world: World) -> None:
    for tenant in ("acme", "beta"):
        with world.work(tenant) as work:
            for key, age in (("old", timedelta(days=7, seconds=1)), ("young", timedelta(days=6, hours=23))):
                work.pg.execute(
                    "INSERT INTO idempotency (tenant_id, key, verb, body_hash, booking_id, at) VALUES (%s, %s, 'book', %s, %s, %s)",
                    [work.tenant_id, key, b"x", new_id(), work.wall - age],
                )
    rounds.tidy(world.plumbing)
    for tenant in ("acme", "beta"):
        with world.work(tenant) as work:
            assert work.pg.execute("SELECT key FROM idempotency").fetchall() == [("young",)]


def test_failed_sign_ins_go_once_they_shut_no_door(world: World) -> None:
    browser = world.browser()
    browser.see("/sign-in")
    for _ in range(8):
        browser.submit("/sign-in", email="acme-lead@example.test", password="wrong")

    def tries() -> int:
        with world.work() as work:
            return work.pg.execute("SELECT count(*) FROM sign_in_tries").fetchone()[0]

    assert tries() == 16  # of the login and of the address
    world.clock.forward(minutes=14)
    rounds.tidy(world.plumbing)
    assert tries() == 16
    shut = browser.submit("/sign-in", email="acme-lead@example.test", password="wrong")
    assert shut.status_code == 429
    world.clock.forward(minutes=1, seconds=1)
    rounds.tidy(world.plumbing)
    assert tries() == 0
