"""Who acts: a person, a token or the product itself, with the roles that count in the tenant chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

PROJECT_ROLES = ("viewer", "member", "lead")
TENANT_ROLES = ("admin", "finance", "auditor")
PLATFORM_ROLES = ("operator", "finance", "auditor")
SCOPES = ("read", "book", "manage", "bill", "admin")


@dataclass(frozen=True, slots=True)
class Actor:
    """One acting party inside at most one tenant.

    `tenant_id` comes from the token or the session's chosen tenant, never from a body. `project_roles` maps the
    projects of that tenant to the role held there. `scopes` limits a token; a signed-in person has them all.
    `project_id` binds a token to one project.
    """

    account_id: UUID | None
    name: str
    tenant_id: UUID | None = None
    tenant_roles: frozenset[str] = frozenset()
    platform_roles: frozenset[str] = frozenset()
    project_roles: dict[UUID, str] = field(default_factory=dict)
    scopes: frozenset[str] = frozenset(SCOPES)
    project_id: UUID | None = None
    zone: str = "UTC"

    @property
    def label(self) -> str:
        """What history and audit rows write: the name, which is a snapshot."""
        return self.name

    def may(self, scope: str) -> bool:
        """Whether the token's scopes allow it."""
        return scope in self.scopes

    def sees_project(self, project_id: UUID) -> bool:
        """Any role in the project, or a role over the whole tenant."""
        if self.project_id is not None and project_id != self.project_id:
            return False
        return project_id in self.project_roles or bool(self.tenant_roles)

    def books_in(self, project_id: UUID) -> bool:
        """Member or lead of the project, or the tenant's admin."""
        if self.project_id is not None and project_id != self.project_id:
            return False
        return self.project_roles.get(project_id) in ("member", "lead") or "admin" in self.tenant_roles

    def leads(self, project_id: UUID) -> bool:
        """Lead of the project, or the tenant's admin."""
        if self.project_id is not None and project_id != self.project_id:
            return False
        return self.project_roles.get(project_id) == "lead" or "admin" in self.tenant_roles


SYSTEM = Actor(account_id=None, name="Berth")
"""The product itself: sweeps, metering, clean-up."""
