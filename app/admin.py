"""`berth admin …`: what whoever runs the servers does at a terminal. A composition root beside `cli`: it decides nothing.

Every command goes through the rooms' own verbs, as the actor "berth admin" with the name of the terminal's user, so each
leaves a row in the audit. Passwords are asked for or read from standard input, never taken from the command line, where
others could see them. Repeating a command is harmless, or says in one sentence why it is not done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from app.terminal import ask_password, refuse, settings_or_say, terminal_user

if TYPE_CHECKING:
    from app.kernel.actor import Actor
    from app.plumbing.db import Work

admin = typer.Typer(
    help="For whoever runs the servers: the first operator, tenants, projects, people, tokens. Works beside a running "
    "`berth up`, or on the database that DATABASE_URL names.",
    no_args_is_help=True,
)

Login = Annotated[str, typer.Argument(help="What the person types to sign in, most often an e-mail address.")]
Tenant = Annotated[str, typer.Argument(help="Short name of the tenant, such as physics.")]
OfTenant = Annotated[str | None, typer.Option("--tenant", help="Short name of the tenant.")]
OfProject = Annotated[str | None, typer.Option("--project", help="Short name of a project in it.")]
Why = Annotated[str | None, typer.Option(help="A reason; it stands in the audit.")]
Generate = Annotated[bool, typer.Option("--generate", help="Make a password and print it, instead of asking for one.")]
_ZONE = "Europe/Zurich"


@admin.callback()
def where(
    context: typer.Context,
    data: Annotated[Path | None, typer.Option(help="Data folder of the running `berth up`; ./var unless said.")] = None,
) -> None:
    """Remember which installation is meant."""
    context.obj = data


@admin.command()
def roles(
    superuser_url: Annotated[str, typer.Option(envvar="SUPERUSER_URL", help="An administrator's address.")],
) -> None:
    """Make the database roles and the database that DATABASE_URL and DATABASE_OWNER_URL name. Can be repeated."""
    import psycopg

    from app.plumbing.roles import ensure_roles

    settings = settings_or_say()
    if not settings.database_url or not settings.database_owner_url:
        refuse("Set DATABASE_URL and DATABASE_OWNER_URL to what they are going to be: berth_app and berth_owner.")
    try:
        ensure_roles(superuser_url, owner_url=settings.database_owner_url, app_url=settings.database_url)
    except (ValueError, psycopg.Error) as error:
        refuse(str(error))
    typer.echo("Roles and database are as they should be.")


@admin.command("create-operator")
def create_operator(
    context: typer.Context,
    login: Login,
    name: Annotated[str | None, typer.Option(help="The person's name; the login's first part unless said.")] = None,
    generate: Generate = False,
) -> None:
    """Make somebody an operator of the platform: the first thing to do. The account is made if it is not there."""
    with _work(context) as (work, actor):
        account_id, made = _account(work, actor, login, name, generate)
        _grant(work, actor, account_id, "operator")
    _say_made(made, login)
    typer.echo(f"{login} is an operator: clusters, nodes, tenants and people of this installation.")


@admin.command("create-tenant")
def create_tenant(
    context: typer.Context,
    tenant: Tenant,
    name: Annotated[str, typer.Option(help="As people read it, such as 'Institute of Physics'.")],
    zone: Annotated[str, typer.Option(help="Time zone in which its days are billed.")] = _ZONE,
    currency: Annotated[str, typer.Option(help="Three letters.")] = "CHF",
    price_group: Annotated[str, typer.Option(help="Whose prices it pays; finance publishes by group.")] = "standard",
) -> None:
    """Make a tenant: an organisation with projects, people and a bill of its own."""
    from app.accounts import actions

    with _work(context) as (work, actor):
        found = _find_tenant(work, tenant)
        wanted = (name, zone, currency, price_group)
        if found is not None:
            if (found.name, found.zone, found.currency, found.price_group) != wanted:
                refuse(
                    f"There is a tenant {tenant} already: {found.name}, {found.zone}, {found.currency}, price group "
                    f"{found.price_group}. Nothing was changed."
                )
            typer.echo(f"The tenant {tenant} is there already.")
            return
        actions.create_tenant(
            work, actor, slug=tenant, name=name, zone=zone, currency=currency, price_group=price_group
        )
    typer.echo(f"The tenant {tenant} is made.")


@admin.command("create-project")
def create_project(
    context: typer.Context,
    tenant: Tenant,
    project: Annotated[str, typer.Argument(help="Short name of the project, such as plasma.")],
    name: Annotated[str, typer.Option(help="As people read it, such as 'Plasma surrogates'.")],
    cost_centre: Annotated[str, typer.Option(help="Appears on the bill.")],
) -> None:
    """Make a project in a tenant: bookings belong to one."""
    from app.accounts import actions, queries

    with _work(context) as (work, actor):
        _act_for(work, tenant)
        found = queries.project_by_slug(work, project)
        if found is not None:
            if (found.name, found.cost_centre) != (name, cost_centre):
                refuse(
                    f"There is a project {project} in {tenant} already: {found.name}, cost centre {found.cost_centre}. "
                    "Nothing was changed."
                )
            typer.echo(f"The project {project} of {tenant} is there already.")
            return
        actions.create_project(work, actor, slug=project, name=name, cost_centre=cost_centre)
    typer.echo(f"The project {project} of {tenant} is made.")


@admin.command("end-project")
def end_project(
    context: typer.Context,
    tenant: Tenant,
    project: Annotated[str, typer.Argument(help="Short name of the project.")],
    why: Why = None,
    undo: Annotated[bool, typer.Option("--undo", help="Let people book in it again.")] = False,
) -> None:
    """Let nobody book in a project any more. What is booked stays and is charged."""
    from app.accounts import actions

    with _work(context) as (work, actor):
        _act_for(work, tenant)
        turn = actions.reopen_project if undo else actions.end_project
        turn(work, actor, _project(work, project), why)
    typer.echo(f"The project {project} {'can be booked in again' if undo else 'has ended'}.")


@admin.command("create-person")
def create_person(
    context: typer.Context,
    login: Login,
    name: Annotated[str | None, typer.Option(help="The person's name; the login's first part unless said.")] = None,
    generate: Generate = False,
) -> None:
    """Make a local account. The password is asked for, or read as one line from standard input."""
    with _work(context) as (work, actor):
        _, made = _account(work, actor, login, name, generate)
    _say_made(made, login)


@admin.command("add-member")
def add_member(
    context: typer.Context,
    login: Login,
    role: Annotated[
        str, typer.Argument(help="In a project viewer, member, lead; in a tenant admin, finance, auditor.")
    ],
    tenant: Annotated[str, typer.Option(help="Short name of the tenant.")],
    project: OfProject = None,
) -> None:
    """Give somebody a role: in a project with --project, else in the whole tenant."""
    from app.accounts import actions

    with _work(context) as (work, actor):
        account_id = _known(work, login)
        _act_for(work, tenant)
        actions.add_member(work, actor, account_id, role, _project(work, project) if project else None)
    typer.echo(f"{login} is {role} of {f'{tenant}/{project}' if project else tenant}.")


@admin.command("remove-member")
def remove_member(
    context: typer.Context,
    login: Login,
    role: Annotated[str, typer.Argument(help="The role to take back.")],
    tenant: Annotated[str, typer.Option(help="Short name of the tenant.")],
    project: OfProject = None,
) -> None:
    """Take a role back. What the person has booked stays booked."""
    from app.accounts import actions

    with _work(context) as (work, actor):
        account_id = _known(work, login)
        _act_for(work, tenant)
        actions.remove_member(work, actor, account_id, role, _project(work, project) if project else None)
    typer.echo(f"{login} is no longer {role} of {f'{tenant}/{project}' if project else tenant}.")


@admin.command("grant-role")
def grant_role(
    context: typer.Context,
    login: Login,
    role: Annotated[str, typer.Argument(help="operator, finance or auditor: of the whole platform.")],
) -> None:
    """Give somebody a role on the whole platform."""
    with _work(context) as (work, actor):
        _grant(work, actor, _known(work, login), role)
    typer.echo(f"{login} is platform {role}.")


@admin.command("revoke-role")
def revoke_role(
    context: typer.Context,
    login: Login,
    role: Annotated[str, typer.Argument(help="operator, finance or auditor.")],
) -> None:
    """Take a role on the platform back."""
    from app.accounts import actions

    with _work(context) as (work, actor):
        actions.revoke_platform_role(work, actor, _known(work, login), role)
    typer.echo(f"{login} is no longer platform {role}.")


@admin.command("set-password")
def set_password(context: typer.Context, login: Login, generate: Generate = False) -> None:
    """Give somebody a new password: asked for, or one line of standard input. All his or her sessions end."""
    from app.accounts import actions

    with _work(context) as (work, actor):
        account_id = _known(work, login)
        password = ask_password(generate)
        actions.set_password(work, actor, account_id, password)
    if generate:
        typer.echo(f"Password: {password}")
    typer.echo(f"{login} has a new password.")


@admin.command()
def disable(
    context: typer.Context,
    login: Login,
    why: Why = None,
    undo: Annotated[bool, typer.Option("--undo", help="Let the person in again.")] = False,
) -> None:
    """Shut somebody out: sessions and tokens stop counting with the next request. Bookings stay."""
    from app.accounts import actions

    with _work(context) as (work, actor):
        actions.disable_account(work, actor, _known(work, login), not undo, why)
    typer.echo(f"{login} is {'let in again' if undo else 'shut out'}.")


@admin.command("create-token")
def create_token(
    context: typer.Context,
    login: Login,
    label: Annotated[str, typer.Option(help="What it is for.")],
    scope: Annotated[
        list[str] | None, typer.Option(help="read, book, manage, bill, admin; several times for more.")
    ] = None,
    days: Annotated[int, typer.Option(help="How long it lives.")] = 90,
    tenant: OfTenant = None,
    project: OfProject = None,
) -> None:
    """Make an API token for somebody, and print it: the only time that it is shown. Without --tenant it is one for
    the platform's work."""
    from app.accounts import actions, audit, queries
    from app.kernel.actor import Actor

    with _work(context) as (work, actor):
        account_id = _known(work, login)
        if any(t.label == label for t in queries.tokens_of(work, account_id)):
            refuse(f"{login} has a token called “{label}” already. Choose another label.")
        if tenant:
            _act_for(work, tenant)
        elif project:
            refuse("A project belongs to a tenant: say --tenant too.")
        held = [m for m in queries.members(work) if m.account_id == account_id] if tenant else []
        if tenant and not held:
            refuse(f"{login} has no role in {tenant}, so a token for it could do nothing.")
        owner = Actor(
            account_id, login, work.tenant_id,
            tenant_roles=frozenset(m.role for m in held if m.project_id is None),
            project_roles={m.project_id: m.role for m in held if m.project_id is not None},
        )  # fmt: skip
        made = actions.create_token(
            work, owner, label=label, scopes=scope or ["read"], days=days,
            project_id=_project(work, project) if project else None,
        )  # fmt: skip
        audit.record(work, actor, "create token", f"account {login}", None, {"label": label}, platform=True)
    typer.echo(made.secret)


@admin.command("set-cluster-user")
def set_cluster_user(
    context: typer.Context,
    login: Login,
    cluster: Annotated[str, typer.Argument(help="Name of the cluster.")],
    user: Annotated[str, typer.Argument(help="The user that the person is on it.")],
    why: Why = None,
) -> None:
    """Say which user somebody is on a cluster, where the rule (the e-mail address's first part) is not right."""
    from app.accounts import cluster_users

    with _work(context) as (work, actor):
        cluster_users.set_name(work, actor, _known(work, login), cluster, user, why)
    typer.echo(f"{login} is {user} on {cluster}.")


@admin.command("list")
def list_people(context: typer.Context, tenant: OfTenant = None) -> None:
    """Show tenants, projects and who has which role; with --tenant, of that one."""
    from app.accounts import queries

    with _work(context) as (work, _):
        with work.read_all():
            every = [t for t in queries.tenants(work) if tenant in (None, t.slug)]
        if tenant and not every:
            refuse(f"There is no tenant {tenant}.")
        rows = work.pg.execute(
            "SELECT a.subject, p.role FROM platform_roles p JOIN accounts a ON a.id = p.account_id ORDER BY 2, 1"
        ).fetchall()
        for login, role in rows if tenant is None else ():
            typer.echo(f"platform  {role:<8}  {login}")
        for one in every:
            work.act_for(one.id)
            slugs = {p.id: p.slug for p in queries.projects(work, ended=True)}
            typer.echo(f"tenant {one.slug}: {one.name}, {one.zone}, {one.currency}, price group {one.price_group}")
            for slug in sorted(slugs.values()):
                typer.echo(f"  project {slug}")
            for m in queries.members(work):
                place = slugs[m.project_id] if m.project_id else "whole tenant"
                typer.echo(f"  {place:<14}  {m.role:<8}  {m.name} <{m.email}>")


@contextmanager
def _work(context: typer.Context) -> Iterator[tuple[Work, Actor]]:
    """One transaction for one command, and who acts. What a person can mend is one sentence and exit code 1."""
    import psycopg
    from sqlalchemy.exc import OperationalError

    from app.kernel.actor import Actor
    from app.kernel.clock import wall_now
    from app.kernel.errors import Problem
    from app.plumbing.db import DangerousRole, Database, make_engine, refuse_dangerous_role
    from app.plumbing.running import NotRunning, running_database

    settings = settings_or_say(data=context.obj)
    try:
        database = Database(make_engine(running_database(settings)), wall_now)
    except NotRunning as error:
        refuse(str(error))
    try:
        with database.work() as work:
            refuse_dangerous_role(work.pg)
            yield work, Actor(None, f"berth admin, {terminal_user()}")
    except (Problem, DangerousRole) as error:
        refuse(str(error))
    except (OperationalError, psycopg.OperationalError) as error:
        refuse(f"The database does not answer: {str(getattr(error, 'orig', error)).strip().splitlines()[0]}")
    finally:
        database.close()


def _account(work: Work, actor: Actor, login: str, name: str | None, generate: bool) -> tuple[UUID, str | None]:
    """The account of that login, made if it is not there, and the password that was generated for it.

    Asks for a password only when one is needed.
    """
    from app.accounts import actions, queries

    found = queries.find_person(work, login)
    if found is not None:
        typer.echo(f"The account {login} is there already; its password stays as it is.")
        return found, None
    password = ask_password(generate)
    made = actions.create_account(
        work, actor, login=login, name=name or login.partition("@")[0], password=password, zone=_ZONE
    )
    return made, password if generate else ""


def _say_made(made: str | None, login: str) -> None:
    """After the commit, so that nothing is said that did not happen."""
    if made is not None:
        typer.echo(f"The account {login} is made.")
    if made:
        typer.echo(f"Password: {made}")


def _grant(work: Work, actor: Actor, account_id: UUID, role: str) -> None:
    from app.accounts import actions

    actions.grant_platform_role(work, actor, account_id, role)


def _known(work: Work, login: str) -> UUID:
    from app.accounts import queries

    found = queries.find_person(work, login)
    if found is None:
        refuse(f"There is no account with the login {login}. Make it with `berth admin create-person {login}`.")
    return found


def _find_tenant(work: Work, slug: str) -> Any:
    from app.accounts import queries

    with work.read_all():
        return next((t for t in queries.tenants(work) if t.slug == slug), None)


def _act_for(work: Work, slug: str) -> None:
    found = _find_tenant(work, slug)
    if found is None:
        refuse(f"There is no tenant {slug}. Make it with `berth admin create-tenant {slug} --name …`.")
    work.act_for(found.id)


def _project(work: Work, slug: str) -> UUID:
    from app.accounts import queries

    found = queries.project_by_slug(work, slug)
    if found is None:
        refuse(f"There is no project {slug} in this tenant. Make it with `berth admin create-project`.")
    return found.id
