"""Runs migrations as the owner: one transaction, and never longer than a few seconds in wait for a lock."""

from __future__ import annotations

from sqlalchemy import create_engine, text
from sqlmodel import SQLModel

from alembic import context
from app.plumbing.tables import import_tables

import_tables()
target_metadata = SQLModel.metadata


def run() -> None:
    """Migrate the database named by the `url` attribute of the configuration (plumbing.migrate sets it)."""
    connection = context.config.attributes.get("connection")
    if connection is not None:
        _migrate(connection)
        return
    engine = create_engine(context.config.attributes["url"])
    with engine.connect() as connection:
        _migrate(connection)
    engine.dispose()


def _migrate(connection) -> None:
    connection.execute(text("SET lock_timeout = '5s'"))
    connection.commit()
    context.configure(connection=connection, target_metadata=target_metadata, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    raise RuntimeError("Migrations run against a database: the heart is written in SQL and cannot be rendered apart.")
run()
