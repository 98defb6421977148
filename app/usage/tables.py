"""Rows of metering and measurements. They describe the migration and check nothing."""

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
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    Numeric,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import INT4MULTIRANGE, JSONB, REAL, TSTZRANGE, ExcludeConstraint
from sqlmodel import Field, SQLModel


def _instant(nullable: bool = False, **words: Any) -> Any:
    return Field(sa_column=Column(DateTime(timezone=True), nullable=nullable, **words))


def _list(of: Any) -> Any:
    return Field(sa_column=Column(ARRAY(of), nullable=False))


def _of_booking() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["tenant_id", "booking_id"], ["bookings.tenant_id", "bookings.id"])


class MeteringRow(SQLModel, table=True):
    """What is to be metered and measured; a platform table, so that workers find it. Null: nothing left to do."""

    __tablename__ = "metering"
    __table_args__ = (
        Index("metering_next", "next_at", postgresql_where=text("next_at IS NOT NULL")),
        Index("metering_collect", "collect_at", postgresql_where=text("collect_at IS NOT NULL")),
    )

    booking_id: UUID = Field(primary_key=True, foreign_key="bookings.id")
    tenant_id: UUID
    next_at: datetime | None = _instant(nullable=True)
    collect_at: datetime | None = _instant(nullable=True)
    leased_until: datetime | None = _instant(nullable=True)
    failures: int


class IntervalRow(SQLModel, table=True):
    """Reserved units over a time: what charges come from. No unit-second twice, whoever booked it."""

    __tablename__ = "intervals"
    __table_args__ = (
        UniqueConstraint("tenant_id", "id"),
        _of_booking(),
        ExcludeConstraint(("units", "&&"), ("during", "&&"), where=text("NOT void"), name="meter_key"),
        Index("intervals_of_booking", "booking_id"),
    )

    id: UUID = Field(primary_key=True)
    tenant_id: UUID
    booking_id: UUID
    units: Any = Field(sa_column=Column(INT4MULTIRANGE, nullable=False))
    during: Any = Field(sa_column=Column(TSTZRANGE, nullable=False))
    quantity: int = Field(sa_column=Column(BigInteger, nullable=False))
    evidence: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False))
    void: bool


class IntervalConflictRow(SQLModel, table=True):
    """A second report of the same units and time that says something else: shown, never summed."""

    __tablename__ = "interval_conflicts"
    __table_args__ = (_of_booking(),)

    tenant_id: UUID = Field(primary_key=True)
    id: UUID = Field(primary_key=True)
    booking_id: UUID
    at: datetime = _instant()
    units: Any = Field(sa_column=Column(INT4MULTIRANGE, nullable=False))
    during: Any = Field(sa_column=Column(TSTZRANGE, nullable=False))
    evidence: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False))
    settled_at: datetime | None = _instant(nullable=True)


class UsageRow(SQLModel, table=True):
    """How an hour of reserved time splits: used + unused + unknown = reserved."""

    __tablename__ = "usage"
    __table_args__ = (_of_booking(),)

    tenant_id: UUID = Field(primary_key=True)
    booking_id: UUID = Field(primary_key=True)
    starts_at: datetime = Field(sa_column=Column(DateTime(timezone=True), primary_key=True))
    ends_at: datetime = _instant()
    used: int = Field(sa_column=Column(BigInteger, nullable=False))
    unused: int = Field(sa_column=Column(BigInteger, nullable=False))
    unknown: int = Field(sa_column=Column(BigInteger, nullable=False))
    energy_wh: Decimal | None = Field(sa_column=Column(Numeric))


class SampleRow(SQLModel, table=True):
    """Measurements of the booked GPUs of one node over a stretch; arrays run over `gpus`, null = not known."""

    __tablename__ = "samples"
    __table_args__ = (_of_booking(),)

    tenant_id: UUID = Field(primary_key=True)
    booking_id: UUID = Field(primary_key=True)
    node_id: int = Field(sa_column=Column(Integer, ForeignKey("nodes.id"), primary_key=True, autoincrement=False))
    at: datetime = Field(sa_column=Column(DateTime(timezone=True), primary_key=True))
    seconds: int
    gpus: list[int] = _list(Integer)
    utilisation: list[float] = _list(REAL)
    memory_gb: list[float] = _list(REAL)
    power_w: list[float] = _list(REAL)
    temperature_c: list[float] = _list(REAL)
    in_use: list[bool] = _list(Boolean)


class WorkloadRow(SQLModel, table=True):
    """What ran in a booking, as the cluster knows it."""

    __tablename__ = "workloads"
    __table_args__ = (_of_booking(),)

    tenant_id: UUID = Field(primary_key=True)
    booking_id: UUID = Field(primary_key=True)
    id: str = Field(sa_column=Column(Text, primary_key=True))
    kind: str = Field(sa_column=Column(Text, nullable=False))
    name: str = Field(sa_column=Column(Text, nullable=False))
    state: str = Field(sa_column=Column(Text, nullable=False))
    why: str = Field(sa_column=Column(Text, nullable=False))
    units: int
    started_at: datetime | None = _instant(nullable=True)
    ended_at: datetime | None = _instant(nullable=True)
