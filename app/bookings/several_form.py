"""The forms of series and classes: texts as people type them, and the requests that they mean. Pure."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ValidationError

from app.bookings import form as reading
from app.bookings.schemas import Ask
from app.bookings.schemas_series import SeriesIn

REPEATS = {
    "DAILY": "Every day",
    "WEEKLY;BYDAY=MO,TU,WE,TH,FR": "Monday to Friday",
    "WEEKLY": "Every week",
    "WEEKLY;INTERVAL=2": "Every second week",
    "MONTHLY": "Every month",
}
CONFLICTS = {"none": "Book nothing then", "skip": "Book the others"}
MEANS = {"duration": "hours", "end": "local_end", "kinds": "kind"}
"""Where a fault of the request's words is shown in the form."""


class SeveralFields(BaseModel):
    """Every field of the two forms as it is sent; what is not sent is empty."""

    project: str = ""
    name: str = ""
    kind: str = ""
    units: str = ""
    within: str = ""
    cost_center: str = ""
    reference: str = ""
    zone: str = ""
    local_start: str = ""
    local_end: str = ""
    repeat: str = ""
    count: str = ""
    rule: str = ""
    on_conflict: str = ""
    series: str = ""
    since: str = ""
    start: str = ""
    hours: str = ""
    people: str = ""
    step: str = ""
    idempotency_key: str = ""


def read_series(sent: SeveralFields) -> tuple[SeriesIn | None, dict[str, str]]:
    """The series that the texts mean, or a sentence for each field that is wrong."""
    errors: dict[str, str] = {}
    rule = sent.rule.strip()
    if not rule:
        rule = f"FREQ={sent.repeat if sent.repeat in REPEATS else 'WEEKLY'}"
        if sent.count.strip():
            if not sent.count.strip().isdigit():
                errors["count"] = "The number of times is a whole number, or nothing."
            rule += f";COUNT={sent.count.strip()}"
    body = _common(sent, errors) | {
        "rule": rule,
        "zone": sent.zone,
        "local_start": sent.local_start,
        "local_end": sent.local_end,
        "on_conflict": sent.on_conflict if sent.on_conflict in CONFLICTS else "none",
    }
    if errors:
        return None, errors
    try:
        read = SeriesIn.model_validate(body)
    except ValidationError as wrong:
        return None, _wrong(wrong)
    return read, {}


def read_class(sent: SeveralFields, zone: ZoneInfo) -> tuple[Ask | None, dict[str, str]]:
    """What each person of a class is to get, or a sentence for each field that is wrong."""
    errors: dict[str, str] = {}
    _common(sent, errors)
    fields = reading.BookFields(
        project=sent.project, name=sent.name, kind=sent.kind, shape="units", units=sent.units, within=sent.within,
        when="exact" if sent.start.strip() else "asap", start=sent.start, hours=sent.hours, cost_center=sent.cost_center,
        reference=sent.reference,
    )  # fmt: skip
    found = reading.read(fields, zone, named=True)
    if not sent.people.strip():
        errors["people"] = "Name at least one person."
    if errors or found.body is None:
        return None, {**found.faults, **errors}
    return Ask.of(found.body), {}


def _common(sent: SeveralFields, errors: dict[str, str]) -> dict[str, Any]:
    if not sent.name.strip():
        errors["name"] = "Give it a name: it stands in lists and on the bill."
    if not sent.units.strip().isdigit() or not 1 <= int(sent.units.strip()[:9]) <= 1_000_000:
        errors["units"] = "The number of units is a whole number from 1 to 1,000,000."
    return {
        "project": sent.project,
        "name": sent.name.strip(),
        "kind": sent.kind,
        "units": int(sent.units) if "units" not in errors else 1,
        "within": sent.within or None,
        "cost_center": sent.cost_center.strip() or None,
        "reference": sent.reference,
    }


def _wrong(wrong: ValidationError) -> dict[str, str]:
    errors: dict[str, str] = {}
    for fault in wrong.errors(include_url=False, include_input=False):
        name = str(fault["loc"][0]) if fault["loc"] else ""
        said = fault["msg"].removeprefix("Value error, ")
        errors.setdefault(MEANS.get(name, name), f"{said[:1].upper()}{said[1:]}.")
    return errors
