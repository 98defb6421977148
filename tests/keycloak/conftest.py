"""One Keycloak for the whole run of these tests, and a portal that signs in by it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.accounts.world import World
from tests.keycloak.server import Keycloak, missing
from tests.requirements import need
from tests.servers import TestDatabase

GROUPS = {
    "/acme/plasma/leads": "acme/plasma:lead",
    "/acme/plasma/members": "acme/plasma:member",
    "/acme/admins": ["acme:admin", "acme/vision:viewer"],
    "/platform/operators": "platform:operator",
}


@pytest.fixture(scope="session")
def keycloak() -> Iterator[Keycloak]:
    """The real provider; its start is most of the time here."""
    lacking = missing()
    need("keycloak", found=lacking is None, reason=lacking or "")
    server = Keycloak()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def world(keycloak: Keycloak, database: TestDatabase, valkey_url: str) -> Iterator[World]:
    """Acme and Beta, signing in by Keycloak."""
    made = World(
        database, valkey_url, oidc_issuer=keycloak.issuer, oidc_name="Company sign-in", oidc_client_id="berth",
        oidc_client_secret="test-only-berth", oidc_group_map=GROUPS,
    )  # fmt: skip
    yield made
    made.close()
