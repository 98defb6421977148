"""What a booking request looks like from outside: one model for the JSON body, and its plain form for the use cases.

Checks form alone (types, offsets, whole seconds, known words); whether it can be booked is for rules.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from app.bookings.capacity import LEVELS, Shape

_DURATION = re.compile(r"P(?=.)(?:(\d{1,5})W)?(?:(\d{1,5})D)?(?:T(?=.)(?:(\d{1,6})H)?(?:(\d{1,7})M)?(?:(\d{1,8})S)?)?")
_OFFSET = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)", re.IGNORECASE)

LONGEST = timedelta(days=3653)
"""Longer than any policy allows, and short enough to be added to any instant."""


def parse_duration(text: str) -> timedelta:
    """An ISO 8601 duration of weeks, days, hours, minutes and seconds (`PT6H`, `P1DT12H`). ValueError otherwise."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("a duration is written as in ISO 8601, such as PT6H or P1DT30M")
    weeks, days, hours, minutes, seconds = (int(g or 0) for g in match.groups())
    length = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    if length > LONGEST:
        raise ValueError("a duration is at most ten years")
    return length


def duration_text(length: timedelta) -> str:
    """The ISO 8601 form of a length: whole days, hours, minutes, seconds."""
    seconds = int(length.total_seconds())
    days, seconds = divmod(seconds, 86400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    clock = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if n)
    return f"P{f'{days}D' if days else ''}{f'T{clock}' if clock else ''}" if days or clock else "PT0S"


def _offset_only(value: Any) -> Any:
    """A time is a text with an offset: numbers and times without one would have to be guessed."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _OFFSET.fullmatch(value):
        raise ValueError("a time is written with its offset from UTC, such as 2026-12-01T09:00:00+01:00")
    return value


def _whole(value: datetime) -> datetime:
    if value.microsecond:
        raise ValueError("a time has no fractions of a second")
    if not 1971 <= value.year <= 9000:
        raise ValueError("a time lies between the years 1971 and 9000")
    return value.astimezone(UTC)


def _duration(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise ValueError("a duration is a text such as PT6H")
    return parse_duration(value)


def _line(value: str) -> str:
    value = value.strip()
    if any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) <= 0xDFFF for c in value):
        raise ValueError("a text on one line has no control characters and no half ones")
    return value


def _start(value: Any) -> Any:
    """`asap`, or an instant: judged here, since a union would complain about both."""
    if value == "asap":
        return value
    value = _offset_only(value)
    try:
        return _whole(value if isinstance(value, datetime) else datetime.fromisoformat(value))
    except (ValueError, OverflowError) as error:
        said = str(error) if str(error).startswith("a time") else "there is no such date or time"
        raise ValueError(said) from None


Start = Annotated[
    Any,
    BeforeValidator(_start),
    WithJsonSchema(
        {"anyOf": [{"const": "asap"}, {"type": "string", "format": "date-time"}], "title": "Start"}, mode="validation"
    ),
]
Instant = Annotated[AwareDatetime, BeforeValidator(_offset_only), AfterValidator(_whole)]
Duration = Annotated[timedelta, BeforeValidator(_duration)]
Line = Annotated[str, AfterValidator(_line)]
Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]


class BookingIn(BaseModel):
    """The body of POST /quotes and POST /bookings, and what the form of the Book page becomes."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "project": "plasma",
                    "name": "Run 7",
                    "kind": "h100-sxm-80gb",
                    "units": 16,
                    "within": "leaf",
                    "start": "2026-12-01T09:00:00+01:00",
                    "duration": "PT6H",
                    "cost_center": "4711",
                    "reference": "grant 12",
                }
            ]
        },
    )

    project: Annotated[Line, Field(max_length=80, description="Slug of the project, or its id (`pj_…`).")]
    name: Annotated[Line, Field(min_length=1, max_length=120)] = "Untitled"
    kind: Annotated[Line, Field(max_length=80, description="Slug of the catalogue, or `any`: the cheapest that fits.")]
    kinds: Annotated[
        list[Annotated[Line, Field(max_length=80)]] | None,
        Field(min_length=1, max_length=40, description="With kind `any`: only one of these."),
    ] = None
    memory_gb: Annotated[
        int | None, Field(ge=1, le=100_000, description="With kind `any`: at least so much memory in each unit.")
    ] = None
    or_better: Annotated[
        bool, Field(description="With a named kind: another with at least its memory and speed will do as well.")
    ] = False
    units: Count | None = None
    nodes: Count | None = None
    per_node: Count | None = None
    within: Annotated[
        Literal["node", "nvlink", "leaf", "rack"] | None, Field(description="All units share one of these: required.")
    ] = None
    near: Annotated[
        Literal["node", "nvlink", "leaf", "rack"] | None,
        Field(description="All units share one of these where that is possible: preferred, closer than `within`."),
    ] = None
    cluster: Annotated[Line | None, Field(max_length=80)] = None
    start: Start
    duration: Duration | None = None
    end: Instant | None = None
    earliest: Annotated[Instant | None, Field(description="With start `asap`: not before this.")] = None
    latest: Annotated[Instant | None, Field(description="With start `asap`: over by this.")] = None
    cost_center: Annotated[Line | None, Field(max_length=80)] = None
    reference: Annotated[Line, Field(max_length=200)] = ""
    workload: Annotated[
        Literal["default", "none", "training", "notebook", "inference"],
        Field(description="What is started in it when it starts, where the cluster can."),
    ] = "default"
    quote: Annotated[Line | None, Field(max_length=200, description="Digest of the quote that was shown.")] = None
    wait: Annotated[
        bool,
        Field(description="Where only other bookings stand in the way: wait for the units instead of being refused."),
    ] = False
    auto: Annotated[bool, Field(description="While it waits: book as soon as it fits, without asking.")] = False

    @model_validator(mode="after")
    def _one_form(self) -> BookingIn:
        wrong = bad_shape(self)
        if wrong is not None:
            raise ValueError(wrong)
        if (self.duration is None) == (self.end is None):
            raise ValueError("give either duration or end")
        if self.start == "asap" and self.end is not None:
            raise ValueError("with start asap give a duration, not an end")
        if self.start != "asap" and (self.earliest or self.latest):
            raise ValueError("earliest and latest go with start asap")
        return self


def bad_shape(body: Any) -> str | None:
    """What contradicts itself in the kind and the shape of a request; None when nothing does."""
    if (body.units is None) == (body.nodes is None) or (body.nodes is None) != (body.per_node is None):
        return "give either units, or nodes and per_node"
    if body.nodes is not None and body.nodes * body.per_node > 1_000_000:
        return "at most 1,000,000 units"
    if body.kind != "any" and (body.kinds or body.memory_gb):
        return "kinds and memory_gb go with kind any"
    if body.kind == "any" and body.or_better:
        return "or_better goes with a named kind"
    if body.within and body.near and LEVELS.index(body.near) >= LEVELS.index(body.within):
        return f"near is what is preferred: it must be closer than {body.within}"
    return None


class ExtendIn(BaseModel):
    """The body of POST /bookings/{id}/extend: by how much, or until when."""

    model_config = ConfigDict(extra="forbid")

    duration: Duration | None = None
    end: Instant | None = None

    @model_validator(mode="after")
    def _one_form(self) -> ExtendIn:
        if (self.duration is None) == (self.end is None):
            raise ValueError("give either duration or end")
        return self


@dataclass(frozen=True, slots=True)
class Owner:
    """A person whose booking it is."""

    account_id: UUID
    name: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A booking request in plain form.

    `start` None is as soon as possible, not before `earliest` and over by `latest`. `kind` None is any: of `kinds` where
    some are named, with at least `memory_gb` in a unit; with `or_better` any that is as good as `kind` will do too.
    """

    project: str
    name: str
    kind: str | None
    shape: Shape
    cluster: str | None
    start: datetime | None
    length: timedelta
    cost_centre: str | None
    reference: str
    workload: str
    digest: str | None
    kinds: tuple[str, ...] = ()
    memory_gb: int | None = None
    or_better: bool = False
    earliest: datetime | None = None
    latest: datetime | None = None
    owner: Owner | None = None
    """Whose booking it becomes where that is not who asks: it counts in no person's limits then."""
    series_id: UUID | None = None
    occurs_at: datetime | None = None
    class_id: UUID | None = None

    @property
    def exactly(self) -> str | None:
        """The one kind that will do; None when there is a choice."""
        return None if self.or_better else self.kind

    @classmethod
    def of(cls, body: BookingIn) -> Ask:
        """From the checked body. The length may still be nonsense (zero, negative): the rules say so with all else."""
        start = None if body.start == "asap" else body.start
        length = body.duration if body.duration is not None else body.end - start  # type: ignore[operator]
        return cls(
            project=body.project,
            name=body.name,
            kind=None if body.kind == "any" else body.kind,
            shape=Shape(body.units, body.nodes, body.per_node, body.within, body.near),
            cluster=body.cluster,
            start=start,
            length=length,
            cost_centre=body.cost_center,
            reference=body.reference,
            workload=body.workload,
            digest=body.quote,
            kinds=tuple(dict.fromkeys(body.kinds or ())),
            memory_gb=body.memory_gb,
            or_better=body.or_better,
            earliest=body.earliest,
            latest=body.latest,
        )

    def to_post(self) -> dict[str, Any]:
        """The request as it would be posted: what alternatives and quotes carry."""
        shape = (
            {"units": self.shape.units}
            if self.shape.units
            else {"nodes": self.shape.nodes, "per_node": self.shape.per_node}
        )
        body: dict[str, Any] = {
            "project": self.project,
            "name": self.name,
            "kind": self.kind or "any",
            **shape,
            "within": self.shape.within,
            "start": "asap" if self.start is None else self.start.isoformat(),
            "duration": duration_text(self.length),
            "reference": self.reference,
        }
        more = {
            "near": self.shape.near,
            "cluster": self.cluster,
            "cost_center": self.cost_centre,
            "kinds": list(self.kinds) or None,
            "memory_gb": self.memory_gb,
            "or_better": self.or_better or None,
            "earliest": None if self.earliest is None else self.earliest.isoformat(),
            "latest": None if self.latest is None else self.latest.isoformat(),
        }
        body |= {key: value for key, value in more.items() if value is not None}
        if self.workload != "default":
            body["workload"] = self.workload
        return body
