"""Cuts the GPUs of nodes anew at the end of a maintenance: units of the old layout end when the work begins, those of the
new one begin when it ends. Writes slots, kinds and pools; what becomes of bookings is decided by whoever calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from app.inventory.facts import POSITIONS_PER_GPU, Kind, Range
from app.inventory.importing import add_slice_kinds, add_slots, slots_of
from app.inventory.queries import kinds, layouts_of
from app.inventory.slices import Layout, WrongLayout, layout_text, read_layout, slices_named
from app.kernel.errors import Conflict, Invalid, Reason
from app.kernel.window import Window
from app.plumbing.db import Work


@dataclass(frozen=True, slots=True)
class Recut:
    """What changes on one node: the GPUs (indices there) that get another layout, and their positions."""

    node_id: int
    name: str
    pool_id: int
    pool: str
    first_gpu: int
    gpus: tuple[int, ...]
    kind: Kind
    was: Layout
    becomes: Layout

    @property
    def positions(self) -> tuple[Range, ...]:
        """The GPUs concerned, each a range."""
        per, numbers = POSITIONS_PER_GPU, [self.first_gpu + gpu for gpu in self.gpus]
        return tuple((per * g, per * (g + 1)) for g in numbers)

    @property
    def text(self) -> str:
        """What changes, in the words of a list of nodes."""
        of = {gpu: cuts for gpu, cuts in self.becomes.items() if gpu in self.gpus}
        whole = [gpu for gpu in self.gpus if gpu not in of]
        return ";".join(filter(None, (layout_text(of), *(f"{gpu}:whole" for gpu in whole))))


def plan_layout(work: Work, cluster_id: int, node_ids: Iterable[int], text: str) -> tuple[Recut, ...]:
    """What a layout in words changes on these nodes; GPUs that it does not name stay as they are.

    Raises Invalid for words that are no layout of one of them, and where nothing would change.
    """
    known, cut = kinds(work), layouts_of(work, cluster_id)
    rows = work.pg.execute(
        """SELECT n.id, n.name, n.pool_id, p.name, n.first_gpu, n.gpus, p.kind
             FROM nodes n JOIN pools p ON p.id = n.pool_id WHERE n.id = ANY(%s) ORDER BY n.id""",
        [list(node_ids)],
    ).fetchall()
    found = []
    for node_id, name, pool_id, pool, first, gpus, slug in rows:
        try:
            wanted, named = read_layout(text, gpus, known[slug]), _named(text, gpus)
        except WrongLayout as wrong:
            raise _wrong(f"{name}: {wrong}") from None
        was = cut.get(node_id, {})
        changed = tuple(gpu for gpu in named if wanted.get(gpu, ()) != was.get(gpu, ()))
        if changed:
            becomes = {**{g: c for g, c in was.items() if g not in named}, **wanted}
            found.append(Recut(node_id, name, pool_id, pool, first, changed, known[slug], was, becomes))
    if not found:
        raise _wrong("The GPUs of these nodes are cut like that already.")
    return tuple(found)


def write_layout(work: Work, recuts: Iterable[Recut], window: Window) -> None:
    """Write the slots: old ones until the window's start, new ones from its end. The nodes' pools are locked.

    Raises Conflict where the last layout of a GPU has not begun by then: another change is announced already.
    """
    every = list(recuts)
    add_slice_kinds(work, {r.kind.slug: r.kind for r in every}, ((r.kind.slug, r.becomes) for r in every))
    for recut in every:
        numbers = [recut.first_gpu + gpu for gpu in recut.gpus]
        for profile in slices_named([{g: c for g, c in recut.becomes.items() if g in recut.gpus}]):
            work.pg.execute(
                """INSERT INTO pools (cluster_id, name, kind, gap_seconds, policy, version, capacity_version)
                   SELECT cluster_id, %s, %s, gap_seconds, policy, 1, nextval('capacity_versions') FROM pools WHERE id = %s
                   ON CONFLICT (cluster_id, name) DO NOTHING""",
                [f"{recut.pool}-{profile}", f"{recut.kind.slug}-{profile}", recut.pool_id],
            )
        later = work.pg.execute(
            "SELECT FROM slots WHERE gpu = ANY(%s) AND upper_inf(valid) AND lower(valid) >= %s LIMIT 1",
            [numbers, window.start],
        ).fetchone()
        if later is not None:
            said = f"Another layout of {recut.name} is announced, or was there only after {window.start:%Y-%m-%d %H:%M} UTC."
            raise Conflict("layout_announced", said)
        work.pg.execute(
            """UPDATE slots SET valid = tstzrange(lower(valid), %s)
                WHERE gpu = ANY(%s) AND upper_inf(valid)""",
            [window.start, numbers],
        )
        rows = [(recut.node_id, *slot) for slot in slots_of(recut.first_gpu, recut.gpus, recut.kind, recut.becomes)]
        add_slots(work, window.end, rows)


def take_back(work: Work, layout: dict[str, Any], window: Window) -> None:
    """The layout before a maintenance that is called off: its new units never come, the old ones stay (or come back now).

    Raises Conflict when the new units are booked already.
    """
    numbers = list(layout["gpus"])
    booked = work.pg.execute(
        """SELECT FROM slots s JOIN holds h ON h.node_id = s.node_id AND h.units && s.positions AND h.live
            WHERE s.gpu = ANY(%s) AND lower(s.valid) = %s AND upper(h.during) > %s LIMIT 1""",
        [numbers, window.end, window.end],
    ).fetchone()
    if booked is not None:
        raise Conflict("layout_booked", "Units of the new layout are booked already. Announce another change instead.")
    work.pg.execute(
        "DELETE FROM slots WHERE gpu = ANY(%s) AND lower(valid) = %s AND upper_inf(valid)",
        [numbers, window.end],
    )
    work.pg.execute(
        "UPDATE slots SET valid = tstzrange(lower(valid), NULL) WHERE gpu = ANY(%s) AND upper(valid) = %s",
        [numbers, window.start],
    )


def _named(text: str, gpus: int) -> list[int]:
    """The GPUs that a layout in words says something about."""
    found: set[int] = set()
    for part in filter(None, (p.strip() for p in text.split(";"))):
        head, colon, _ = part.partition(":")
        if not colon:
            return list(range(gpus))
        first, _, last = head.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return sorted(found)


def _wrong(sentence: str) -> Invalid:
    return Invalid("wrong_layout", sentence, (Reason("wrong_layout", sentence, field="layout", in_request=True),))
