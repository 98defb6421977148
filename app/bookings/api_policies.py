"""The JSON routes of rules: what counts for a project, what operators say of pools, and whom a change would touch."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from app.bookings import actions_policies as actions
from app.bookings import policies, rules
from app.bookings.preview import Preview, Touched
from app.bookings.queries import find_project
from app.inventory.policy import Policy, said_as
from app.inventory.schemas import PolicyIn
from app.kernel import ids
from app.kernel.actor import Actor
from app.kernel.errors import NotFound
from app.web.deps import InTransaction, Operator, Reader, require_platform

router = APIRouter(prefix="/api/v1", tags=["rules"])

Watcher = Annotated[Actor, Depends(require_platform("read", "operator", "auditor"), scope="function")]
IfMatch = Annotated[str | None, Header(alias="If-Match", description="The ETag that was last seen.")]
Slug = Annotated[str, Query(max_length=63)]
OrNone = Annotated[str | None, Query(max_length=63)]


class OverrideIn(BaseModel):
    """What differs for a tenant or a project: rules by name, null takes a limit away; nothing: nothing differs."""

    model_config = ConfigDict(extra="forbid")

    policy: dict[str, Any] = Field(examples=[{"max_length": 86400, "open": True}])


@router.get("/policies")
def list_policies(work: InTransaction, actor: Reader, project: Slug) -> dict[str, Any]:
    """The rules that count for a project, pool by pool, all layers together. Lengths in seconds."""
    found = find_project(work, project, ids.parse(ids.PROJECT, project))
    if found is None or not actor.sees_project(found.id):
        raise NotFound("project_not_found", "There is no such project.")
    pools = policies.pools_of_project(work, found.id)
    items = [
        {
            "cluster": p.cluster,
            "pool": p.name,
            "kind": p.kind,
            "open": p.policy.may_book,
            "policy": every_rule(p.policy),
        }
        for p in pools
    ]
    return {"items": items, "next": None}


@router.get("/clusters/{name}/pools/{pool}/policy")
def get_policy(
    name: str, pool: str, work: InTransaction, actor: Watcher, response: Response, tenant: OrNone = None,
    project: OrNone = None,
) -> dict[str, Any]:  # fmt: skip
    """What is said of a pool, or (`tenant`, `project`) over it, and what counts there."""
    said = actions.said(work, actor, name, pool, tenant, project)
    response.headers["ETag"] = f'"{said.etag}"'
    return said_json(said)


@router.put("/clusters/{name}/pools/{pool}/policy")
def put_policy(
    name: str, pool: str, body: PolicyIn, work: InTransaction, actor: Operator, response: Response,
    dry_run: bool = False, if_match: IfMatch = None,
) -> dict[str, Any]:  # fmt: skip
    """Set a pool's policy; rules that are left out are the default again. `dry_run`: whom it would touch."""
    if dry_run:
        return preview_json(actions.preview(work, actor, name, pool, body.policy, body.gap_seconds))
    said = actions.set_policy(work, actor, name, pool, body.policy, body.gap_seconds, etag=_etag(if_match))
    response.headers["ETag"] = f'"{said.etag}"'
    return said_json(said)


@router.put("/clusters/{name}/pools/{pool}/policy/overrides")
def put_override(
    name: str, pool: str, body: OverrideIn, work: InTransaction, actor: Operator, response: Response, tenant: Slug,
    project: OrNone = None, dry_run: bool = False, if_match: IfMatch = None,
) -> dict[str, Any]:  # fmt: skip
    """Say what differs for a tenant, or for one of its projects. `dry_run`: whom it would touch."""
    if dry_run:
        return preview_json(actions.preview(work, actor, name, pool, body.policy, None, tenant, project))
    said = actions.set_policy(work, actor, name, pool, body.policy, None, tenant, project, _etag(if_match))
    response.headers["ETag"] = f'"{said.etag}"'
    return said_json(said)


def every_rule(policy: Policy) -> dict[str, Any]:
    """All rules by name, lengths in whole seconds."""
    return {f.name: said_as(getattr(policy, f.name)) for f in fields(policy)}


def said_json(said: actions.Said) -> dict[str, Any]:
    """What is said and what counts."""
    return {
        "cluster": said.pool.cluster,
        "pool": said.pool.name,
        "tenant": said.tenant,
        "project": said.project,
        "policy": said.words,
        "gap_seconds": said.gap_seconds,
        "effective": every_rule(said.policy),
    }


def preview_json(found: Preview) -> dict[str, Any]:
    """Whom a change would touch."""
    return {
        "changes": [{"rule": n, "before": before, "after": after} for n, before, after in found.changes],
        "would_be_refused": [_touched(t) for t in found.refused],
        "would_need_approval": [_touched(t) for t in found.asked],
        "followed": found.followed,
        "closed": list(found.closed),
        "contradictions": list(found.contradicts),
        "looked_at": found.looked_at,
        "more": found.more,
    }


def _touched(touched: Touched) -> dict[str, Any]:
    b = touched.booking
    return {
        "booking": b.label,
        "tenant": b.tenant,
        "project": b.project,
        "booked_by": b.booked_by,
        "start": rules.iso(b.starts_at),
        "end": rules.iso(b.ends_at),
        "reasons": [
            {"code": r.code, "message": r.message, "limit": r.limit, "asked": r.asked} for r in touched.reasons
        ],
    }


def _etag(if_match: str | None) -> str | None:
    if if_match is None or if_match.strip() == "*":
        return None
    return if_match.strip().removeprefix("W/").strip('"')
