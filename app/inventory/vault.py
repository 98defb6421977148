"""Seals a cluster's secrets for the database. Pure: knows the installation's key only as a value that it is handed."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping

from cryptography.fernet import Fernet, InvalidToken


class Unreadable(ValueError):
    """The secrets were sealed with another key, or have been changed."""


def seal(key: str, secrets: Mapping[str, str]) -> bytes:
    """Secrets by name, encrypted and authenticated."""
    return _fernet(key).encrypt(json.dumps(dict(secrets), sort_keys=True).encode())


def unseal(key: str, sealed: bytes) -> dict[str, str]:
    """The inverse of `seal`; raises `Unreadable`."""
    try:
        return json.loads(_fernet(key).decrypt(sealed))
    except InvalidToken:
        raise Unreadable("the cluster's secrets were sealed with another SECRET_KEY") from None


def _fernet(key: str) -> Fernet:
    # a key of its own, so that what signs cookies does not open secrets
    digest = hashlib.blake2b(key.encode(), digest_size=32, person=b"berth-clusters").digest()
    return Fernet(base64.urlsafe_b64encode(digest))
