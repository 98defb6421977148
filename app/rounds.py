"""What is due, and what to do about it. Tasks do it one message at a time; the demo's history and the tests, whose clock
is stepped, do it in one process. Both find the same work and call the same functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from app.accounts.queries import tenants
from app.accounts.sessions import forget_sessions, forget_tries
from app.backends.contract import Backend
from app.billing import actions as billing
from app.bookings import (
    due,
    project_end,
    queries_keys,
    queries_requests,
    reconcile,
    reconcile_look,
    reconcile_requests,
    replanned,
    waitlist,
)
from app.bookings import queries as bookings
from app.bookings.lifecycle import Pace
from app.inventory import queries as inventory
from app.inventory import reconcile as looks
from app.inventory.connections import backend_of
from app.notices import actions_mail
from app.notices import queries as notices
from app.plumbing.db import Work
from app.plumbing.runtime import Plumbing
from app.usage import actions as usage
from app.usage import queries as usage_queries
from app.usage import reconcile as collecting

_SLOT_SECONDS = 60
"""As long as the lease of a collection."""
KEPT = timedelta(days=30)
"""How long ended sessions stay visible."""
KEYS_KEPT = timedelta(days=7)
"""How long the answer to an idempotency key is kept, on the wall clock."""


MAIL_KEPT = timedelta(hours=1)
"""How long mail waits where none is sent: who sets a mail server up does not send the news of last month."""


class Hint(NamedTuple):
    """The name of a task and what it is about."""

    name: str
    args: tuple[Any, ...]


def find_work(plumbing: Plumbing, usage_waited: timedelta = timedelta(0)) -> list[Hint]:
    """Everything that is due now, from rows and the product clock; never by an exact minute.

    `usage_waited`: measurements are left until they have been due for so long.
    """
    with plumbing.database.work() as work:
        now = work.product_now()
        values = {"now": now, "wall": work.wall, "waited": usage_waited, "most": usage_queries.MOST_COLLECTED}
        clusters, requests, looks_due, collections, meterings, mail = work.together(
            (due.CLUSTERS_DUE, values),
            (queries_requests.DUE, values),
            (inventory.CLUSTERS_TO_LOOK_AT, values),
            (usage_queries.DUE_COLLECTIONS, values),
            (usage_queries.DUE_METERINGS, values),
            (notices.MAIL_DUE, values),
        )
        send = plumbing.settings.smtp_host is not None and mail[0][0]
        return [
            *(Hint("reconcile.cluster", (i,)) for (i,) in clusters),
            *(Hint(waitlist.LOOK, (str(t), str(s))) for t, s in requests),
            *(Hint("reconcile.look", (i,)) for (i,) in looks_due),
            *_collections(work, collections),
            *(Hint("usage.meter", (str(t), str(b))) for t, b in meterings),
            *([Hint("mail.send", ())] if send else ()),
            *_across_tenants(work, values),
        ]


def _across_tenants(work: Work, values: dict[str, Any]) -> list[Hint]:
    """What has to be told to bookings, or done with them, and stands in no list of due rows."""
    with work.read_all():
        moved = work.pg.execute(replanned.MOVED).fetchall()
        ended = work.pg.execute(project_end.DUE, values).fetchall()
    return [
        *(Hint("bookings.replanned", (str(t), str(b))) for t, b in moved),
        *(Hint("bookings.project_end", (str(t), str(b))) for t, b in ended),
    ]


def _collections(work: Work, due_ones: list[tuple]) -> list[Hint]:
    """One hint for each cluster, with (tenant, booking) of all that is to be collected there."""
    if not due_ones:
        return []
    clusters = due.clusters_of(work, [booking for _, booking in due_ones])
    found: dict[int | None, list[list[str]]] = {}
    for tenant, booking in due_ones:
        found.setdefault(clusters.get(booking), []).append([str(tenant), str(booking)])
    return [Hint("reconcile.usage", (cluster, pairs)) for cluster, pairs in found.items()]


def work_off_cluster(plumbing: Plumbing, cluster_id: int, pace: Pace | None = None) -> int:
    """Bring one cluster's objects to what the database says."""
    return reconcile.work_off(plumbing, cluster_id, pace)


def look_at_cluster(plumbing: Plumbing, cluster_id: int) -> None:
    """See what a cluster has, and take down what is known to be over."""
    looked = looks.sync_cluster(plumbing, cluster_id)
    if looked is None or looked.error is not None:
        return
    reconcile_look.after_look(plumbing, cluster_id)
    found = looks.strays(plumbing, cluster_id)
    if found.gone or found.superseded:
        superseded = [ref.name for ref in found.superseded]
        reconcile.strays_to_release(plumbing, cluster_id, [ref.name for ref in found.gone], superseded)


def collect_usage(
    plumbing: Plumbing, cluster_id: int | None, pairs: list[list[str]], fine_for: timedelta = usage.FINE_FOR
) -> None:
    """Fetch samples of bookings, (tenant, booking) each, from their one cluster, one call after the other.

    Each call takes one of the two call slots of the cluster, so that a cluster that hangs holds up no more threads than
    that. Where it is taken the rest is left: the rows are still due.
    """
    database = plumbing.database

    def backend_for(work: Work, number: int) -> Backend:
        return backend_of(plumbing, inventory.cluster_with_id(work, number), work)

    for tenant, booking in pairs:
        with database.work() as work:
            lease = None if cluster_id is None else due.take_slot(work, cluster_id, UUID(tenant), _SLOT_SECONDS)
        if cluster_id is not None and lease is None:
            return
        try:
            collecting.collect_one(
                database, backend_for, UUID(tenant), UUID(booking), bookings.set_first_used, fine_for
            )
        finally:
            if lease is not None:
                with database.work() as work:
                    due.give_back(work, lease, None)


def meter_booking(plumbing: Plumbing, tenant_id: str, booking_id: str) -> None:
    """Write the intervals that have ended, and rate them."""
    with plumbing.database.work(UUID(tenant_id)) as work:
        usage.meter(work, UUID(booking_id), work.product_now())
        billing.charge(work, UUID(booking_id))


def tell_moved(plumbing: Plumbing, tenant_id: str, booking_id: str) -> None:
    """Tell a booking that it went to other units."""
    with plumbing.database.work(UUID(tenant_id)) as work:
        replanned.tell_moved(work, UUID(booking_id))


def end_with_project(plumbing: Plumbing, tenant_id: str, booking_id: str) -> None:
    """Take the step of a booking whose project has ended."""
    with plumbing.database.work(UUID(tenant_id)) as work:
        project_end.end_booking(work, plumbing.queue, UUID(booking_id))


def tidy(plumbing: Plumbing) -> None:
    """Remove what nobody needs any more, a bounded amount at a time."""
    with plumbing.database.work() as work:
        now = work.product_now()
        while usage.thin(work, now):
            work.keep()
        forget_sessions(work, work.wall - KEPT)
        forget_tries(work)
        if plumbing.settings.smtp_host is None:
            notices.forget_mail(work, work.wall - MAIL_KEPT)
        with work.read_all():
            every = [tenant.id for tenant in tenants(work)]
    for tenant_id in every:
        with plumbing.database.work(tenant_id) as work:
            while queries_keys.forget_keys(work, work.wall - KEYS_KEPT):
                work.keep()


TASKS: dict[str, Callable[..., Any]] = {
    "reconcile.cluster": work_off_cluster,
    waitlist.LOOK: reconcile_requests.look,
    "reconcile.look": look_at_cluster,
    "reconcile.usage": collect_usage,
    "usage.meter": meter_booking,
    "bookings.replanned": tell_moved,
    "bookings.project_end": end_with_project,
    "mail.send": actions_mail.send_due,
}


@dataclass(frozen=True, slots=True)
class Haste:
    """How a clock that is stepped differs from one that runs.

    `pace`: how closely bookings are followed. `without`: tasks that are left alone (a month is not looked at every
    minute). `usage_waited`: measurements are left until they have been due for so long. `fine_for`: how young they are
    when every minute of them is kept.
    """

    pace: Pace | None = None
    without: frozenset[str] = frozenset()
    usage_waited: timedelta = timedelta(0)
    fine_for: timedelta = usage.FINE_FOR


def do_all(plumbing: Plumbing, haste: Haste | None = None) -> int:
    """Do what is due in this process until nothing is; returns how many pieces of work that was."""
    haste = haste or Haste()
    more = {"reconcile.cluster": {"pace": haste.pace}, "reconcile.usage": {"fine_for": haste.fine_for}}
    done = 0
    while hints := [h for h in find_work(plumbing, haste.usage_waited) if h.name not in haste.without]:
        for hint in hints:
            TASKS[hint.name](plumbing, *hint.args, **more.get(hint.name, {}))
        done += len(hints)
        if done > 1_000_000:
            raise RuntimeError("work that is done stays due: a use case does not move its cursor")
    return done


def next_instant(plumbing: Plumbing) -> datetime | None:
    """When something falls due next, for a clock that is stepped."""
    with plumbing.database.work() as work:
        rows = work.together((due.NEXT_INSTANT, None), (usage_queries.NEXT_INSTANT, None))
        instants = [i for ((i,),) in rows if i is not None]
        return max(min(instants), work.product_now() + timedelta(seconds=1)) if instants else None
