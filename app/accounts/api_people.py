"""JSON routes for whoever keeps people, projects and tenants, and about one's user names on clusters."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response

from app.accounts import actions, cluster_users, queries
from app.accounts.keepers import Keeper, named_tenant
from app.accounts.queries import ProjectSeen, TenantSeen
from app.accounts.schemas import (
    ClusterUserAnswer,
    ClusterUserBody,
    ClusterUsersAnswer,
    MemberAnswer,
    MembersAnswer,
    NewPersonBody,
    NewProjectBody,
    NewTenantBody,
    PersonAnswer,
    ProjectAnswer,
    TenantAnswer,
    TenantsAnswer,
    WhyBody,
)
from app.kernel.actor import Actor
from app.kernel.errors import NotFound
from app.kernel.ids import ACCOUNT, PROJECT, TENANT, parse, public
from app.plumbing.db import Work
from app.web.deps import InTransaction, require_actor, require_platform

router = APIRouter()
PlatformKeeper = Annotated[Actor, Depends(require_platform("admin", "operator"), scope="function")]
Person = Annotated[Actor, Depends(require_actor("read"), scope="function")]
NameKeeper = Annotated[Actor, Depends(require_actor("admin"), scope="function")]
OfTenant = Annotated[str, Query(description="Short name of the tenant, for the platform's operators", max_length=63)]
OfProject = Annotated[str | None, Query(description="Short name of the project; none: the whole tenant", max_length=63)]
Role = Annotated[str, Query(description="Without its place: member, lead, admin …", max_length=40)]


@router.get("/tenants")
def tenants(work: InTransaction, _actor: PlatformKeeper) -> TenantsAnswer:
    """All tenants, by name."""
    with work.read_all():
        return TenantsAnswer(items=[_tenant(t) for t in queries.tenants(work)])


@router.post("/tenants", status_code=201)
def create_tenant(body: NewTenantBody, work: InTransaction, actor: PlatformKeeper) -> TenantAnswer:
    """A new tenant."""
    return _tenant(actions.create_tenant(work, actor, **body.model_dump()))


@router.get("/people")
def people(work: InTransaction, actor: Keeper, tenant: OfTenant = "", project: OfProject = None) -> MembersAnswer:
    """Who holds which role in the tenant, or in one project of it: one item a role."""
    named_tenant(work, actor, tenant)
    slugs = {p.id: p.slug for p in queries.projects(work, ended=True)}
    return MembersAnswer(
        items=[
            MemberAnswer(
                id=public(ACCOUNT, m.account_id),
                name=m.name,
                email=m.email,
                role=f"project:{m.role}" if m.project_id else f"tenant:{m.role}",
                project=slugs[m.project_id] if m.project_id else None,
                source=m.source,
            )
            for m in queries.members(work, _project(work, project))
        ]
    )


@router.post("/people", status_code=201)
def add_person(body: NewPersonBody, work: InTransaction, actor: Keeper, tenant: OfTenant = "") -> PersonAnswer:
    """Give somebody a role. A login that nobody has becomes an account; its first password stands in this answer."""
    kept = named_tenant(work, actor, tenant)
    added = actions.add_person(
        work, actor, login=body.login, name=body.name or body.login.partition("@")[0], role=body.role,
        project_id=_project(work, body.project), zone=kept.zone,
    )  # fmt: skip
    return PersonAnswer(id=public(ACCOUNT, added.account_id), password=added.password)


@router.delete("/people/{account}", status_code=204)
def remove_member(
    account: str, work: InTransaction, actor: Keeper, role: Role, tenant: OfTenant = "", project: OfProject = None
) -> Response:
    """Take a role back."""
    named_tenant(work, actor, tenant)
    account_id = parse(ACCOUNT, account)
    if account_id is None:
        raise NotFound("unknown_account", "There is no such account.")
    actions.remove_member(work, actor, account_id, role, _project(work, project))
    return Response(status_code=204)


@router.post("/projects", status_code=201)
def create_project(body: NewProjectBody, work: InTransaction, actor: Keeper, tenant: OfTenant = "") -> ProjectAnswer:
    """A new project of the tenant."""
    named_tenant(work, actor, tenant)
    made = actions.create_project(work, actor, slug=body.slug, name=body.name, cost_centre=body.cost_center)
    return _project_answer(made)


@router.post("/projects/{slug}/end")
def end_project(
    slug: str, work: InTransaction, actor: Keeper, body: WhyBody | None = None, tenant: OfTenant = ""
) -> ProjectAnswer:
    """Nothing new is booked in it from now on. What is booked stays and is charged."""
    named_tenant(work, actor, tenant)
    project_id = _project(work, slug)
    assert project_id is not None
    return _project_answer(actions.end_project(work, actor, project_id, body.why if body else None))


@router.post("/projects/{slug}/reopen")
def reopen_project(
    slug: str, work: InTransaction, actor: Keeper, body: WhyBody | None = None, tenant: OfTenant = ""
) -> ProjectAnswer:
    """People may book in it again."""
    named_tenant(work, actor, tenant)
    project_id = _project(work, slug)
    assert project_id is not None
    return _project_answer(actions.reopen_project(work, actor, project_id, body.why if body else None))


@router.get("/cluster-users")
def my_names(work: InTransaction, actor: Person) -> ClusterUsersAnswer:
    """What one is called on each cluster. `wanted` was entered and waits for an operator."""
    if actor.account_id is None:
        return ClusterUsersAnswer(items=[])
    return ClusterUsersAnswer(
        items=[
            ClusterUserAnswer(cluster=u.cluster, name=u.name, source=u.source if u.name else None, wanted=u.wanted)
            for u in cluster_users.users_of(work, actor.account_id)
        ]
    )


@router.put("/cluster-users/{cluster}", status_code=202)
def ask_for_name(cluster: str, body: ClusterUserBody, work: InTransaction, actor: NameKeeper) -> ClusterUsersAnswer:
    """Enter one's user name on a cluster. It counts when an operator has confirmed it."""
    cluster_users.ask_for(work, actor, cluster, body.name)
    return my_names(work, actor)


def _project(work: Work, slug: str | None) -> UUID | None:
    if slug is None:
        return None
    found = queries.project_by_slug(work, slug)
    if found is None:
        raise NotFound("unknown_project", "There is no such project.")
    return found.id


def _project_answer(p: ProjectSeen) -> ProjectAnswer:
    return ProjectAnswer(
        id=public(PROJECT, p.id), slug=p.slug, name=p.name, cost_center=p.cost_centre, role=None,
        created_at=p.created_at, ended_at=p.ended_at,
    )  # fmt: skip


def _tenant(t: TenantSeen) -> TenantAnswer:
    return TenantAnswer(id=public(TENANT, t.id), slug=t.slug, name=t.name, zone=t.zone, currency=t.currency)
