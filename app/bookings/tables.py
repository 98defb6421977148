"""Rows of the heart. They describe the migration and check nothing: rules are pure, constraints are in the database."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    LargeBinary,
    Numeric,
    SmallInteger,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import INT4MULTIRANGE, JSONB, TSTZRANGE, ExcludeConstraint
from sqlmodel import Field, SQLModel


def _instant(nullable: bool = False, **words: Any) -> Any:
    return Field(sa_column=Column(DateTime(timezone=True), nullable=nullable, **words))


def _text(nullable: bool = False, **words: Any) -> Any:
    return Field(sa_column=Column(Text, nullable=nullable, **words))


def _false() -> Any:
    return Field(sa_column=Column(Boolean, nullable=False, server_default=text("false")))


def _of_booking() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["tenant_id", "booking_id"], ["bookings.tenant_id", "bookings.id"])


class AllocationRow(SQLModel, table=True):
    """What may exist on a cluster: one object, named from the id. A platform table: `strays` must know every name."""

    __tablename__ = "allocations"
    __table_args__ = (Index("allocations_of_cluster", "cluster_id", postgresql_where=text("NOT gone")),)

    id: UUID = Field(primary_key=True)
    cluster_id: int = Field(foreign_key="clusters.id")
    installation: str = _text()
    generation: int
    name: str = _text(unique=True)
    gone: bool
    wanted: int
    ensured: int
    seen: str | None = _text(nullable=True)
    seen_at: datetime | None = _instant(nullable=True)
    in_place_since: datetime | None = _instant(nullable=True)
    empty_since: datetime | None = _instant(nullable=True)
    sampled_until: datetime | None = _instant(nullable=True)
    failures: int
    last_error: str | None = _text(nullable=True)


class BookingRow(SQLModel, table=True):
    """A request for units over a window, and what became of it."""

    __tablename__ = "bookings"
    __table_args__ = (
        UniqueConstraint("tenant_id", "id"),
        ForeignKeyConstraint(["tenant_id", "project_id"], ["projects.tenant_id", "projects.id"]),
        Index("bookings_by_end", "tenant_id", "ends_at"),
        Index("bookings_by_number", "tenant_id", "number"),
        Index("bookings_by_project", "tenant_id", "project_id", "starts_at"),
        ForeignKeyConstraint(["tenant_id", "series_id"], ["series.tenant_id", "series.id"]),
        ForeignKeyConstraint(["tenant_id", "class_id"], ["classes.tenant_id", "classes.id"]),
        Index(
            "one_booking_an_occurrence",
            "tenant_id",
            "series_id",
            "occurs_at",
            unique=True,
            postgresql_where=text("series_id IS NOT NULL AND state NOT IN ('CANCELLED','REJECTED','LAPSED')"),
        ),
        Index("bookings_of_class", "tenant_id", "class_id", postgresql_where=text("class_id IS NOT NULL")),
    )

    id: UUID = Field(primary_key=True)
    tenant_id: UUID
    project_id: UUID
    number: int = Field(sa_column=Column(BigInteger, Identity(always=True), unique=True, nullable=False))
    name: str = _text()
    cost_centre: str = _text()
    reference: str = _text()
    state: str = _text()
    outcome: str | None = _text(nullable=True)
    kind: str = Field(sa_type=Text, foreign_key="kinds.slug")
    cluster_id: int = Field(foreign_key="clusters.id")
    pool_id: int = Field(foreign_key="pools.id")
    units: int
    nodes: int | None = None
    per_node: int | None = None
    within: str | None = _text(nullable=True)
    share840: int
    starts_at: datetime = _instant()
    ends_at: datetime = _instant()
    provided_at: datetime | None = _instant(nullable=True)
    released_at: datetime | None = _instant(nullable=True)
    left_by: str | None = _text(nullable=True)
    emptied_at: datetime | None = _instant(nullable=True)
    asked: bool
    currency: str = _text()
    quoted: Decimal = Field(sa_column=Column(Numeric, nullable=False))
    zone: str = _text()
    account_id: UUID | None = Field(default=None, foreign_key="accounts.id")
    booked_by: str = _text()
    booked_at: datetime = _instant()
    workload: dict[str, Any] | None = Field(sa_column=Column(JSONB))
    first_used_at: datetime | None = _instant(nullable=True)
    metered_until: datetime | None = _instant(nullable=True)
    version: int
    near: str | None = _text(nullable=True)
    shared: bool = _false()
    series_id: UUID | None = None
    occurs_at: datetime | None = _instant(nullable=True)
    class_id: UUID | None = None


class SeriesRow(SQLModel, table=True):
    """An RFC 5545 rule in local wall time; each occurrence is a booking of its own."""

    __tablename__ = "series"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "project_id"], ["projects.tenant_id", "projects.id"]),
        ForeignKeyConstraint(["tenant_id", "split_from"], ["series.tenant_id", "series.id"]),
    )

    tenant_id: UUID = Field(primary_key=True, foreign_key="tenants.tenant_id")
    id: UUID = Field(primary_key=True)
    number: int = Field(sa_column=Column(BigInteger, Identity(always=True), unique=True, nullable=False))
    project_id: UUID
    name: str = _text()
    rule: str = _text()
    zone: str = _text()
    local_start: datetime = Field(sa_column=Column(DateTime, nullable=False))
    local_end: datetime = Field(sa_column=Column(DateTime, nullable=False))
    wanted: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False))
    on_conflict: str = _text()
    account_id: UUID | None = Field(default=None, foreign_key="accounts.id")
    made_by: str = _text()
    made_at: datetime = _instant()
    ended_at: datetime | None = _instant(nullable=True)
    split_from: UUID | None = None
    version: int


class ClassRow(SQLModel, table=True):
    """One request for n people: a booking each, made all or nothing."""

    __tablename__ = "classes"
    __table_args__ = (ForeignKeyConstraint(["tenant_id", "project_id"], ["projects.tenant_id", "projects.id"]),)

    tenant_id: UUID = Field(primary_key=True, foreign_key="tenants.tenant_id")
    id: UUID = Field(primary_key=True)
    number: int = Field(sa_column=Column(BigInteger, Identity(always=True), unique=True, nullable=False))
    project_id: UUID
    name: str = _text()
    account_id: UUID | None = Field(default=None, foreign_key="accounts.id")
    made_by: str = _text()
    made_at: datetime = _instant()


class BookingPriceRow(SQLModel, table=True):
    """The price schedule frozen at confirmation, cut where the price changes."""

    __tablename__ = "booking_prices"
    __table_args__ = (_of_booking(),)

    tenant_id: UUID = Field(primary_key=True)
    booking_id: UUID = Field(primary_key=True)
    starts_at: datetime = Field(sa_column=Column(DateTime(timezone=True), primary_key=True))
    ends_at: datetime = _instant()
    price_id: int = Field(foreign_key="prices.id")
    per_hour: Decimal = Field(sa_column=Column(Numeric, nullable=False))
    units: int | None = None


class IdempotencyRow(SQLModel, table=True):
    """The answer to a key: rolled back with a refusal, so only successes stay."""

    __tablename__ = "idempotency"

    tenant_id: UUID = Field(primary_key=True, foreign_key="tenants.tenant_id")
    key: str = Field(sa_column=Column(Text, primary_key=True))
    verb: str = _text()
    body_hash: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    booking_id: UUID
    at: datetime = _instant()


class RequestRow(SQLModel, table=True):
    """Whatever waits: an edit for approval, freed units for a waiter, an offer for its answer."""

    __tablename__ = "requests"
    __table_args__ = (
        UniqueConstraint("tenant_id", "id"),
        _of_booking(),
        Index(
            "one_open_request",
            "booking_id",
            unique=True,
            postgresql_where=text("outcome IS NULL AND waits_for <> 'waiter'"),
        ),
        Index("requests_of_booking", "booking_id"),
        Index("requests_open", "tenant_id", "expires_at", postgresql_where=text("outcome IS NULL")),
    )

    id: UUID = Field(primary_key=True)
    tenant_id: UUID
    booking_id: UUID
    waits_for: str = _text()
    wanted: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False))
    expires_at: datetime = _instant()
    outcome: str | None = _text(nullable=True)
    verb: str = _text(server_default="book")
    approver: str | None = _text(nullable=True)
    asked_at: datetime | None = _instant(nullable=True)
    account_id: UUID | None = Field(default=None, foreign_key="accounts.id")
    asked_by: str = _text(server_default="")
    answered_at: datetime | None = _instant(nullable=True)
    answered_by: str | None = _text(nullable=True)
    why: str = _text(server_default="")


class HoldRow(SQLModel, table=True):
    """The units of one node that an owner occupies over a time. A platform table: owners are opaque."""

    __tablename__ = "holds"
    __table_args__ = (
        ExcludeConstraint(
            ("units", "&&"),
            ("during", "&&"),
            where=text("live"),
            deferrable=True,
            initially="IMMEDIATE",
            name="no_unit_twice",
        ),
        Index("holds_of_node", "node_id", func.upper(text("during")), postgresql_where=text("live")),
        Index("holds_over", "node_id", func.upper(text("during")), postgresql_where=text("NOT live")),
        Index("holds_of_booking", "booking_id"),
        Index("holds_of_request", "request_id", postgresql_where=text("request_id IS NOT NULL")),
        Index("holds_of_allocation", "allocation_id"),
    )

    id: UUID = Field(primary_key=True)
    booking_id: UUID | None = Field(default=None, foreign_key="bookings.id")
    request_id: UUID | None = Field(default=None, foreign_key="requests.id")
    allocation_id: UUID = Field(foreign_key="allocations.id")
    node_id: int = Field(foreign_key="nodes.id")
    units: Any = Field(sa_column=Column(INT4MULTIRANGE, nullable=False))
    during: Any = Field(sa_column=Column(TSTZRANGE, nullable=False))
    live: bool
    pinned: bool
    left_at: datetime | None = _instant(nullable=True)


class WaitingRow(SQLModel, table=True):
    """The queue of waiters. A platform table: whoever gives units away must see other tenants' waiters."""

    __tablename__ = "waiting"
    __table_args__ = (Index("waiting_of_pool", "pool_id", "since"),)

    booking_id: UUID = Field(primary_key=True, foreign_key="bookings.id")
    tenant_id: UUID
    pool_id: int = Field(foreign_key="pools.id")
    since: datetime = _instant()
    skips: int
    units: int
    earliest: datetime = _instant()
    latest: datetime = _instant()
    auto: bool = _false()


class HoldMoveRow(SQLModel, table=True):
    """What recolouring did to a hold; drained tenant by tenant into history and notices."""

    __tablename__ = "hold_moves"

    id: int = Field(sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    hold_id: UUID = Field(foreign_key="holds.id")
    at: datetime = _instant()
    was: Any = Field(sa_column=Column(INT4MULTIRANGE, nullable=False))
    becomes: Any = Field(sa_column=Column(INT4MULTIRANGE, nullable=False))


class DueRow(SQLModel, table=True):
    """Work that is due: when on the product clock, leased until when on the wall clock."""

    __tablename__ = "due"
    __table_args__ = (
        UniqueConstraint("cluster_id", "call_slot", name="two_calls_per_cluster"),
        Index("due_of_cluster", "cluster_id", "next_at"),
        Index("due_next", "next_at"),
    )

    subject: UUID = Field(primary_key=True)
    tenant_id: UUID
    cluster_id: int | None = Field(default=None, foreign_key="clusters.id")
    next_at: datetime = _instant()
    lease_token: UUID | None = None
    leased_until: datetime | None = _instant(nullable=True)
    call_slot: int | None = Field(sa_column=Column(SmallInteger))


class ConditionRow(SQLModel, table=True):
    """Something true beside the state, since when and why; open while `until` is null."""

    __tablename__ = "conditions"
    __table_args__ = (
        _of_booking(),
        Index("one_open_condition", "booking_id", "type", unique=True, postgresql_where=text("until IS NULL")),
    )

    tenant_id: UUID = Field(primary_key=True)
    id: UUID = Field(primary_key=True)
    booking_id: UUID
    type: str = _text()
    since: datetime = _instant()
    until: datetime | None = _instant(nullable=True)
    why: str = _text()


class OutageRow(SQLModel, table=True):
    """Units of an active booking that were not there; open while `until` is null."""

    __tablename__ = "outages"
    __table_args__ = (_of_booking(), Index("outages_of_booking", "booking_id"))

    tenant_id: UUID = Field(primary_key=True)
    id: UUID = Field(primary_key=True)
    booking_id: UUID
    units: Any = Field(sa_column=Column(INT4MULTIRANGE, nullable=False))
    since: datetime = _instant()
    until: datetime | None = _instant(nullable=True)
    why: str = _text()


class RefusalRow(SQLModel, table=True):
    """A booking that was refused, for statistics; written in a transaction of its own."""

    __tablename__ = "refusals"

    tenant_id: UUID = Field(primary_key=True, foreign_key="tenants.tenant_id")
    id: UUID = Field(primary_key=True)
    at: datetime = _instant()
    project_id: UUID | None = None
    account_id: UUID | None = None
    codes: list[str] = Field(sa_column=Column(ARRAY(Text), nullable=False))
    wanted: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False))


class HistoryRow(SQLModel, table=True):
    """Who did what to a booking, written in the transaction that did it."""

    __tablename__ = "history"
    __table_args__ = (_of_booking(), Index("history_of_booking", "booking_id"))

    tenant_id: UUID = Field(primary_key=True)
    seq: int = Field(sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    booking_id: UUID
    at: datetime = _instant()
    account_id: UUID | None = None
    actor: str = _text()
    event: str = _text()
    before: str | None = _text(nullable=True)
    after: str = _text()
    why: str = _text()
    changes: dict[str, Any] | None = Field(sa_column=Column(JSONB))


class PolicyOverrideRow(SQLModel, table=True):
    """Rules of a pool that differ for a tenant or one of its projects; the project's lie over the tenant's."""

    __tablename__ = "policy_overrides"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "project_id"], ["projects.tenant_id", "projects.id"]),
        UniqueConstraint("tenant_id", "project_id", "pool_id", name="one_override", postgresql_nulls_not_distinct=True),
    )

    tenant_id: UUID = Field(primary_key=True, foreign_key="tenants.tenant_id")
    id: UUID = Field(primary_key=True)
    project_id: UUID | None = None
    pool_id: int = Field(foreign_key="pools.id")
    words: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False))
