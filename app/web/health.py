"""Whether this process lives, whether it can serve, and figures for Prometheus. Knows no room."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.script import ScriptDirectory
from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app.plumbing.runtime import Plumbing
from app.web.deps import Parts

router = APIRouter(include_in_schema=False)
_SCRIPTS = Path(__file__).resolve().parents[2] / "alembic"


@router.get("/healthz")
def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz")
def readyz(plumbing: Parts) -> JSONResponse:
    """Database, migrations, broker: 200 when requests can be served. A silent broker is said and stops nobody."""
    checks = {"database": _database(plumbing), "broker": _broker(plumbing)}
    ready = checks["database"]["ok"]
    return JSONResponse({"status": "ok" if ready else "not ready", "checks": checks}, 200 if ready else 503)


@router.get("/metrics")
def metrics() -> Response:
    """Counters and durations of this process in Prometheus' text form."""
    return Response(generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


@cache
def head_revision() -> str:
    """The newest migration of this code."""
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    return ScriptDirectory.from_config(config).get_current_head() or ""


def _database(plumbing: Plumbing) -> dict[str, Any]:
    try:
        with plumbing.database.work() as work:
            role = work.pg.execute("SELECT current_user").fetchone()[0]
            found = work.pg.execute("SELECT version_num FROM alembic_version").fetchone()
    except Exception as error:
        return {"ok": False, "why": type(error).__name__}
    revision = found[0] if found else None
    if revision != head_revision():
        return {"ok": False, "role": role, "why": f"the database is at {revision}, this code needs {head_revision()}"}
    return {"ok": True, "role": role, "revision": revision}


def _broker(plumbing: Plumbing) -> dict[str, Any]:
    try:
        plumbing.redis.ping()
    except Exception as error:
        return {"ok": False, "why": type(error).__name__}
    return {"ok": True}
