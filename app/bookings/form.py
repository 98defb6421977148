"""The Book form: texts as people type them, and the booking request that they mean, or a sentence for each field. Pure.

Local times are the person's: one that does not exist is never moved, one that exists twice is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ValidationError

from app.bookings.schemas import BookingIn, parse_duration
from app.kernel.window import instants_of

_HOURS = re.compile(r"(\d{1,6}(?:\.\d{1,10}|,\d{1,2})?)\s*h?", re.ASCII)
_LOCAL = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)", re.ASCII)
_FIELDS = {"duration": "hours", "end": "hours", "quote": "name"}
"""Where a fault of the request's words is shown in the form."""


class BookFields(BaseModel):
    """Every field of the form as it is sent; what is not sent is empty."""

    project: str = ""
    name: str = ""
    kind: str = ""
    shape: str = ""
    nodes: str = ""
    per_node: str = ""
    units: str = ""
    within: str = ""
    near: str = ""
    prefer: str = ""
    """`yes`: the closeness is wished for, not required."""
    kinds: str = ""
    memory_gb: str = ""
    or_better: str = ""
    when: str = ""
    start: str = ""
    earliest: str = ""
    latest: str = ""
    hours: str = ""
    cluster: str = ""
    cost_center: str = ""
    reference: str = ""
    workload: str = ""
    quote: str = ""
    wait: str = ""
    """`yes`: where only other bookings stand in the way, wait for the units; `auto`: and book them as soon as they fit."""
    idempotency_key: str = ""

    def filled(self, **defaults: str) -> BookFields:
        """With defaults where nothing was sent at all: a link says only what matters to it."""
        return BookFields(**{**defaults, **{name: getattr(self, name) for name in self.model_fields_set}})


@dataclass(frozen=True, slots=True)
class Read:
    """What the texts mean: a request, or faults (sentences by field). `twice` are both instants of such a start."""

    body: BookingIn | None
    faults: Mapping[str, str] = field(default_factory=dict)
    twice: tuple[datetime, ...] = ()


def read(fields: BookFields, zone: ZoneInfo, *, named: bool) -> Read:
    """The request that the texts mean in the person's zone. `named`: the booking must have a name by now."""
    faults: dict[str, str] = {}
    words: dict[str, Any] = {
        "project": fields.project,
        "name": fields.name.strip() or ("" if named else "Untitled"),
        "kind": fields.kind,
        "within": fields.within or None,
        "near": fields.near or None,
        "cluster": fields.cluster or None,
        "cost_center": fields.cost_center.strip() or None,
        "reference": fields.reference,
        "workload": fields.workload or "default",
        "quote": fields.quote or None,
    }
    if named and not words["name"]:
        faults["name"] = "Give it a name: it stands in lists and on the bill."
    for name, text in (("project", fields.project), ("kind", fields.kind)):
        if not text:
            faults[name] = f"Choose a {name}."
    for name in ("nodes", "per_node") if fields.shape == "nodes" else ("units",):
        words[name] = _count(getattr(fields, name), name, faults)
    words["duration"] = _length(fields.hours, faults)
    if fields.prefer and fields.within:
        words |= {"within": None, "near": fields.within}
    if fields.kind == "any":
        words["kinds"] = [k for k in fields.kinds.split(",") if k] or None
        words["memory_gb"] = _memory(fields.memory_gb, faults)
    else:
        words["or_better"] = bool(fields.or_better)
    twice: tuple[datetime, ...] = ()
    if fields.when == "exact":
        words["start"], twice = read_start(fields.start, zone, faults)
    else:
        words["start"] = "asap"
    if fields.when == "between":
        words["earliest"] = _edge(fields, "earliest", zone, faults)
        words["latest"] = _edge(fields, "latest", zone, faults)
    if faults:
        return Read(None, faults, twice)
    try:
        return Read(BookingIn.model_validate(words))
    except ValidationError as wrong:
        for fault in wrong.errors(include_url=False, include_input=False):
            name = str(fault["loc"][0]) if fault["loc"] else ("nodes" if fields.shape == "nodes" else "units")
            most = fault.get("ctx", {}).get("max_length")
            said = fault["msg"].removeprefix("Value error, ") if most is None else f"at most {most} characters"
            faults.setdefault(_FIELDS.get(name, name), f"{said[:1].upper()}{said[1:]}.")
        return Read(None, faults)


def nearest_of(local: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """For a local time that does not exist: the last quarter of an hour before the gap and the first instant after."""
    early, late = sorted(local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    offset = early.astimezone(zone).utcoffset()
    while late - early > timedelta(seconds=1):  # the clocks change somewhere between the two
        middle = early + (late - early) // 2
        if middle.astimezone(zone).utcoffset() == offset:
            early = middle
        else:
            late = middle
    change = late.replace(microsecond=0)
    after = change.astimezone(zone).replace(tzinfo=None, fold=0)
    before = (change - timedelta(seconds=1)).astimezone(zone).replace(tzinfo=None, fold=0)
    return before - timedelta(minutes=before.minute % 15, seconds=before.second), after


def fields_of(request: Mapping[str, Any], idempotency_key: str) -> tuple[tuple[str, str], ...]:
    """A request that is ready to post, as fields of the form that mean exactly it."""
    start = request["start"]
    seconds = int(parse_duration(request["duration"]).total_seconds())
    between = request.get("earliest") or request.get("latest")
    fields = {
        "project": request["project"],
        "name": request["name"],
        "kind": request["kind"],
        "shape": "units" if request.get("units") else "nodes",
        "units": request.get("units") or "",
        "nodes": request.get("nodes") or "",
        "per_node": request.get("per_node") or "",
        "within": request.get("within") or "",
        "near": request.get("near") or "",
        "kinds": ",".join(request.get("kinds") or ()),
        "memory_gb": request.get("memory_gb") or "",
        "or_better": "yes" if request.get("or_better") else "",
        "when": "exact" if start != "asap" else "between" if between else "asap",
        "start": "" if start == "asap" else start,
        "earliest": request.get("earliest") or "",
        "latest": request.get("latest") or "",
        "hours": hours_text(seconds),
        "cluster": request.get("cluster") or "",
        "cost_center": request.get("cost_center") or "",
        "reference": request.get("reference") or "",
        "workload": request.get("workload") or "default",
        "idempotency_key": idempotency_key,
    }
    return tuple((name, str(value)) for name, value in fields.items())


def hours_text(seconds: int) -> str:
    """A length as decimal hours that are read back as the same seconds."""
    exact = (Decimal(seconds) / 3600).quantize(Decimal("1e-6"))
    return f"{exact:f}".rstrip("0").rstrip(".")


def offset_text(instant: datetime, zone: ZoneInfo) -> str:
    """An instant as people of that zone tell two equal local times apart: `02:30 CEST (UTC+02:00)`."""
    local = instant.astimezone(zone)
    return f"{local:%H:%M} {local.tzname()} (UTC{local.isoformat()[-6:]})"


def _count(text: str, name: str, faults: dict[str, str]) -> int | None:
    text = text.strip()
    if re.fullmatch(r"\d{1,7}", text, re.ASCII) and 1 <= int(text) <= 1_000_000:
        return int(text)
    what = {"units": "units", "nodes": "nodes", "per_node": "units per node"}[name]
    faults[name] = f"The number of {what} is a whole number from 1 to 1,000,000."
    return None


def _memory(text: str, faults: dict[str, str]) -> int | None:
    text = text.strip()
    if not text:
        return None
    if re.fullmatch(r"\d{1,6}", text, re.ASCII) and int(text):
        return int(text)
    faults["memory_gb"] = "Memory is a whole number of GB in each unit."
    return None


def _edge(fields: BookFields, name: str, zone: ZoneInfo, faults: dict[str, str]) -> Any:
    """One edge of the time in which it is to lie; nothing typed is no edge. Of a time that exists twice the wider one."""
    text = getattr(fields, name).strip()
    if not text:
        return None
    wrong: dict[str, str] = {}
    found, twice = read_start(text, zone, wrong)
    if twice:
        return twice[0] if name == "earliest" else twice[1]
    if wrong:
        faults[name] = wrong["start"]
    return found


def _length(text: str, faults: dict[str, str]) -> timedelta | None:
    match = _HOURS.fullmatch(text.strip())
    if match is None:
        faults["hours"] = "Give the length in hours, such as 6 or 1.5."
        return None
    seconds = (Decimal(match[1].replace(",", ".")) * 3600).quantize(Decimal(1), ROUND_HALF_UP)
    return timedelta(seconds=int(seconds))


def read_start(text: str, zone: ZoneInfo, faults: dict[str, str]) -> tuple[datetime | str | None, tuple[datetime, ...]]:
    text = text.strip()
    if not text:
        faults["start"] = "Choose a start, or as soon as possible."
        return None, ()
    match = _LOCAL.fullmatch(text)
    if match is None:
        return text, ()  # with an offset, as alternatives and links carry it: read as the API reads it
    try:
        local = datetime.fromisoformat(f"{match[1]}T{match[2]}")
        found = instants_of(local, zone)
    except (ValueError, OverflowError):
        faults["start"] = "There is no such day or time. Write it as 2026-12-01T09:00."
        return None, ()
    day = _day(local.date())
    if not found:
        before, after = nearest_of(local, zone)
        faults["start"] = (
            f"{local:%H:%M} does not exist on {day}: the clocks are put forward then. "
            f"The nearest times are {before:%H:%M} and {after:%H:%M}."
        )
        return None, ()
    if len(found) == 2:
        both = " and ".join(offset_text(instant, zone) for instant in found)
        faults["start"] = f"{local:%H:%M} exists twice on {day}: {both}. Choose one of the two."
        return None, found
    return found[0], ()


def _day(day: date) -> str:
    return f"{day:%a} {day.day} {day:%b} {day.year}"
