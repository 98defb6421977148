"""Passwords of local accounts, by argon2id. A sign-in takes as long for a login that nobody has."""

from __future__ import annotations

from functools import cache

from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

_hashing = PasswordHash((Argon2Hasher(),))


def hash_password(password: str) -> str:
    """What the database keeps: argon2id with a salt of its own."""
    return _hashing.hash(password)


def verify_password(password: str, kept: str | None) -> bool:
    """Whether it is the right one. Without a kept hash the same work is done, and the answer is no."""
    right = _hashing.verify(password, kept or _nobodys())
    return right and kept is not None


@cache
def _nobodys() -> str:
    return _hashing.hash("a password that nobody has")
