"""OpenID Connect with one provider: code flow, PKCE S256, state, nonce; ID tokens checked in full. No database here.

Talks to the provider, so no transaction may be open while it does. What belongs to one attempt lives in one cookie of
that browser: state, nonce and verifier are derived from its random part, so nothing is kept on the server and no
callback works in a browser that did not start it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
from authlib.common.urls import add_params_to_uri
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import OAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from app.accounts.groups import Identity
from app.accounts.rules import groups_in, wrong_zone
from app.kernel.clock import Clock, monotonic
from app.kernel.errors import Forbidden, Unavailable
from app.plumbing.log import get_log
from app.settings import Settings

log = get_log("oidc")
ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""Only signatures that need the provider's private key; whatever its metadata offers besides is not taken."""
LEEWAY = 60
_METADATA_SECONDS = 3600.0
_REFETCH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to sign in: where the browser goes, and what its cookie keeps until it comes back."""

    url: str
    state: str
    kept: str


class Provider:
    """The configured provider. Safe to use from several threads; metadata and keys are kept for an hour."""

    def __init__(self, settings: Settings, wall: Clock, ticks: Callable[[], float] = monotonic) -> None:
        self.issuer = settings.oidc_issuer or ""
        self.name = settings.oidc_name
        self._client_id = settings.oidc_client_id or ""
        secret = settings.oidc_client_secret
        self._client_secret = secret.get_secret_value() if secret else None
        self._scope = settings.oidc_scope
        self._groups_claim = settings.oidc_groups_claim
        self._trusts_email = settings.oidc_trusts_email
        self._user_claim = settings.oidc_cluster_user_claim
        self._callback = f"{settings.address}/auth/callback"
        self._home = f"{settings.address}/sign-in"
        self._wall = wall
        self._ticks = ticks
        self._lock = threading.Lock()
        self._metadata: dict[str, Any] = {}
        self._metadata_at = self._keys_at = float("-inf")
        self._keys: KeySet | None = None

    def begin(self) -> Attempt:
        """Where to send a browser that wants to sign in. Raises `Unavailable` when the provider is away."""
        seed = secrets.token_urlsafe(32)
        with self._client() as client:
            url, _ = client.create_authorization_url(
                self.metadata()["authorization_endpoint"],
                state=_derive(seed, "state"),
                nonce=_derive(seed, "nonce"),
                code_verifier=_derive(seed, "verifier"),
            )
        return Attempt(url, _derive(seed, "state"), seed)

    def finish(self, answer: Mapping[str, str], kept: str | None) -> Identity:
        """Who came back. `answer` is the query of the callback, `kept` what the cookie of that attempt says.

        Raises `Forbidden` with a sentence when anything does not fit, `Unavailable` when the provider is away.
        """
        if not kept or not hmac.compare_digest(answer.get("state", ""), _derive(kept, "state")):
            raise _no("state", "This sign-in was not begun in this browser, or too long ago. Start again.")
        if "iss" in answer and answer["iss"] != self.metadata()["issuer"]:
            raise _no("issuer", "The answer comes from another provider than the one configured.")
        if "error" in answer:
            log.info("the provider refused a sign-in", error=answer["error"][:100])
            raise _no("refused", f"{self.name} did not sign you in ({_short(answer['error'])}). Start again.")
        if not answer.get("code"):
            raise _no("no_code", "The answer of the provider carries no code. Start again.")
        token = self._fetch_token(answer["code"], kept)
        claims = self._claims(token, _derive(kept, "nonce"))
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject:
            raise _no("subject", "The provider does not say who you are.")
        zone = claims.get("zoneinfo")
        return Identity(
            issuer=self.metadata()["issuer"],
            subject=subject,
            name=_name(claims, subject),
            email=_email(claims, self._trusts_email),
            groups=groups_in(claims, self._groups_claim),
            zone=zone if isinstance(zone, str) and wrong_zone(zone) is None else "UTC",
            id_token=token["id_token"],
            cluster_user=_text_at(claims, self._user_claim),
        )

    def sign_out_address(self, id_token: str | None) -> str | None:
        """Where the person signs out of the provider too; None when it offers nothing or is away."""
        try:
            endpoint = self.metadata().get("end_session_endpoint")
        except Unavailable:
            return None
        if not endpoint:
            return None
        words = {"post_logout_redirect_uri": self._home, "client_id": self._client_id}
        return add_params_to_uri(endpoint, {**words, **({"id_token_hint": id_token} if id_token else {})})

    def metadata(self) -> dict[str, Any]:
        """The provider's discovery document. Its issuer must be the one configured."""
        with self._lock:
            if self._ticks() - self._metadata_at < _METADATA_SECONDS:
                return self._metadata
            found = self._get(f"{self.issuer}/.well-known/openid-configuration")
            said = found.get("issuer")
            # settings keep addresses without a slash at their end; some issuers have one
            if not isinstance(said, str) or said.rstrip("/") != self.issuer:
                log.error("the provider's metadata name another issuer", configured=self.issuer, said=str(said)[:200])
                raise Unavailable("provider_wrong", f"{self.name} is not set up rightly. Ask your administrator.")
            missing = [n for n in ("authorization_endpoint", "token_endpoint", "jwks_uri") if not found.get(n)]
            if missing:
                log.error("the provider's metadata lack addresses", missing=missing)
                raise Unavailable("provider_wrong", f"{self.name} is not set up rightly. Ask your administrator.")
            self._metadata, self._metadata_at = found, self._ticks()
            return found

    def _fetch_token(self, code: str, kept: str) -> dict[str, Any]:
        try:
            with self._client() as client:
                token = client.fetch_token(
                    self.metadata()["token_endpoint"],
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=_derive(kept, "verifier"),
                )
        except OAuthError as error:
            log.warning("the provider did not take the code", error=error.error)
            raise _no(
                "code", f"{self.name} did not take its own answer; it may have been used before. Start again."
            ) from None
        except (httpx2.HTTPError, ValueError) as error:
            raise self._away(error) from None
        if not isinstance(token.get("id_token"), str):
            raise _no("no_id_token", f"{self.name} sent no identity. Ask your administrator about the scope openid.")
        return token

    def _claims(self, token: dict[str, Any], nonce: str) -> CodeIDToken:
        try:
            try:
                decoded = self._decode(token["id_token"], self._key_set())
            except (InvalidKeyIdError, ValueError):  # signed by a key that is not known yet: the keys were changed
                decoded = self._decode(token["id_token"], self._key_set(fresh=True))
            claims = CodeIDToken(
                decoded.claims,
                decoded.header,
                {
                    "iss": {"essential": True, "value": self.metadata()["issuer"]},
                    "aud": {"essential": True, "value": self._client_id},
                },
                {"nonce": nonce, "client_id": self._client_id, "access_token": token.get("access_token")},
            )
            claims.validate(now=int(self._wall().timestamp()), leeway=LEEWAY)
        except (JoseError, ValueError) as error:
            log.warning("an identity that does not hold", error=f"{type(error).__name__}: {error}"[:200])
            raise _no("identity", f"The identity that {self.name} sent does not hold. Start again.") from None
        return claims

    def _decode(self, text: str, keys: KeySet) -> Any:
        offered = self.metadata().get("id_token_signing_alg_values_supported") or ["RS256"]
        algorithms = [name for name in offered if name in ASYMMETRIC]
        return jwt.decode(text, keys, registry=JWSRegistry(algorithms=algorithms, strict_check_header=False))

    def _key_set(self, fresh: bool = False) -> KeySet:
        """The provider's public signing keys. Asked for anew at most every few seconds, whatever tokens say."""
        address = self.metadata()["jwks_uri"]
        with self._lock:
            age = self._ticks() - self._keys_at
            if self._keys is None or age > _METADATA_SECONDS or (fresh and age > _REFETCH_SECONDS):
                found = self._get(address).get("keys", [])
                usable = [k for k in found if k.get("kty") in ("RSA", "EC", "OKP") and k.get("use", "sig") == "sig"]
                self._keys, self._keys_at = KeySet.import_key_set({"keys": usable}), self._ticks()
            return self._keys

    def _client(self) -> OAuth2Client:
        return OAuth2Client(
            client_id=self._client_id,
            client_secret=self._client_secret,
            token_endpoint_auth_method=self._auth_method(),
            scope=self._scope,
            redirect_uri=self._callback,
            code_challenge_method="S256",
            timeout=5.0,
        )

    def _auth_method(self) -> str:
        if self._client_secret is None:
            return "none"
        offered = self.metadata().get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        return "client_secret_basic" if "client_secret_basic" in offered else "client_secret_post"

    def _get(self, address: str) -> dict[str, Any]:
        try:
            answer = httpx2.get(address, timeout=5.0)
            answer.raise_for_status()
            found = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise self._away(error) from None
        if not isinstance(found, dict):
            raise self._away(TypeError("not an object"))
        return found

    def _away(self, error: Exception) -> Unavailable:
        log.warning(
            "the provider cannot be reached", issuer=self.issuer, error=f"{type(error).__name__}: {error}"[:200]
        )
        return Unavailable("provider_away", f"{self.name} cannot be reached right now. Try again in a minute.")


def _derive(seed: str, what: str) -> str:
    """Three values from one random: 43 characters each, as PKCE wants of a verifier; none tells of another."""
    made = hmac.new(seed.encode(), what.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def _name(claims: Mapping[str, Any], subject: str) -> str:
    for claim in ("name", "preferred_username", "email"):
        value = claims.get(claim)
        if isinstance(value, str) and value.strip():
            return value.strip()[:120]
    return subject[:120]


def _email(claims: Mapping[str, Any], trusted: bool) -> str:
    """The address, if it is the person's own beyond doubt; else none.

    It never says who somebody is, but a user name on clusters is made of it, and mail goes there: at a provider where
    people type any address, anybody could otherwise be anybody on a cluster.
    """
    address, verified = claims.get("email"), claims.get("email_verified")
    # some providers write the truth as a text
    return address if isinstance(address, str) and (trusted or verified is True or verified == "true") else ""


def _text_at(claims: Mapping[str, Any], claim: str | None) -> str | None:
    found = groups_in(claims, claim) if claim else ()
    return found[0] if len(found) == 1 else None


def _short(text: str) -> str:
    return "".join(c for c in text[:60] if c.isalnum() or c in "_-. ")


def _no(code: str, sentence: str) -> Forbidden:
    return Forbidden(f"oidc_{code}", sentence)
