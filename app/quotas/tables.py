"""Rows of limits and of what counts against them. They describe the migration and check nothing."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Column,
    Computed,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    Numeric,
    Text,
    UniqueConstraint,
    text,
)
from sqlmodel import Field, SQLModel


class ScopeRow(SQLModel, table=True):
    """One limit: of a tenant, a project or a person, over one kind or all. No limit where null."""

    __tablename__ = "scopes"
    __table_args__ = (
        UniqueConstraint("tenant_id", "id"),
        ForeignKeyConstraint(["tenant_id", "project_id"], ["projects.tenant_id", "projects.id"]),
        UniqueConstraint(
            "tenant_id",
            "subject",
            "project_id",
            "account_id",
            "kind",
            name="one_scope",
            postgresql_nulls_not_distinct=True,
        ),
    )

    id: int = Field(sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    tenant_id: UUID = Field(foreign_key="tenants.tenant_id")
    subject: str = Field(sa_column=Column(Text, nullable=False))
    project_id: UUID | None = None
    account_id: UUID | None = Field(default=None, foreign_key="accounts.id")
    kind: str | None = Field(default=None, sa_type=Text, foreign_key="kinds.slug")
    max_rate: int | None = Field(sa_column=Column(BigInteger))
    max_quantity: int | None = Field(sa_column=Column(BigInteger))
    max_money: Decimal | None = Field(sa_column=Column(Numeric))


class CommitmentRow(SQLModel, table=True):
    """What one booking (or request) takes of one scope on one local day at one price."""

    __tablename__ = "commitments"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "scope_id"], ["scopes.tenant_id", "scopes.id"]),
        ForeignKeyConstraint(["tenant_id", "booking_id"], ["bookings.tenant_id", "bookings.id"]),
        ForeignKeyConstraint(["tenant_id", "request_id"], ["requests.tenant_id", "requests.id"]),
        UniqueConstraint(
            "scope_id",
            "booking_id",
            "request_id",
            "starts_at",
            name="one_commitment",
            postgresql_nulls_not_distinct=True,
        ),
        Index(
            "commitments_of_scope",
            "tenant_id",
            "scope_id",
            "day",
            postgresql_include=["starts_at", "ends_at", "rate", "quantity"],
        ),
        Index("commitments_of_booking", "booking_id"),
        Index("commitments_of_request", "request_id", postgresql_where=text("request_id IS NOT NULL")),
    )
    # The table has no primary key of its own; the unique constraint serves the mapper.
    __mapper_args__ = {"primary_key": ["scope_id", "starts_at", "booking_id", "request_id"]}

    tenant_id: UUID
    scope_id: int = Field(sa_column=Column(BigInteger, nullable=False))
    booking_id: UUID | None = None
    request_id: UUID | None = None
    day: date
    starts_at: datetime = Field(sa_column=Column(DateTime(timezone=True), nullable=False))
    ends_at: datetime = Field(sa_column=Column(DateTime(timezone=True), nullable=False))
    rate: int
    price: Decimal = Field(sa_column=Column(Numeric, nullable=False))
    quantity: int = Field(
        sa_column=Column(
            BigInteger, Computed("rate * (extract(epoch from ends_at - starts_at))::bigint", persisted=True)
        )
    )
