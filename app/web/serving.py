"""How the server that carries the application is set. Knows no route and no room."""

from __future__ import annotations

import uvicorn
from starlette.types import ASGIApp

from app.settings import Settings


def server_config(application: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Uvicorn's settings for an installation.

    The address that a request came from decides lock-outs and rate limits. Behind a proxy it stands in
    `X-Forwarded-For`, which anybody may write: it is taken from those proxies alone that the settings name.
    """
    return uvicorn.Config(
        application,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,  # the application writes its own line for a request
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        # never None: uvicorn would then ask the environment
        forwarded_allow_ips=settings.trusted_proxies or "",
        timeout_graceful_shutdown=5,
    )
