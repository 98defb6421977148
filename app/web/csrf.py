"""Whether a request that changes something comes from a page of ours: the token, and the browser's own word.

A signed-in session has a token of its own; before sign-in a cookie does (double submit). Requests with a bearer token
need none: no browser adds that header by itself. Knows no room.
"""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import urlsplit

from fastapi import Request, Response

from app.kernel.errors import Forbidden

FIELD = "csrf_token"
HEADER = "x-csrf-token"
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


async def sent_token(request: Request) -> str:
    """The token a request carries, in its header or its form; empty if none. A dependency: it reads the body."""
    if request.method in SAFE:
        return ""
    if header := request.headers.get(HEADER):
        return header
    if request.headers.get("content-type", "").split(";")[0].strip().lower() in _FORMS:
        value = (await request.form()).get(FIELD)
        return value if isinstance(value, str) else ""
    return ""


def check(request: Request, sent: str, expected: str) -> None:
    """Raise `Forbidden` unless the token is right and the browser does not say that another site asks."""
    if request.method in SAFE:
        return
    refuse_other_sites(request)
    if not expected or not hmac.compare_digest(sent.encode(), expected.encode()):
        raise Forbidden("csrf", "This form has expired or does not come from Berth. Load the page again and repeat it.")


def refuse_other_sites(request: Request) -> None:
    """Raise `Forbidden` when Origin or Sec-Fetch-Site names another site."""
    origin = request.headers.get("origin")
    # the address that people use stands in the settings, should a proxy put another Host into its requests
    ours = {request.headers.get("host", ""), urlsplit(request.app.state.plumbing.settings.address).netloc}
    if origin is not None and urlsplit(origin).netloc not in ours - {""}:
        raise Forbidden("other_site", "Another site asked for this. Open Berth itself and do it there.")
    if origin is None and request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Forbidden("other_site", "Another site asked for this. Open Berth itself and do it there.")


def cookie_name(name: str, secure: bool) -> str:
    """`__Host-` over TLS, plain on loopback."""
    return f"__Host-{name}" if secure else name


def before_sign_in(request: Request, secure: bool) -> str:
    """The token of somebody not yet known, kept in a cookie; made when there is none."""
    return request.cookies.get(cookie_name("berth_form", secure)) or secrets.token_urlsafe(24)


def keep_before_sign_in(response: Response, token: str, secure: bool) -> None:
    """Let the browser carry the token until somebody signs in."""
    set_cookie(response, "berth_form", token, secure, 3600)


def set_cookie(response: Response, name: str, value: str, secure: bool, seconds: int) -> None:
    """A cookie as all of ours are: HttpOnly, SameSite=Lax, for the whole host, Secure over TLS."""
    response.set_cookie(
        cookie_name(name, secure), value, max_age=seconds, httponly=True, samesite="lax", secure=secure, path="/"
    )


def drop_cookie(response: Response, name: str, secure: bool) -> None:
    """Take a cookie back."""
    response.delete_cookie(cookie_name(name, secure), httponly=True, samesite="lax", secure=secure, path="/")
