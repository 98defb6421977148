"""Counts, times and logs requests, and makes an answer of errors that nobody foresaw. Knows no room."""

from __future__ import annotations

from fastapi import Request
from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.kernel.clock import monotonic
from app.plumbing.log import get_log
from app.web.errors import on_unforeseen

log = get_log("web")
_QUIET = ("/static/", "/healthz", "/readyz", "/metrics")
REQUESTS = Counter("berth_requests", "Requests answered", ["method", "route", "status"])
SECONDS = Histogram("berth_request_seconds", "Seconds until a request was answered", ["method", "route"])


class Measure:
    """One observation a request, by the route's pattern and never by its address."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = monotonic(), 500
        started = False

        async def send_and_see(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
            await send(message)

        try:
            await self.app(scope, receive, send_and_see)
        except Exception as error:
            if started:
                raise
            await on_unforeseen(Request(scope), error)(scope, receive, send_and_see)
        finally:
            route = getattr(scope.get("route"), "path_format", None) or "none"
            took = monotonic() - began
            REQUESTS.labels(scope["method"], route, status).inc()
            SECONDS.labels(scope["method"], route).observe(took)
            if not scope["path"].startswith(_QUIET):
                # the path alone: queries carry what people look for, and codes of a sign-in
                log.info(
                    "request", method=scope["method"], path=scope["path"][:200], status=status, ms=round(took * 1000, 1)
                )
