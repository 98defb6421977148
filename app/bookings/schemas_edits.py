"""Bodies of the verbs that change a booking. Form alone; whether it can be done is for the use cases."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.bookings.schemas import Count, Duration, Instant, Line


class ShrinkIn(BaseModel):
    """The body of POST /bookings/{id}/shrink: an earlier end, by how much earlier, how many units or nodes are kept."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"units": 4}, {"duration": "PT2H"}]})

    end: Instant | None = None
    duration: Annotated[Duration | None, Field(description="By how much earlier it ends.")] = None
    units: Annotated[Count | None, Field(description="How many units it keeps.")] = None
    nodes: Annotated[Count | None, Field(description="How many whole nodes it keeps.")] = None

    @model_validator(mode="after")
    def _something(self) -> ShrinkIn:
        if self.end is not None and self.duration is not None:
            raise ValueError("give either end or duration")
        if self.units is not None and self.nodes is not None:
            raise ValueError("give either units or nodes")
        if all(v is None for v in (self.end, self.duration, self.units, self.nodes)):
            raise ValueError("give an end, a duration, units or nodes")
        return self


class MoveIn(BaseModel):
    """The body of POST /bookings/{id}/move: what is not given stays as it is."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"start": "2026-12-02T09:00:00+01:00", "cluster": "any"}]}
    )

    start: Instant | None = None
    duration: Duration | None = None
    cluster: Annotated[Line | None, Field(max_length=80, description="Name of a cluster, or `any`.")] = None

    @model_validator(mode="after")
    def _something(self) -> MoveIn:
        if self.start is None and self.duration is None and self.cluster is None:
            raise ValueError("give a start, a duration or a cluster")
        return self


class HandOverIn(BaseModel):
    """The body of POST /bookings/{id}/hand-over."""

    model_config = ConfigDict(extra="forbid")

    to: Annotated[Line, Field(max_length=80, description="Id of a member of the project (`ac_…`).")]


class ClaimIn(BaseModel):
    """The body of POST /uses/{id}/claim."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"project": "plasma", "duration": "PT4H"}]}
    )

    project: Annotated[Line, Field(max_length=80, description="Slug of the project, or its id (`pj_…`).")]
    name: Annotated[Line, Field(min_length=1, max_length=120)] = "Claimed"
    duration: Duration
    cost_center: Annotated[Line | None, Field(max_length=80)] = None
    reference: Annotated[Line, Field(max_length=200)] = ""
