"""Imports every room's tables, so that the metadata is whole. Knows the rooms' names and nothing else of them."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

ROOMS = ("accounts", "inventory", "quotas", "pricing", "bookings", "usage", "billing", "notices")


def import_tables() -> None:
    """Import `app.<room>.tables` of every room that has one."""
    for room in ("plumbing.rows", *(f"{room}.tables" for room in ROOMS)):
        name = f"app.{room}"
        if find_spec(name.rpartition(".")[0]) is not None and find_spec(name) is not None:
            import_module(name)
