"""Use cases of signing in and out: local passwords, sessions, where a person acts. No HTTP here.

Failed tries are kept in the transaction that answers them, so a failure is a value and not an exception.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.accounts import audit, queries
from app.accounts.passwords import verify_password
from app.accounts.queries import SESSION_LIFE, Caller, Place, places_of
from app.accounts.rules import TRIES_OF_ADDRESS, TRIES_OF_LOGIN, TRY_WINDOW, locked_until, refuse_wrong, wrong_zone
from app.accounts.secrets import digest, new_csrf_token, new_session_secret
from app.kernel.actor import Actor
from app.kernel.errors import Forbidden, NotFound
from app.plumbing.db import Work

LOCAL = "local"
"""The issuer of accounts with a password here; the subject is the login in small letters."""


@dataclass(frozen=True, slots=True)
class SignedInNow:
    """A session has begun; the cookie carries `secret`."""

    secret: str
    account_id: UUID


@dataclass(frozen=True, slots=True)
class NotSignedIn:
    """It did not work: a sentence for the page, and how long the door stays shut if it does."""

    why: str
    code: str
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Browser:
    """What a browser says of itself and where it comes from."""

    agent: str = ""
    address: str = ""


def sign_in_local(
    work: Work, login: str, password: str, browser: Browser, replaces: str | None = None
) -> SignedInNow | NotSignedIn:
    """Begin a session for a login and password. `replaces`: the cookie of a session that ends by this.

    Whether the login exists shows neither in the words nor in the time. After repeated failures the login, or the
    address they came from, has to wait.
    """
    subject = login.strip().lower()
    by_login, by_address = _key("login", subject), _key("address", browser.address)
    # one at a time for one login: racing guesses must not pass the count together
    work.pg.execute("SELECT pg_advisory_xact_lock(%s)", [int.from_bytes(by_login[:8], "big", signed=True)])
    if shut := _shut_until(work, by_login, TRIES_OF_LOGIN) or _shut_until(work, by_address, TRIES_OF_ADDRESS):
        seconds = math.ceil((shut - work.wall).total_seconds())
        minutes = -(-seconds // 60)
        wait = "1 minute" if minutes == 1 else f"{minutes} minutes"
        return NotSignedIn(
            f"Too many failed attempts. Try again in {wait}, or ask your administrator.", "locked", seconds
        )
    row = work.pg.execute(
        "SELECT id, name, password_hash, disabled FROM accounts WHERE issuer = %s AND subject = %s", [LOCAL, subject]
    ).fetchone()
    if not verify_password(password, row[2] if row else None):
        _remember_failure(work, by_login, by_address)
        return NotSignedIn("This e-mail address and password do not belong together.", "wrong")
    account_id, name, _, disabled = row
    if disabled:
        return NotSignedIn("This account is disabled. Ask your administrator.", "disabled")
    work.pg.execute("DELETE FROM sign_in_tries WHERE key = %s OR at < %s", [by_login, work.wall - 96 * TRY_WINDOW])
    secret = open_session(work, account_id, browser, replaces=replaces)
    audit.record(work, Actor(account_id, name), "sign in", f"account {subject}", platform=True)
    return SignedInNow(secret, account_id)


def open_session(
    work: Work, account_id: UUID, browser: Browser, *, replaces: str | None = None, id_token: str | None = None
) -> str:
    """Begin a session where the person last was, or at the first place he or she may act; answers the cookie's secret.

    The session that is replaced ends: what was known before sign-in is worth nothing after it.
    """
    if replaces:
        work.pg.execute(
            "UPDATE sessions SET revoked_at = %s WHERE id_hash = %s AND revoked_at IS NULL",
            [work.wall, digest(replaces)],
        )
    work.identify(account_id)
    place = _first_place(work, account_id)
    secret = new_session_secret()
    work.pg.execute(
        """INSERT INTO sessions (id_hash, account_id, created_at, seen_at, expires_at, csrf, tenant_id, project_id,
                                 agent, address, id_token)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)""",
        [
            digest(secret),
            account_id,
            work.wall,
            work.wall,
            work.wall + SESSION_LIFE,
            new_csrf_token(),
            place.tenant_id if place else None,
            place.project_id if place else None,
            browser.agent[:300],
            browser.address[:100],
            id_token,
        ],
    )
    return secret


def sign_out(work: Work, caller: Caller) -> None:
    """End the session of this very browser."""
    if caller.session is not None:
        _end(work, caller.session.id_hash)
        audit.record(
            work, caller.actor, "sign out", f"account {caller.session.email or caller.actor.name}", platform=True
        )


def forget_sessions(work: Work, before: datetime) -> None:
    """Remove sessions that ended before an instant of the wall clock."""
    work.pg.execute("DELETE FROM sessions WHERE least(expires_at, revoked_at) < %s", [before])


def forget_tries(work: Work) -> None:
    """Remove failed sign-ins that shut no door any more."""
    work.pg.execute("DELETE FROM sign_in_tries WHERE at <= %s", [work.wall - TRY_WINDOW])


def end_session(work: Work, actor: Actor, id_hash: bytes) -> None:
    """End one of one's own sessions, wherever it is."""
    found = work.pg.execute(
        "SELECT 1 FROM sessions WHERE id_hash = %s AND account_id = %s AND revoked_at IS NULL",
        [id_hash, actor.account_id],
    ).fetchone()
    if found is None:
        raise NotFound("unknown_session", "There is no such session of yours.")
    _end(work, id_hash)
    audit.record(work, actor, "end session", "session of " + actor.label, platform=True)


def choose_place(work: Work, caller: Caller, value: str) -> Place:
    """Act for another tenant or project from the next request on. Answers the place."""
    actor, session = caller.actor, caller.session
    if session is None or actor.account_id is None:
        raise Forbidden("no_session", "A token is bound to its tenant; only a signed-in person chooses.")
    work.identify(actor.account_id)
    place = next((p for p in places_of(work, actor.account_id) if p.value == value), None)
    if place is None:
        raise NotFound("unknown_place", "You have no role there, or it does not exist.")
    work.pg.execute(
        "UPDATE sessions SET tenant_id = %s, project_id = %s WHERE id_hash = %s",
        [place.tenant_id, place.project_id, session.id_hash],
    )
    return place


def set_zone(work: Work, actor: Actor, zone: str) -> None:
    """In which time zone a person sees pages."""
    refuse_wrong(wrong_zone(zone))
    work.pg.execute("UPDATE accounts SET zone = %s WHERE id = %s", [zone, actor.account_id])
    audit.record(
        work, actor, "set time zone", f"account {actor.label}", {"zone": actor.zone}, {"zone": zone}, platform=True
    )


def _first_place(work: Work, account_id: UUID) -> Place | None:
    places = places_of(work, account_id)
    last = queries.last_place(work, account_id)
    return next((p for p in places if (p.tenant_id, p.project_id) == last), places[0] if places else None)


def _end(work: Work, id_hash: bytes) -> None:
    work.pg.execute("UPDATE sessions SET revoked_at = %s, id_token = NULL WHERE id_hash = %s", [work.wall, id_hash])


def _key(what: str, value: str) -> bytes:
    return hashlib.sha256(f"{what}:{value}".encode()).digest()


def _shut_until(work: Work, key: bytes, most: int) -> datetime | None:
    rows = work.pg.execute("SELECT at FROM sign_in_tries WHERE key = %s AND at > %s", [key, work.wall - TRY_WINDOW])
    return locked_until((at for (at,) in rows), work.wall, most)


def _remember_failure(work: Work, *keys: bytes) -> None:
    for key in keys:
        work.pg.execute("INSERT INTO sign_in_tries (key, at) VALUES (%s, %s)", [key, work.wall])
