"""Identities: UUIDv7 inside, a short prefixed public form outside (`bk_…`), lower-case base32 on clusters."""

from __future__ import annotations

import secrets
from uuid import UUID

from app.kernel.clock import wall_now

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: no i, l, o, u; sorts like the number
_VALUES = {c: i for i, c in enumerate(_ALPHABET)}

BOOKING, PROJECT, TENANT, ACCOUNT, REQUEST, TOKEN, SERIES, CLASS = "bk", "pj", "tn", "ac", "rq", "tk", "sr", "cl"


def new_id() -> UUID:
    """A UUIDv7 (RFC 9562): milliseconds of the wall clock, then 74 random bits."""
    milliseconds = int(wall_now().timestamp() * 1000)
    value = (milliseconds << 80) | (7 << 76) | (secrets.randbits(12) << 64) | (2 << 62) | secrets.randbits(62)
    return UUID(int=value)


def short(value: UUID) -> str:
    """The 26 base32 characters of an id: what a name on a cluster carries."""
    number, out = value.int, []
    for _ in range(26):
        number, digit = divmod(number, 32)
        out.append(_ALPHABET[digit])
    return "".join(reversed(out))


def public(prefix: str, value: UUID) -> str:
    """The public form, such as `bk_06fj3…`."""
    return f"{prefix}_{short(value)}"


def unshort(text: str) -> UUID | None:
    """The id behind 26 base32 characters, or None when the text is not one."""
    if len(text) != 26 or any(c not in _VALUES for c in text) or _VALUES[text[0]] > 7:
        return None
    number = 0
    for c in text:
        number = number * 32 + _VALUES[c]
    return UUID(int=number)


def parse(prefix: str, text: str) -> UUID | None:
    """The id behind a public form of this prefix, or None: a malformed id is the same as an unknown one."""
    head, _, tail = text.partition("_")
    return unshort(tail) if head == prefix else None
