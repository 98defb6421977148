"""What a look at a cluster means for bookings to come: their units are no capacity any more, or are again.

A transaction for each booking, so that a pool is never locked after a booking and one booking holds up no other. Asks no
cluster anything: `inventory` has looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from uuid import UUID

from app.bookings import policies, queries, queries_life, replacing
from app.bookings.facts import Booking
from app.bookings.queries_life import Ailing
from app.inventory import queries as inventory
from app.plumbing.log import get_log
from app.plumbing.runtime import Plumbing

log = get_log("reconcile")

MOST = 500
"""How many bookings are given other units after one look; the rest is called at risk and comes after the next."""


def after_look(plumbing: Plumbing, cluster_id: int) -> tuple[int, int]:
    """Give bookings that have not begun other units instead of those that are no capacity, for longer than a blip; call
    those at risk for which there are none; and take that back where it is no longer so.

    Owners and operators are told. Answers how many have other units now, and how many are at risk.
    """
    with plumbing.database.work() as work:
        now = work.product_now()
        cluster = inventory.cluster_with_id(work, cluster_id)
        with work.read_all():
            rows = queries_life.ailing(work, cluster_id, now)
            called = queries_life.at_risk(work, cluster_id)
    ailing = {key: tuple(group) for key, group in groupby(rows, key=lambda a: (a.tenant_id, a.booking_id))}
    moved, new = 0, []
    for tried, ((tenant_id, booking_id), found) in enumerate(ailing.items()):
        with plumbing.database.work(tenant_id) as work:
            booking = queries.find_booking(work, booking_id)
            if booking is None:
                continue
            blip = policies.pool_of(work, booking).policy.blip
            lasting = tuple(a for a in found if now - a.since >= blip)
            if not lasting:
                continue
            if cluster.writes and tried < MOST and replacing.replace_units(work, booking_id, lasting) is not None:
                moved += 1
                continue
        # in a transaction of its own: the pool was locked to look for others, and is not needed for this
        with plumbing.database.work(tenant_id) as work:
            if replacing.call_at_risk(work, booking_id, lasting):
                new.append((booking, lasting))
    for tenant_id, booking_id in called:
        if (tenant_id, booking_id) not in ailing:
            with plumbing.database.work(tenant_id) as work:
                replacing.no_longer_at_risk(work, booking_id)
    _tell_operators(plumbing, cluster_id, new)
    if moved or new:
        log.info("capacity shrank", cluster=cluster.name, moved=moved, at_risk=len(new))
    return moved, len(new)


def _tell_operators(plumbing: Plumbing, cluster_id: int, new: Sequence[tuple[Booking, tuple[Ailing, ...]]]) -> None:
    by_tenant: dict[UUID, list[tuple[Booking, tuple[Ailing, ...]]]] = {}
    for booking, ailing in new:
        by_tenant.setdefault(booking.tenant_id, []).append((booking, ailing))
    for tenant_id, found in by_tenant.items():
        with plumbing.database.work(tenant_id) as work:
            cluster = inventory.cluster_with_id(work, cluster_id)
            every = [a for _, ailing in found for a in ailing]
            replacing.tell_operators(work, cluster, [b for b, _ in found], every, work.product_now())
