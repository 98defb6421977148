"""The description of the API says what the API does."""

from __future__ import annotations

import re

from app.web.openapi import PROBLEM
from tests.accounts.world import World


def test_the_description_is_whole(world: World) -> None:
    made = world.browser().get("/api/v1/openapi.json").json()
    assert made["openapi"].startswith("3.1")
    text = str(made)
    for name in re.findall(r"#/components/schemas/([A-Za-z0-9_-]+)", text):
        assert name in made["components"]["schemas"], name
    assert "HTTPValidationError" not in text
    assert all(path.startswith("/api/v1/") for path in made["paths"])  # pages are not for programs
    for path, operations in made["paths"].items():
        for verb, operation in operations.items():
            assert operation.get("description") or operation.get("summary"), f"{verb} {path} is not described"
            assert "application/problem+json" in operation["responses"]["4XX"]["content"]


def test_errors_have_the_shape_that_is_described(world: World) -> None:
    problem = world.browser().get("/api/v1/me").json()
    assert set(problem) == set(PROBLEM["properties"]) == set(PROBLEM["required"])


def test_a_client_may_be_written_from_it(world: World) -> None:
    made = world.browser().get("/api/v1/openapi.json").json()
    (scheme,) = made["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    names = [operation["operationId"] for operations in made["paths"].values() for operation in operations.values()]
    assert len(names) == len(set(names))
