"""What every answer carries: a request id, the strict content policy, and no more trust in browsers than needed.

Plain ASGI, so that streamed answers are not held back. Knows no room.
"""

from __future__ import annotations

import re
import secrets

from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from app.web.errors import PROBLEM_JSON, problem_document

MEBIBYTE = 1024 * 1024
BODY_LIMIT = MEBIBYTE
UPLOAD_LIMIT = 8 * MEBIBYTE
UPLOADS = "/import"
"""Addresses that end so take a file."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")


def content_policy(form_targets: tuple[str, ...] = ()) -> str:
    """The Content-Security-Policy: nothing but our own files. `form_targets`: where signing out leads to."""
    targets = " ".join(("'self'", *form_targets))
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        f"connect-src 'self'; form-action {targets}; "
        "frame-ancestors 'none'; base-uri 'none'"
    )


class SecurityHeaders:
    """Adds the headers, names the request, refuses bodies that are too large before reading them."""

    def __init__(self, app: ASGIApp, form_targets: tuple[str, ...] = ()) -> None:
        self.app = app
        self.policy = content_policy(form_targets)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add(MutableHeaders(scope=message), scope, request_id)
            await send(message)

        with bound_contextvars(request=request_id):
            length = headers.get("content-length", "0")
            if length.isdigit() and int(length) > (limit := body_limit(scope["path"])):
                await _too_large(scope, limit)(scope, receive, send_with_headers)
                return
            await self.app(scope, _limited(receive, body_limit(scope["path"])), send_with_headers)

    def _add(self, headers: MutableHeaders, scope: Scope, request_id: str) -> None:
        headers["X-Request-Id"] = request_id
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "same-origin"
        headers["Content-Security-Policy"] = self.policy
        headers["X-Frame-Options"] = "DENY"
        headers["Cross-Origin-Opener-Policy"] = "same-origin"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
        headers["Permissions-Policy"] = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"
        if scope.get("scheme") == "https":
            headers["Strict-Transport-Security"] = "max-age=31536000; includeSubDomains"
        if not scope["path"].startswith("/static/"):
            headers.setdefault("Cache-Control", "no-store")


def body_limit(path: str) -> int:
    """How many bytes an address takes."""
    return UPLOAD_LIMIT if path.endswith(UPLOADS) else BODY_LIMIT


def _limited(receive: Receive, limit: int) -> Receive:
    """The same, but a body that turns out larger than the limit is an error for whoever reads it."""
    seen = 0

    async def receive_within() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b"")) if message["type"] == "http.request" else 0
        if seen > limit:
            raise HTTPException(413)
        return message

    return receive_within


def _too_large(scope: Scope, limit: int) -> ASGIApp:
    detail = f"The request is larger than the {limit // MEBIBYTE} MiB taken here."
    if scope["path"].startswith("/api/"):
        return JSONResponse(problem_document(413, "too_large", detail), 413, media_type=PROBLEM_JSON)
    return PlainTextResponse(detail, 413)
