"""What a provider says of a person, written down: the account, and the roles that its groups give. No HTTP here.

Roles of source `oidc` are exactly what the groups give now: one missing at a sign-in is gone with it. Roles given here
(source `local`) are never touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from app.accounts import audit, cluster_users
from app.accounts.rules import Grant
from app.kernel.actor import Actor
from app.kernel.errors import Forbidden
from app.kernel.ids import new_id
from app.plumbing.db import Work


@dataclass(frozen=True, slots=True)
class Identity:
    """A person as a provider vouches for: (issuer, subject) is who it is, the rest may change or be empty. `email` is
    empty unless the address is known to be the person's own."""

    issuer: str
    subject: str
    name: str
    email: str
    groups: tuple[str, ...]
    zone: str = "UTC"
    id_token: str | None = None
    cluster_user: str | None = None


def account_of(work: Work, identity: Identity, grants: Iterable[Grant]) -> UUID:
    """The account of this identity, made at its first sign-in, with the roles that the grants give and no others.

    Raises `Forbidden` for a disabled account.
    """
    row = work.pg.execute(
        """INSERT INTO accounts (id, issuer, subject, name, email, password_hash, zone, disabled, created_at)
           VALUES (%s, %s, %s, %s, %s, NULL, %s, false, %s)
           ON CONFLICT ON CONSTRAINT one_account_a_subject DO UPDATE SET name = excluded.name, email = excluded.email
           RETURNING id, disabled, created_at = %s""",
        [
            new_id(),
            identity.issuer,
            identity.subject,
            identity.name,
            identity.email,
            identity.zone,
            work.wall,
            work.wall,
        ],
    ).fetchone()
    account_id, disabled, made = row
    if disabled:
        raise Forbidden("disabled", "This account is disabled. Ask your administrator.")
    actor = Actor(account_id, identity.name)
    if made:
        after = {"issuer": identity.issuer, "name": identity.name}
        audit.record(work, actor, "create account", f"account {identity.name}", None, after, platform=True)
    cluster_users.keep_claimed(work, account_id, identity.cluster_user)
    _sync_memberships(work, actor, {g for g in grants if g.tenant is not None})
    _sync_platform(work, actor, {g.role for g in grants if g.tenant is None})
    audit.record(work, actor, "sign in", f"account {identity.name}", None, {"issuer": identity.issuer}, platform=True)
    return account_id


def _sync_memberships(work: Work, actor: Actor, grants: set[Grant]) -> None:
    """Bring the memberships of source `oidc` to what the grants say, tenant by tenant."""
    wanted = _resolve(work, grants)
    work.identify(actor.account_id)
    held: dict[UUID, set[tuple[UUID | None, str]]] = {}
    rows = work.pg.execute(
        "SELECT tenant_id, project_id, role FROM memberships WHERE account_id = %s AND source = 'oidc'",
        [actor.account_id],
    )
    for tenant_id, project_id, role in rows.fetchall():
        held.setdefault(tenant_id, set()).add((project_id, role))
    for tenant_id in sorted(wanted.keys() | held.keys()):
        before, after = held.get(tenant_id, set()), wanted.get(tenant_id, set())
        if before == after:
            continue
        work.act_for(tenant_id)
        for project_id, role in sorted(before - after, key=str):
            work.pg.execute(
                """DELETE FROM memberships WHERE tenant_id = %s AND account_id = %s AND role = %s AND source = 'oidc'
                                             AND project_id IS NOT DISTINCT FROM %s""",
                [tenant_id, actor.account_id, role, project_id],
            )
        for project_id, role in sorted(after - before, key=str):
            work.pg.execute(
                """INSERT INTO memberships (tenant_id, account_id, project_id, role, source)
                   VALUES (%s, %s, %s, %s, 'oidc') ON CONFLICT DO NOTHING""",
                [tenant_id, actor.account_id, project_id, role],
            )
        audit.record(work, actor, "sync roles from groups", f"account {actor.label}", _words(before), _words(after))
    work.act_for(None)


def _resolve(work: Work, grants: set[Grant]) -> dict[UUID, set[tuple[UUID | None, str]]]:
    """Ids behind the short names; a name that nobody has made yet gives nothing."""
    if not grants:
        return {}
    # across tenants, since nobody is a member of anything yet; only ids of names in the settings' own map are read
    with work.read_all():
        tenants = dict(work.pg.execute(
            "SELECT slug, tenant_id FROM tenants WHERE slug = ANY(%s)", [list({g.tenant for g in grants})]
        ).fetchall())  # fmt: skip
        projects = {
            (tenant_id, slug): project_id
            for tenant_id, slug, project_id in work.pg.execute(
                "SELECT tenant_id, slug, id FROM projects WHERE tenant_id = ANY(%s)", [list(tenants.values())]
            )
        }
    found: dict[UUID, set[tuple[UUID | None, str]]] = {}
    for grant in grants:
        tenant_id = tenants.get(grant.tenant)
        project_id = projects.get((tenant_id, grant.project)) if grant.project else None
        if tenant_id is not None and (project_id is not None or grant.project is None):
            found.setdefault(tenant_id, set()).add((project_id, grant.role))
    return found


def _sync_platform(work: Work, actor: Actor, wanted: set[str]) -> None:
    rows = work.pg.execute(
        "SELECT role FROM platform_roles WHERE account_id = %s AND source = 'oidc'", [actor.account_id]
    )
    held = {role for (role,) in rows}
    if held == wanted:
        return
    work.pg.execute(
        "DELETE FROM platform_roles WHERE account_id = %s AND source = 'oidc' AND NOT role = ANY(%s)",
        [actor.account_id, sorted(wanted)],
    )
    for role in sorted(wanted - held):
        work.pg.execute(
            """INSERT INTO platform_roles (account_id, role, source) VALUES (%s, %s, 'oidc') ON CONFLICT DO NOTHING""",
            [actor.account_id, role],
        )
    before, after = {"roles": sorted(held)}, {"roles": sorted(wanted)}
    audit.record(work, actor, "sync platform roles", f"account {actor.label}", before, after, platform=True)


def _words(roles: set[tuple[UUID | None, str]]) -> dict[str, list[str]]:
    return {"roles": sorted(f"{project_id or 'tenant'}: {role}" for project_id, role in roles)}
