"""Every SQL statement that reads accounts, tenants, projects, roles. No role is checked here; RLS hides other tenants'.

`caller_by_session` and `caller_by_token` run on every request: three short statements, two of them in one round trip.
Nothing is cached, so that a revoked session or a role taken away counts at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from app.accounts.secrets import digest
from app.kernel.actor import Actor
from app.kernel.ids import ACCOUNT, parse
from app.plumbing.db import Work

SESSION_LIFE = timedelta(days=14)
SESSION_IDLE = timedelta(days=2)
SEEN_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The browser session behind a request. `tenant_id` and `project_id` are what its person chose to look at."""

    id_hash: bytes
    csrf: str
    email: str
    issuer: str
    project_id: UUID | None
    created_at: datetime
    id_token: str | None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: the actor, and the session if a browser did."""

    actor: Actor
    session: SignedIn | None = None


@dataclass(frozen=True, slots=True)
class TenantSeen:
    """A tenant's plain facts."""

    id: UUID
    slug: str
    name: str
    zone: str
    currency: str
    price_group: str


@dataclass(frozen=True, slots=True)
class ProjectSeen:
    """A project's plain facts."""

    id: UUID
    tenant_id: UUID
    slug: str
    name: str
    cost_centre: str
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """A role that somebody holds; `project_id` None: in the whole tenant."""

    account_id: UUID
    name: str
    email: str
    project_id: UUID | None
    role: str
    source: str


_SESSION = """SELECT s.account_id, a.name, a.email, a.issuer, a.zone, s.csrf, s.tenant_id, s.project_id, s.created_at,
                     s.seen_at, s.id_token,
                     ARRAY(SELECT p.role FROM platform_roles p WHERE p.account_id = a.id) AS platform
                FROM sessions s JOIN accounts a ON a.id = s.account_id
               WHERE s.id_hash = %s AND s.revoked_at IS NULL AND s.expires_at > %s AND s.seen_at > %s
                 AND NOT a.disabled"""
_TOKEN = """SELECT t.account_id, a.name, a.zone, t.tenant_id, t.project_id, t.scopes, t.used_at,
                   ARRAY(SELECT p.role FROM platform_roles p WHERE p.account_id = a.id) AS platform
              FROM tokens t JOIN accounts a ON a.id = t.account_id
             WHERE t.secret_hash = %s AND t.revoked_at IS NULL AND t.expires_at > %s AND NOT a.disabled"""
_ACT = "SELECT set_config('app.account', %s, true), set_config('app.tenant', %s, true)"
_ROLES = "SELECT project_id, role FROM memberships WHERE account_id = %s AND tenant_id = %s"
# SKIP LOCKED: requests of one session that run at the same time do not wait for each other's commit
_SEEN = """UPDATE sessions SET seen_at = %(at)s WHERE id_hash = (
             SELECT id_hash FROM sessions WHERE id_hash = %(key)s FOR NO KEY UPDATE SKIP LOCKED)"""
_USED = """UPDATE tokens SET used_at = %(at)s WHERE secret_hash = (
             SELECT secret_hash FROM tokens WHERE secret_hash = %(key)s FOR NO KEY UPDATE SKIP LOCKED)"""


def caller_by_session(work: Work, secret: str) -> Caller | None:
    """The person behind a session's cookie, acting for the tenant chosen; None when it is unknown, ended or idle."""
    key = digest(secret)
    row = work.pg.execute(_SESSION, [key, work.wall, work.wall - SESSION_IDLE]).fetchone()
    if row is None:
        return None
    account_id, name, email, issuer, zone, csrf, tenant_id, project_id, created_at, seen_at, id_token, platform = row
    roles = _act(work, account_id, tenant_id)
    if seen_at < work.wall - SEEN_EVERY:
        work.pg.execute(_SEEN, {"at": work.wall, "key": key})
    actor = _actor(account_id, name, zone, work.tenant_id, roles, platform)
    return Caller(actor, SignedIn(key, csrf, email, issuer, project_id, created_at, id_token))


def caller_by_token(work: Work, secret: str) -> Caller | None:
    """The person behind an API token, acting for the token's tenant; None when it is unknown, revoked or expired.

    A token bound to a tenant carries no platform role.
    """
    key = digest(secret)
    row = work.pg.execute(_TOKEN, [key, work.wall]).fetchone()
    if row is None:
        return None
    account_id, name, zone, tenant_id, project_id, scopes, used_at, platform = row
    roles = _act(work, account_id, tenant_id)
    if used_at is None or used_at < work.wall - SEEN_EVERY:
        work.pg.execute(_USED, {"at": work.wall, "key": key})
    return Caller(
        _actor(account_id, name, zone, work.tenant_id, roles, [] if tenant_id else platform,
               frozenset(scopes), project_id)
    )  # fmt: skip


def _act(work: Work, account_id: UUID, tenant_id: UUID | None) -> list[tuple[UUID | None, str]]:
    """Set whose rows this transaction sees, and read the person's roles there; no roles, no tenant."""
    if tenant_id is None:
        work.identify(account_id)
        return []
    with work.pg.pipeline():
        work.pg.execute(_ACT, [str(account_id), str(tenant_id)])
        cursor = work.pg.execute(_ROLES, [account_id, tenant_id])
        roles = cursor.fetchall()
    if roles:
        work.tenant_id = tenant_id
    else:
        work.act_for(None)
    return roles


def _actor(
    account_id: UUID,
    name: str,
    zone: str,
    tenant_id: UUID | None,
    roles: list[tuple[UUID | None, str]],
    platform: list[str],
    scopes: frozenset[str] | None = None,
    bound_project: UUID | None = None,
) -> Actor:
    """An actor from rows. Of several roles in one project the strongest counts."""
    order = ("viewer", "member", "lead")
    projects: dict[UUID, str] = {}
    for project_id, role in roles:
        if project_id is not None and order.index(role) >= order.index(projects.get(project_id, "viewer")):
            projects[project_id] = role
    words: dict[str, Any] = {} if scopes is None else {"scopes": scopes}
    return Actor(
        account_id=account_id,
        name=name,
        tenant_id=tenant_id,
        tenant_roles=frozenset(role for project_id, role in roles if project_id is None),
        platform_roles=frozenset(platform),
        project_roles=projects,
        project_id=bound_project,
        zone=zone,
        **words,
    )


def tenant(work: Work, tenant_id: UUID) -> TenantSeen | None:
    """A tenant that may be seen now."""
    row = work.pg.execute(
        "SELECT tenant_id, slug, name, zone, currency, price_group FROM tenants WHERE tenant_id = %s", [tenant_id]
    ).fetchone()
    return TenantSeen(*row) if row else None


def tenants(work: Work) -> list[TenantSeen]:
    """All tenants that may be seen now, by name: one's own after `identify`, all inside `read_all`."""
    rows = work.pg.execute(
        "SELECT tenant_id, slug, name, zone, currency, price_group FROM tenants ORDER BY name, tenant_id"
    )
    return [TenantSeen(*row) for row in rows]


def projects(work: Work, *, ended: bool = False) -> list[ProjectSeen]:
    """The projects of the tenant acted for, by name."""
    rows = work.pg.execute(
        """SELECT p.id, p.tenant_id, p.slug, p.name, p.cost_centre, p.created_at, p.ended_at FROM projects p
             JOIN tenants t ON t.tenant_id = p.tenant_id
            WHERE p.tenant_id = berth_tenant() AND (%s OR p.ended_at IS NULL OR berth_now() < p.ended_at
                  + CASE WHEN p.renewal_asked_at IS NULL THEN interval '0'
                         ELSE make_interval(secs => t.renewal_grace_seconds) END) ORDER BY p.name, p.id""",
        [ended],
    )
    return [ProjectSeen(*row) for row in rows]


def project_by_slug(work: Work, slug: str) -> ProjectSeen | None:
    """A project of the tenant acted for."""
    row = work.pg.execute(
        """SELECT id, tenant_id, slug, name, cost_centre, created_at, ended_at FROM projects
            WHERE tenant_id = berth_tenant() AND slug = %s""",
        [slug],
    ).fetchone()
    return ProjectSeen(*row) if row else None


def project(work: Work, project_id: UUID) -> ProjectSeen | None:
    """A project of the tenant acted for."""
    row = work.pg.execute(
        """SELECT id, tenant_id, slug, name, cost_centre, created_at, ended_at FROM projects
            WHERE tenant_id = berth_tenant() AND id = %s""",
        [project_id],
    ).fetchone()
    return ProjectSeen(*row) if row else None


def members(work: Work, project_id: UUID | None = None) -> list[MemberSeen]:
    """Who holds which role in the tenant acted for; with a project, only there."""
    rows = work.pg.execute(
        """SELECT m.account_id, a.name, a.email, m.project_id, m.role, m.source
             FROM memberships m JOIN accounts a ON a.id = m.account_id
            WHERE m.tenant_id = berth_tenant() AND (%(p)s::uuid IS NULL OR m.project_id = %(p)s)
            ORDER BY a.name, m.account_id, m.role""",
        {"p": project_id},
    )
    return [MemberSeen(*row) for row in rows]


def find_person(work: Work, text: str) -> UUID | None:
    """The account behind what somebody typed: the login of a local account, or an account's id (`ac_…`)."""
    account_id = parse(ACCOUNT, text.strip())
    row = work.pg.execute(
        "SELECT id FROM accounts WHERE id = %s OR (issuer = 'local' AND subject = %s)",
        [account_id, text.strip().lower()],
    ).fetchone()
    return row[0] if row else None


def disabled_among(work: Work, account_ids: Iterable[UUID]) -> frozenset[UUID]:
    """Which of these accounts are shut out."""
    rows = work.pg.execute("SELECT id FROM accounts WHERE disabled AND id = ANY(%s)", [list(account_ids)])
    return frozenset(row[0] for row in rows)


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere a person may act: a whole tenant, or a project in it. `value` names it in forms."""

    value: str
    name: str
    detail: str
    tenant_id: UUID
    project_id: UUID | None


def places_of(work: Work, account_id: UUID) -> list[Place]:
    """Where a person may act, tenants by name, the whole tenant before its projects, ended ones too.

    Looks into each tenant in turn and comes back to the one acted for.
    """
    held: dict[UUID, list[tuple[UUID | None, str]]] = {}
    rows = work.pg.execute("SELECT tenant_id, project_id, role FROM memberships WHERE account_id = %s", [account_id])
    for tenant_id, project_id, role in rows.fetchall():
        held.setdefault(tenant_id, []).append((project_id, role))
    before, places = work.tenant_id, []
    mine = [t for t in tenants(work) if t.id in held]
    for one in mine:
        if work.tenant_id != one.id:
            work.act_for(one.id)
        whole = sorted(role for project_id, role in held[one.id] if project_id is None)
        roles = {project_id: role for project_id, role in held[one.id] if project_id is not None}
        if whole:
            places.append(Place(one.slug, one.name, f"Whole tenant, {', '.join(whole)}", one.id, None))
        for seen in projects(work, ended=True):  # what is left in an ended one is still to be seen, and given back
            if whole or seen.id in roles:
                over = ", ended" if seen.ended_at is not None and seen.ended_at <= work.product_now() else ""
                detail = f"{one.name}, {roles.get(seen.id) or whole[0]}{over}"
                places.append(Place(f"{one.slug}/{seen.slug}", seen.name, detail, one.id, seen.id))
    if work.tenant_id != before:
        work.act_for(before)
    return places


def last_place(work: Work, account_id: UUID) -> tuple[UUID | None, UUID | None] | None:
    """(tenant, project) of the person's latest session."""
    return work.pg.execute(
        "SELECT tenant_id, project_id FROM sessions WHERE account_id = %s ORDER BY seen_at DESC LIMIT 1", [account_id]
    ).fetchone()


@dataclass(frozen=True, slots=True)
class TokenSeen:
    """An API token without its secret."""

    id: UUID
    label: str
    scopes: tuple[str, ...]
    tenant: str | None
    project: str | None
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None


def tokens_of(work: Work, account_id: UUID, project_id: UUID | None = None) -> list[TokenSeen]:
    """A person's tokens that were not revoked, newest first; with a project, those bound to it. Names of other tenants'
    projects are not shown."""
    rows = work.pg.execute(
        """SELECT t.id, t.label, t.scopes, n.name, p.name, t.created_at, t.expires_at, t.used_at
             FROM tokens t LEFT JOIN tenants n ON n.tenant_id = t.tenant_id
                           LEFT JOIN projects p ON p.tenant_id = t.tenant_id AND p.id = t.project_id
            WHERE t.account_id = %s AND t.revoked_at IS NULL AND (%s::uuid IS NULL OR t.project_id = %s)
            ORDER BY t.created_at DESC, t.id DESC""",
        [account_id, project_id, project_id],
    )
    return [TokenSeen(r[0], r[1], tuple(r[2]), *r[3:]) for r in rows]


@dataclass(frozen=True, slots=True)
class SessionSeen:
    """A signed-in browser of one's own."""

    id_hash: bytes
    agent: str
    address: str
    created_at: datetime
    seen_at: datetime


def sessions_of(work: Work, account_id: UUID) -> list[SessionSeen]:
    """A person's sessions that still count, the one seen last first."""
    rows = work.pg.execute(
        """SELECT id_hash, agent, address, created_at, seen_at FROM sessions
            WHERE account_id = %s AND revoked_at IS NULL AND expires_at > %s AND seen_at > %s ORDER BY seen_at DESC""",
        [account_id, work.wall, work.wall - SESSION_IDLE],
    )
    return [SessionSeen(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class AuditSeen:
    """One row of the audit of a tenant or of the platform."""

    seq: int
    at: datetime
    actor: str
    action: str
    subject: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    why: str | None


def audit_rows(
    work: Work, *, platform: bool = False, person: str = "", action: str = "", text: str = "",
    before_seq: int | None = None, limit: int = 50,
) -> list[AuditSeen]:  # fmt: skip
    """The newest rows first, of the tenant acted for or of the platform, older than `before_seq`."""
    source = "platform_audit" if platform else "audit"
    rows = work.pg.execute(
        f"""SELECT seq, at, actor, action, subject, before, after, why FROM {source}
             WHERE {"true" if platform else "tenant_id = berth_tenant()"}
               AND (%(before)s::bigint IS NULL OR seq < %(before)s) AND (%(person)s = '' OR actor = %(person)s)
               AND (%(action)s = '' OR action = %(action)s)
               AND (%(text)s = '' OR strpos(lower(subject || ' ' || coalesce(why, '')), lower(%(text)s)) > 0)
             ORDER BY seq DESC LIMIT %(limit)s""",
        {"before": before_seq, "person": person, "action": action, "text": text, "limit": limit},
    )
    return [AuditSeen(*row) for row in rows]


def audit_words(work: Work, *, platform: bool = False) -> tuple[list[str], list[str]]:
    """Who and which actions appear in the audit, for its filters."""
    source = "platform_audit" if platform else "audit"
    where = "" if platform else "WHERE tenant_id = berth_tenant()"
    people = work.pg.execute(f"SELECT DISTINCT actor FROM {source} {where} ORDER BY 1 LIMIT 500").fetchall()
    actions = work.pg.execute(f"SELECT DISTINCT action FROM {source} {where} ORDER BY 1 LIMIT 200").fetchall()
    return [p for (p,) in people], [a for (a,) in actions]
