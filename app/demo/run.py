"""`berth demo`: the servers, the pages, the history told as it is lived, then everything, with the people printed."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path

import psycopg
from sqlalchemy import event

from app.demo.company import Person, set_up
from app.demo.history import DAYS, History, Span, StoppedClock
from app.demo.measuring import measured_beside
from app.kernel.clock import wall_now
from app.plumbing.queue import NoQueue
from app.plumbing.runtime import Plumbing, make_plumbing
from app.plumbing.up import Up
from app.settings import Settings
from app.web.preparing import preparing_file

_TEXT = "The demo is living through a month of bookings, by the same ways as everybody's."


def run(settings: Settings) -> None:
    """Start, prepare what is missing, print who can sign in, and keep everything running until stopped."""
    with Up(settings) as up:
        settings = up.start_servers(moved_clock=True)
        folder = settings.data
        (folder / "demo.json").unlink(missing_ok=True)
        fresh = not _done(folder).exists()
        if fresh:
            _tell(folder, 0.0)
            up.start_programs("web")
            up.start_program("history", "demo-history", once=True, as_owner=True)
            up.say(f"preparing a month of history; {settings.address}/ shows how far it is")
            up.watch(lambda: up.finished("history"))
        preparing_file(folder).unlink(missing_ok=True)
        up.start_programs("backend", "tasks", "beat", *(() if fresh else ("web",)))
        up.wait_until_answering()
        people = tuple(Person(**words) for words in json.loads((folder / "people.json").read_text(encoding="utf-8")))
        _write(
            folder / "demo.json", json.dumps({"url": settings.address, "people": [asdict(p) for p in people]}, indent=1)
        )
        for line in introduce(settings.address, people):
            up.say(line)
        up.watch()


def introduce(address: str, people: tuple[Person, ...]) -> list[str]:
    """What a stranger needs: where, as whom, with which password."""
    width = max(len(p.email) for p in people)
    lines = [f"Berth answers at {address}/ with a small company in it; Ctrl-C stops it. Sign in as one of:"]
    for person in people:
        where = " in ".join(x for x in (person.project, person.tenant) if x) or "the platform"
        lines.append(f"  {person.email:<{width}}  {person.password}  {person.role}, {where}")
    return lines


def live_history(settings: Settings) -> None:
    """The one-time part, in a process of its own: set up the company and live its month. Goes on where it stopped."""
    if not settings.database_owner_url:
        raise SystemExit("The demo moves the product clock, so it needs DATABASE_OWNER_URL.")
    folder = settings.data
    plumbing = make_plumbing(settings, queue=NoQueue())
    _in_no_hurry(plumbing)
    clock = StoppedClock(settings.database_owner_url)
    try:
        span = _span(folder)
        if not _begun(folder).exists():
            clock.set(span.began)
        people = set_up(plumbing, folder, span.began)
        _begun(folder).touch()
        history = History(plumbing, clock, people, folder / "history-lived", lambda done: _tell(folder, done))
        history.take_over()
        with measured_beside(settings):
            history.live(span)
        clock.set(None)
        _done(folder).touch()
    finally:
        clock.close()
        plumbing.close()


def _in_no_hurry(plumbing: Plumbing) -> None:
    """Thousands of commits need not each wait for the disk: what a power cut takes away is lived again. The clock is
    set going with a commit that does wait, and with it everything before it is on disk."""

    @event.listens_for(plumbing.database.engine, "connect")
    def _later(connection: psycopg.Connection, _record: object) -> None:
        connection.execute("SET synchronous_commit = off")
        connection.commit()


def _span(folder: Path) -> Span:
    """When the history begins and ends: fixed the first time, so that one that was broken off is the same afterwards."""
    file = folder / "history.json"
    if not file.exists():
        ends = wall_now().replace(microsecond=0)
        keep_span(folder, Span(ends - timedelta(days=DAYS), ends))
    words = json.loads(file.read_text(encoding="utf-8"))
    return Span(datetime.fromisoformat(words["began"]), datetime.fromisoformat(words["ends"]), words["bookings"])


def keep_span(folder: Path, span: Span) -> None:
    """Say beforehand which history is to be lived in a folder."""
    words = {"began": span.began.isoformat(), "ends": span.ends.isoformat(), "bookings": span.bookings}
    _write(folder / "history.json", json.dumps(words))


def _begun(folder: Path) -> Path:
    return folder / "history-begun"


def _done(folder: Path) -> Path:
    return folder / "history-done"


def _tell(folder: Path, done: float) -> None:
    _write(preparing_file(folder), json.dumps({"text": _TEXT, "done": round(done, 3)}))


def _write(file: Path, text: str) -> None:
    """Whole or not at all, readable by its owner alone."""
    new = file.with_suffix(".new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(text)
    os.replace(new, file)
