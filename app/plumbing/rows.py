"""Tables that belong to no room: the product clock and the outbox of notices that every room may write."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Column, DateTime, ForeignKeyConstraint, Index, Interval, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import Field, SQLModel


class ClockRow(SQLModel, table=True):
    """The product clock: one row. Not movable in production; demo and tests move it as the owner."""

    __tablename__ = "clock"
    __table_args__ = (CheckConstraint("one"),)

    one: bool = Field(primary_key=True)
    movable: bool
    shift: timedelta = Field(sa_column=Column(Interval, nullable=False))
    frozen: datetime | None = Field(sa_column=Column(DateTime(timezone=True)))


class OutboxRow(SQLModel, table=True):
    """One notice to one person (or to a tenant's people), written in the transaction of what it tells of."""

    __tablename__ = "outbox"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "booking_id"], ["bookings.tenant_id", "bookings.id"]),
        Index(
            "one_notice",
            "tenant_id",
            "account_id",
            "key",
            unique=True,
            postgresql_nulls_not_distinct=True,
            postgresql_where=text("key IS NOT NULL"),
        ),
        Index("notices_of", "tenant_id", "account_id", text("at DESC"), text("id DESC")),
        Index("notices_unread", "tenant_id", "account_id", postgresql_where=text("read_at IS NULL")),
    )

    tenant_id: UUID = Field(primary_key=True, foreign_key="tenants.tenant_id")
    id: UUID = Field(primary_key=True)
    at: datetime = Field(sa_column=Column(DateTime(timezone=True), nullable=False))
    account_id: UUID | None = None
    kind: str = Field(sa_column=Column(Text, nullable=False))
    booking_id: UUID | None = None
    payload: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False))
    read_at: datetime | None = Field(sa_column=Column(DateTime(timezone=True)))
    sent_at: datetime | None = Field(sa_column=Column(DateTime(timezone=True)))
    key: str | None = Field(sa_column=Column(Text))


class MailRow(SQLModel, table=True):
    """A notice that is to become a mail: when next, on the wall clock. A platform table of opaque ids."""

    __tablename__ = "mail"
    __table_args__ = (Index("mail_next", "next_at"),)

    notice_id: UUID = Field(primary_key=True)
    tenant_id: UUID
    next_at: datetime = Field(sa_column=Column(DateTime(timezone=True), nullable=False))
    tries: int
    lease_token: UUID | None = None
    leased_until: datetime | None = Field(sa_column=Column(DateTime(timezone=True)))
    last_error: str | None = Field(sa_column=Column(Text))
