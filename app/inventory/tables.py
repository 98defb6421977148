"""Rows of what there is: kinds, clusters, pools, nodes, slots, and what was seen of them. Platform tables, no tenant's.

They describe the migration and check nothing: rules are pure, constraints are in the database.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Numeric,
    Sequence,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import INT4MULTIRANGE, INT4RANGE, JSONB, TSTZRANGE, ExcludeConstraint
from sqlmodel import Field, SQLModel

CAPACITY_VERSIONS = Sequence("capacity_versions", data_type=BigInteger, metadata=SQLModel.metadata)
"""Versions of pools' capacity; never given twice, not even after a rollback, so that caches may trust them."""
GPU_NUMBERS = Sequence("gpu_numbers", minvalue=0, start=0, maxvalue=33_000_000, metadata=SQLModel.metadata)
"""Numbers of GPUs over the whole installation; never given twice."""


def _instant(nullable: bool = False, **words: Any) -> Any:
    return Field(sa_column=Column(DateTime(timezone=True), nullable=nullable, **words))


def _text(nullable: bool = False, **words: Any) -> Any:
    return Field(sa_column=Column(Text, nullable=nullable, **words))


def _number(big: bool = False) -> Any:
    return Field(
        default=None, sa_column=Column(BigInteger if big else Integer, Identity(always=True), primary_key=True)
    )


class InstallationRow(SQLModel, table=True):
    """Which installation of Berth this database belongs to: its id stands in the name of every object on a cluster."""

    __tablename__ = "installation"
    __table_args__ = (CheckConstraint("one"),)

    one: bool = Field(primary_key=True)
    id: str = _text()
    created_at: datetime = _instant()


class KindRow(SQLModel, table=True):
    """An accelerator kind. Memory in GB (10^9 bytes) and watts are of one unit; None is not known."""

    __tablename__ = "kinds"

    slug: str = Field(sa_column=Column(Text, primary_key=True))
    name: str = _text()
    vendor: str = _text()
    memory_gb: Decimal | None = Field(sa_column=Column(Numeric, nullable=True))
    tdp_watts: int | None = None
    node_kw: Decimal | None = Field(sa_column=Column(Numeric, nullable=True))
    units_per_node: int
    facts: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False))


class ClusterRow(SQLModel, table=True):
    """One scheduler with its nodes. `secret` is sealed; `writes` off means that Berth only looks."""

    __tablename__ = "clusters"
    __table_args__ = (CheckConstraint("num_nonnulls(lease_token, leased_until) IN (0, 2)"),)

    id: int | None = _number()
    name: str = _text(unique=True)
    backend: str = _text()
    config: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False))
    secret: bytes | None = Field(sa_column=Column(LargeBinary, nullable=True))
    writes: bool
    probe: dict[str, Any] | None = Field(sa_column=Column(JSONB, nullable=True))
    probed_at: datetime | None = _instant(nullable=True)
    synced_at: datetime | None = _instant(nullable=True)
    failures: int
    retry_at: datetime | None = _instant(nullable=True)
    lease_token: UUID | None = None
    leased_until: datetime | None = _instant(nullable=True)
    last_error: str | None = _text(nullable=True)
    billed: bool


class PoolRow(SQLModel, table=True):
    """Units of one kind on one cluster, offered under one policy."""

    __tablename__ = "pools"
    __table_args__ = (UniqueConstraint("cluster_id", "name", name="one_name_a_cluster"),)

    id: int | None = _number()
    cluster_id: int = Field(foreign_key="clusters.id")
    name: str = _text()
    kind: str = Field(sa_type=Text, foreign_key="kinds.slug")
    gap_seconds: int
    policy: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False))
    version: int = Field(sa_column=Column(BigInteger, nullable=False))
    capacity_version: int = Field(sa_column=Column(BigInteger, nullable=False))


class NodeRow(SQLModel, table=True):
    """A node with the GPUs `first_gpu` .. `first_gpu + gpus - 1` of the installation's numbering."""

    __tablename__ = "nodes"
    __table_args__ = (
        UniqueConstraint("cluster_id", "name", name="one_node_a_cluster"),
        Index("nodes_of_pool", "pool_id"),
    )

    id: int | None = _number()
    cluster_id: int = Field(foreign_key="clusters.id")
    pool_id: int = Field(foreign_key="pools.id")
    name: str = _text()
    first_gpu: int
    gpus: int
    rack: str | None = _text(nullable=True)
    leaf: str | None = _text(nullable=True)
    nvlink: str | None = _text(nullable=True)
    power_watts: int | None = None
    cpu_milli: int | None = None
    memory_mib: int | None = None
    state: str = _text()
    why: str | None = _text(nullable=True)
    observed_at: datetime | None = _instant(nullable=True)
    removed_at: datetime | None = _instant(nullable=True)


class SlotRow(SQLModel, table=True):
    """A unit in a layout: positions of one GPU, valid for a time."""

    __tablename__ = "slots"
    __table_args__ = (
        ExcludeConstraint(
            ("positions", "&&"), ("valid", "&&"), name="one_layout_at_a_time", using="gist", deferrable=True
        ),
        Index("slots_of_node", "node_id"),
    )

    id: int | None = _number(big=True)
    node_id: int = Field(foreign_key="nodes.id")
    gpu: int
    positions: Any = Field(sa_column=Column(INT4RANGE, nullable=False))
    valid: Any = Field(sa_column=Column(TSTZRANGE, nullable=False))
    kind: str = Field(sa_type=Text, foreign_key="kinds.slug")
    share840: int


class DeviceRow(SQLModel, table=True):
    """Which card sat in a slot, and when."""

    __tablename__ = "devices"
    __table_args__ = (CheckConstraint("until IS NULL OR until > since"),)

    slot_id: int = Field(sa_type=BigInteger, primary_key=True, foreign_key="slots.id")
    uuid: str = _text()
    serial: str | None = _text(nullable=True)
    since: datetime = Field(sa_column=Column(DateTime(timezone=True), primary_key=True))
    until: datetime | None = _instant(nullable=True)


class UnitFaultRow(SQLModel, table=True):
    """A unit that is no capacity; open while `until` is None. `gpu` is its number in the installation."""

    __tablename__ = "unit_faults"
    __table_args__ = (Index("one_open_fault_a_unit", "gpu", unique=True, postgresql_where=text("until IS NULL")),)

    id: int | None = _number(big=True)
    node_id: int = Field(foreign_key="nodes.id")
    gpu: int
    since: datetime = _instant()
    until: datetime | None = _instant(nullable=True)
    why: str = _text()


class NodeOutageRow(SQLModel, table=True):
    """A time in which a node was no capacity; open while `until` is None."""

    __tablename__ = "node_outages"
    __table_args__ = (Index("one_open_outage_a_node", "node_id", unique=True, postgresql_where=text("until IS NULL")),)

    id: int | None = _number(big=True)
    node_id: int = Field(foreign_key="nodes.id")
    state: str = _text()
    since: datetime = _instant()
    until: datetime | None = _instant(nullable=True)
    why: str | None = _text(nullable=True)


class ExternalUseRow(SQLModel, table=True):
    """Use that Berth did not make: capacity taken, of units, and of the node's CPU and memory. `until` is its own limit,
    `ended_at` when it was seen no more."""

    __tablename__ = "external_use"
    __table_args__ = (Index("external_use_now", "node_id", postgresql_where=text("ended_at IS NULL")),)

    id: int | None = _number(big=True)
    node_id: int = Field(foreign_key="nodes.id")
    units: Any = Field(sa_column=Column(INT4MULTIRANGE, nullable=False))
    since: datetime = _instant()
    until: datetime | None = _instant(nullable=True)
    seen_at: datetime = _instant()
    ended_at: datetime | None = _instant(nullable=True)
    what: str = _text()
    cpu_milli: int | None = None
    memory_mib: int | None = None
    who: str | None = _text(nullable=True)


class MaintenanceRow(SQLModel, table=True):
    """Work announced on nodes: no capacity while it lasts. `layout`: how their GPUs are cut at its end."""

    __tablename__ = "maintenances"

    id: int | None = _number()
    cluster_id: int = Field(foreign_key="clusters.id")
    name: str = _text()
    why: str = _text()
    during: Any = Field(sa_column=Column(TSTZRANGE, nullable=False))
    layout: dict[str, Any] | None = Field(sa_column=Column(JSONB))
    made_by: str = _text()
    made_at: datetime = _instant()
    cancelled_at: datetime | None = _instant(nullable=True)
    version: int


class MaintenanceNodeRow(SQLModel, table=True):
    """A node that a maintenance takes."""

    __tablename__ = "maintenance_nodes"
    __table_args__ = (Index("maintenance_of_node", "node_id"),)

    maintenance_id: int = Field(primary_key=True, foreign_key="maintenances.id")
    node_id: int = Field(primary_key=True, foreign_key="nodes.id")


class PowerBudgetRow(SQLModel, table=True):
    """What the nodes of one rack (leaf, cluster) may draw together, in watts."""

    __tablename__ = "power_budgets"
    __table_args__ = (UniqueConstraint("cluster_id", "level", "name", name="one_budget"),)

    id: int | None = _number()
    cluster_id: int = Field(foreign_key="clusters.id")
    level: str = _text()
    name: str = _text()
    watts: int
