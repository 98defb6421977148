"""Rows of the ledger. They describe the migration and check nothing."""

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
    Index,
    Numeric,
    Text,
    UniqueConstraint,
)
from sqlmodel import Field, SQLModel


def _text() -> str:
    return Field(sa_column=Column(Text, nullable=False))


class ChargeRow(SQLModel, table=True):
    """Money for a metered time, or taken back: exact, with the names of its time. The app may only insert."""

    __tablename__ = "charges"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "booking_id"], ["bookings.tenant_id", "bookings.id"]),
        ForeignKeyConstraint(["tenant_id", "interval_id"], ["intervals.tenant_id", "intervals.id"]),
        UniqueConstraint(
            "booking_id",
            "kind",
            "interval_id",
            "price_id",
            "starts_at",
            name="one_charge",
            postgresql_nulls_not_distinct=True,
        ),
        Index("charges_of_month", "tenant_id", "month"),
        Index("charges_of_booking", "booking_id"),
    )

    id: UUID = Field(primary_key=True)
    tenant_id: UUID
    booking_id: UUID
    interval_id: UUID | None = None
    kind: str = _text()
    price_id: int = Field(foreign_key="prices.id")
    unit_kind: str = _text()
    cost_centre: str = _text()
    project_id: UUID
    project: str = _text()
    person: str = _text()
    account_id: UUID | None = None
    reference: str = _text()
    currency: str = _text()
    starts_at: datetime = Field(sa_column=Column(DateTime(timezone=True), nullable=False))
    ends_at: datetime = Field(sa_column=Column(DateTime(timezone=True), nullable=False))
    month: date
    quantity: int = Field(sa_column=Column(BigInteger, nullable=False))
    unit_price: Decimal = Field(sa_column=Column(Numeric, nullable=False))
    why: str = _text()
    exact: Decimal = Field(sa_column=Column(Numeric, Computed("quantity * unit_price", persisted=True)))
