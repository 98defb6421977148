"""From nothing to the newest revision, and the models say the same as the database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import BigInteger, Column, MetaData, Text, create_engine, inspect
from sqlmodel import SQLModel

from app.plumbing.db import sqlalchemy_url
from app.plumbing.migrate import upgrade
from app.plumbing.tables import import_tables
from tests.servers import Addresses, TestDatabase, drop_database, new_database

# What only SQL says, and why no model repeats it.
SQL_ONLY_TABLES = {
    "alembic_version": "Alembic's own",
}


@pytest.fixture
def empty(servers: Addresses) -> Iterator[TestDatabase]:
    """A database with nothing in it, and the roles."""
    made = new_database(servers.superuser_url, template="template0")
    yield made
    drop_database(servers.superuser_url, made.name)


def scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", "alembic")
    return ScriptDirectory.from_config(config)


def test_there_is_one_head_and_one_way_to_it() -> None:
    found = scripts()
    assert len(found.get_heads()) == 1
    assert len(found.get_bases()) == 1
    assert not any(found.get_revision(r.revision).is_branch_point for r in found.walk_revisions())


def test_an_empty_database_becomes_the_newest_and_stays_it(empty: TestDatabase) -> None:
    upgrade(empty.owner_url)
    engine = create_engine(sqlalchemy_url(empty.owner_url))
    with engine.connect() as connection:
        assert MigrationContext.configure(connection).get_current_revision() == scripts().get_current_head()
        tables = set(inspect(connection).get_table_names())
    upgrade(empty.owner_url)  # once more: nothing to do
    with engine.connect() as connection:
        assert set(inspect(connection).get_table_names()) == tables
    engine.dispose()
    assert {"bookings", "holds", "clock", "audit"} <= tables


def test_a_migration_that_waits_for_a_lock_gives_up(empty: TestDatabase) -> None:
    """Nobody may be held up behind a migration that itself waits."""
    import psycopg
    from sqlalchemy.exc import OperationalError

    upgrade(empty.owner_url)
    with psycopg.connect(empty.owner_url) as holder:
        holder.execute("UPDATE alembic_version SET version_num = 'none'")
        holder.commit()
        holder.execute("LOCK TABLE alembic_version")
        with pytest.raises(OperationalError, match="lock timeout"):
            upgrade(empty.owner_url)


def test_models_equal_migrations(module_database: TestDatabase) -> None:
    import_tables()
    differences = differing(module_database, SQLModel.metadata)
    assert not differences, "\n".join(differences)


def test_a_difference_would_be_seen(module_database: TestDatabase) -> None:
    import_tables()
    changed = MetaData()
    for table in SQLModel.metadata.tables.values():
        table.to_metadata(changed)
    changed.tables["tenants"].append_column(Column("colour", Text))
    changed.tables["projects"].c.name.nullable = True
    changed.tables["tokens"].c.label.type = BigInteger()
    changed.tables["sessions"].indexes.clear()
    changed.remove(changed.tables["sign_in_tries"])
    told = "\n".join(differing(module_database, changed))
    for word in ("colour", "modify_nullable", "modify_type", "sessions_of_account", "sign_in_tries"):
        assert word in told, f"{word}: {told}"


def differing(database: TestDatabase, metadata: MetaData) -> list[str]:
    """What Alembic would change in the database to make it as the models say."""
    engine = create_engine(sqlalchemy_url(database.owner_url))
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={"compare_type": True, "compare_server_default": False, "include_object": _comparable},
        )
        found = [str(d) for d in compare_metadata(context, metadata)]
    engine.dispose()
    return found


def test_every_table_has_a_model(module_database: TestDatabase) -> None:
    import_tables()
    engine = create_engine(sqlalchemy_url(module_database.owner_url))
    found = set(inspect(engine).get_table_names())
    engine.dispose()
    assert found - set(SQL_ONLY_TABLES) == set(SQLModel.metadata.tables)


def _comparable(thing, name: str | None, kind: str, reflected: bool, compare_to) -> bool:
    return not (kind == "table" and name in SQL_ONLY_TABLES)
