"""Use cases of people and where they belong: tenants, projects, accounts, roles, API tokens. No HTTP here.

The product itself (`SYSTEM`) may do all of this: `berth admin`, the demo, the provider's groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from psycopg import errors as pg

from app.accounts import audit, queries, rules
from app.accounts.passwords import hash_password
from app.accounts.queries import ProjectSeen, TenantSeen
from app.accounts.secrets import digest, new_password, new_token_secret
from app.accounts.sessions import LOCAL
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Forbidden, NotFound
from app.kernel.ids import TOKEN, new_id, public
from app.plumbing.db import Work


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token as it is shown once."""

    id: UUID
    secret: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class PersonAdded:
    """Somebody with a new role. `password` is the first one of an account made by this, told once."""

    account_id: UUID
    password: str | None = field(default=None, repr=False)


def create_tenant(
    work: Work, actor: Actor, *, slug: str, name: str, zone: str = "Europe/Zurich", currency: str = "CHF",
    price_group: str = "standard",
) -> TenantSeen:  # fmt: skip
    """A new organisation. The work acts for it from here on."""
    _as_operator(actor)
    rules.refuse_wrong(
        rules.wrong_slug(slug), rules.wrong_name(name), rules.wrong_zone(zone), rules.wrong_currency(currency),
        rules.wrong_name(price_group, "price group"),
    )  # fmt: skip
    tenant_id = new_id()
    work.act_for(tenant_id)
    try:
        with work.pg.transaction():
            work.pg.execute(
                """INSERT INTO tenants (tenant_id, slug, name, zone, currency, price_group, created_at)
                   VALUES (%s, %s, %s, %s, %s, %s, %s)""",
                [tenant_id, slug, name, zone, currency, price_group, work.wall],
            )
    except pg.UniqueViolation:
        raise Conflict("slug_taken", f"There is a tenant with the short name {slug} already.") from None
    made = TenantSeen(tenant_id, slug, name, zone, currency, price_group)
    after = {"name": name, "zone": zone, "currency": currency, "price_group": price_group}
    audit.record(work, actor, "create tenant", f"tenant {slug}", None, after)
    audit.record(work, actor, "create tenant", f"tenant {slug}", None, after, platform=True)
    return made


def create_project(work: Work, actor: Actor, *, slug: str, name: str, cost_centre: str) -> ProjectSeen:
    """A new team in the tenant acted for."""
    _as_tenant_admin(work, actor)
    rules.refuse_wrong(rules.wrong_slug(slug), rules.wrong_name(name), rules.wrong_name(cost_centre, "cost centre"))
    project_id = new_id()
    try:
        with work.pg.transaction():
            work.pg.execute(
                """INSERT INTO projects (tenant_id, id, slug, name, cost_centre, created_at)
                   VALUES (%s, %s, %s, %s, %s, %s)""",
                [work.tenant_id, project_id, slug, name, cost_centre, work.wall],
            )
    except pg.UniqueViolation:
        raise Conflict("slug_taken", f"There is a project with the short name {slug} already.") from None
    audit.record(work, actor, "create project", f"project {slug}", None, {"name": name, "cost_centre": cost_centre})
    return ProjectSeen(project_id, work.tenant_id, slug, name, cost_centre, work.wall, None)


def end_project(
    work: Work, actor: Actor, project_id: UUID, why: str | None = None, at: datetime | None = None
) -> ProjectSeen:
    """Nothing new is booked in it from now on, or from `at` on. What has begun by then runs to its end and is charged,
    what has not is given up.

    Ended already: nothing changes.
    """
    _as_tenant_admin(work, actor)
    seen = _project(work, project_id)
    # the product clock: it decides whether a booking may still be made
    now = work.product_now()
    if seen.ended_at is not None and (seen.ended_at <= now or seen.ended_at == at):
        return seen
    end = max(at or now, now)
    work.pg.execute(
        "UPDATE projects SET ended_at = %s WHERE tenant_id = %s AND id = %s", [end, work.tenant_id, seen.id]
    )
    before = None if seen.ended_at is None else {"ended_at": seen.ended_at}
    audit.record(work, actor, "end project", f"project {seen.slug}", before, {"ended_at": end}, why)
    return _project(work, project_id)


def ask_renewal(work: Work, actor: Actor, project_id: UUID, why: str | None = None) -> ProjectSeen:
    """A lead asks for a project to go on. Until the tenant's grace is over it counts as open meanwhile.

    Asked already: nothing changes. Raises Conflict where no end is set, or the grace is over.
    """
    seen = _project(work, project_id)
    if not actor.leads(project_id):
        raise Forbidden("role", "A lead of the project asks for its renewal.")
    if seen.ended_at is None:
        raise Conflict("no_end", f"{seen.name} has no end that could be put off.")
    asked, grace = work.pg.execute(
        """SELECT p.renewal_asked_at, t.renewal_grace_seconds FROM projects p JOIN tenants t ON t.tenant_id = p.tenant_id
            WHERE p.tenant_id = %s AND p.id = %s FOR NO KEY UPDATE OF p""",
        [work.tenant_id, project_id],
    ).fetchone()
    now = work.product_now()
    if now >= seen.ended_at + timedelta(seconds=grace):
        raise Conflict("grace_over", f"{seen.name} has ended for too long. A tenant admin may reopen it.")
    if asked is None:
        work.pg.execute(
            "UPDATE projects SET renewal_asked_at = %s WHERE tenant_id = %s AND id = %s",
            [now, work.tenant_id, project_id],
        )
        audit.record(work, actor, "ask renewal", f"project {seen.slug}", None, {"renewal_asked_at": now}, why)
    return _project(work, project_id)


def renew_project(
    work: Work, actor: Actor, project_id: UUID, until: datetime | None, why: str | None = None
) -> ProjectSeen:
    """A tenant admin lets a project go on, until another end or (None) without one. What was asked for is answered."""
    _as_tenant_admin(work, actor)
    seen = _project(work, project_id)
    if until is not None and until <= work.product_now():
        raise Conflict("end_in_past", "A project is renewed until a time that lies ahead.")
    work.pg.execute(
        "UPDATE projects SET ended_at = %s, renewal_asked_at = NULL WHERE tenant_id = %s AND id = %s",
        [until, work.tenant_id, seen.id],
    )
    before = {"ended_at": seen.ended_at}
    audit.record(work, actor, "renew project", f"project {seen.slug}", before, {"ended_at": until}, why)
    return _project(work, project_id)


def reopen_project(work: Work, actor: Actor, project_id: UUID, why: str | None = None) -> ProjectSeen:
    """Let people book in an ended project again."""
    _as_tenant_admin(work, actor)
    seen = _project(work, project_id)
    if seen.ended_at is None:
        return seen
    work.pg.execute(
        "UPDATE projects SET ended_at = NULL, renewal_asked_at = NULL WHERE tenant_id = %s AND id = %s",
        [work.tenant_id, seen.id],
    )
    audit.record(work, actor, "reopen project", f"project {seen.slug}", {"ended_at": seen.ended_at}, None, why)
    return _project(work, project_id)


def create_account(
    work: Work, actor: Actor, *, login: str, name: str, password: str | None = None, email: str | None = None,
    zone: str = "Europe/Zurich",
) -> UUID:  # fmt: skip
    """A local account. `login` is what is typed at sign-in, most often an e-mail address; no password, no sign-in."""
    if not _is_berth(actor) and not actor.platform_roles & {"operator"} and "admin" not in actor.tenant_roles:
        raise Forbidden("role", "Accounts are made by a tenant's admin or a platform operator.")
    subject = login.strip().lower()
    rules.refuse_wrong(
        rules.wrong_name(subject, "login", 200), rules.wrong_name(name), rules.wrong_zone(zone),
        rules.wrong_password(password) if password is not None else None,
    )  # fmt: skip
    account_id = new_id()
    try:
        with work.pg.transaction():
            work.pg.execute(
                """INSERT INTO accounts (id, issuer, subject, name, email, password_hash, zone, disabled, created_at)
                   VALUES (%s, %s, %s, %s, %s, %s, %s, false, %s)""",
                [account_id, LOCAL, subject, name, email if email is not None else subject,
                 hash_password(password) if password is not None else None, zone, work.wall],
            )  # fmt: skip
    except pg.UniqueViolation:
        raise Conflict("login_taken", f"There is an account with the login {subject} already.") from None
    audit.record(work, actor, "create account", f"account {subject}", None, {"name": name, "zone": zone}, platform=True)
    return account_id


def set_password(work: Work, actor: Actor, account_id: UUID, password: str) -> None:
    """A new password; every session of the account ends, as whoever knew the old one may be in."""
    if not _is_berth(actor) and actor.account_id != account_id:
        raise Forbidden("role", "A password is set by its owner, or anew with `berth admin password`.")
    rules.refuse_wrong(rules.wrong_password(password))
    changed = work.pg.execute(
        "UPDATE accounts SET password_hash = %s WHERE id = %s AND issuer = %s RETURNING subject",
        [hash_password(password), account_id, LOCAL],
    ).fetchone()
    if changed is None:
        raise NotFound("unknown_account", "There is no such local account.")
    work.pg.execute(
        "UPDATE sessions SET revoked_at = %s WHERE account_id = %s AND revoked_at IS NULL", [work.wall, account_id]
    )
    audit.record(work, actor, "set password", f"account {changed[0]}", platform=True)


def disable_account(work: Work, actor: Actor, account_id: UUID, disabled: bool = True, why: str | None = None) -> None:
    """Shut somebody out, or let in again: sessions and tokens stop counting with the next request."""
    _as_operator(actor)
    changed = work.pg.execute(
        "UPDATE accounts SET disabled = %s WHERE id = %s RETURNING subject", [disabled, account_id]
    ).fetchone()
    if changed is None:
        raise NotFound("unknown_account", "There is no such account.")
    verb = "disable account" if disabled else "enable account"
    audit.record(work, actor, verb, f"account {changed[0]}", None, {"disabled": disabled}, why, platform=True)


def add_member(work: Work, actor: Actor, account_id: UUID, role: str, project_id: UUID | None = None) -> None:
    """Give a role in the tenant acted for, or in one of its projects. Held already: nothing changes."""
    where = _as_keeper_of(work, actor, project_id)
    rules.refuse_wrong(rules.wrong_role(role, in_project=project_id is not None))
    person = _account_name(work, account_id)
    added = work.pg.execute(
        """INSERT INTO memberships (tenant_id, account_id, project_id, role, source) VALUES (%s, %s, %s, %s, 'local')
           ON CONFLICT DO NOTHING RETURNING role""",
        [work.tenant_id, account_id, project_id, role],
    ).fetchone()
    if added:
        audit.record(work, actor, "add member", where, None, {"person": person, "role": role})


def remove_member(work: Work, actor: Actor, account_id: UUID, role: str, project_id: UUID | None = None) -> None:
    """Take a role back. One that a provider's group gives is taken back there."""
    where = _as_keeper_of(work, actor, project_id)
    person = _account_name(work, account_id)
    held = """FROM memberships WHERE tenant_id = %s AND account_id = %s AND project_id IS NOT DISTINCT FROM %s
                                 AND role = %s"""
    key = [work.tenant_id, account_id, project_id, role]
    found = work.pg.execute(f"SELECT source {held}", key).fetchone()
    if found is None:
        raise NotFound("unknown_member", f"{person} does not hold this role.")
    if found[0] == "oidc":
        raise Conflict("given_by_group", "A group of the sign-in provider gives this role; take it back there.")
    work.pg.execute(f"DELETE {held}", key)
    audit.record(work, actor, "remove member", where, {"person": person, "role": role}, None)


def change_role(
    work: Work, actor: Actor, account_id: UUID, role: str, new_role: str, project_id: UUID | None = None
) -> None:
    """Another role in the same place instead of the one held there. Nobody is without a role in between."""
    add_member(work, actor, account_id, new_role, project_id)
    if role != new_role:
        remove_member(work, actor, account_id, role, project_id)


def add_person(
    work: Work, actor: Actor, *, login: str, name: str, role: str, project_id: UUID | None = None,
    zone: str = "Europe/Zurich",
) -> PersonAdded:  # fmt: skip
    """Give somebody a role in the tenant acted for, known by login or by the id of the account.

    A login that nobody has becomes a local account with a first password, which the answer alone tells. That takes the
    tenant's admin or an operator.
    """
    _as_keeper_of(work, actor, project_id)
    rules.refuse_wrong(rules.wrong_role(role, in_project=project_id is not None))
    account_id, password = queries.find_person(work, login), None
    if account_id is None:
        if login.startswith("ac_"):
            raise NotFound("unknown_account", "There is no such account.")
        password = new_password()
        account_id = create_account(work, actor, login=login, name=name, password=password, zone=zone)
    add_member(work, actor, account_id, role, project_id)
    return PersonAdded(account_id, password)


def grant_platform_role(work: Work, actor: Actor, account_id: UUID, role: str) -> None:
    """Give a role on the whole platform. Held already: nothing changes."""
    _as_operator(actor)
    rules.refuse_wrong(rules.wrong_platform_role(role))
    person = _account_name(work, account_id)
    added = work.pg.execute(
        """INSERT INTO platform_roles (account_id, role, source) VALUES (%s, %s, 'local')
           ON CONFLICT DO NOTHING RETURNING role""",
        [account_id, role],
    ).fetchone()
    if added:
        audit.record(work, actor, "grant platform role", f"account {person}", None, {"role": role}, platform=True)


def revoke_platform_role(work: Work, actor: Actor, account_id: UUID, role: str) -> None:
    """Take a role on the platform back. Not held, or given by a provider's group: an error says so."""
    _as_operator(actor)
    rules.refuse_wrong(rules.wrong_platform_role(role))
    person = _account_name(work, account_id)
    found = work.pg.execute(
        "SELECT source FROM platform_roles WHERE account_id = %s AND role = %s", [account_id, role]
    ).fetchone()
    if found is None:
        raise NotFound("unknown_member", f"{person} does not hold this role.")
    if found[0] == "oidc":
        raise Conflict("given_by_group", "A group of the sign-in provider gives this role; take it back there.")
    work.pg.execute("DELETE FROM platform_roles WHERE account_id = %s AND role = %s", [account_id, role])
    audit.record(work, actor, "revoke platform role", f"account {person}", {"role": role}, None, platform=True)


def create_token(
    work: Work, actor: Actor, *, label: str, scopes: Iterable[str] = ("read",), days: int = 90,
    project_id: UUID | None = None,
) -> NewToken:  # fmt: skip
    """An API token of one's own, for the tenant acted for, shown once. It never may more than who makes it."""
    asked = tuple(dict.fromkeys(scopes))
    rules.refuse_wrong(rules.wrong_name(label, "label"), rules.wrong_scopes(asked), rules.wrong_days(days))
    if actor.account_id is None:
        raise Forbidden("no_account", "A token belongs to a person.")
    if not set(asked) <= actor.scopes:
        raise Forbidden("scope", "A token cannot make one that may more than itself.")
    bound = project_id or actor.project_id
    if bound is not None and not actor.sees_project(bound):
        raise NotFound("unknown_project", "There is no such project, or you have no role in it.")
    if bound is not None and queries.project(work, bound) is None:
        raise NotFound("unknown_project", "There is no such project, or you have no role in it.")
    made = NewToken(new_id(), new_token_secret(), work.wall + timedelta(days=days))
    work.pg.execute(
        """INSERT INTO tokens
                  (id, secret_hash, account_id, tenant_id, project_id, label, scopes, created_at, expires_at)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)""",
        [made.id, digest(made.secret), actor.account_id, work.tenant_id, bound, label, list(asked), work.wall,
         made.expires_at],
    )  # fmt: skip
    after = {"label": label, "scopes": asked, "expires_at": made.expires_at, "project": bound}
    audit.record(work, actor, "create token", f"token {public(TOKEN, made.id)}", None, after)
    return made


def revoke_token(work: Work, actor: Actor, token_id: UUID) -> None:
    """End one of one's own tokens; the next request with it is refused."""
    # a token bound to a project reaches those of that project alone: one that leaked must not end the others
    row = work.pg.execute(
        """UPDATE tokens SET revoked_at = %(at)s
            WHERE id = %(id)s AND account_id = %(account)s AND revoked_at IS NULL
              AND (%(project)s::uuid IS NULL OR project_id = %(project)s) RETURNING label""",
        {"at": work.wall, "id": token_id, "account": actor.account_id, "project": actor.project_id},
    ).fetchone()
    if row is None:
        raise NotFound("unknown_token", "There is no such token of yours, or it is revoked already.")
    audit.record(work, actor, "revoke token", f"token {public(TOKEN, token_id)}", {"label": row[0]}, None)


def _is_berth(actor: Actor) -> bool:
    """No person: the product itself. Only code makes such an actor, never a request."""
    return actor.account_id is None


def _as_operator(actor: Actor) -> None:
    if not _is_berth(actor) and "operator" not in actor.platform_roles:
        raise Forbidden("role", "This takes the platform role of operator.")


def _as_tenant_admin(work: Work, actor: Actor) -> None:
    if work.tenant_id is None:
        raise Forbidden("no_tenant", "Choose a tenant first: this concerns the things of one tenant.")
    if not _is_berth(actor) and "admin" not in actor.tenant_roles and "operator" not in actor.platform_roles:
        raise Forbidden("role", "This takes the role of the tenant's admin.")


def _as_keeper_of(work: Work, actor: Actor, project_id: UUID | None) -> str:
    """Whoever gives roles there: the project's lead or the tenant's admin. Answers the words for the audit."""
    if project_id is None:
        _as_tenant_admin(work, actor)
        return "tenant"
    seen = queries.project(work, project_id)
    may_see = _is_berth(actor) or "operator" in actor.platform_roles or actor.sees_project(project_id)
    if seen is None or not may_see:
        raise NotFound("unknown_project", "There is no such project, or you have no role in it.")
    if not actor.leads(project_id):
        _as_tenant_admin(work, actor)
    return f"project {seen.slug}"


def _project(work: Work, project_id: UUID) -> ProjectSeen:
    seen = queries.project(work, project_id)
    if seen is None:
        raise NotFound("unknown_project", "There is no such project.")
    return seen


def _account_name(work: Work, account_id: UUID) -> str:
    row = work.pg.execute("SELECT name FROM accounts WHERE id = %s", [account_id]).fetchone()
    if row is None:
        raise NotFound("unknown_account", "There is no such account.")
    return row[0]
