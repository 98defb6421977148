"""Works off what falls due of requests and of the waiting list: approvals lapse, offers expire, freed units find a waiter.

Whoever waits may be of another tenant than whoever freed the units, so each step is a transaction of its own that takes
its locks in the order of the house: scopes of the waiter, pool, booking, holds. A process that is killed between two steps
loses nothing: the freed units are held by a request whose due row stays until it is closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from app.bookings import (
    approvals,
    asking,
    offers,
    policies,
    queries,
    queries_requests,
    queries_waiting,
    rules,
    waitlist,
    waits,
)
from app.bookings.earliest import Prepared
from app.bookings.edits import project_of
from app.bookings.facts import Booking, PriceSegment
from app.bookings.keeping import most_of
from app.bookings.lifecycle import State
from app.bookings.offers import Desk
from app.bookings.queries_requests import Piece
from app.bookings.queries_waiting import Waiter
from app.bookings.queue_ground import (
    Limited,
    QueueGround,
    first_start,
    fitting,
    free_for,
    making_room,
    pool_now,
    room_by_count,
    see,
)
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.inventory.policy import Policy
from app.kernel.actor import SYSTEM, Actor
from app.kernel.errors import Reason, Refused
from app.kernel.window import Window
from app.plumbing import outbox
from app.plumbing.db import Work
from app.plumbing.runtime import Plumbing
from app.pricing.rules import cost
from app.quotas import queries as quotas
from app.quotas.rules import pieces

_MOST_ROUNDS = 500
"""Steps of one look at a queue; what is left is done at the next."""


def look(plumbing: Plumbing, tenant_id: str, subject: str) -> None:
    """Look at one request or one waiting booking: do what time brings, and say when to look again."""
    tenant, what = UUID(tenant_id), UUID(subject)
    with plumbing.database.work(tenant) as work:
        request = queries_requests.find_request(work, what)
        booking = queries.find_booking(work, what if request is None else request.booking_id)
        waiter = queries_waiting.waiter(work, what) if request is None else None
        if booking is None or (request is None and waiter is None) or (request is not None and request.outcome):
            work.pg.execute("DELETE FROM due WHERE subject = %s", [what])
            return
        if waiter is not None and not queries_requests.is_due(work, what, work.product_now()):
            return  # it was looked at with the others of its queue
        pool_id = booking.pool_id
        if request is not None and request.waits_for != "waiter":
            if request.waits_for == "approval":
                approvals.lapse(work, request.id)
            else:
                waitlist.expire(work, booking.id)
            left = queries_requests.find_request(work, what)
            if left is not None and left.outcome is None:  # it was looked at too early
                at = max(left.expires_at, work.product_now() + timedelta(seconds=1))
                queries_requests.remind(work, what, at)
            return
    serve(plumbing, pool_id)
    with plumbing.database.work(tenant) as work:
        if waiter is not None:
            waitlist.lapse_wait(work, what)
        _look_again(work, what)


def _look_again(work: Work, subject: UUID) -> None:
    """When to look at it next, if it is still there."""
    now = work.product_now()
    waiter = queries_waiting.waiter(work, subject)
    if waiter is not None:  # one with an offer is looked at through its offer
        last = waiter.last_start
        queries_requests.remind(work, subject, min(now + waits.LOOK, last) if last > now else now + waits.LOOK)
        return
    request = queries_requests.find_request(work, subject)
    if request is not None and request.outcome is None:
        if queries_requests.pieces_of_request(work, subject):
            queries_requests.remind(work, subject, now + waits.LOOK)
        else:
            queries_requests.close_request(work, subject, "granted", SYSTEM, now)


# --- the queue of a pool ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Round:
    """What one look at a queue has found out. `out`: waiters whom their own limits or prices keep from being served;
    `kept`: those for whom units were set aside in this look; `spares`: freed units at the last step, `seen`: at any;
    `moved_for`: those for whom others were asked to give way; `looked_at`: who need not be looked at again soon; `policies`:
    of projects."""

    out: set[UUID] = field(default_factory=set)
    kept: set[UUID] = field(default_factory=set)
    spares: tuple[UUID, ...] = ()
    seen: set[UUID] = field(default_factory=set)
    moved_for: set[UUID] = field(default_factory=set)
    looked_at: tuple[UUID, ...] = ()
    now: datetime | None = None
    policies: dict[UUID, Policy] = field(default_factory=dict)


def serve(plumbing: Plumbing, pool_id: int) -> int:
    """Give what is free in a pool to those who wait for it, in their order; let go what nobody can use. Returns how many
    were served.

    Whoever does not fit is passed over and keeps the place; after so many times what is free is kept for it.
    """
    served, found = 0, _Round()
    for _ in range(_MOST_ROUNDS):
        step = _step(plumbing, pool_id, found)
        if step is None:
            break
        served += step
    _let_go(plumbing, pool_id, found)
    _tell_places(plumbing, pool_id)
    with plumbing.database.work() as work:
        queries_waiting.put_off(work, found.looked_at, found.now or work.product_now(), work.product_now() + waits.LOOK)
    return served


def _step(plumbing: Plumbing, pool_id: int, found: _Round) -> bool | None:
    """Serve the first who fits, or set aside for the first who was passed over too often. None: nothing is left to do;
    False: somebody was looked at and not served."""
    try:
        with plumbing.database.work() as work:
            ground = see(work, pool_id)
            found.spares = tuple(s.request_id for s in ground.spares if s.kept_for is None)
            found.seen |= {s.request_id for s in ground.spares}
            found.now = ground.now
            found.looked_at = tuple(w.booking_id for w in ground.queue if w.last_start > ground.now + waits.LOOK)
            common: Prepared | None = None
            for waiter in ground.queue:
                if waiter.offered or waiter.booking_id in found.out:
                    continue
                work.act_for(waiter.tenant_id)
                policy = found.policies.get(waiter.project_id)
                if policy is None:
                    policy = policies.effective(work, pool_now(work, pool_id), waiter.project_id).policy
                    found.policies[waiter.project_id] = policy
                own = any(s.kept_for == waiter.booking_id for s in ground.spares)
                if own or common is None:
                    ready = free_for(work, ground, waiter.booking_id)
                    common = common if own else ready
                else:
                    ready = common
                if first_start(ready, waiter, policy, ground.now) is not None:
                    current = waiter.booking_id
                    return _give(work, plumbing, pool_id, waiter)
                if waiter.booking_id not in found.moved_for and room_by_count(ready, waiter, policy, ground.now):
                    found.moved_for.add(waiter.booking_id)
                    current = waiter.booking_id
                    return _give(work, plumbing, pool_id, waiter)
                if waiter.skips >= policy.skips and waiter.booking_id not in found.kept:
                    found.kept.add(waiter.booking_id)
                    _keep_for(work, pool_id, waiter)
                    return False
            return None
    except Limited as limited:
        found.out.add(current)
        _tell_limited(plumbing, current, limited.reasons)
        return False


def _give(work: Work, plumbing: Plumbing, pool_id: int, waiter: Waiter) -> bool:
    """Under its locks offer a waiter what fits, or book it at once where that was agreed. False when it does not fit after
    all."""
    booking = queries.find_booking(work, waiter.booking_id)
    assert booking is not None
    asker = _asker(work, booking)
    scopes = quotas.lock_scopes(work, booking.tenant_id, booking.project_id, booking.account_id, [booking.kind])
    pool = policies.lock_pool(work, booking)
    locked = queries.lock_booking(work, booking.id)
    if locked is None or locked.state != State.WAITING or queries_requests.open_request(work, booking.id) is not None:
        return False
    ground = see(work, pool_id)
    mine = ground.for_(booking.id)
    queries_requests.lock_holds_of_requests(work, mine)
    ready = free_for(work, ground, booking.id)
    desk = Desk(work, asker, project_of(work, booking), ground.now, booking.account_id)
    found = fitting(desk, pool, waiter, ready) or making_room(desk, pool, waiter, ground, mine)
    if found is None:
        return False
    window, placement, segments = found
    shut = _shut(pool)
    if shut:
        raise Limited(shut)
    asked = pieces(segments, desk.zone, booking.units, booking.share840)
    reasons, _ = offers.limits_of(desk, pool, booking.account_id, scopes, asked, window, booking.id)
    if reasons:
        raise Limited(reasons)
    held = Window(window.start, window.end + pool.policy.gap)
    allocation = queries_requests.make_allocation(work, pool.cluster_id)
    parts = [Piece(p.node_id, p.positions, held.start, held.end, allocation) for p in placement.parts]
    for part in parts:
        queries_waiting.cut_spares(work, mine, part.node_id, part.units, held)
    price = cost(segments, booking.units, booking.currency, booking.share840)
    until = waits.offer_until(ground.now, window.start, window.end, pool.policy)
    schedule = [PriceSegment(s.window, s.price_id, s.per_hour) for s in segments]
    wanted = {"segments": [asking.segment_words(s) for s in schedule], "amount": str(price.amount)}
    request_id = queries_requests.insert_request(work, booking.id, "answer", "offer", wanted, until, asker, ground.now)
    if queries_requests.add_holds(work, request_id, parts) != len(parts):
        raise RuntimeError("a place was found on units that are no slots of their node")
    quotas.commit_pieces(work, booking.tenant_id, scopes, asked, None, request_id)
    _skip(work, ground, waiter, window)
    inventory.raise_version(work, [pool.id])
    if waiter.auto:
        request = queries_requests.find_request(work, request_id, lock=True)
        assert request is not None
        try:
            waitlist.take(work, plumbing.queue, asker, locked, request, pool, ground.now)
        except Refused as refused:
            raise Limited(refused.refusal.reasons) from None
        _tell(work, booking, "wait_booked", ground.now, request_id, window, until)
        return True
    changes = {"window": f"{rules.iso(window.start)} .. {rules.iso(window.end)}", "until": rules.iso(until)}
    queries.note(work, booking.id, "offer", State.WAITING, State.WAITING, SYSTEM, ground.now, "", changes)
    _tell(work, booking, "offer_made", ground.now, request_id, window, until)
    return True


def _shut(pool: Pool) -> list[Reason]:
    """Why nobody may book there now: the pool is not open to the project, or nothing is changed there."""
    reasons = rules.check_open(pool.policy, pool.kind, pool.cluster)
    if not pool.writes:
        reasons.append(Reason("nothing_offered", f"Berth only looks at {pool.cluster} now and changes nothing there."))
    return reasons


def _skip(work: Work, ground: QueueGround, served: Waiter, window: Window) -> None:
    """Those before it in the queue who could have used that time were passed over."""
    before = ground.queue[: [w.booking_id for w in ground.queue].index(served.booking_id)]
    passed = [w for w in before if not w.offered and w.earliest < window.end and w.latest > window.start]
    queries_waiting.skip(work, [w.booking_id for w in passed])


def _keep_for(work: Work, pool_id: int, waiter: Waiter) -> None:
    """Set aside what is free in the window in which the least is missing, for a waiter who was passed over too often.

    What comes free there later joins it, until all of it is there and is offered; it is let go when the waiter is served
    or leaves. No quota is held: nothing is promised yet.
    """
    booking = queries.find_booking(work, waiter.booking_id)
    assert booking is not None
    pool = policies.lock_pool(work, booking)
    locked = queries.lock_booking(work, booking.id)
    if locked is None or locked.state != State.WAITING or queries_requests.open_request(work, booking.id) is not None:
        return
    ground = see(work, pool_id)
    mine = ground.for_(booking.id)
    own = [s.request_id for s in ground.spares if s.kept_for == booking.id]
    queries_requests.lock_holds_of_requests(work, mine)
    ready = free_for(work, ground, booking.id)
    first = max(waiter.earliest, ground.now + pool.policy.lead)
    best = most_of(ready, waiter.shape, first, waiter.last_start, waiter.length, int(pool.policy.gap.total_seconds()))
    if best is None:
        return
    window, placement = best
    held = Window(window.start, window.end + pool.policy.gap)
    had = {(p.node_id, p.units, p.start, p.end) for r in own for p in queries_requests.pieces_of_request(work, r)}
    if had == {(p.node_id, p.positions, held.start, held.end) for p in placement.parts}:
        return
    for request_id in own:  # set aside anew, so that it is all in one window
        queries_requests.drop_holds(work, [request_id])
        queries_requests.close_request(work, request_id, "lapsed", SYSTEM, ground.now)
    allocation = queries_requests.make_allocation(work, pool.cluster_id)
    queries_requests.close_allocation(work, allocation)  # a name is needed, but nothing will stand under it
    parts = [Piece(p.node_id, p.positions, held.start, held.end, allocation) for p in placement.parts]
    others = [request_id for request_id in mine if request_id not in own]
    for part in parts:
        queries_waiting.cut_spares(work, others, part.node_id, part.units, held)
    request_id = queries_requests.insert_request(
        work, booking.id, "waiter", "offer", {"kept": True}, waiter.last_start, SYSTEM, ground.now
    )
    queries_requests.add_holds(work, request_id, parts)
    inventory.raise_version(work, [pool.id])


def _let_go(plumbing: Plumbing, pool_id: int, found: _Round) -> None:
    """What nobody who waits can use is free for everybody."""
    if not found.seen:
        return
    with plumbing.database.work() as work:
        inventory.lock_pools(work, [pool_id])  # nobody cuts what is let go
        for spare in see(work, pool_id).spares:
            if spare.request_id in found.spares and spare.kept_for is None:
                work.act_for(spare.tenant_id)
                queries_requests.drop_holds(work, [spare.request_id])
                queries_requests.close_request(work, spare.request_id, "lapsed", SYSTEM, work.product_now())
        _close_empty(work, found.seen)


def _close_empty(work: Work, request_ids: Iterable[UUID]) -> None:
    """Freed units that were all given away: their requests are done."""
    with work.read_all():
        rows = work.pg.execute(
            """SELECT r.tenant_id, r.id FROM requests r WHERE r.id = ANY(%s) AND r.outcome IS NULL
                  AND NOT EXISTS (SELECT FROM holds h WHERE h.request_id = r.id AND h.live)""",
            [list(request_ids)],
        ).fetchall()
    for tenant_id, request_id in rows:
        work.act_for(tenant_id)
        queries_requests.close_request(work, request_id, "granted", SYSTEM, work.product_now())


def _tell_places(plumbing: Plumbing, pool_id: int) -> None:
    """Each who waits learns his place once, whenever it is a better one."""
    with plumbing.database.work() as work:
        every = queries_waiting.told_places(work, pool_id)
        for nth, (tenant_id, booking_id) in enumerate(every, 1):
            work.act_for(tenant_id)
            booking = queries.find_booking(work, booking_id)
            if booking is not None:
                asking.tell_place(work, booking, (nth, len(every)), work.product_now())


def _tell_limited(plumbing: Plumbing, booking_id: UUID, reasons: Sequence[Reason]) -> None:
    """It would fit, but his own limits do not allow it: told once."""
    with plumbing.database.work() as work:
        rows = work.pg.execute("SELECT tenant_id FROM waiting WHERE booking_id = %s", [booking_id]).fetchall()
        for (tenant_id,) in rows:
            work.act_for(tenant_id)
            booking = queries.find_booking(work, booking_id)
            if booking is not None and booking.account_id is not None:
                outbox.tell(
                    work, "wait_limited", work.product_now(), booking.account_id, booking.id, key=f"limited:{booking_id}",
                    number=booking.number, name=booking.name, why=" ".join(r.message for r in reasons),
                )  # fmt: skip


def _asker(work: Work, booking: Booking) -> Actor:
    """Whose booking it is, with the roles that this person has in the tenant."""
    rows = queries_requests.roles_of(work, booking.account_id)
    return Actor(
        booking.account_id,
        booking.booked_by,
        booking.tenant_id,
        frozenset(role for project, role in rows if project is None),
        project_roles={project: role for project, role in rows if project is not None},
        zone=booking.zone,
    )


def _tell(
    work: Work, booking: Booking, kind: str, now: datetime, request_id: UUID, window: Window, until: datetime
) -> None:
    if booking.account_id is not None:
        outbox.tell(
            work, kind, now, booking.account_id, booking.id, key=f"{kind}:{request_id}", number=booking.number,
            name=booking.name, start=rules.iso(window.start), end=rules.iso(window.end), until=rules.iso(until),
        )  # fmt: skip
