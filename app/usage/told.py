"""What measurements say of a booking up to now, in the words in which bookings are watched. Reads, and writes nothing.

Whatever is used, or not known, ends the stretch that counts: a gap is not idleness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from app.backends.contract import Sample
from app.bookings.facts import Booking, Held
from app.bookings.watching import Use
from app.kernel.window import Window
from app.plumbing.db import Work
from app.usage import queries
from app.usage.queries import SampleLine

STILL = 0.01
"""Up to this share of its time a unit that somebody holds counts as computing nothing."""


def use_of(work: Work, booking: Booking, held: Iterable[Held], until: datetime, back: timedelta) -> Use:
    """What is known of the units that the booking holds, complete up to `until`; not further back than `back` before.

    `held` are the booking's holds now.
    """
    assert booking.provided_at is not None
    since = max(booking.provided_at, until - back)
    gpus: dict[int, set[int]] = {}
    for hold in held:
        gpus.setdefault(hold.node_id, set()).update(hold.local_gpus)
    if since >= until:
        return Use(until, booking.first_used_at)
    lines = queries.samples_of(work, booking.id, Window(since, until))
    empty, still = stretches(lines, gpus, since, until)
    return Use(until, booking.first_used_at, empty, still)


def is_busy(samples: Iterable[Sample], until: datetime) -> bool:
    """Whether one of these measurements says that something computed at their end."""
    return any(
        s.in_use
        and s.utilisation is not None
        and s.utilisation >= STILL
        and s.at + timedelta(seconds=s.seconds) >= until
        for s in samples
    )


def stretches(
    lines: Iterable[SampleLine], gpus: Mapping[int, set[int]], since: datetime, until: datetime
) -> tuple[datetime | None, datetime | None]:
    """From when on, without a break up to `until`, nothing held any of these GPUs (by node), and nothing computed on them.

    `lines` lie in order of time; None where the last measurement says otherwise or is missing.
    """
    by_node: dict[int, list[SampleLine]] = {node: [] for node in gpus}
    for line in lines:
        if line.node_id in by_node:
            by_node[line.node_id].append(line)
    starts: list[datetime] = []
    for only_still in (False, True):
        begun = [_since(by_node[n], gpus[n], since, until, only_still) for n in gpus]
        starts.append(max(begun, default=until))
    empty, still = starts
    return (empty if empty < until else None), (still if still < until else None)


def _since(lines: list[SampleLine], gpus: set[int], since: datetime, until: datetime, only_still: bool) -> datetime:
    """The beginning of the stretch on one node, walked back from its end; `until` when there is none."""
    edge = until
    for line in reversed(lines):
        end = line.at + timedelta(seconds=line.seconds)
        if line.at >= edge:
            continue
        if end < edge or not gpus <= set(line.gpus):
            break  # not measured all along, or not every unit
        if any(not _quiet(line, line.gpus.index(gpu), only_still) for gpu in gpus):
            break
        edge = line.at
    return max(edge, since) if edge < until else until


def _quiet(line: SampleLine, i: int, only_still: bool) -> bool:
    if line.in_use[i] is False:
        return True
    utilisation = line.utilisation[i]
    return only_still and line.in_use[i] is True and utilisation is not None and utilisation < STILL
