"""What is held, read in bulk, is what the rows say."""

from __future__ import annotations

from datetime import timedelta

from app.bookings import queries
from app.bookings.capacity import Busy
from app.kernel.window import Window
from tests.world import START, make_world, nodes_csv

HOUR = timedelta(hours=1)


def rows_of(busy: Busy) -> list[tuple[int, ...]]:
    return sorted(zip(*(column.tolist() for column in (busy.lower, busy.upper, busy.start, busy.end)), strict=True))


def test_holds_read_in_bulk_are_those_of_the_rows(database, tmp_path) -> None:
    world = make_world(database, tmp_path, csv=nodes_csv(3))
    world.book(units=3)
    world.book(units=8, within="node", start=(START + 2 * HOUR).isoformat(), duration="PT26H")
    world.book(units=12, start=(START + 48 * HOUR).isoformat(), duration="PT1H30M")
    with world.work("physics") as work:
        nodes = work.pg.execute("SELECT id, first_gpu, gpus FROM nodes").fetchall()
        positions = queries.multirange((64 * first, 64 * (first + gpus)) for _, first, gpus in nodes)
        for window in (Window(START, START + HOUR), Window(START, START + 50 * HOUR)):
            plain = work.pg.execute(queries.TAKEN, [positions, window.start, window.end]).fetchall()
            assert plain
            assert rows_of(queries.taken(work, positions, window)) == sorted(plain)
        every = work.pg.execute(queries.TAKEN, [positions, START, START + 90 * HOUR]).fetchall()
        assert sum(upper - lower for lower, upper, _, _ in every) == 64 * (3 + 8 + 12)
        assert rows_of(queries.taken_from(work, [n for n, _, _ in nodes], START)) == sorted(every)
        later = [row for row in every if row[3] > (START + 40 * HOUR).timestamp()]
        assert rows_of(queries.taken_from(work, [n for n, _, _ in nodes], START + 40 * HOUR)) == sorted(later)
        assert rows_of(queries.taken(work, positions, Window(START + 900 * HOUR, START + 901 * HOUR))) == []
    world.close()
