"""Every SQL statement of the room: intervals, samples, the split by hour, and what is due to be metered or measured.

The tenant is the transaction's, except for `metering`, which is a platform table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg.types.json import Json, Jsonb

from app.kernel.window import Window
from app.plumbing.db import Work
from app.usage.rules import Interval, Reading, Split


@dataclass(frozen=True, slots=True)
class BookedGpu:
    """A GPU of a booking: its node, its index there, and how much of it is booked (share x 840)."""

    node_id: int
    node: str
    gpu: int
    weight: int


@dataclass(frozen=True, slots=True)
class SampleLine:
    """Measurements of the booked GPUs of one node over a stretch; lists run over `gpus`, None = not known."""

    node_id: int
    at: datetime
    seconds: int
    gpus: list[int]
    utilisation: list[float | None]
    memory_gb: list[float | None]
    power_w: list[float | None]
    temperature_c: list[float | None]
    in_use: list[bool | None]


@dataclass(frozen=True, slots=True)
class UsageLine:
    """How a stretch of reserved time splits, as quantities; energy in Wh, None where no power was measured."""

    window: Window
    split: Split
    energy_wh: Decimal | None


# --- what is due ------------------------------------------------------------------------------------------------------


DUE_METERINGS = """
SELECT tenant_id, booking_id FROM metering WHERE next_at <= %(now)s ORDER BY next_at, booking_id LIMIT 100"""
DUE_COLLECTIONS = """
SELECT tenant_id, booking_id FROM metering
 WHERE collect_at <= %(now)s::timestamptz - %(waited)s::interval
   AND (leased_until IS NULL OR leased_until <= %(wall)s) ORDER BY collect_at, booking_id LIMIT %(most)s"""
MOST_COLLECTED = 50
"""How many collections are handed out at a time."""


def due_meterings(work: Work, now: datetime) -> list[tuple[UUID, UUID]]:
    """(tenant, booking) whose reserved time has to be looked at, most urgent first. Nothing is claimed: metering twice
    is metering once."""
    return work.pg.execute(DUE_METERINGS, {"now": now}).fetchall()


def due_collections(
    work: Work, now: datetime, limit: int = MOST_COLLECTED, *, waited: timedelta = timedelta(0)
) -> list[tuple[UUID, UUID]]:
    """(tenant, booking) whose measurements are due at the cluster and which nobody is collecting, most urgent first.

    `waited`: only those that have been due for so long (for histories that are stepped through quickly).
    """
    values = {"now": now, "wall": work.wall, "waited": waited, "most": limit}
    return work.pg.execute(DUE_COLLECTIONS, values).fetchall()


NEXT_INSTANT = "SELECT min(next_at) FROM metering"
"""When reserved time has to be looked at next, for a clock that is stepped. Measurements can wait: not counted."""


def meter_next(work: Work, booking_id: UUID, next_at: datetime | None) -> None:
    """When the booking's reserved time is looked at next; None: not before something changes."""
    work.pg.execute("UPDATE metering SET next_at = %s WHERE booking_id = %s", [next_at, booking_id])


def lease_collection(work: Work, booking_id: UUID, until: datetime) -> int | None:
    """Take the collection for oneself until this wall instant. None when another has it or there is nothing left to
    collect; else how often it has failed in a row."""
    row = work.pg.execute(
        """UPDATE metering SET leased_until = %s
            WHERE booking_id = %s AND collect_at IS NOT NULL AND (leased_until IS NULL OR leased_until <= %s)
        RETURNING failures""",
        [until, booking_id, work.wall],
    ).fetchone()
    return None if row is None else row[0]


def end_leases(work: Work) -> None:
    """Give every collection back. For a process that knows that whoever had them is dead and nobody else at work."""
    work.pg.execute("UPDATE metering SET leased_until = NULL WHERE leased_until IS NOT NULL")


def collect_next(work: Work, booking_id: UUID, collect_at: datetime | None, failures: int) -> None:
    """Give the lease back and say when measurements are collected next; None: they are complete."""
    work.pg.execute(
        "UPDATE metering SET leased_until = NULL, collect_at = %s, failures = %s WHERE booking_id = %s",
        [collect_at, failures, booking_id],
    )


def forget_finished(work: Work, booking_id: UUID) -> None:
    """A booking with nothing left to meter or collect leaves the table."""
    work.pg.execute(
        "DELETE FROM metering WHERE booking_id = %s AND next_at IS NULL AND collect_at IS NULL", [booking_id]
    )


# --- intervals --------------------------------------------------------------------------------------------------------


def insert_intervals(work: Work, intervals: Sequence[Interval], evidence: dict[str, Any]) -> set[UUID]:
    """Write what is not written yet; returns the ids that were. What overlaps any other's is left out, not raised."""
    rows = work.pg.execute(
        """INSERT INTO intervals (id, tenant_id, booking_id, units, during, quantity, evidence, void)
           SELECT i, %s, b, u::int4multirange, tstzrange(s, e), q, %s, false
             FROM unnest(%s::uuid[], %s::uuid[], %s::text[], %s::timestamptz[], %s::timestamptz[], %s::bigint[])
               AS t (i, b, u, s, e, q) ORDER BY s
           ON CONFLICT DO NOTHING RETURNING id""",
        [
            work.tenant_id,
            Jsonb(evidence),
            [i.id for i in intervals],
            [i.booking_id for i in intervals],
            [i.units for i in intervals],
            [i.window.start for i in intervals],
            [i.window.end for i in intervals],
            [i.quantity for i in intervals],
        ],
    )
    return {row[0] for row in rows}


def interval_there(work: Work, interval: Interval) -> bool:
    """Whether exactly this interval is in the ledger."""
    found = work.pg.execute(
        """SELECT true FROM intervals WHERE NOT void AND booking_id = %s AND units = %s::int4multirange
              AND during = tstzrange(%s, %s) AND quantity = %s""",
        [interval.booking_id, interval.units, interval.window.start, interval.window.end, interval.quantity],
    )
    return found.fetchone() is not None


def insert_conflict(work: Work, interval: Interval, evidence: dict[str, Any], now: datetime) -> None:
    """Record a report that contradicts the ledger; the same report again is the same row."""
    work.pg.execute(
        """INSERT INTO interval_conflicts (tenant_id, id, booking_id, at, units, during, evidence)
           VALUES (%s, %s, %s, %s, %s::int4multirange, tstzrange(%s, %s), %s) ON CONFLICT DO NOTHING""",
        [
            work.tenant_id,
            interval.id,
            interval.booking_id,
            now,
            interval.units,
            interval.window.start,
            interval.window.end,
            Jsonb({**evidence, "quantity": interval.quantity}),
        ],
    )


def set_cursor(work: Work, booking_id: UUID, until: datetime) -> None:
    """Everything before `until` is metered. Never goes back."""
    work.pg.execute(
        "UPDATE bookings SET metered_until = greatest(metered_until, %s) WHERE id = %s", [until, booking_id]
    )


# --- measurements -----------------------------------------------------------------------------------------------------


def booked_gpus(work: Work, booking_id: UUID) -> tuple[BookedGpu, ...]:
    """The GPUs that a booking holds or held, with the share of each that is its own."""
    rows = work.pg.execute(
        """SELECT n.id, n.name, s.gpu - n.first_gpu, sum(s.share840)::int
             FROM (SELECT DISTINCT ON (s.id) s.id, s.node_id, s.gpu, s.share840 FROM holds h
                     JOIN slots s ON s.node_id = h.node_id AND s.positions <@ h.units AND s.valid && h.during
                    WHERE h.booking_id = %s) s
             JOIN nodes n ON n.id = s.node_id GROUP BY 1, 2, 3 ORDER BY 2, 3""",
        [booking_id],
    )
    return tuple(BookedGpu(*row) for row in rows)


def replace_samples(work: Work, booking_id: UUID, window: Window, lines: Sequence[SampleLine]) -> None:
    """Keep these measurements for the window and no others. Twice at once is once."""
    work.pg.execute(
        "DELETE FROM samples WHERE booking_id = %s AND at >= %s AND at < %s", [booking_id, window.start, window.end]
    )
    # one statement however many rows: a booking of two days has thousands, and arrays of arrays cannot be unnested
    work.pg.execute(
        """INSERT INTO samples (tenant_id, booking_id, node_id, at, seconds, gpus, utilisation, memory_gb, power_w,
                                temperature_c, in_use)
           SELECT %s, %s, node_id, to_timestamp(at), seconds, gpus, utilisation, memory_gb, power_w, temperature_c, in_use
             FROM json_to_recordset(%s) AS t (node_id int, at bigint, seconds int, gpus int[], utilisation real[],
                  memory_gb real[], power_w real[], temperature_c real[], in_use boolean[])
           ON CONFLICT DO NOTHING""",
        [work.tenant_id, booking_id, Json([_plain(line) for line in lines])],
    )


def _plain(line: SampleLine) -> dict[str, Any]:
    return {f.name: getattr(line, f.name) for f in fields(line)} | {"at": int(line.at.timestamp())}


def samples_of(work: Work, booking_id: UUID, window: Window) -> tuple[SampleLine, ...]:
    """The measurements that touch a window, by time and node."""
    rows = work.pg.execute(
        """SELECT node_id, at, seconds, gpus, utilisation, memory_gb, power_w, temperature_c, in_use FROM samples
            WHERE booking_id = %s AND at < %s AND at + make_interval(secs => seconds) > %s ORDER BY at, node_id""",
        [booking_id, window.end, window.start],
    )
    return tuple(SampleLine(*row) for row in rows)


def readings(lines: Iterable[SampleLine]) -> list[Reading]:
    """Measurements as rules.split wants them: GPUs are named by (node id, index)."""
    found = []
    for line in lines:
        window = Window(line.at, line.at + timedelta(seconds=line.seconds))
        found += [Reading((line.node_id, gpu), window, u) for gpu, u in zip(line.gpus, line.in_use, strict=True)]
    return found


def put_usage(work: Work, booking_id: UUID, lines: Sequence[UsageLine]) -> None:
    """Write how stretches split, instead of what stood there."""
    work.pg.execute(
        """INSERT INTO usage (tenant_id, booking_id, starts_at, ends_at, used, unused, unknown, energy_wh)
           SELECT %s, %s, * FROM unnest(%s::timestamptz[], %s::timestamptz[], %s::bigint[], %s::bigint[], %s::bigint[],
                                        %s::numeric[])
           ON CONFLICT (tenant_id, booking_id, starts_at) DO UPDATE SET ends_at = excluded.ends_at,
             used = excluded.used, unused = excluded.unused, unknown = excluded.unknown,
             energy_wh = excluded.energy_wh""",
        [
            work.tenant_id,
            booking_id,
            [u.window.start for u in lines],
            [u.window.end for u in lines],
            [u.split.used for u in lines],
            [u.split.unused for u in lines],
            [u.split.unknown for u in lines],
            [u.energy_wh for u in lines],
        ],
    )


def usage_of(work: Work, booking_id: UUID) -> tuple[UsageLine, ...]:
    """How a booking's time splits so far, in order. Time that is not in it yet is unknown."""
    rows = work.pg.execute(
        """SELECT starts_at, ends_at, used, unused, unknown, energy_wh FROM usage
            WHERE booking_id = %s ORDER BY starts_at""",
        [booking_id],
    )
    return tuple(UsageLine(Window(s, e), Split(used, unused, unknown), wh) for s, e, used, unused, unknown, wh in rows)


def put_workload(
    work: Work,
    booking_id: UUID,
    workload_id: str,
    kind: str,
    state: str,
    why: str,
    units: int,
    started_at: datetime | None,
    ended_at: datetime | None,
) -> None:
    """Write what is known of a workload, instead of what was."""
    work.pg.execute(
        """INSERT INTO workloads (tenant_id, booking_id, id, kind, name, state, why, units, started_at, ended_at)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
           ON CONFLICT (tenant_id, booking_id, id) DO UPDATE SET state = excluded.state, why = excluded.why,
             units = excluded.units, started_at = excluded.started_at, ended_at = excluded.ended_at""",
        [work.tenant_id, booking_id, workload_id, kind, workload_id, state, why, units, started_at, ended_at],
    )


def workloads_of(work: Work, booking_id: UUID) -> list[tuple[Any, ...]]:
    """(id, kind, name, state, why, units, started_at, ended_at) of a booking's workloads, in order of start."""
    return work.pg.execute(
        """SELECT id, kind, name, state, why, units, started_at, ended_at FROM workloads
            WHERE booking_id = %s ORDER BY started_at NULLS LAST, id""",
        [booking_id],
    ).fetchall()


def measured_until(work: Work, booking_id: UUID) -> tuple[UUID, str, int, datetime | None] | None:
    """The booking's object on its cluster: (allocation, name, cluster, measurements complete until)."""
    return work.pg.execute(
        """SELECT a.id, a.name, a.cluster_id, a.sampled_until FROM allocations a
            WHERE a.id = (SELECT h.allocation_id FROM holds h
                           WHERE h.booking_id = %s ORDER BY h.live DESC, h.id LIMIT 1)""",
        [booking_id],
    ).fetchone()


def set_measured_until(work: Work, allocation_id: UUID, until: datetime) -> None:
    """Measurements are complete before `until`. Never goes back."""
    work.pg.execute(
        "UPDATE allocations SET sampled_until = greatest(sampled_until, %s) WHERE id = %s", [until, allocation_id]
    )


# --- thinning ---------------------------------------------------------------------------------------------------------


def fine_cells(work: Work, window: Window, coarse: int, limit: int) -> list[tuple[UUID, UUID, datetime]]:
    """(tenant, booking, beginning of a cell of `coarse` seconds) in the window with more than one sample of a node."""
    return work.pg.execute(
        """SELECT tenant_id, booking_id, cell FROM (
             SELECT tenant_id, booking_id, node_id, to_timestamp(floor(extract(epoch FROM at) / %(c)s) * %(c)s) AS cell
               FROM samples WHERE at >= %(start)s AND at < %(end)s GROUP BY 1, 2, 3, 4 HAVING count(*) > 1) fine
            GROUP BY 1, 2, 3 ORDER BY 1, 3, 2 LIMIT %(limit)s""",
        {"c": coarse, "start": window.start, "end": window.end, "limit": limit},
    ).fetchall()
