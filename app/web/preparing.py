"""While the data folder says that something is being prepared, every page says so, with how far it is.

Plain ASGI. Knows a file and nothing of what is being prepared; static files and health checks pass.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from app.web.errors import PROBLEM_JSON, bare_frame, is_api, problem_document
from app.web.render import render
from app.web.views.people import ErrorPage

RETRY = timedelta(seconds=2)
_PASS = ("/static/", "/healthz", "/readyz", "/metrics")


def preparing_file(data: Path) -> Path:
    """The file that exists while something is being prepared: `{"text": sentence, "done": 0..1}`."""
    return data / "preparing.json"


class Preparing:
    """Answers 503 with the progress for as long as the file exists."""

    def __init__(self, app: ASGIApp, file: Path) -> None:
        self.app = app
        self.file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_PASS):
            await self.app(scope, receive, send)
            return
        try:
            told = json.loads(self.file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        headers = {"Retry-After": str(int(RETRY.total_seconds()))}
        percent = max(0, min(99, int(100 * float(told.get("done", 0)))))
        text = str(told.get("text", "Something is being prepared."))
        if is_api(request):
            document = problem_document(503, "preparing", f"{text} {percent} % are done.")
            answer = JSONResponse(document, 503, headers, media_type=PROBLEM_JSON)
        else:
            view = ErrorPage(
                503, "Being prepared", text, progress=percent, progress_text=f"{percent} % done", retry=RETRY
            )
            answer = HTMLResponse(render(view, bare_frame()), 503, headers)
        await answer(scope, receive, send)
