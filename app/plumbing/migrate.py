"""Brings a database to the newest revision, as its owner. Used by `berth up`, `berth migrate` and the tests."""

from __future__ import annotations

from pathlib import Path

from alembic.config import Config
from sqlalchemy import create_engine

from alembic import command
from app.plumbing.db import sqlalchemy_url

_SCRIPTS = Path(__file__).resolve().parents[2] / "alembic"


def upgrade(owner_url: str, revision: str = "head") -> None:
    """Run the migrations that are missing. `owner_url` names the database and its owner's role."""
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    engine = create_engine(sqlalchemy_url(owner_url))
    try:
        with engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
    finally:
        engine.dispose()
