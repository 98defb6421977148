"""A rule such as "every Tuesday, 19:00 to 21:00, London" as instants: local wall time is what stays. Pure.

Rules are RFC 5545 recurrence rules without a start in them; they are read and expanded by dateutil in local time without a
zone, and each start and end is then turned into an instant on its own, so that a night in which clocks change has 5 or 7
hours where others have 6. It must not know policies, prices or bookings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from typing import Literal
from zoneinfo import ZoneInfo

from dateutil.rrule import rrule, rrulestr

from app.kernel.window import Window, instants_of

MOST = 400
"""Occurrences that one series may have."""
_PART = re.compile(r"[A-Z]+=[A-Z0-9,+\-:]+", re.ASCII)
_PARTS = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "BYMONTHDAY", "BYMONTH", "BYSETPOS", "WKST"})
_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")


class WrongRule(ValueError):
    """A rule that cannot be read or kept; the message is a sentence for people."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One time of a series. `window` None: the start or the end does not exist on that day (clocks are put forward).

    `twice`: the start exists twice on that day; the window takes the first of the two.
    """

    local_start: datetime
    local_end: datetime
    window: Window | None
    missing: Literal["start", "end"] | None = None
    twice: tuple[datetime, ...] = ()


def read_rule(text: str, first: datetime, zone: ZoneInfo) -> rrule:
    """The rule that begins at a local time. Raises WrongRule."""
    words = text.strip().upper().removeprefix("RRULE:")
    parts = [part for part in words.split(";") if part]
    if not parts or not all(_PART.fullmatch(part) for part in parts):
        raise WrongRule("A rule is written as in RFC 5545, such as FREQ=WEEKLY;BYDAY=TU;COUNT=4.")
    names = [part.partition("=")[0] for part in parts]
    unknown = sorted(set(names) - _PARTS)
    if unknown:
        raise WrongRule(f"{unknown[0]} is not understood in a rule. Parts are {', '.join(sorted(_PARTS))}.")
    if len(set(names)) < len(names):
        raise WrongRule("A part stands twice in the rule.")
    said = dict(part.split("=", 1) for part in parts)
    if said.get("FREQ") not in _FREQUENCIES:
        raise WrongRule(f"FREQ is one of {', '.join(_FREQUENCIES)}.")
    if "COUNT" in said and "UNTIL" in said:
        raise WrongRule("A rule has COUNT or UNTIL, not both.")
    if "UNTIL" in said:
        said["UNTIL"] = _local_until(said["UNTIL"], first, zone)
    for name in ("COUNT", "INTERVAL"):
        if name in said and not (said[name].isdigit() and 1 <= int(said[name]) <= 10_000):
            raise WrongRule(f"{name} is a whole number from 1 on.")
    try:
        found = rrulestr(";".join(f"{k}={v}" for k, v in said.items()), dtstart=first, cache=False)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise WrongRule(f"The rule cannot be read: {error}.") from None
    if not isinstance(found, rrule):
        raise WrongRule("A series has one rule.")
    return found


def _local_until(text: str, first: datetime, zone: ZoneInfo) -> str:
    """The last start in local time: a day means all of it, an instant (with Z) is turned into local time."""
    try:
        if re.fullmatch(r"\d{8}", text):
            local = datetime.combine(datetime.strptime(text, "%Y%m%d").date(), time(23, 59, 59))  # noqa: DTZ007
        elif re.fullmatch(r"\d{8}T\d{6}Z", text):
            local = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)
        elif re.fullmatch(r"\d{8}T\d{6}", text):
            local = datetime.strptime(text, "%Y%m%dT%H%M%S")  # noqa: DTZ007
        else:
            raise ValueError
    except (ValueError, OverflowError):
        raise WrongRule("UNTIL is a day (20271231) or a time (20271231T190000).") from None
    if local < first:
        raise WrongRule("UNTIL lies before the first start.")
    return f"{local:%Y%m%dT%H%M%S}"


def occurrences(
    rule: str, local_start: datetime, local_end: datetime, zone: ZoneInfo, until: datetime
) -> tuple[Occurrence, ...]:
    """Every occurrence that starts before the instant `until`, in order, the first by the rule.

    A rule that names its own end (COUNT, UNTIL) is expanded to that end even beyond `until`, so that what lies beyond can
    be told. Raises WrongRule when the rule cannot be read, gives nothing, or more than MOST.
    """
    if local_end <= local_start:
        raise WrongRule("The end lies at or before the start.")
    found: list[Occurrence] = []
    length = local_end - local_start
    parsed = read_rule(rule, local_start, zone)
    bounded = "COUNT=" in rule.upper() or "UNTIL=" in rule.upper()
    last = until.astimezone(zone).replace(tzinfo=None)
    try:
        for local in parsed:
            if not bounded and local >= last:
                break
            if len(found) == MOST:
                raise WrongRule(f"A series has at most {MOST} occurrences.")
            found.append(_occurrence(local, local + length, zone))
    except OverflowError:
        raise WrongRule("The rule reaches beyond the year 9999.") from None
    if not found:
        raise WrongRule("The rule gives no day at all.")
    return tuple(found)


def _occurrence(local_start: datetime, local_end: datetime, zone: ZoneInfo) -> Occurrence:
    starts, ends = instants_of(local_start, zone), instants_of(local_end, zone)
    missing: Literal["start", "end"] | None = "start" if not starts else "end" if not ends else None
    if missing is not None:
        return Occurrence(local_start, local_end, None, missing)
    start = starts[0]
    end = next((e for e in ends if e > start), None)
    window = Window(start, end) if end is not None else None
    return Occurrence(local_start, local_end, window, None if window else "end", starts if len(starts) > 1 else ())


def overlap(found: tuple[Occurrence, ...]) -> tuple[Occurrence, Occurrence] | None:
    """The first two occurrences of which one begins before the other is over."""
    real = sorted(((o.window, i) for i, o in enumerate(found) if o.window is not None), key=lambda row: row[0].start)
    for (before, one), (after, other) in pairwise(real):
        if after.start < before.end:
            return found[one], found[other]
    return None


def before(rule: str, local: datetime) -> str:
    """The rule, ended before a local time: what is left of a series that is split there."""
    said = [part for part in rule.strip().upper().removeprefix("RRULE:").split(";") if part]
    kept = [part for part in said if not part.startswith(("COUNT=", "UNTIL="))]
    return ";".join([*kept, f"UNTIL={local - timedelta(seconds=1):%Y%m%dT%H%M%S}"])
