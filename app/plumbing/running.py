"""Where the embedded database of a running `berth up` answers: what commands beside it need. Starts nothing."""

from __future__ import annotations

from pathlib import Path

from app.plumbing.roles import APP, as_url
from app.settings import Settings

_SOCKET_LINE = 4
"""Of PostgreSQL's own file with the process that serves a folder."""


class NotRunning(RuntimeError):
    """No database is named, and none runs on the data folder. The text is a sentence for whoever typed the command."""


def running_database(settings: Settings, database: str = "berth") -> str:
    """The app's address of the database: the one that the settings name, or the embedded one while it runs.

    Raises `NotRunning` when there is neither.
    """
    if settings.database_url:
        return settings.database_url
    file = settings.data / "postgres" / "postmaster.pid"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise NotRunning(_advice(settings.data)) from None
    except PermissionError:
        raise NotRunning(f"{file} cannot be read: run this as the user who runs `berth up`.") from None
    if len(lines) <= _SOCKET_LINE or not lines[_SOCKET_LINE]:
        raise NotRunning(_advice(settings.data))
    return as_url(f"user={APP} dbname={database} host='{_quoted(lines[_SOCKET_LINE])}'")


def _advice(folder: Path) -> str:
    return (
        f"No Berth runs on {folder}. Start it first with `berth up` in another terminal (and give --data here if it has "
        "one), or set DATABASE_URL to a database server of your own."
    )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
