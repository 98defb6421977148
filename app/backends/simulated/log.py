"""The log of a simulated cluster: an SQLite file that several processes read and append to, and the fold beside it.

Append is decide-and-insert inside one `BEGIN IMMEDIATE`: SQLite lets one writer in at a time, the writer first folds
what others added, so a decision is never made on an old state and a line is either wholly there or not at all. Ids are
given inside that lock, so their order is the order of commit.

WAL with `synchronous=NORMAL`: killing any process, Berth's or the simulator's, at any instant loses nothing that was
answered, and the file is never torn. Only a power cut may lose the last lines, as one whole suffix; Berth then meets
what it must be able to meet anyway, a cluster that does not know what it was told, and asks again. `FULL` would cost an
fsync per command for a cluster that does not exist.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.backends.contract import BackendError
from app.backends.simulated.deciding import Line
from app.backends.simulated.state import Cluster, Entry

FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS log (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    ref TEXT NOT NULL,
    command TEXT NOT NULL,
    acted INTEGER NOT NULL CHECK (acted IN (0, 1)),
    body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS log_ref ON log (ref) WHERE ref <> '';
"""

_open: dict[tuple[str, int], Log] = {}
_open_lock = threading.Lock()
_inherited: list[object] = []


def _after_fork() -> None:
    """A connection must not be used, nor closed, by a child: keep it and forget it."""
    global _open_lock
    _inherited.extend(_open.values())
    _open.clear()
    _open_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def log_at(path: Path, seed: int, wait_seconds: float) -> Log:
    """This process's log of a file: one for all backends over it, so that the fold is made once."""
    with _open_lock:
        log = _open.get(_key(path))
        if log is None:
            log = Log(path, seed, wait_seconds)
            _open[_key(path)] = log
    if log.seed != seed:
        raise BackendError("invalid", f"This cluster was begun with seed {log.seed}, not {seed}.", str(path))
    return log


def close_log(path: Path) -> None:
    """Close this process's connection to a file, if it has one; the next use opens it again."""
    with _open_lock:
        log = _open.pop(_key(path), None)
    if log is not None:
        log.close()


def _key(path: Path) -> tuple[str, int]:
    try:
        return str(path), path.stat().st_ino
    except OSError:  # not there yet, or not to be had: opening it will say so
        return str(path), 0


class Log:
    """One file, one connection, one fold; the threads of the process take turns."""

    def __init__(self, path: Path, seed: int, wait_seconds: float) -> None:
        self.path = path
        self.turn = threading.RLock()
        self._cluster = Cluster()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=wait_seconds, isolation_level=None, check_same_thread=False)
        except (sqlite3.Error, OSError) as e:
            raise _told(e, path) from e
        try:
            self.seed = self._prepare(seed)
        except sqlite3.Error as e:
            self._db.close()
            raise _told(e, path) from e

    @contextmanager
    def look(self) -> Iterator[Cluster]:
        """The state after all that is in the file now, while it is this thread's turn. Not to be changed."""
        with self.turn, self._telling():
            self._catch_up()
            yield self._cluster

    def append(self, product_now: int, decide: Callable[[Cluster, int], Line | None]) -> Entry | None:
        """Decide on the newest state, and add the line decided on; all or nothing, whoever else is writing.

        `decide` gets the state and the instant that the line will carry: the cluster's clock, which never goes back.
        """
        with self.turn, self._telling():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._catch_up()
                at = now_of(self._cluster, product_now)
                line = decide(self._cluster, at)
                entry = None if line is None else self._add(line, at)
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            if entry is not None:
                self._cluster.apply(entry)
            return entry

    def entries(self, ref: str | None = None) -> list[Entry]:
        """The lines of one object, or all of them, in order."""
        where, values = ("", ()) if ref is None else ("WHERE ref = ? AND ref <> ''", (ref,))
        with self.turn, self._telling():
            return [_entry(row) for row in self._db.execute(f"SELECT {_COLUMNS} FROM log {where} ORDER BY id", values)]

    def close(self) -> None:
        """Close the connection; unflushed lines are in the file already."""
        with self.turn:
            self._db.close()

    def _prepare(self, seed: int) -> int:
        """Make the tables once, whoever comes first; answers with the seed that the log was begun with."""
        for attempt in range(200):
            try:  # changing the journal mode does not wait for its lock by itself
                self._db.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as e:
                if attempt == 199 or "locked" not in str(e):
                    raise
                threading.Event().wait(0.02)
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for statement in _SCHEMA.split(";"):
                self._db.execute(statement)
            for name, value in (("format", FORMAT), ("seed", seed)):
                self._db.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (name, str(value)))
            about = dict(self._db.execute("SELECT name, value FROM about"))
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        if int(about["format"]) != FORMAT:
            raise BackendError("unsupported", "The log was written by another version of Berth.", str(about))
        return int(about["seed"])

    def _catch_up(self) -> None:
        for row in self._db.execute(f"SELECT {_COLUMNS} FROM log WHERE id > ? ORDER BY id", (self._cluster.last_id,)):
            self._cluster.apply(_entry(row))

    def _add(self, line: Line, at: int) -> Entry:
        body = json.dumps(line.body, sort_keys=True, separators=(",", ":"), default=str)
        cursor = self._db.execute(
            "INSERT INTO log (at, ref, command, acted, body) VALUES (?, ?, ?, ?, ?)",
            (at, line.ref, line.command, int(line.acted), body),
        )
        # what is applied here is what others will read: the words after a round trip through JSON
        return Entry(cursor.lastrowid or 0, at, line.ref, line.command, line.acted, json.loads(body))

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as e:
            raise _told(e, self.path) from e


def now_of(cluster: Cluster, product_now: int) -> int:
    """The cluster's clock at an instant of the product's: skewed as it is, and never before the last line."""
    return max(cluster.last_at, product_now + cluster.skew)


_COLUMNS = "id, at, ref, command, acted, body"


def _entry(row: tuple[Any, ...]) -> Entry:
    return Entry(row[0], row[1], row[2], row[3], bool(row[4]), json.loads(row[5]))


def _told(error: Exception, path: Path) -> BackendError:
    if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
        return BackendError("timeout", "The simulated cluster is busy with other callers.", f"{path}: {error}")
    return BackendError("unreachable", "The simulated cluster's log cannot be read or written.", f"{path}: {error}")
