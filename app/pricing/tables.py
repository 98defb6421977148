"""Rows of price books. They describe the migration and check nothing."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import Column, DateTime, Identity, Integer, Numeric, Text, UniqueConstraint
from sqlmodel import Field, SQLModel


class PriceVersionRow(SQLModel, table=True):
    """A published version of a price book: immutable, the app may only insert."""

    __tablename__ = "price_versions"
    __table_args__ = (
        UniqueConstraint("price_group", "currency", "effective_at", "published_at", name="one_version_an_instant"),
    )

    id: int = Field(sa_column=Column(Integer, Identity(always=True), primary_key=True))
    price_group: str = Field(sa_column=Column(Text, nullable=False))
    currency: str = Field(sa_column=Column(Text, nullable=False))
    effective_at: datetime = Field(sa_column=Column(DateTime(timezone=True), nullable=False))
    published_at: datetime = Field(sa_column=Column(DateTime(timezone=True), nullable=False))
    published_by: str = Field(sa_column=Column(Text, nullable=False))
    note: str = Field(sa_column=Column(Text, nullable=False))


class PriceRow(SQLModel, table=True):
    """The price of one kind in a version, in money per unit-hour."""

    __tablename__ = "prices"
    __table_args__ = (UniqueConstraint("version_id", "kind", name="one_price_a_version"),)

    id: int = Field(sa_column=Column(Integer, Identity(always=True), primary_key=True))
    version_id: int = Field(foreign_key="price_versions.id")
    kind: str = Field(sa_type=Text, foreign_key="kinds.slug")
    per_hour: Decimal = Field(sa_column=Column(Numeric, nullable=False))
