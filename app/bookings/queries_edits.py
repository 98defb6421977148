"""SQL of the verbs that change a booking: its schedule, its units, whose it is, who may enter it, what it costs to give up.

Statements take a `Work` in which the tenant is set. Booking and holds are locked by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from app.bookings import queries
from app.bookings.facts import Held, PriceSegment
from app.bookings.own_use import OwnUse
from app.kernel.actor import Actor
from app.kernel.ids import new_id, short
from app.kernel.window import Window
from app.plumbing.db import Work

# --- schedule and window ----------------------------------------------------------------------------------------------


def put_schedule(work: Work, booking_id: UUID, segments: Sequence[PriceSegment]) -> None:
    """This price schedule instead of what stood there."""
    work.pg.execute("DELETE FROM booking_prices WHERE booking_id = %s", [booking_id])
    work.pg.execute(
        """INSERT INTO booking_prices (tenant_id, booking_id, starts_at, ends_at, price_id, per_hour, units)
           SELECT %s, %s, * FROM unnest(%s::timestamptz[], %s::timestamptz[], %s::int[], %s::numeric[], %s::int[])""",
        [
            work.tenant_id,
            booking_id,
            [s.window.start for s in segments],
            [s.window.end for s in segments],
            [s.price_id for s in segments],
            [s.per_hour for s in segments],
            [s.units for s in segments],
        ],
    )


def shrink_booking(
    work: Work, booking_id: UUID, end: datetime, units: int, nodes: int | None, per_node: int | None, quoted: Decimal
) -> None:
    """An earlier end, fewer units, and what it costs then. Metering looks at it anew: `ends_at` is among what is set."""
    work.pg.execute(
        """UPDATE bookings SET ends_at = %s, units = %s, nodes = %s, per_node = %s, quoted = %s, version = version + 1
            WHERE id = %s""",
        [end, units, nodes, per_node, quoted, booking_id],
    )


def end_holds(work: Work, booking_id: UUID, blocked_until: datetime) -> None:
    """Occupy the same units for a shorter time. Takes no pool: it only gives back."""
    work.pg.execute(
        """UPDATE holds SET during = tstzrange(lower(during), %(until)s)
            WHERE booking_id = %(booking)s AND live AND left_at IS NULL AND upper(during) > %(until)s""",
        {"until": blocked_until, "booking": booking_id},
    )


def look_again(work: Work, booking_id: UUID) -> None:
    """Metering begins anew with what is not written yet: the pieces of the schedule have changed."""
    work.pg.execute("UPDATE bookings SET ends_at = ends_at WHERE id = %s", [booking_id])


# --- units given back -------------------------------------------------------------------------------------------------


def leave_units(work: Work, hold: Held, kept: str | None, left: str, at: datetime, *, stay: bool) -> None:
    """A hold keeps the positions `kept` (None: nothing) and leaves `left`, from `at` on.

    `stay`: what is left stays blocked until it is seen empty; else nothing was ever there and it is free at once.
    """
    if kept is None:
        work.pg.execute("UPDATE holds SET left_at = %s, live = %s WHERE id = %s", [at, stay, hold.id])
        return
    work.pg.execute("UPDATE holds SET units = %s::int4multirange WHERE id = %s", [kept, hold.id])
    if stay:
        work.pg.execute(
            """INSERT INTO holds (id, booking_id, request_id, allocation_id, node_id, units, during, live, pinned, left_at)
               SELECT %s, booking_id, request_id, allocation_id, node_id, %s::int4multirange, during, true, pinned, %s
                 FROM holds WHERE id = %s""",
            [new_id(), left, at, hold.id],
        )


def free_left(
    work: Work, booking_id: UUID, cluster_id: int, still: Iterable[tuple[str, int, int]], at: datetime
) -> frozenset[UUID]:
    """Units that the booking left are given to others, save those on which something of it still is: `still` are
    (node, positions from its first GPU on). Returns which holds are free."""
    there = list(still)
    freed = work.pg.execute(
        """UPDATE holds h SET live = false,
                  during = tstzrange(lower(during), least(upper(during), greatest(%(at)s, lower(during) + interval '1 second')))
            WHERE booking_id = %(booking)s AND live AND left_at IS NOT NULL AND NOT EXISTS (
                  SELECT FROM unnest(%(nodes)s::text[], %(lower)s::int[], %(upper)s::int[]) t (node, lower, upper)
                    JOIN nodes n ON n.cluster_id = %(cluster)s AND n.name = t.node
                   WHERE n.id = h.node_id
                     AND h.units && int4range(64 * n.first_gpu + t.lower, 64 * n.first_gpu + t.upper))
           RETURNING h.id""",
        {
            "at": at,
            "booking": booking_id,
            "cluster": cluster_id,
            "nodes": [node for node, _, _ in there],
            "lower": [lower for _, lower, _ in there],
            "upper": [upper for _, _, upper in there],
        },
    )
    return frozenset(row[0] for row in freed.fetchall())


# --- another place ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placed:
    """Where and when a booking is moved to: pool and cluster, window, blocked time, (node, positions) of its holds."""

    cluster_id: int
    pool_id: int
    window: Window
    blocked_until: datetime
    holds: tuple[tuple[int, str], ...]


def lift(work: Work, held: Sequence[Held]) -> None:
    """An unstarted booking's holds occupy nothing, until they are put somewhere."""
    work.pg.execute("UPDATE holds SET live = false WHERE id = ANY(%s)", [[h.id for h in held]])


def put_place(work: Work, booking_id: UUID, old: Sequence[Held], allocation_id: UUID, to: Placed, at: datetime) -> None:
    """Holds on these units instead of those that were lifted; the rows are used again while the object is the same."""
    same = work.pg.execute(
        "SELECT id FROM holds WHERE id = ANY(%s) AND allocation_id = %s", [[h.id for h in old], allocation_id]
    ).fetchall()
    again = [h for h in old if (h.id,) in same][: len(to.holds)]
    for hold, (node, units) in zip(again, to.holds, strict=False):
        work.pg.execute(
            """UPDATE holds SET node_id = %s, units = %s::int4multirange, during = tstzrange(%s, %s), live = true
                WHERE id = %s""",
            [node, units, to.window.start, to.blocked_until, hold.id],
        )
    rest = [h.id for h in old if h not in again]
    work.pg.execute("UPDATE holds SET left_at = %s WHERE id = ANY(%s)", [at, rest])
    for node, units in to.holds[len(again) :]:
        work.pg.execute(
            """INSERT INTO holds (id, booking_id, allocation_id, node_id, units, during, live, pinned)
               VALUES (%s, %s, %s, %s, %s::int4multirange, tstzrange(%s, %s), true, false)""",
            [new_id(), booking_id, allocation_id, node, units, to.window.start, to.blocked_until],
        )


def move_booking(work: Work, booking_id: UUID, to: Placed, quoted: Decimal) -> None:
    """Another window and pool."""
    work.pg.execute(
        """UPDATE bookings SET starts_at = %s, ends_at = %s, cluster_id = %s, pool_id = %s, quoted = %s,
                  version = version + 1 WHERE id = %s""",
        [to.window.start, to.window.end, to.cluster_id, to.pool_id, quoted, booking_id],
    )


def new_allocation(work: Work, cluster_id: int) -> UUID:
    """An object for another cluster, that nobody has asked for yet."""
    made = new_id()
    work.pg.execute(
        """INSERT INTO allocations (id, cluster_id, installation, generation, name, gone, wanted, ensured, failures)
           SELECT %(id)s, %(cluster)s, i.id, 1, 'berth-' || i.id || '-' || %(short)s || '-g1', false, 1, 0, 0
             FROM installation i""",
        {"id": made, "cluster": cluster_id, "short": short(made)},
    )
    return made


def close_allocation(work: Work, allocation_id: UUID) -> None:
    """Nothing was ever asked under it, and nothing will be."""
    work.pg.execute("UPDATE allocations SET gone = true WHERE id = %s", [allocation_id])


# --- whose ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """A person who may book in a project."""

    account_id: UUID
    name: str


def members_of(work: Work, project_id: UUID) -> tuple[Member, ...]:
    """Who may book in a project, by name."""
    rows = work.pg.execute(
        """SELECT DISTINCT a.id, a.name FROM memberships m JOIN accounts a ON a.id = m.account_id
            WHERE m.project_id = %s AND m.role IN ('member', 'lead') AND NOT a.disabled ORDER BY a.name, a.id""",
        [project_id],
    )
    return tuple(Member(*row) for row in rows)


def set_owner(work: Work, booking_id: UUID, account_id: UUID, name: str) -> None:
    """Somebody else's from now on."""
    work.pg.execute(
        "UPDATE bookings SET account_id = %s, booked_by = %s, version = version + 1 WHERE id = %s",
        [account_id, name, booking_id],
    )


def set_shared(work: Work, booking_id: UUID, shared: bool) -> None:
    """Whether every member of the project may enter it."""
    work.pg.execute("UPDATE bookings SET shared = %s, version = version + 1 WHERE id = %s", [shared, booking_id])


def is_shared(work: Work, booking_id: UUID) -> bool:
    """Whether every member of the project may enter it."""
    return bool(work.pg.execute("SELECT shared FROM bookings WHERE id = %s", [booking_id]).fetchone()[0])


@dataclass(frozen=True, slots=True)
class Handed:
    """A booking went from one person to another."""

    at: datetime
    account_id: UUID | None
    person: str


def handed_over(work: Work, booking_id: UUID) -> tuple[Handed, ...]:
    """Every time it was handed over, oldest first, with whose it was *until* then."""
    rows = work.pg.execute(
        """SELECT at, (changes -> 'account' ->> 0)::uuid, changes -> 'person' ->> 0 FROM history
            WHERE booking_id = %s AND event = 'hand_over' ORDER BY seq""",
        [booking_id],
    )
    return tuple(Handed(*row) for row in rows)


# --- fees -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fee:
    """Money that a booking costs beside its time: since when it is owed, how much, and what for."""

    at: datetime
    amount: Decimal
    why: str


def record_fee(
    work: Work, booking_id: UUID, state: str, amount: Decimal, why: str, actor: Actor, now: datetime
) -> None:
    """A fee is owed: a line of history that billing charges when it next looks, which is at once."""
    queries.note(work, booking_id, "fee", state, state, actor, now, why, {"amount": str(amount)})
    work.pg.execute(
        """INSERT INTO metering (booking_id, tenant_id, next_at, collect_at, leased_until, failures)
           VALUES (%s, %s, %s, NULL, NULL, 0) ON CONFLICT (booking_id) DO UPDATE SET next_at = EXCLUDED.next_at""",
        [booking_id, work.tenant_id, now],
    )


def fees_of(work: Work, booking_id: UUID) -> tuple[Fee, ...]:
    """Every fee of a booking, oldest first."""
    rows = work.pg.execute(
        """SELECT at, (changes ->> 'amount')::numeric, why FROM history
            WHERE booking_id = %s AND event = 'fee' ORDER BY seq""",
        [booking_id],
    )
    return tuple(Fee(*row) for row in rows)


# --- use that nobody booked -------------------------------------------------------------------------------------------


def uses(work: Work, cluster_id: int | None, who: Sequence[tuple[int, str]]) -> tuple[OwnUse, ...]:
    """Open use of these people, each named by (cluster, user name there), oldest first."""
    rows = work.pg.execute(
        f"""{_USE} JOIN unnest(%(clusters)s::int[], %(names)s::text[]) w (cluster, name)
                     ON w.cluster = n.cluster_id AND w.name = e.who
             WHERE e.ended_at IS NULL AND NOT isempty(e.units) AND n.removed_at IS NULL AND (%(on)s::int IS NULL OR n.cluster_id = %(on)s)
             ORDER BY e.since, e.id""",
        {"clusters": [c for c, _ in who], "names": [n for _, n in who], "on": cluster_id},
    )
    return tuple(map(_use, rows))


def use_with_id(work: Work, use_id: int) -> OwnUse | None:
    """Open use by its number, whoever's it is."""
    row = work.pg.execute(
        f"{_USE} WHERE e.id = %s AND e.ended_at IS NULL AND n.removed_at IS NULL", [use_id]
    ).fetchone()
    return None if row is None else _use(row)


_USE = """
SELECT e.id, n.id, n.name, n.pool_id, n.cluster_id, p.kind, ARRAY(SELECT ARRAY[lower(r), upper(r)] FROM unnest(e.units) r),
       e.since, e.until, e.what, e.who
  FROM external_use e JOIN nodes n ON n.id = e.node_id JOIN pools p ON p.id = n.pool_id"""


def _use(row: Sequence[Any]) -> OwnUse:
    return OwnUse(*row[:6], tuple((lo, up) for lo, up in row[6]), *row[7:])
