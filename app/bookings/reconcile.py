"""Brings clusters to what the database says: claim, ask the backend with no transaction open, apply.

Every step may die anywhere: the lease runs out, somebody else claims the row, the backend's verbs are idempotent, and an
answer is applied only under a token that still counts. What an observation means is lifecycle's and evidence's to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

import psycopg
from psycopg.errors import UniqueViolation
from sqlalchemy.exc import DBAPIError

from app.accounts import cluster_users
from app.backends.contract import Access, Backend, BackendError, Observation, Order, Place, Ref, Slice, Workload
from app.bookings import due, queries, queries_edits, queries_life, queries_requests, replacing, watching
from app.bookings.actions_life import warn_of_end
from app.bookings.due import Lease
from app.bookings.evidence import apply_failure, apply_observation
from app.bookings.facts import Allocation, Booking, Held
from app.bookings.lifecycle import FINAL, BookingView, Event, Outage, Pace, Seen, State, Step, next_step, tick
from app.bookings.moves import write_changes
from app.bookings.queries import Served
from app.bookings.queries_policies import laid_over
from app.bookings.queries_requests import Piece
from app.inventory import queries as inventory
from app.inventory.connections import ask, backend_of
from app.inventory.facts import POSITIONS_PER_GPU, Cluster, Pool
from app.kernel.actor import SYSTEM
from app.kernel.window import Window
from app.plumbing.db import Work
from app.plumbing.log import get_log
from app.plumbing.runtime import Plumbing

log = get_log("reconcile")

_BREAKER = (timedelta(seconds=5), timedelta(minutes=2))
_LEFT_ALONE = timedelta(minutes=1)
"""How long an object is left alone on which our own code has failed."""
_BEFORE_GRACE = timedelta(minutes=5)
"""How long before its end a booking that may run on is made longer on the cluster."""
_INDEFINITE = frozenset({"timeout", "unreachable", "authentication", "busy", "unknown"})


@dataclass(frozen=True, slots=True)
class _Job:
    """One claimed piece of work, frozen: what to ask, with everything that the answer will be read by."""

    lease: Lease
    booking_id: UUID
    call: Literal["ensure", "observe", "release"]
    ref: Ref
    order: Order
    wanted: int
    first_gpus: dict[str, int]
    earlier: Ref | None
    """The object that this one takes the place of, where the cluster could not change it."""


def work_off(plumbing: Plumbing, cluster_id: int, pace: Pace | None = None, most: int = 500) -> int:
    """Work off what is due on one cluster, one object after the other; returns how many were looked at.

    Two processes may do this at once for one cluster, a third finds no call slot and leaves.
    """
    with plumbing.database.work() as work:
        cluster = inventory.cluster_with_id(work, cluster_id)
        backend = backend_of(plumbing, cluster, work)
    seconds = max(plumbing.settings.lease_seconds, int(backend.limit_seconds) + 10)
    done = 0
    failed: Exception | None = None
    while done < most:
        lease = _take(plumbing, cluster, seconds)
        if lease is None:
            break
        done += 1
        try:
            job = _prepare(plumbing, cluster, lease, pace)
            if job is not None:
                heard, elsewhere = _ask(plumbing, cluster, backend, job, pace)
                if elsewhere:
                    with plumbing.database.work(lease.tenant_id) as work:
                        replacing.replace_units(work, job.booking_id)
                if not heard:
                    break
        except (psycopg.OperationalError, DBAPIError):
            raise  # the database is away: the lease runs out by itself
        except Exception as error:  # one object that cannot be worked on must not hold up the others
            log.exception("an object cannot be worked on and is left alone for a while", subject=str(lease.subject))
            failed = error
            with plumbing.database.work() as work:
                due.give_back(work, lease, work.product_now() + _LEFT_ALONE)
    if failed is not None:
        raise failed
    return done


def _take(plumbing: Plumbing, cluster: Cluster, seconds: int) -> Lease | None:
    """A due row of our own; None when nothing is due that may be worked on."""
    for _ in range(5):
        try:
            with plumbing.database.work() as work:
                return due.claim(work, cluster.id, work.product_now(), seconds)
        except UniqueViolation:  # somebody took the call slot between our look and our write
            continue
    return None


def _prepare(plumbing: Plumbing, cluster: Cluster, lease: Lease, pace: Pace | None) -> _Job | None:
    """Write what time alone brings, and say what to ask of the cluster. None: nothing, the row is given back."""
    with plumbing.database.work(lease.tenant_id) as work:
        found = _lock(work, lease)
        if found is None:
            return None
        booking, held, now = found.booking, found.held, found.now
        pool = _pool(found)
        rhythm = watching.pace_of(pool.policy, pace)
        kept = _kept_until(work, booking, pool, now)
        view = replace(found.view, kept_until=kept)
        warn_of_end(work, booking, view, pool.policy, found.allocation.seen_at, now)
        view = write_changes(work, booking, view, tick(view, now, rhythm), SYSTEM, now)
        step = _with_edges(next_step(view, now, rhythm), view, pool, now)
        rest = _seen_lately(found, view, rhythm, now)
        if step.call is None or view.state in FINAL or rest is not None:
            due.give_back(work, lease, step.next_at if rest is None else min(rest, step.next_at or rest))
            return None
        call = step.call if cluster.writes else "observe"
        runs_on = kept is not None and view.state is State.ACTIVE and now >= booking.ends_at - _BEFORE_GRACE
        if runs_on and cluster.writes:
            call = "ensure"
        people = queries.people_of(work, booking) if call == "ensure" else ()
        return _Job(
            lease,
            booking.id,
            call,
            Ref(found.allocation.name),
            _order(booking, held, found.allocation, people, kept if runs_on else None),
            found.allocation.wanted,
            {h.node: h.first_gpu for h in held},
            _earlier(found, call),
        )


def _earlier(found: Served, call: str) -> Ref | None:
    """The object of the generation before, as long as the one of now was not made, and once more at the end."""
    allocation = found.allocation
    if allocation.generation < 2 or (call != "release" and (call != "ensure" or allocation.ensured)):
        return None
    return Ref(f"{allocation.name.rpartition('-g')[0]}-g{allocation.generation - 1}")


def _kept_until(work: Work, booking: Booking, pool: Pool, now: datetime) -> datetime | None:
    """Until when what runs may go on after the end, as far as can be said now."""
    over = State(booking.state) is State.ENDING and booking.left_by == Event.END
    soon = State(booking.state) is State.ACTIVE and now >= booking.ends_at - _BEFORE_GRACE
    if not pool.policy.grace or not (over or soon):
        return None
    return watching.kept_until(booking.ends_at, pool.policy, queries_life.follows_at(work, booking))


def _with_edges(step: Step, view: BookingView, pool: Pool, now: datetime) -> Step:
    """The step of a booking in place, with what has to be told or done before it would be looked at again."""
    if step.next_at is None or view.state is not State.ACTIVE:
        return step
    edges = [watching.next_warning(view, pool.policy, now)]
    if pool.policy.grace and view.window.end - _BEFORE_GRACE > now:
        edges.append(view.window.end - _BEFORE_GRACE)
    return replace(step, next_at=min([step.next_at, *(at for at in edges if at is not None)]))


def _seen_lately(found: Served, view: BookingView, pace: Pace, now: datetime) -> datetime | None:
    """When to look at a sound booking next that is up only because something had to be told; None: look now."""
    at, sound = found.allocation.seen_at, view.seen is not None and view.seen.state == "ready"
    if found.view.state is not State.ACTIVE or view.state is not State.ACTIVE or at is None or not sound:
        return None
    due_at = min(at + pace.every, view.window.end)
    settled = view.ensured >= view.wanted and not view.failures and view.kept_until is None and not found.left
    return due_at if settled and at < now < due_at else None


def _ask(plumbing: Plumbing, cluster: Cluster, backend: Backend, job: _Job, pace: Pace | None) -> tuple[bool, bool]:
    """Call the backend, then apply its answer. Whether the cluster as a whole answered, and whether the booking needs
    other units."""
    try:
        if job.earlier is not None:
            ask(backend, lambda: backend.release(job.earlier))
        if job.call == "ensure":
            answer: Observation | BackendError = ask(backend, lambda: backend.ensure(job.order))
        elif job.call == "release":
            answer = ask(backend, lambda: backend.release(job.ref))
        else:
            answer = ask(backend, lambda: backend.observe(job.ref))
    except BackendError as error:
        answer = error
        log.warning(
            "call failed",
            cluster=cluster.name,
            call=job.call,
            object=job.ref.name,
            kind=error.kind,
            error=error.sentence,
        )
    with plumbing.database.work(job.lease.tenant_id) as work:
        elsewhere = _apply(work, cluster, job, answer, pace)
    if isinstance(answer, BackendError) and answer.counts_against_cluster:
        _open_breaker(plumbing, cluster)
        return False, False
    if cluster.failures:
        with plumbing.database.work() as work:
            due.close_breaker(work, cluster.id)
    return True, elsewhere


def _apply(work: Work, cluster: Cluster, job: _Job, answer: Observation | BackendError, pace: Pace | None) -> bool:
    """Write what the answer means to the booking as it is now, if the lease still counts. True: it needs other units."""
    found = _lock(work, job.lease)
    if found is None:
        return False
    allocation, now = found.allocation, found.now
    if job.ref.name != allocation.name:  # it was made anew meanwhile: the answer is about the object before
        due.give_back(work, job.lease, now)
        return False
    pool = _pool(found)
    rhythm = watching.pace_of(pool.policy, pace)
    view = replace(found.view, kept_until=_kept_until(work, found.booking, pool, now))
    waits = False
    if isinstance(answer, Observation):
        answer, waits = _after_others(work, found, view, answer, rhythm)
    if isinstance(answer, BackendError):
        queries.store_failure(work, allocation.id, str(answer))
        view = replace(view, failures=view.failures + 1)
        refused = job.call == "ensure" and answer.kind not in _INDEFINITE
        changes = apply_failure(view, answer.sentence, refused, now, rhythm)
    else:
        ensured = job.wanted if job.call == "ensure" else allocation.ensured
        seen = _seen(answer, job.first_gpus)
        queries.store_seen(work, allocation.id, ensured, answer, now)
        view = replace(view, failures=0, ensured=ensured, seen=seen)
        changes = tick(view, now, rhythm) if waits else apply_observation(view, seen, now, rhythm)
    view = write_changes(work, found.booking, view, changes, SYSTEM, now)
    next_at = now + rhythm.soon if waits else _with_edges(next_step(view, now, rhythm), view, pool, now).next_at
    if found.left and not isinstance(answer, BackendError):
        _free_left(work, found, answer, now)
        next_at = min(next_at or now + rhythm.soon, now + rhythm.soon) if view.state not in FINAL else next_at
    due.give_back(work, job.lease, next_at)
    return cluster.writes and replacing.needs_others(view, found.held, pool, now)


def _after_others(
    work: Work, found: Served, view: BookingView, answer: Observation, pace: Pace
) -> tuple[Observation, bool]:
    """The answer as far as it counts where somebody was on these units before: they are the booking's from when they were
    seen empty. True: they are not yet, and that may last a little."""
    start = view.window.start
    if view.state is not State.STARTING or found.now < start or answer.in_place_since is None:
        return answer, False
    before = queries_life.before(work, found.booking)
    if before.still:
        if found.now < start + pace.late_after:
            return answer, True
        why = "What ran on its units before has not been seen to be over."
        return replace(answer, state="blocked", since=start, in_place_since=None, why=why), False
    if before.empty_since is not None and before.empty_since > max(start, answer.in_place_since):
        return replace(answer, in_place_since=before.empty_since), False
    return answer, False


def _free_left(work: Work, found: Served, answer: Observation, now: datetime) -> None:
    """Units that were given back are others' once the cluster has them neither in the booking nor on their way out."""
    if answer.state in ("ready", "degraded") and answer.places:
        there = (*answer.places, *answer.leaving)
        still = [(p.node, *positions) for p in there for positions in _positions(p)]
        freed = queries_edits.free_left(work, found.booking.id, found.booking.cluster_id, still, now)
        units = [Piece(h.node_id, h.ranges, now, h.end, found.allocation.id) for h in found.left if h.id in freed]
        queries_requests.pass_on(work, found.booking, units, now)


def _lock(work: Work, lease: Lease) -> Served | None:
    """Booking, holds, due row, in the order of the house; None when the lease counts no more."""
    ours = (due.STILL_OURS, [lease.subject, lease.token])
    found = queries.lock_served(work, lease.subject, ours, inventory.POOL)
    if found is None:
        due.give_back(work, lease, None)
    return found if found is not None and found.ours else None


def _order(
    booking: Booking,
    held: Iterable[Held],
    allocation: Allocation,
    people: tuple[str, ...],
    until: datetime | None = None,
) -> Order:
    """The booking in the backend's words. `until`: what runs may go on after its end until then."""
    wish = (booking.workload or {}).get("kind", "default")
    workload = None
    settings: dict[str, str] = {}
    if wish == "none":
        settings["workload"] = "none"
    elif wish != "default":
        workload = Workload(id=f"{wish}-1", kind=wish)
    return Order(
        ref=Ref(allocation.name),
        project=booking.project,
        account=booking.project,
        places=tuple(_place(h) for h in sorted(held, key=lambda h: h.node)),
        window=booking.window if until is None else Window(booking.starts_at, until),
        people=people,
        workload=workload,
        settings=settings,
    )


def _place(held: Held) -> Place:
    """Whole GPUs by their index on the node, or slices with their place in the memory of one."""
    if held.width == POSITIONS_PER_GPU:
        return Place(held.node, held.local_gpus)
    per = POSITIONS_PER_GPU // 8
    slices = (
        Slice(lower // POSITIONS_PER_GPU - held.first_gpu, lower % POSITIONS_PER_GPU // per, (upper - lower) // per)
        for lower, upper in held.units
    )
    return Place(held.node, (), tuple(slices))


def _positions(place: Place) -> list[tuple[int, int]]:
    """The positions that a place takes, counted from the node's first GPU on."""
    whole, per = POSITIONS_PER_GPU, POSITIONS_PER_GPU // 8
    cut = [(whole * s.gpu + per * s.start, whole * s.gpu + per * (s.start + s.size)) for s in place.slices]
    return [(whole * gpu, whole * (gpu + 1)) for gpu in place.gpus] + cut


def _seen(answer: Observation, first_gpus: dict[str, int]) -> Seen:
    """The answer with units as numbers of the installation."""
    lost = tuple(
        Outage(first_gpus[loss.node] + gpu, loss.since, loss.until, loss.why)
        for loss in answer.lost
        if loss.node in first_gpus
        for gpu in loss.gpus
    )
    return Seen(answer.state, answer.since, answer.in_place_since, answer.empty_since, lost, answer.why)


def _pool(found: Served) -> Pool:
    """The booking's pool under the policy that counts for it."""
    (pool,) = laid_over(inventory.pools_of(found.pools), found.words)
    return pool


def _open_breaker(plumbing: Plumbing, cluster: Cluster) -> None:
    """Ask a cluster that does not answer more and more rarely."""
    with plumbing.database.work() as work:
        now = work.product_now()
        failures = inventory.cluster_with_id(work, cluster.id).failures + 1
        least, most = _BREAKER
        pause = min(least * 2 ** min(failures - 1, 10), most)
        due.put_off(work, cluster.id, failures, now + pause, "The cluster does not answer.")


def strays_to_release(plumbing: Plumbing, cluster_id: int, names: Iterable[str], superseded: Iterable[str] = ()) -> int:
    """Take down objects of this installation whose bookings are known and final, and those whose place another
    generation of them has taken. Returns how many were asked for."""
    with plumbing.database.work() as work:
        cluster = inventory.cluster_with_id(work, cluster_id)
        final = [*queries.gone_names(work, names), *superseded]
    if not cluster.writes:
        return 0
    backend = backend_of(plumbing, cluster)
    for name in final:
        try:
            ask(backend, lambda name=name: backend.release(Ref(name)))
        except BackendError as error:
            log.warning("stray not released", cluster=cluster.name, object=name, error=str(error))
    return len(final)


def access_for(plumbing: Plumbing, booking: Booking, account_id: UUID) -> Access | str:
    """How a person gets into an active booking; where that cannot be said, why not.

    Looks only, in a transaction of its own that is over before the cluster is asked. A cluster whose breaker is open is
    not asked at all.
    """
    with plumbing.database.work(booking.tenant_id) as work:
        cluster = inventory.cluster_with_id(work, booking.cluster_id)
        silent = due.is_open(work, cluster.id, work.product_now())
        allocation = queries.allocation_of(work, booking.id)
        user = cluster_users.name_on(work, cluster.id, account_id)
    if silent:
        return "The cluster does not answer at the moment. Units that were handed over stay yours."
    if allocation is None:
        return "The booking has nothing on the cluster."
    if user is None:
        return f"You have no user name on {cluster.name}: enter yours on your own page."
    try:
        backend = backend_of(plumbing, cluster)
        return ask(backend, lambda: backend.access(Ref(allocation.name), user))
    except BackendError as error:
        log.warning("no access", cluster=cluster.name, object=allocation.name, kind=error.kind, error=error.sentence)
        if error.kind == "permission":
            return f"It is {booking.booked_by}'s, and not shared with the project. Whoever has it, or a lead, may share it."
        return error.sentence
