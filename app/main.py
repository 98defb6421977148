"""The web's composition root: knows every room, nobody knows it. `create_app()` is what a server runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import anyio.to_thread
from fastapi import FastAPI
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from app.accounts.oidc import Provider
from app.accounts.rules import Grant, read_group_map
from app.plumbing.runtime import Plumbing, make_plumbing
from app.settings import Settings, WrongSettings, load_settings
from app.web import errors, health, measure, openapi
from app.web.deps import IN_FLIGHT
from app.web.preparing import Preparing, preparing_file
from app.web.security import SecurityHeaders

_STATIC = Path(__file__).resolve().parents[1] / "static"
_ROOMS = ("accounts", "inventory", "quotas", "pricing", "bookings", "usage", "billing", "notices", "dashboards")
ROUTERS = (
    *(f"app.{room}.{face}" for room in _ROOMS for face in ("api", "pages")),
    "app.dashboards.booking_pages",
    "app.accounts.api_renewal",
    "app.bookings.api_edits",
    "app.bookings.pages_edits",
    "app.bookings.api_policies",
    "app.bookings.api_displacing",
    "app.bookings.pages_policies",
    "app.bookings.api_requests",
    "app.bookings.pages_requests",
    "app.bookings.api_series",
    "app.bookings.pages_several",
    "app.inventory.api_power",
    "app.bookings.api_maintenance",
    "app.bookings.pages_maintenance",
)


def create_app(settings: Settings | None = None, plumbing: Plumbing | None = None) -> FastAPI:
    """The whole portal. Give `plumbing` to use parts made elsewhere (tests), else they are made from `settings`."""
    parts = plumbing or make_plumbing(settings or load_settings())
    _refuse_open_http(parts.settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = IN_FLIGHT
        yield
        if plumbing is None:
            parts.close()

    app = FastAPI(
        title="Berth",
        version="1",
        summary="Book GPUs for a time: guaranteed, priced, enforced, metered, billed.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.plumbing = parts
    app.state.provider = Provider(parts.settings, parts.wall) if parts.settings.oidc_issuer else None
    app.state.group_map = _group_map(parts.settings)
    errors.install(app)
    openapi.install(app)
    app.include_router(health.router)
    for name in ROUTERS:
        if find_spec(name.rpartition(".")[0]) is not None and find_spec(name) is not None:
            app.include_router(import_module(name).router)
    app.mount("/static", Static(directory=_STATIC, check_dir=False), name="static")
    app.add_middleware(Preparing, file=preparing_file(parts.settings.data))
    app.add_middleware(measure.Measure)
    app.add_middleware(SecurityHeaders, form_targets=_form_targets(parts.settings))
    return app


def _group_map(settings: Settings) -> dict[str, tuple[Grant, ...]]:
    try:
        return read_group_map(settings.oidc_group_map)
    except ValueError as error:
        raise WrongSettings(f"BERTH_OIDC_GROUP_MAP cannot work: {error}") from None


def _refuse_open_http(settings: Settings) -> None:
    """Cookies without Secure are for loopback only."""
    host = urlsplit(settings.address).hostname or ""
    if (
        not settings.secure_cookies
        and host not in ("127.0.0.1", "::1", "localhost")
        and not host.endswith(".localhost")
    ):
        raise WrongSettings(
            f"people would sign in at {settings.address} unencrypted: set BERTH_BASE_URL to an https:// one"
        )


def _form_targets(settings: Settings) -> tuple[str, ...]:
    """Signing out of the provider too is a form that is redirected there; browsers hold that against the policy."""
    if not settings.oidc_issuer:
        return ()
    issuer = urlsplit(settings.oidc_issuer)
    return (f"{issuer.scheme}://{issuer.netloc}",)


class Static(StaticFiles):
    """Our own files. An address with a digest (`?v=…`) may be kept for ever, others are asked for again."""

    async def get_response(self, path: str, scope: Scope):
        """The file, with how long it may be kept."""
        response = await super().get_response(path, scope)
        kept = b"v=" in scope.get("query_string", b"") and response.status_code in (200, 304)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if kept else "no-cache"
        return response
