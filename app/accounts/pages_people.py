"""HTML routes for whoever keeps people and projects: a tenant's admin, and the platform's operators for all tenants."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Form, Query, Response

from app.accounts import actions, cluster_users, queries
from app.accounts.keepers import Keeper, kept_tenant, named_tenant
from app.accounts.queries import MemberSeen, ProjectSeen, TenantSeen
from app.accounts.rules import zones
from app.kernel.actor import PROJECT_ROLES, TENANT_ROLES, Actor
from app.kernel.errors import Conflict, Invalid, NotFound
from app.kernel.ids import ACCOUNT, parse, public
from app.plumbing.db import Work
from app.web import words
from app.web.deps import InTransaction, Operator
from app.web.page import OnPage
from app.web.views.parts import Action, Note, Option
from app.web.views.people import (
    MemberHeld,
    NameWaiting,
    PeoplePage,
    PersonForm,
    ProjectForm,
    ProjectKept,
    TenantForm,
)

router = APIRouter(include_in_schema=False)
_MOST = 300
_Word = Annotated[str, Form(max_length=200)]
_Asked = Annotated[str, Query(max_length=200)]
_ROLE_HINTS = {
    "viewer": "sees the project",
    "member": "books",
    "lead": "books, adds people",
    "admin": "keeps people and projects",
    "finance": "sees what it costs",
    "auditor": "sees everything, changes nothing",
}


@router.get("/people")
def people_page(page: OnPage, work: InTransaction, actor: Keeper, tenant: _Asked = "", q: _Asked = "") -> Response:
    """Who belongs to the tenant, and its projects."""
    return page.show(_view(work, actor, kept_tenant(work, actor, tenant), query=q))


@router.post("/people")
def add_person(
    page: OnPage, work: InTransaction, actor: Keeper, login: _Word = "", name: _Word = "", place: _Word = "",
    role: _Word = "", tenant: _Word = "",
) -> Response:  # fmt: skip
    """Give somebody a role; a login that nobody has becomes an account, whose first password is shown once."""
    kept = named_tenant(work, actor, tenant)
    try:
        project_id = _project(work, place)
        added = actions.add_person(
            work, actor, login=login, name=name or login.partition("@")[0], role=role, project_id=project_id,
            zone=kept.zone,
        )  # fmt: skip
    except (Invalid, NotFound) as error:
        form = {"login": login, "name": name, "place": place, "role": role}
        return page.show(_view(work, actor, kept, person=form, errors=_errors(error, "login")), error.status)
    if added.password:
        return page.show(_view(work, actor, kept, password=added.password, password_of=login), 201)
    return page.go(_here(actor, kept), Note("ok", f"{login} is {role} of {_place_name(work, place)} now"))


@router.post("/people/role")
def change_role(
    page: OnPage, work: InTransaction, actor: Keeper, account: _Word = "", place: _Word = "", role: _Word = "",
    new_role: _Word = "", tenant: _Word = "",
) -> Response:  # fmt: skip
    """Another role in the same place."""
    kept = named_tenant(work, actor, tenant)
    actions.change_role(work, actor, _account(account), role, new_role, _project(work, place))
    return page.go(_here(actor, kept), Note("ok", f"The role in {_place_name(work, place)} is {new_role} now"))


@router.post("/people/remove")
def remove_member(
    page: OnPage, work: InTransaction, actor: Keeper, account: _Word = "", place: _Word = "", role: _Word = "",
    tenant: _Word = "",
) -> Response:  # fmt: skip
    """Take a role back."""
    kept = named_tenant(work, actor, tenant)
    actions.remove_member(work, actor, _account(account), role, _project(work, place))
    text = "It counts with the next request. What the person has booked stays booked."
    return page.go(_here(actor, kept), Note("ok", f"The role of {role} is taken back", text))


@router.post("/people/projects")
def create_project(
    page: OnPage, work: InTransaction, actor: Keeper, slug: _Word = "", name: _Word = "", cost_center: _Word = "",
    tenant: _Word = "",
) -> Response:  # fmt: skip
    """A new project."""
    kept = named_tenant(work, actor, tenant)
    try:
        made = actions.create_project(work, actor, slug=slug, name=name, cost_centre=cost_center)
    except (Invalid, Conflict) as error:
        form = ProjectForm(slug, name, cost_center, _errors(error, "slug"))
        return page.show(_view(work, actor, kept, project=form), error.status)
    return page.go(
        _here(actor, kept), Note("ok", f"{made.name} can be booked in", "Now add the people of the project.")
    )


@router.post("/people/projects/{slug}/end")
def end_project(
    page: OnPage, slug: str, work: InTransaction, actor: Keeper, why: _Word = "", tenant: _Word = ""
) -> Response:
    """Nothing new is booked in it from now on."""
    kept = named_tenant(work, actor, tenant)
    seen = actions.end_project(work, actor, _known(work, slug), why or None)
    text = "What is booked stays as it is and is charged. You can let people book in it again at any time."
    return page.go(_here(actor, kept), Note("ok", f"{seen.name} has ended", text))


@router.post("/people/projects/{slug}/reopen")
def reopen_project(page: OnPage, slug: str, work: InTransaction, actor: Keeper, tenant: _Word = "") -> Response:
    """People may book in it again."""
    kept = named_tenant(work, actor, tenant)
    seen = actions.reopen_project(work, actor, _known(work, slug))
    return page.go(_here(actor, kept), Note("ok", f"{seen.name} can be booked in again"))


@router.post("/people/tenants")
def create_tenant(
    page: OnPage, work: InTransaction, actor: Operator, slug: _Word = "", name: _Word = "", zone: _Word = "",
    currency: _Word = "", price_group: _Word = "",
) -> Response:  # fmt: skip
    """A new tenant."""
    try:
        made = actions.create_tenant(
            work, actor, slug=slug, name=name, zone=zone, currency=currency, price_group=price_group
        )
    except (Invalid, Conflict) as error:
        work.act_for(None)
        form = {"slug": slug, "name": name, "zone": zone, "currency": currency, "price_group": price_group}
        return page.show(_view(work, actor, None, tenant_form=form, errors=_errors(error, "slug")), error.status)
    text = "Now make a project, and add its people. An admin of the tenant can do both from here on."
    return page.go(f"/people?{urlencode({'tenant': made.slug})}", Note("ok", f"{made.name} is there", text))


@router.post("/people/cluster-users")
def confirm_name(
    page: OnPage, work: InTransaction, actor: Operator, account: _Word = "", cluster: _Word = "", name: _Word = "",
    tenant: _Word = "",
) -> Response:  # fmt: skip
    """Confirm the user name that somebody entered for a cluster; without a name, refuse it."""
    back = f"/people?{urlencode({'tenant': tenant})}" if tenant else "/people"
    if not name:
        cluster_users.refuse_name(work, actor, _account(account), cluster)
        return page.go(back, Note("ok", "The name is refused", "The name before it stays."))
    cluster_users.set_name(work, actor, _account(account), cluster, name)
    return page.go(back, Note("ok", f"The user name on {cluster} is {name} now"))


def _view(
    work: Work, actor: Actor, kept: TenantSeen | None, *, query: str = "", person: dict[str, str] | None = None,
    project: ProjectForm | None = None, tenant_form: dict[str, str] | None = None,
    errors: dict[str, str] | None = None, password: str | None = None, password_of: str = "",
) -> PeoplePage:  # fmt: skip
    operates = "operator" in actor.platform_roles
    tenants: tuple[Option, ...] = ()
    if operates:
        with work.read_all():
            every = queries.tenants(work)
        tenants = tuple(Option(t.slug, t.name, kept is not None and t.id == kept.id) for t in every)
    waits = tuple(_waiting(one, kept) for one in cluster_users.waiting(work)) if operates else ()
    form = _tenant_form(tenant_form, errors if tenant_form else None) if operates else None
    if kept is None:
        said = f"{words.count(len(tenants), 'tenant')}. Choose one." if tenants else "There is no tenant yet."
        return PeoplePage("", said, tenant_form=form, tenants=tenants, waiting=waits)
    projects = queries.projects(work, ended=True)
    members = queries.members(work)
    named = {p.id: p for p in projects}
    out = queries.disabled_among(work, {m.account_id for m in members})
    hidden = (("tenant", kept.slug),) if operates else ()
    rows = [_member(m, named, out, hidden) for m in members if _matches(m, query)]
    people = len({m.account_id for m in members})
    live = [p for p in projects if p.ended_at is None]
    return PeoplePage(
        tenant=kept.name,
        sentence=f"{words.count(people, 'person', 'people')}, {words.count(len(live), 'project')}.",
        people=tuple(rows[:_MOST]),
        more=max(0, len(rows) - _MOST),
        projects=tuple(_kept(p, members) for p in sorted(projects, key=lambda p: (p.ended_at is not None, p.name))),
        person_form=_person_form(live, person, errors if person else None),
        project_form=project or ProjectForm(),
        tenant_form=form,
        tenants=tenants,
        hidden=hidden,
        query=query,
        waiting=waits,
        password=password,
        password_of=password_of,
    )


def _matches(member: MemberSeen, query: str) -> bool:
    return query.strip().lower() in f"{member.name} {member.email}".lower()


def _member(
    m: MemberSeen, named: dict[UUID, ProjectSeen], out: frozenset[UUID], hidden: tuple[tuple[str, str], ...]
) -> MemberHeld:
    project = named[m.project_id] if m.project_id else None
    account, place = public(ACCOUNT, m.account_id), project.slug if project else ""
    where = project.name if project else "Whole tenant"
    fields = (*hidden, ("account", account), ("place", place), ("role", m.role))
    return MemberHeld(
        name=m.name,
        email=m.email,
        account=account,
        place=place,
        place_name=where,
        role=m.role,
        roles=tuple(Option(r, r.capitalize(), r == m.role) for r in (PROJECT_ROLES if project else TENANT_ROLES)),
        remove=Action("Remove", "/people/remove", fields, "danger", describe=f"Remove {m.name} as {m.role} of {where}"),
        given_by_group=m.source == "oidc",
        disabled=m.account_id in out,
    )


def _kept(project: ProjectSeen, members: list[MemberSeen]) -> ProjectKept:
    return ProjectKept(
        slug=project.slug,
        name=project.name,
        cost_center=project.cost_centre,
        people=len({m.account_id for m in members if m.project_id == project.id}),
        created=project.created_at,
        ended=project.ended_at,
        turn=f"/people/projects/{project.slug}/{'reopen' if project.ended_at else 'end'}",
    )


def _person_form(
    projects: list[ProjectSeen], typed: dict[str, str] | None, errors: dict[str, str] | None
) -> PersonForm:
    said = typed or {"place": projects[0].slug if projects else "", "role": "member" if projects else "admin"}
    return PersonForm(
        places=(
            *(Option(p.slug, p.name, p.slug == said["place"]) for p in projects),
            Option("", "Whole tenant", not said["place"]),
        ),
        roles=tuple(
            Option(r, f"{r.capitalize()}: {_ROLE_HINTS[r]} ({where})", r == said["role"])
            for where, known in (("project", PROJECT_ROLES), ("whole tenant", TENANT_ROLES))
            for r in known
        ),
        login=said.get("login", ""),
        name=said.get("name", ""),
        errors=errors or {},
    )


def _tenant_form(typed: dict[str, str] | None, errors: dict[str, str] | None) -> TenantForm:
    said = typed or {"zone": "Europe/Zurich"}
    words_typed = {name: value for name, value in said.items() if name != "zone"}
    options = tuple(Option(z, z, z == said["zone"]) for z in sorted(zones()))
    return TenantForm(options, **words_typed, errors=errors or {})


def _waiting(one: cluster_users.ClusterUser, kept: TenantSeen | None) -> NameWaiting:
    wanted = one.wanted or ""
    fields = (("account", public(ACCOUNT, one.account_id)), ("cluster", one.cluster))
    if kept is not None:
        fields += (("tenant", kept.slug),)
    where = "/people/cluster-users"
    said = f"{one.person} as {wanted} on {one.cluster}"
    assert one.since is not None  # every row has it
    return NameWaiting(
        one.person, one.cluster, one.name or "", wanted, one.since,
        Action("Confirm", where, (*fields, ("name", wanted)), describe=f"Confirm {said}"),
        Action("Refuse", where, fields, "danger", describe=f"Refuse {said}"),
    )  # fmt: skip


def _errors(error: Any, otherwise: str) -> dict[str, str]:
    """Sentences by field; what belongs to none stands at the first one."""
    said: dict[str, str] = {}
    for reason in getattr(error, "reasons", ()):
        place = {"cost centre": "cost_center"}.get(reason.field or "", reason.field or otherwise)
        said[place] = f"{said.get(place, '')} {reason.message}".strip()
    return said or {otherwise: error.detail}


def _account(text: str) -> UUID:
    account_id = parse(ACCOUNT, text)
    if account_id is None:
        raise NotFound("unknown_account", "There is no such account.")
    return account_id


def _project(work: Work, slug: str) -> UUID | None:
    """The project's id; None for the whole tenant."""
    return _known(work, slug) if slug else None


def _known(work: Work, slug: str) -> UUID:
    found = queries.project_by_slug(work, slug)
    if found is None:
        raise NotFound("unknown_project", "There is no such project.")
    return found.id


def _place_name(work: Work, slug: str) -> str:
    found = queries.project_by_slug(work, slug) if slug else None
    return found.name if found else "the whole tenant"


def _here(actor: Actor, kept: TenantSeen) -> str:
    return f"/people?{urlencode({'tenant': kept.slug})}" if "operator" in actor.platform_roles else "/people"
