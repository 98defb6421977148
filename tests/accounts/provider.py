"""A small provider of OpenID Connect on loopback, which lies when told to. It checks PKCE and the client's secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "berth", "a-secret-of-the-client"


class FakeProvider:
    """Answers discovery, keys and the token endpoint. Change its fields to make it lie."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.issuer = f"http://127.0.0.1:{self._server.server_address[1]}/realm"
        self.key = RSAKey.generate_key(2048, {"kid": "first", "use": "sig", "alg": "RS256"})
        self.published = [self.key]
        self.metadata: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.without: set[str] = set()
        self.sign: Callable[[dict[str, Any]], str] | None = None
        self.token_extra: dict[str, Any] = {}
        self.keys_asked = 0
        self._codes: dict[str, dict[str, str]] = {}

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def authorize(self, address: str) -> dict[str, str]:
        """What the authorization endpoint would send back in the callback's query."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        code = hashlib.sha256(address.encode()).hexdigest()[:20]
        self._codes[code] = asked
        return {"code": code, "state": asked["state"], "iss": self.issuer}

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/auth",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],  # some offer more than is wise
            "code_challenge_methods_supported": ["plain", "S256"],
            **self.metadata,
        }

    def keys(self) -> dict[str, Any]:
        self.keys_asked += 1
        for_encryption = {"kty": "RSA", "use": "enc", "alg": "RSA-OAEP", "kid": "enc", "n": "AQAB", "e": "AQAB"}
        return {"keys": [*(k.as_dict(private=False) for k in self.published), for_encryption]}

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        expected = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if authorization != f"Basic {expected}":
            return 401, {"error": "unauthorized_client"}
        asked = self._codes.pop(form.get("code", ""), None)
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = _base64(verifier)
        if asked is None or asked.get("code_challenge_method") != "S256" or asked["code_challenge"] != challenge:
            return 400, {"error": "invalid_grant"}
        return 200, {
            "access_token": "an-access-token", "token_type": "Bearer", "expires_in": 60,
            "id_token": (self.sign or self.by_key)(self._claims(asked)), **self.token_extra,
        }  # fmt: skip

    def by_key(self, claims: dict[str, Any], key: RSAKey | None = None) -> str:
        used = key or self.key
        return jwt.encode({"alg": "RS256", "kid": used.kid}, claims, used)

    @staticmethod
    def by_secret(claims: dict[str, Any], secret: str | bytes) -> str:
        """HS256 by hand, since a good library does not take a public key for a secret."""
        head = f"{_part({'alg': 'HS256', 'typ': 'JWT'})}.{_part(claims)}"
        key = secret.encode() if isinstance(secret, str) else secret
        return f"{head}.{_base64(hmac.new(key, head.encode(), hashlib.sha256).digest())}"

    @staticmethod
    def unsigned(claims: dict[str, Any]) -> str:
        """No signature at all."""
        return f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(claims)}."

    def _claims(self, asked: dict[str, str]) -> dict[str, Any]:
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": "person-1", "nonce": asked.get("nonce"), **self.claims}
        return {name: value for name, value in claims.items() if name not in self.without}


def _part(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _handler(provider: FakeProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/realm/.well-known/openid-configuration":
                self._answer(200, provider.discovery())
            elif self.path == "/realm/keys":
                self._answer(200, provider.keys())
            else:
                self._answer(404, {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self._answer(*provider.token(form, self.headers.get("authorization", "")))

        def _answer(self, status: int, value: dict[str, Any]) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: Any) -> None:
            """Nothing: tests read no log of it."""

    return Handler
