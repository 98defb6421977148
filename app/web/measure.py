"""Counts and times requests for `/metrics`, and makes an answer of errors that nobody foresaw. Knows no room."""

from __future__ import annotations

from fastapi import Request
from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.kernel.clock import monotonic
from app.web.errors import on_unforeseen

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
            REQUESTS.labels(scope["method"], route, status).inc()
            SECONDS.labels(scope["method"], route).observe(monotonic() - began)
