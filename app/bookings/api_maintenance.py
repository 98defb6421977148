"""The JSON routes of maintenance: what it would do, doing it in one step, calling it off."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.bookings import maintenance, rules
from app.bookings.maintenance import Choice, Impact, Plan
from app.bookings.schemas import Instant, Line
from app.inventory import actions_maintenance as announcing
from app.inventory import queries_maintenance as rows
from app.inventory.queries_maintenance import Maintenance
from app.kernel.actor import Actor
from app.kernel.errors import Conflict
from app.kernel.window import Window
from app.web.deps import InTransaction, Operator, Parts, require_platform

router = APIRouter(prefix="/api/v1", tags=["operators"])
Watcher = Annotated[Actor, Depends(require_platform("read", "operator", "auditor"), scope="function")]


class MaintenanceIn(BaseModel):
    """The body of POST /maintenances. `digest` is that of the preview which is carried out."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "cluster": "alpha", "level": "rack", "nodes": ["r07"], "name": "New fans", "why": "They are loud.",
                    "start": "2026-12-10T08:00:00+01:00", "end": "2026-12-10T12:00:00+01:00", "choices": {"B-12": "cancel"},
                }
            ]
        },
    )  # fmt: skip

    cluster: Annotated[Line, Field(max_length=80)]
    level: Literal["node", "nvlink", "leaf", "rack", "cluster"] = "node"
    nodes: Annotated[list[Annotated[Line, Field(max_length=200)]], Field(max_length=10_000)] = []
    start: Instant
    end: Instant
    name: Annotated[Line, Field(min_length=1, max_length=120)]
    why: Annotated[Line, Field(max_length=500)] = ""
    choices: Annotated[dict[str, Choice], Field(max_length=10_000)] = {}
    layout: Annotated[Line, Field(max_length=4000)] = ""
    digest: Annotated[Line | None, Field(max_length=200)] = None

    @model_validator(mode="after")
    def _whole(self) -> MaintenanceIn:
        if self.end <= self.start:
            raise ValueError("the end lies at or before the start")
        if self.level != "cluster" and not self.nodes:
            raise ValueError("name the nodes, or the domains of the level")
        return self

    def to_plan(self) -> Plan:
        """As the use case takes it."""
        window = Window(self.start, self.end)
        return Plan(self.cluster, self.level, tuple(self.nodes), window, self.name, self.why, self.choices, self.layout)


@router.get("/maintenances")
def list_maintenances(work: InTransaction, _actor: Watcher, all: bool = False) -> dict[str, Any]:
    """Those that are going on or to come; with `all` those that are over too."""
    since = None if all else work.product_now()
    return {"items": [maintenance_json(m) for m in rows.maintenances(work, since=since)], "next": None}


@router.post("/maintenances", status_code=201)
def commit(
    body: MaintenanceIn, response: Response, work: InTransaction, actor: Operator, parts: Parts, dry_run: bool = False
) -> dict[str, Any]:
    """Take nodes out for a time. First with `dry_run`, which answers what becomes of each booking and a digest; then with
    the digest, which fails with 409 `world_changed` when that is no longer so."""
    plan = body.to_plan()
    if dry_run:
        response.status_code = 200
        return impact_json(maintenance.preview(work, parts.queue, actor, plan))
    if body.digest is None:
        raise Conflict("no_preview", "Look at what it would do first (dry_run=true), and send the digest of that.")
    return impact_json(maintenance.commit(work, parts.queue, actor, plan, body.digest))


@router.post("/maintenances/{maintenance}/call-off")
def call_off(
    maintenance: int, work: InTransaction, actor: Operator,
    if_match: Annotated[str | None, Header(alias="If-Match")] = None,
) -> dict[str, Any]:  # fmt: skip
    """The nodes are capacity again. What was moved, shortened or cancelled stays so."""
    text = (if_match or "").strip().removeprefix("W/").strip('"')
    version = None if not if_match or if_match.strip() == "*" else int(text) if text.isdigit() else -1
    return maintenance_json(announcing.call_off(work, actor, maintenance, version))


def maintenance_json(one: Maintenance) -> dict[str, Any]:
    """One maintenance."""
    return {
        "id": one.id,
        "cluster": one.cluster,
        "name": one.name,
        "why": one.why,
        "start": rules.iso(one.start),
        "end": rules.iso(one.end),
        "nodes": list(one.nodes),
        "layout": dict(one.layout),
        "made_by": one.made_by,
        "made_at": rules.iso(one.made_at),
        "called_off_at": None if one.cancelled_at is None else rules.iso(one.cancelled_at),
        "version": one.version,
    }


def impact_json(impact: Impact) -> dict[str, Any]:
    """What it does to whom, with the digest that a commit names."""
    return {
        "maintenance": maintenance_json(impact.maintenance),
        "digest": impact.digest,
        "withdrawn_requests": impact.withdrawn,
        "bookings": [
            {
                "booking": f.booking.public_id,
                "number": f.booking.label,
                "name": f.booking.name,
                "tenant": f.tenant,
                "project": f.booking.project,
                "booked_by": f.booking.booked_by,
                "start": rules.iso(f.booking.starts_at),
                "end": rules.iso(f.booking.ends_at),
                "done": f.done,
                "possible": list(f.possible),
                "left": list(f.left),
                "took": list(f.took),
                "new_end": rules.iso(f.end),
                "back": {"currency": f.booking.currency, "amount": str(f.back)},
            }
            for f in impact.fates
        ],
    }
