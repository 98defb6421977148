"""The description of the API for programs: as FastAPI makes it, with our tokens and our one shape of error. Knows no room."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.web.errors import PROBLEM_JSON

_TEXT = {"type": "string"}
_PERHAPS = {"type": ["string", "null"]}
PROBLEM: dict[str, Any] = {
    "title": "Problem",
    "description": "Why not, all reasons at once, and requests that would be accepted, ready to post (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "reasons", "alternatives"],
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "code": {**_TEXT, "description": "Stable: programs may act on it."},
        "reasons": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["code", "message", "limit", "asked", "fix"],
                "properties": {
                    "code": _TEXT, "message": _TEXT, "limit": _PERHAPS, "asked": _PERHAPS, "fix": _PERHAPS, "field": _TEXT,
                },
            },
        },
        "alternatives": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["kind_of_change", "request", "price"],
                "properties": {
                    "kind_of_change": _TEXT,
                    "request": {"type": "object", "additionalProperties": True},
                    "price": {"type": "object", "additionalProperties": True},
                    "summary": _TEXT,
                },
            },
        },
    },
    "examples": [
        {
            "type": "about:blank", "title": "This cannot be booked as asked", "status": 409, "code": "refused",
            "detail": "This is 32 units over the limit of the project.",
            "reasons": [{"code": "quota_units", "message": "This is 32 units over the limit of the project.",
                         "limit": "96 units", "asked": "128 units", "fix": "Book fewer units."}],
            "alternatives": [{"kind_of_change": "fewer units", "request": {"units": 8},
                              "price": {"currency": "CHF", "amount": "115.20"}}],
        }
    ],
}  # fmt: skip


def install(app: FastAPI) -> None:
    """Describe tokens and errors as they are; made once, at the first asking."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _describe(app)
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


def _describe(app: FastAPI) -> dict[str, Any]:
    made = get_openapi(
        title=app.title, version=app.version, summary=app.summary, routes=app.routes, description=_DESCRIPTION
    )
    parts = made.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = PROBLEM
    parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "berth_pat_…"}}
    made["security"] = [{"token": []}]
    problem = {"content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for operations in made["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"]["4XX"] = {
                "description": "What is wrong with the request, or with the moment",
                **problem,
            }
            operation["responses"]["503"] = {"description": "Not right now; Retry-After says when", **problem}
    return made


_DESCRIPTION = """Everything that the pages do, by the same rules.

Send a token: `Authorization: Bearer berth_pat_…`. Times are ISO 8601 with an offset; money and exact quantities are
texts. Lists answer `{"items": […], "next": …}`. Errors are `application/problem+json`.
"""
