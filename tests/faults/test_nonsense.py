"""Nonsense by the schema of the API itself: whatever is sent, the answer is a sentence and never an error of ours."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from tests.faults.processes import Client, Site
from tests.world import H100, START, nodes_csv

pytestmark = [pytest.mark.xdist_group("faults-inputs"), pytest.mark.timeout(600)]
GOOD = {"project": "plasma", "name": "Run", "kind": H100, "units": 1, "duration": "PT1H",
        "start": (START + timedelta(hours=1)).isoformat()}  # fmt: skip
STRANGE: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**63, 10**40, 1e308, -0.5, "", " ", "\0", "asap", "any", "..", "%00", "é" * 90, "a" * 10_000,
    "2026-11-30T13:00:00Z", "2026-11-30T13:00:00", "9999-12-31T23:59:59-14:00", "PT1H", "P0D", "PT99999999S", "-PT1H", [], {}, [[]],
    {"$ref": "x"}, "' OR 1=1 --", "<script>", H100, "plasma", "node", "\u202e", "\ufffe",
)  # fmt: skip


def test_two_hundred_requests_of_nonsense_by_the_schema_meet_no_error_of_ours(make_site: Callable[..., Site]) -> None:
    """By dice with a fixed seed: right fields with strange values, fields left out, fields too many, strange addresses."""
    site = make_site(csv=nodes_csv(4))
    site.world.book(start=(START + timedelta(hours=30)).isoformat(), units=2)
    web = site.web()
    site.wait_ready(web)
    dice = random.Random(20261130)
    tokens = (site.token("physics-lead"), site.token("bio-member"), site.operator_token())
    clients = [Client(web, token) for token in tokens]
    schema = clients[0].get("/api/v1/openapi.json").body
    operations = [
        (m.upper(), path, spec) for path, ways in sorted(schema["paths"].items()) for m, spec in sorted(ways.items())
    ]
    assert len(operations) > 20
    for turn in range(220):
        method, path, spec = operations[turn % len(operations)]
        address, headers = path, {}
        query = []
        for parameter in spec.get("parameters", ()):
            value = _text(dice)
            match parameter["in"]:
                case "path":
                    address = address.replace("{" + parameter["name"] + "}", value or "x")
                case "query" if dice.random() < 0.5:
                    query.append(f"{parameter['name']}={value}")
                case "header" if dice.random() < 0.3:
                    headers[parameter["name"]] = dice.choice(["x", "k" * 150, '"1"', "*", "-1"])
        body = _body(dice, schema, spec)
        answer = dice.choice(clients).send(method, address + ("?" + "&".join(query) if query else ""), body, **headers)
        told = (turn, method, address, query, body if not isinstance(body, bytes) else body[:200], answer)
        assert answer.status < 500, told
        if answer.status >= 400:
            assert answer.headers["Content-Type"] == "application/problem+json", told
            assert answer.body["detail"], told
    for client in clients:
        client.close()
    assert "unforeseen error" not in web.text()


def _text(dice: random.Random) -> str:
    value = dice.choice(STRANGE)
    return quote(value if isinstance(value, str) else json.dumps(value), safe="")[:3000]


def _body(dice: random.Random, schema: dict[str, Any], spec: dict[str, Any]) -> Any:
    content = spec.get("requestBody", {}).get("content", {})
    if "application/json" not in content:
        return b"a,b\n1,2\n" if content else None
    form = content["application/json"].get("schema", {})
    form = schema["components"]["schemas"].get(form.get("$ref", "").rpartition("/")[2], form)
    names = list(form.get("properties", {}))
    body = {name: dice.choice(STRANGE) for name in names if dice.random() < 0.7}
    if dice.random() < 0.4 and "start" in names:  # near enough to go further in
        body = {**GOOD, **dict(dice.sample(sorted(body.items()), min(2, len(body))))}
    if dice.random() < 0.1:
        body["more"] = dice.choice(STRANGE)
    return body if dice.random() < 0.95 else dice.choice(STRANGE)
