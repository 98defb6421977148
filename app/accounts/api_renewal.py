"""JSON routes about how long a project goes on: its end, asking for more, giving it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from app.accounts import actions, queries
from app.accounts.api_people import OfTenant
from app.accounts.keepers import Keeper, named_tenant
from app.accounts.queries import ProjectSeen
from app.accounts.schemas import ProjectAnswer, WhyBody
from app.kernel.errors import NotFound
from app.kernel.ids import PROJECT, public
from app.plumbing.db import Work
from app.web.deps import Booker, InTransaction

router = APIRouter(prefix="/api/v1", tags=["people"])


class ProjectEndBody(BaseModel):
    """Until when a project goes on; null: without an end. What was asked for is answered by it."""

    model_config = ConfigDict(extra="forbid")

    end: Annotated[AwareDatetime | None, Field(description="With its offset from UTC.")]
    why: Annotated[str | None, Field(max_length=500)] = None


@router.put("/projects/{slug}/end")
def set_end(
    slug: str, body: ProjectEndBody, work: InTransaction, actor: Keeper, tenant: OfTenant = ""
) -> ProjectAnswer:
    """Let a project go on until then. Past its end nothing new is booked in it; what has begun runs on."""
    named_tenant(work, actor, tenant)
    end: datetime | None = None if body.end is None else body.end.astimezone(UTC).replace(microsecond=0)
    return _answer(actions.renew_project(work, actor, _project(work, slug), end, body.why))


@router.post("/projects/{slug}/renewal")
def ask_renewal(slug: str, work: InTransaction, actor: Booker, body: WhyBody | None = None) -> ProjectAnswer:
    """A lead asks for a project to go on. Until the tenant's grace is over it counts as open meanwhile."""
    project_id = _project(work, slug)
    if not actor.sees_project(project_id):
        raise NotFound("unknown_project", "There is no such project.")
    return _answer(actions.ask_renewal(work, actor, project_id, body.why if body else None))


def _project(work: Work, slug: str) -> UUID:
    found = queries.project_by_slug(work, slug)
    if found is None:
        raise NotFound("unknown_project", "There is no such project.")
    return found.id


def _answer(p: ProjectSeen) -> ProjectAnswer:
    return ProjectAnswer(
        id=public(PROJECT, p.id), slug=p.slug, name=p.name, cost_center=p.cost_centre, role=None,
        created_at=p.created_at, ended_at=p.ended_at,
    )  # fmt: skip
