"""Pure: how secrets of sessions and tokens look, and the hash by which the database knows them."""

from __future__ import annotations

import hashlib
import secrets

TOKEN_PREFIX = "berth_pat_"


def new_session_secret() -> str:
    """What a session's cookie carries: 256 random bits."""
    return secrets.token_urlsafe(32)


def new_token_secret() -> str:
    """An API token as its owner sees it once: recognisable to scanners, 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def new_csrf_token() -> str:
    """What every form of a session carries."""
    return secrets.token_urlsafe(24)


def new_password() -> str:
    """A first password to be read from a page and typed: four groups of five, about 98 random bits."""
    letters = "abcdefghjkmnpqrstuvwxyz23456789"
    return "-".join("".join(secrets.choice(letters) for _ in range(5)) for _ in range(4))


def digest(secret: str) -> bytes:
    """What the database keeps. Unsalted, since a secret of 256 random bits cannot be guessed."""
    return hashlib.sha256(secret.encode()).digest()
