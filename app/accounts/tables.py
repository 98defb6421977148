"""Rows of accounts. They describe the migration and check nothing: rules are pure, constraints are in the database."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import Field, SQLModel


def _instant(nullable: bool = False) -> Any:
    return Field(sa_column=Column(DateTime(timezone=True), nullable=nullable))


def _text(nullable: bool = False, **words: Any) -> Any:
    return Field(sa_column=Column(Text, nullable=nullable, **words))


class AccountRow(SQLModel, table=True):
    """A person as one issuer knows him or her: (issuer, subject), never an e-mail address."""

    __tablename__ = "accounts"
    __table_args__ = (UniqueConstraint("issuer", "subject", name="one_account_a_subject"),)

    id: UUID = Field(primary_key=True)
    issuer: str = _text()
    subject: str = _text()
    name: str = _text()
    email: str = _text()
    password_hash: str | None = _text(nullable=True)
    zone: str = _text()
    disabled: bool
    created_at: datetime = _instant()
    cluster_user: str | None = _text(nullable=True)


class ClusterUserRow(SQLModel, table=True):
    """A person's user name on one cluster. `wanted` is one that was entered and is not confirmed yet."""

    __tablename__ = "cluster_users"
    __table_args__ = (UniqueConstraint("cluster_id", "name", name="one_user_a_cluster"),)

    account_id: UUID = Field(primary_key=True, foreign_key="accounts.id")
    cluster_id: int = Field(primary_key=True, foreign_key="clusters.id", sa_column_kwargs={"autoincrement": False})
    name: str | None = _text(nullable=True)
    source: str = _text()
    since: datetime = _instant()
    wanted: str | None = _text(nullable=True)


class SessionRow(SQLModel, table=True):
    """A signed-in browser, found by the hash of what its cookie says."""

    __tablename__ = "sessions"
    __table_args__ = (Index("sessions_of_account", "account_id"),)

    id_hash: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    account_id: UUID = Field(foreign_key="accounts.id")
    created_at: datetime = _instant()
    seen_at: datetime = _instant()
    expires_at: datetime = _instant()
    revoked_at: datetime | None = _instant(nullable=True)
    csrf: str = _text()
    tenant_id: UUID | None = None
    project_id: UUID | None = None
    agent: str = _text()
    address: str = _text()
    id_token: str | None = _text(nullable=True)


class SignInTryRow(SQLModel, table=True):
    """A failed sign-in; `key` is a hash of the login or of the address it came from."""

    __tablename__ = "sign_in_tries"
    __table_args__ = (Index("sign_in_tries_of_key", "key", "at"),)

    id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    key: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    at: datetime = _instant()


class TokenRow(SQLModel, table=True):
    """An API token, found by the hash of its secret."""

    __tablename__ = "tokens"
    __table_args__ = (Index("tokens_of_account", "account_id"),)

    id: UUID = Field(primary_key=True)
    secret_hash: bytes = Field(sa_column=Column(LargeBinary, nullable=False, unique=True))
    account_id: UUID = Field(foreign_key="accounts.id")
    tenant_id: UUID | None = None
    project_id: UUID | None = None
    label: str = _text()
    scopes: list[str] = Field(sa_column=Column(ARRAY(Text), nullable=False))
    created_at: datetime = _instant()
    expires_at: datetime = _instant()
    used_at: datetime | None = _instant(nullable=True)
    revoked_at: datetime | None = _instant(nullable=True)


class PlatformRoleRow(SQLModel, table=True):
    """A role on the whole platform."""

    __tablename__ = "platform_roles"

    account_id: UUID = Field(primary_key=True, foreign_key="accounts.id")
    role: str = Field(sa_column=Column(Text, primary_key=True))
    source: str = _text()


class PlatformAuditRow(SQLModel, table=True):
    """Who did what to the platform, and who read across tenants. Append-only."""

    __tablename__ = "platform_audit"

    seq: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    at: datetime = _instant()
    product_at: datetime = _instant()
    account_id: UUID | None = None
    actor: str = _text()
    action: str = _text()
    subject: str = _text()
    tenant_id: UUID | None = None
    before: dict[str, Any] | None = Field(sa_column=Column(JSONB))
    after: dict[str, Any] | None = Field(sa_column=Column(JSONB))
    why: str | None = _text(nullable=True)


class TenantRow(SQLModel, table=True):
    """An organisation: the unit of isolation and of invoicing."""

    __tablename__ = "tenants"

    tenant_id: UUID = Field(primary_key=True)
    slug: str = _text(unique=True)
    name: str = _text()
    zone: str = _text()
    currency: str = _text()
    price_group: str = _text()
    created_at: datetime = _instant()
    renewal_grace_seconds: int = Field(sa_column=Column(Integer, nullable=False, server_default="604800"))


class ProjectRow(SQLModel, table=True):
    """A team in a tenant; bookings belong to one."""

    __tablename__ = "projects"
    __table_args__ = (UniqueConstraint("tenant_id", "slug", name="one_slug_a_tenant"),)

    tenant_id: UUID = Field(primary_key=True, foreign_key="tenants.tenant_id")
    id: UUID = Field(primary_key=True)
    slug: str = _text()
    name: str = _text()
    cost_centre: str = _text()
    created_at: datetime = _instant()
    ended_at: datetime | None = _instant(nullable=True)
    renewal_asked_at: datetime | None = _instant(nullable=True)


class MembershipRow(SQLModel, table=True):
    """A role in a tenant, or in one of its projects. The table has no primary key; the mapping uses its unique one."""

    __tablename__ = "memberships"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "project_id"], ["projects.tenant_id", "projects.id"]),
        UniqueConstraint("tenant_id", "account_id", "project_id", "role", name="one_membership",
                         postgresql_nulls_not_distinct=True),
        Index("memberships_of_account", "account_id"),
    )  # fmt: skip
    __mapper_args__ = {"primary_key": ["tenant_id", "account_id", "project_id", "role"]}

    tenant_id: UUID = Field(foreign_key="tenants.tenant_id")
    account_id: UUID = Field(foreign_key="accounts.id")
    project_id: UUID | None = None
    role: str = _text()
    source: str = _text()


class AuditRow(SQLModel, table=True):
    """Who did what in a tenant, when, why, from what to what. Append-only."""

    __tablename__ = "audit"

    tenant_id: UUID = Field(primary_key=True, foreign_key="tenants.tenant_id")
    seq: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    at: datetime = _instant()
    product_at: datetime = _instant()
    account_id: UUID | None = None
    actor: str = _text()
    action: str = _text()
    subject: str = _text()
    before: dict[str, Any] | None = Field(sa_column=Column(JSONB))
    after: dict[str, Any] | None = Field(sa_column=Column(JSONB))
    why: str | None = _text(nullable=True)
