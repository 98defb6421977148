"""A person's browser between the portal and Keycloak, without a browser: follows by hand, fills in Keycloak's form."""

from __future__ import annotations

import html
import re
from urllib.parse import parse_qs, urlsplit

import httpx2

from tests.accounts.world import ADDRESS, Browser, World


class Person:
    """One person at one machine: cookies of the portal and of Keycloak."""

    def __init__(self, world: World) -> None:
        self.portal: Browser = world.browser()
        self.keycloak = httpx2.Client(follow_redirects=False, timeout=120)
        # Keycloak marks its cookies Secure over plain http; a cookie jar would then not send them back
        self.keycloak.event_hooks = {"response": [self._insecure]}

    def close(self) -> None:
        self.keycloak.close()

    def start(self, following: str = "/") -> str:
        """Choose the provider on the sign-in page; answers the address of Keycloak the portal leads to."""
        answer = self.portal.get("/oidc/start", params={"next": following})
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    def log_in(self, address: str, user: str) -> str:
        """Fill in Keycloak's form (or be known already); answers where Keycloak leads back to."""
        page = self.keycloak.get(address)
        if page.status_code in (302, 303):
            return page.headers["location"]
        action = html.unescape(re.search(r'<form[^>]*action="([^"]+)"', page.text)[1])
        answer = self.keycloak.post(action, data={"username": user, "password": f"test-only-{user}"})
        assert answer.status_code in (302, 303), answer.text[:2000]
        return answer.headers["location"]

    def come_back(self, address: str):
        """Follow Keycloak's way back into the portal."""
        assert address.startswith(f"{ADDRESS}/auth/callback?"), address
        return self.portal.get(address.removeprefix(ADDRESS))

    def sign_in(self, user: str, following: str = "/"):
        """All of it."""
        return self.come_back(self.log_in(self.start(following), user))

    def _insecure(self, _response: httpx2.Response) -> None:
        for cookie in self.keycloak.cookies.jar:
            cookie.secure = False


def query_of(address: str) -> dict[str, str]:
    """The query of an address, one value each."""
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
