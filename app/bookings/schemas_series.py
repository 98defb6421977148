"""What requests for a series or a class look like from outside. Checks form alone."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from app.bookings.schemas import Ask, BookingIn, Instant, Line, bad_shape

_LOCAL = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?", re.ASCII)


def _local(value: Any) -> Any:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _LOCAL.fullmatch(value):
        raise ValueError("a local time is written without an offset, such as 2027-10-19T19:00: it is the zone's")
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("there is no such date or time") from None
    if not 1971 <= found.year <= 9000:
        raise ValueError("a time lies between the years 1971 and 9000")
    return found


def _zone(value: Any) -> Any:
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError, TypeError):
        raise ValueError("a zone is a name such as Europe/Berlin") from None
    return value


Local = Annotated[datetime, BeforeValidator(_local)]
Zone = Annotated[str, BeforeValidator(_zone), Field(max_length=80, description="A zone's name, such as Europe/Berlin.")]

_WITHOUT_TIME = {"start": "asap", "duration": "PT1S"}


class SeriesIn(BaseModel):
    """The body of POST /series: what each occurrence books, and when by the rule in local wall time."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "project": "plasma", "name": "Seminar", "kind": "h100-sxm-80gb", "units": 8, "within": "node",
                    "rule": "FREQ=WEEKLY;BYDAY=TU;COUNT=4", "zone": "Europe/London", "on_conflict": "skip",
                    "local_start": "2027-10-19T19:00", "local_end": "2027-10-19T21:00",
                }
            ]
        },
    )  # fmt: skip

    project: Annotated[Line, Field(max_length=80)]
    name: Annotated[Line, Field(min_length=1, max_length=120)] = "Untitled"
    kind: Annotated[Line, Field(max_length=80)]
    kinds: Annotated[list[Annotated[Line, Field(max_length=80)]] | None, Field(min_length=1, max_length=40)] = None
    memory_gb: Annotated[int | None, Field(ge=1, le=100_000)] = None
    or_better: bool = False
    units: Annotated[int | None, Field(ge=1, le=1_000_000, strict=True)] = None
    nodes: Annotated[int | None, Field(ge=1, le=1_000_000, strict=True)] = None
    per_node: Annotated[int | None, Field(ge=1, le=1_000_000, strict=True)] = None
    within: Literal["node", "nvlink", "leaf", "rack"] | None = None
    near: Literal["node", "nvlink", "leaf", "rack"] | None = None
    cluster: Annotated[Line | None, Field(max_length=80)] = None
    cost_center: Annotated[Line | None, Field(max_length=80)] = None
    reference: Annotated[Line, Field(max_length=200)] = ""
    workload: Literal["default", "none", "training", "notebook", "inference"] = "default"
    rule: Annotated[str, Field(min_length=1, max_length=300, description="RFC 5545, such as FREQ=WEEKLY;COUNT=4.")]
    zone: Zone
    local_start: Annotated[Local, Field(description="The first start, by the clocks of the zone.")]
    local_end: Local
    on_conflict: Annotated[
        Literal["skip", "none"], Field(description="Book the other occurrences, or none of them.")
    ] = "none"

    @model_validator(mode="after")
    def _one_form(self) -> SeriesIn:
        wrong = bad_shape(self)
        if wrong is not None:
            raise ValueError(wrong)
        return self

    def to_ask(self) -> Ask:
        """What each occurrence asks for, without its time."""
        return Ask.of(BookingIn.model_validate(self.model_dump(include=set(BookingIn.model_fields)) | _WITHOUT_TIME))


class ChangeSeriesIn(SeriesIn):
    """The body of POST /series/{id}/change: the series as it is to be from `since` on."""

    since: Annotated[
        Instant | None, Field(description="The start of the first occurrence that changes; all that has not begun.")
    ] = None


class CancelSeriesIn(BaseModel):
    """The body of POST /series/{id}/cancel."""

    model_config = ConfigDict(extra="forbid")

    since: Instant | None = None


class ClassIn(BookingIn):
    """The body of POST /classes: a booking each for several members of the project, all or nothing."""

    people: Annotated[
        list[Annotated[Line, Field(max_length=200)]],
        Field(min_length=1, max_length=500, description="E-mail addresses."),
    ]

    def to_ask(self) -> Ask:
        """What is booked for each."""
        return Ask.of(BookingIn.model_validate(self.model_dump(exclude={"people"}, exclude_unset=True)))
