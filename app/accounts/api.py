"""JSON routes about oneself, one's projects and one's tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from app.accounts import actions, api_people, queries
from app.accounts.schemas import (
    MeAnswer,
    NewTokenAnswer,
    NewTokenBody,
    ProjectAnswer,
    ProjectsAnswer,
    TenantAnswer,
    TokenAnswer,
    TokensAnswer,
)
from app.kernel.actor import Actor
from app.kernel.errors import NotFound
from app.kernel.ids import ACCOUNT, PROJECT, TENANT, TOKEN, parse, public
from app.web.deps import AnyActor, InTransaction, Reader, rate_limit, require_actor

router = APIRouter(prefix="/api/v1", tags=["people"])
router.include_router(api_people.router)
TokenKeeper = Annotated[Actor, Depends(require_actor("admin"), scope="function")]


@router.get("/me")
def me(work: InTransaction, actor: AnyActor) -> MeAnswer:
    """Who the token or session belongs to, and what it may."""
    seen = queries.tenant(work, actor.tenant_id) if actor.tenant_id else None
    slugs = {p.id: p.slug for p in queries.projects(work)} if seen else {}
    roles = [f"project:{r}" for r in sorted({r for p, r in actor.project_roles.items() if actor.sees_project(p)})]
    roles += [f"tenant:{r}" for r in sorted(actor.tenant_roles)]
    roles += [f"platform:{r}" for r in sorted(actor.platform_roles)]
    return MeAnswer(
        id=public(ACCOUNT, actor.account_id),
        name=actor.name,
        zone=actor.zone,
        tenant=TenantAnswer(id=public(TENANT, seen.id), slug=seen.slug, name=seen.name, zone=seen.zone,
                            currency=seen.currency) if seen else None,
        project=slugs.get(actor.project_id) if actor.project_id else None,
        roles=roles,
        projects={slugs[p]: role for p, role in actor.project_roles.items() if p in slugs and actor.sees_project(p)},
        scopes=sorted(actor.scopes),
    )  # fmt: skip


@router.get("/projects")
def projects(work: InTransaction, actor: Reader) -> ProjectsAnswer:
    """The projects that the person may see, by name."""
    return ProjectsAnswer(
        items=[
            ProjectAnswer(id=public(PROJECT, p.id), slug=p.slug, name=p.name, cost_center=p.cost_centre,
                          role=actor.project_roles.get(p.id), created_at=p.created_at)
            for p in queries.projects(work)
            if actor.sees_project(p.id)
        ]
    )  # fmt: skip


@router.get("/tokens")
def tokens(work: InTransaction, actor: AnyActor) -> TokensAnswer:
    """One's own tokens, newest first, without their secrets. A token bound to a project lists those of that project."""
    return TokensAnswer(
        items=[
            TokenAnswer(id=public(TOKEN, t.id), label=t.label, scopes=list(t.scopes), tenant=t.tenant,
                        project=t.project, created_at=t.created_at, expires_at=t.expires_at, used_at=t.used_at)
            for t in queries.tokens_of(work, actor.account_id, actor.project_id)
        ]
    )  # fmt: skip


@router.post("/tokens", status_code=201, dependencies=[rate_limit("tokens", 30, 60)])
def create_token(body: NewTokenBody, work: InTransaction, actor: TokenKeeper) -> NewTokenAnswer:
    """A new token for the tenant acted for. The answer is the only place where it ever stands."""
    project_id = None
    if body.project is not None:
        found = queries.project_by_slug(work, body.project)
        if found is None:
            raise NotFound("unknown_project", "There is no such project, or you have no role in it.")
        project_id = found.id
    made = actions.create_token(
        work, actor, label=body.label, scopes=body.scopes, days=body.days, project_id=project_id
    )
    return NewTokenAnswer(id=public(TOKEN, made.id), token=made.secret, expires_at=made.expires_at)


@router.delete("/tokens/{token}", status_code=204)
def revoke_token(token: str, work: InTransaction, actor: TokenKeeper) -> Response:
    """End one of one's own tokens."""
    token_id = parse(TOKEN, token)
    if token_id is None:
        raise NotFound("unknown_token", "There is no such token of yours, or it is revoked already.")
    actions.revoke_token(work, actor, token_id)
    return Response(status_code=204)
