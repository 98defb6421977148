"""SQL of the ground on which bookings stand: all holds of a pool with what each was promised, and the writing of moves.

Holds are a platform table; what a booking was promised stands in its tenant's row and is read for everyone, as numbers
without names. The pool is locked by whoever writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import numpy as np

from app.bookings.capacity import LEVELS, Range
from app.bookings.held import Held, PackedIds
from app.bookings.queries import multirange
from app.bookings.recolour import Moved
from app.plumbing.db import Work


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """All holds of a pool that end after now. `own`: the number in `held.owner` of the booking that was named, None when
    it holds nothing there. `near`: for each hold the level that its booking wished for, as an index in LEVELS, -1 for none."""

    held: Held
    own: int | None
    near: np.ndarray


def ground_of(work: Work, node_ids: Sequence[int], now: datetime, booking_id: UUID | None = None) -> Ground:
    """Read it, packed: a hundred thousand holds without a Python object each. What was given back or is kept for an
    answer counts as pinned."""
    values = {"nodes": list(node_ids), "now": now, "levels": list(LEVELS), "own": booking_id}
    with work.read_all():
        row = work.pg.execute(_GROUND, values).fetchone()
    ids, owner, node, start, end, flags, within, near, hold, lower, upper, own = row
    flag = np.frombuffer(flags, ">i4")
    held = Held(
        PackedIds(ids),
        _ints(owner, ">i4"),
        _ints(node, ">i4"),
        _ints(start, ">i8"),
        _ints(end, ">i8"),
        (flag & 1) > 0,
        (flag & 2) > 0,
        _ints(within, ">i4"),
        (flag & 4) > 0,
        _ints(hold, ">i4"),
        _ints(lower, ">i4"),
        _ints(upper, ">i4"),
    )
    return Ground(held, own, _ints(near, ">i4"))


_GROUND = """
WITH h AS MATERIALIZED (
  SELECT h.id, h.booking_id, h.node_id,
         dense_rank() OVER (ORDER BY coalesce(h.booking_id, h.request_id))::int AS owner,
         h.units, lower(h.during) AS s, upper(h.during) AS e,
         (CASE WHEN h.pinned OR h.left_at IS NOT NULL OR h.request_id IS NOT NULL THEN 1 ELSE 0 END)
         + (CASE WHEN lower(h.during) <= %(now)s THEN 2 ELSE 0 END)
         + (CASE WHEN b.nodes > 1 THEN 4 ELSE 0 END) AS flags,
         coalesce(array_position(%(levels)s::text[], b.within), 0) - 1 AS within,
         coalesce(array_position(%(levels)s::text[], b.near), 0) - 1 AS near,
         (row_number() OVER (ORDER BY h.id))::int - 1 AS i
    FROM holds h LEFT JOIN bookings b ON b.id = h.booking_id
   WHERE h.live AND h.node_id = ANY(%(nodes)s) AND upper(h.during) > %(now)s)
SELECT coalesce((SELECT string_agg(uuid_send(id), '' ORDER BY i) FROM h), ''),
       coalesce((SELECT string_agg(int4send(owner), '' ORDER BY i) FROM h), ''),
       coalesce((SELECT string_agg(int4send(node_id), '' ORDER BY i) FROM h), ''),
       coalesce((SELECT string_agg(int8send(extract(epoch FROM s)::bigint), '' ORDER BY i) FROM h), ''),
       coalesce((SELECT string_agg(int8send(extract(epoch FROM e)::bigint), '' ORDER BY i) FROM h), ''),
       coalesce((SELECT string_agg(int4send(flags), '' ORDER BY i) FROM h), ''),
       coalesce((SELECT string_agg(int4send(within), '' ORDER BY i) FROM h), ''),
       coalesce((SELECT string_agg(int4send(near), '' ORDER BY i) FROM h), ''),
       coalesce((SELECT string_agg(int4send(i), '' ORDER BY i, r) FROM h, unnest(units) r), ''),
       coalesce((SELECT string_agg(int4send(lower(r)), '' ORDER BY i, r) FROM h, unnest(units) r), ''),
       coalesce((SELECT string_agg(int4send(upper(r)), '' ORDER BY i, r) FROM h, unnest(units) r), ''),
       (SELECT owner FROM h WHERE booking_id = %(own)s::uuid LIMIT 1)"""


def _ints(packed: bytes, kind: str) -> np.ndarray:
    return np.frombuffer(packed, kind).astype(np.int64)


def lock_moved(work: Work, moves: Sequence[Moved]) -> bool:
    """Lock the holds that are to move, in id order; whether each still is where the plan has it, and may move."""
    rows = work.pg.execute(
        """SELECT id, node_id, ARRAY(SELECT ARRAY[lower(r), upper(r)] FROM unnest(units) r), live AND NOT pinned
             FROM holds WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE""",
        [[m.hold for m in moves]],
    ).fetchall()
    found = {row[0]: (row[1], tuple(map(tuple, row[2]))) for row in rows if row[3]}
    return all(found.get(m.hold) == (m.node_id, _joined(m.positions)) for m in moves)


def write_moves(work: Work, moves: Sequence[Moved], now: datetime) -> bool:
    """Move the holds, all at once, leave word of it, and let clusters that know them be told. False when one of them
    would not move: then the caller drops what it has written."""
    values = {
        "ids": [m.hold for m in moves],
        "nodes": [m.to_node_id for m in moves],
        "was": [multirange(m.positions) for m in moves],
        "units": [multirange(m.to_positions) for m in moves],
        "now": now,
    }
    work.pg.execute("SET CONSTRAINTS no_unit_twice DEFERRED")
    written = work.pg.execute(_MOVE, values).rowcount
    work.pg.execute("SET CONSTRAINTS no_unit_twice IMMEDIATE")
    if written != len(moves):
        return False
    work.pg.execute(_WORD, values)
    work.pg.execute(_TELL_CLUSTER, values)
    return True


_MOVE = """
UPDATE holds h SET node_id = m.node, units = m.units::int4multirange
  FROM unnest(%(ids)s::uuid[], %(nodes)s::int[], %(units)s::text[]) m (id, node, units)
 WHERE h.id = m.id AND h.live AND NOT h.pinned"""
_WORD = """
INSERT INTO hold_moves (hold_id, at, was, becomes)
SELECT id, %(now)s, was::int4multirange, units::int4multirange
  FROM unnest(%(ids)s::uuid[], %(was)s::text[], %(units)s::text[]) m (id, was, units)"""
# Made ahead on the cluster already: it has to be told of the other units.
_TELL_CLUSTER = """
WITH told AS (UPDATE allocations SET wanted = wanted + 1
               WHERE ensured > 0 AND id IN (SELECT allocation_id FROM holds WHERE id = ANY(%(ids)s)) RETURNING id)
UPDATE due SET next_at = least(next_at, %(now)s) FROM told WHERE subject = told.id"""


def _joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    joined: list[Range] = []
    for lower, upper in sorted(ranges):
        if joined and joined[-1][1] == lower:
            joined[-1] = (joined[-1][0], upper)
        else:
            joined.append((lower, upper))
    return tuple(joined)


# --- word of moves ----------------------------------------------------------------------------------------------------

MOVED = """
SELECT DISTINCT b.tenant_id, b.id FROM hold_moves m JOIN holds h ON h.id = m.hold_id JOIN bookings b ON b.id = h.booking_id
 ORDER BY 1, 2 LIMIT 100"""
"""(tenant, booking) of everything that recolouring has moved and nobody was told of. Inside `read_all`."""


@dataclass(frozen=True, slots=True)
class Replanned:
    """One hold that went from nodes (by name, with the numbers of units there) to others."""

    at: datetime
    was: list[str]
    becomes: list[str]


def take_moves(work: Work, booking_id: UUID) -> tuple[Replanned, ...]:
    """What was moved of a booking, oldest first; it is taken off the list. The booking is locked."""
    rows = work.pg.execute(
        f"""WITH taken AS (DELETE FROM hold_moves m USING holds h WHERE h.id = m.hold_id AND h.booking_id = %s
                            RETURNING m.id, m.at, m.was, m.becomes)
            SELECT at, {_NAMES.format("was")}, {_NAMES.format("becomes")} FROM taken ORDER BY id""",
        [booking_id],
    )
    return tuple(Replanned(*row) for row in rows)


_NAMES = """ARRAY(SELECT n.name || '/' || (g - n.first_gpu) FROM nodes n, generate_series(n.first_gpu, n.first_gpu + n.gpus - 1) g
                   WHERE taken.{0} && int4range(64 * g, 64 * g + 64) AND lower(taken.{0}) < 64 * (n.first_gpu + n.gpus)
                     AND upper(taken.{0}) > 64 * n.first_gpu ORDER BY n.name, g)"""
