"""Every route against every role and against another tenant; a route that is not in the table fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient

from app.accounts import actions, sessions
from app.bookings import classes, queries_requests, series
from app.bookings.api_series import asked_of
from app.bookings.schemas_series import SeriesIn
from app.kernel.actor import SCOPES, SYSTEM, Actor
from app.kernel.ids import ACCOUNT, BOOKING, REQUEST, TOKEN, new_id, public
from app.main import create_app
from app.plumbing.queue import NoQueue
from tests.accounts.world import ADDRESS
from tests.servers import Addresses, TestDatabase
from tests.web.route_table import ROUTES, SIGNED_IN, Rule
from tests.world import World, make_world

pytestmark = [pytest.mark.xdist_group("routes"), pytest.mark.timeout(600)]


@dataclass
class House:
    """A running company, the application over it, and one client a person for pages and for the API."""

    world: World
    app: FastAPI
    values: dict[str, str]
    people: dict[str, UUID]
    csrf: dict[str, str]
    tokens: dict[tuple[str, tuple[str, ...]], str]

    def address(self, path: str) -> str:
        """The route's path with things of the physics tenant in it."""
        values = {**self.values, "slug": "plasma" if "projects/" in path else "physics"}
        return path.format_map(values)

    def ask(self, who: str, method: str, path: str, rule: Rule, scopes: tuple[str, ...] = SCOPES) -> Any:
        """The request as this person sends it: a browser for pages, a token for the API."""
        headers: dict[str, str] = {}
        client = TestClient(self.app, base_url=ADDRESS, follow_redirects=False, raise_server_exceptions=False)
        words: dict[str, Any] = {"params": rule.query}
        if path.startswith("/api/"):
            if who != "nobody":
                headers["Authorization"] = f"Bearer {self._token(who, scopes)}"
            if rule.json is not None:
                words["json"] = rule.json
        else:
            if who != "nobody":
                client.cookies.set("berth_session", self._session(who))
            if method != "GET":
                words["data"] = {"csrf_token": self.csrf.get(who, ""), **rule.form}
        return client.request(method, self.address(path), headers=headers, **words)

    def _session(self, who: str) -> str:
        with self.world.plumbing.database.work() as work:
            secret = sessions.open_session(work, self.people[who], sessions.Browser("Test/1", "127.0.0.1"))
            from app.accounts.secrets import digest

            (self.csrf[who],) = work.pg.execute(
                "SELECT csrf FROM sessions WHERE id_hash = %s", [digest(secret)]
            ).fetchone()
        return secret

    def _token(self, who: str, scopes: tuple[str, ...]) -> str:
        if (who, scopes) not in self.tokens:
            tenant = None if who.startswith("platform") else "bio" if who == "stranger" else "physics"
            with self.world.work(tenant) as work:
                actor = Actor(self.people[who], who, work.tenant_id)
                self.tokens[who, scopes] = actions.create_token(work, actor, label="t", scopes=scopes).secret
        return self.tokens[who, scopes]


@pytest.fixture(scope="module")
def house(
    module_database: TestDatabase, servers: Addresses, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[House]:
    """Physics with somebody of every role and a booking, Bio as the other tenant, and the platform's people."""
    folder: Path = tmp_path_factory.mktemp("house")
    world = make_world(module_database, folder, servers.valkey_url)
    people = {role: world.people[f"physics-{role}"] for role in ("viewer", "member", "lead")}
    people["stranger"] = world.people["bio-lead"]
    with world.work("physics") as work:
        for role in ("admin", "finance", "auditor"):
            people[role] = actions.create_account(work, SYSTEM, login=f"{role}@physics.example", name=f"physics-{role}")
            actions.add_member(work, SYSTEM, people[role], role)
    with world.work() as work:
        for role in ("operator", "finance", "auditor"):
            name = f"platform-{role}"
            people[name] = actions.create_account(work, SYSTEM, login=f"{name}@example.test", name=name)
            actions.grant_platform_role(work, SYSTEM, people[name], role)
    booking = world.book("physics-member", start="2026-12-02T09:00:00+01:00")
    lead = world.actor("physics-lead")
    with world.work("physics") as work:
        asked = SeriesIn.model_validate(
            ROUTES["POST", "/api/v1/series"].json | {"local_start": "2026-12-20T09:00", "local_end": "2026-12-20T10:00"}
        )
        made = series.book_series(work, NoQueue(), world.actor("physics-member"), asked_of(asked))
        taught = classes.book_class(
            work, NoQueue(), lead, world.ask(start="2026-12-21T09:00:00+01:00"), ["member@physics.example"]
        )
    with world.work() as work:
        pool = work.pg.execute("SELECT name FROM pools LIMIT 1").fetchone()[0]
    world.set_policy(pool, approval_hours=1, approver="lead")
    requested = world.book("physics-member", start="2026-12-22T09:00:00+01:00", duration="PT2H")
    world.set_policy(pool)
    with world.work("physics") as work:
        request = queries_requests.last_request(work, requested.id)
    values = {
        "token": public(TOKEN, new_id()), "session": "00" * 32, "name": "sim", "pool": pool, "period": "2026-11",
        "booking_id": public(BOOKING, booking.id), "number": str(booking.number), "account": public(ACCOUNT, new_id()),
        "cluster": "sim", "series_id": made.series.public_id,
        "class_id": taught.one.public_id,
        "maintenance": "999999", "maintenance_id": "999999", "use_id": "1", "verb": "shrink", "request_id": public(REQUEST, request.id),
    }  # fmt: skip
    yield House(world, create_app(plumbing=world.plumbing), values, people, {}, {})
    world.close()


@pytest.fixture(autouse=True)
def as_found(house: House) -> None:
    """What one route has done to everybody is not the next one's to stumble over."""
    reopen(house)


def reopen(house: House) -> None:
    """No project has ended, no limit is set."""
    with house.world.work("physics") as work:
        work.pg.execute("UPDATE projects SET ended_at = NULL, renewal_asked_at = NULL")
        work.pg.execute("UPDATE scopes SET max_rate = NULL, max_quantity = NULL, max_money = NULL")


def walk(app: FastAPI) -> set[tuple[str, str]]:
    """Every route of the application."""
    return {
        (method, route.path)
        for route in iter_route_contexts(app.routes)
        if getattr(route, "methods", None)
        for method in route.methods - {"HEAD"}
    }


def refused(answer: Any) -> bool:
    """Whether somebody was not let in: told so, or led to where one signs in or chooses a tenant."""
    return answer.status_code in (401, 403) or answer.headers.get("location", "").startswith(("/sign-in", "/scope"))


def test_the_table_has_every_route_and_no_other(house: House) -> None:
    assert walk(house.app) == set(ROUTES)


@pytest.mark.parametrize(("method", "path"), sorted(ROUTES), ids=lambda part: part)
def test_who_may(house: House, method: str, path: str) -> None:
    rule = ROUTES[method, path]
    # the refused ones first: whoever is let in may change things
    everybody = sorted([*SIGNED_IN, "nobody"], key=lambda who: (who in rule.may, who))
    for who in everybody:
        reopen(house)
        answer = house.ask(who, method, path, rule)
        assert answer.status_code < 500 or "provider" in answer.text, f"{who}: {answer.status_code} {answer.text[:500]}"
        if (method, path) in OPEN:
            continue
        said = f"{method} {path} as {who}: {answer.status_code} {answer.text[:300]}"
        assert refused(answer) == (who not in rule.may), said
        if who not in rule.may and who != "nobody" and path.startswith("/api/"):
            assert answer.json()["code"] in ("role", "role_missing", "no_tenant", "not_operator"), said
    if rule.stranger is not None:
        answer = house.ask("stranger", method, path, rule)
        assert answer.status_code == rule.stranger, f"a stranger: {answer.status_code} {answer.text[:300]}"
        assert "physics" not in answer.text.lower().replace(path, "")


OPEN = {("POST", "/sign-in"), ("POST", "/sign-out"), ("GET", "/sign-in"), ("GET", "/auth/callback"), ("GET", "/scope")}
"""Routes whose answer looks like a refusal although nobody was refused: they are where one signs in."""


@pytest.mark.parametrize(
    ("method", "path"), [key for key, rule in sorted(ROUTES.items()) if rule.scope and key[1].startswith("/api/")],
    ids=lambda part: part,
)  # fmt: skip
def test_a_token_without_the_scope_is_refused(house: House, method: str, path: str) -> None:
    rule = ROUTES[method, path]
    others = tuple(s for s in SCOPES if s != rule.scope)
    answer = house.ask(sorted(rule.may)[0], method, path, rule, others)
    assert answer.status_code == 403, answer.text
    assert answer.json()["code"] in ("scope", "scope_missing")


OF_A_BOOKING = [key for key in sorted(ROUTES) if "{booking_id}" in key[1] or key[1].startswith("/bookings/{number}")]


@pytest.mark.parametrize(("method", "path"), OF_A_BOOKING, ids=lambda part: part)
def test_a_booking_is_named_by_its_id_its_label_or_its_number_everywhere(house: House, method: str, path: str) -> None:
    rule = ROUTES[method, path]
    person = "lead" if "lead" in rule.may else min(rule.may)
    booking = house.world.book("physics-member", start="2026-12-02T09:00:00+01:00")
    usual = dict(house.values)
    codes = {}
    for name in (booking.public_id, booking.label, booking.label.lower(), str(booking.number)):
        house.values.update(booking_id=name, number=name)
        codes[name] = house.ask(person, method, path, rule).status_code
    house.values.update(usual)
    assert 404 not in codes.values(), codes
    if method == "GET":
        assert set(codes.values()) == {200}
    for unknown in ("B-999999", "B-", "nothing", "9" * 19, "bk_" + "0" * 26):
        house.values.update(booking_id=unknown, number=unknown)
        assert house.ask(person, method, path, rule).status_code == 404, unknown
        house.values.update(usual)


@pytest.mark.parametrize("slug", ["physics", "nothing"])
@pytest.mark.parametrize("rest", ["2026-11", "2026-11/lines.csv"])
def test_statements_of_others_do_not_exist(house: House, slug: str, rest: str) -> None:
    """Nor can one tell another tenant's from one that never was."""
    with house.world.work("bio") as work:
        if "bio-finance" not in house.people:
            person = actions.create_account(work, SYSTEM, login="finance@bio.example", name="bio-finance")
            actions.add_member(work, SYSTEM, person, "finance")
            house.people["bio-finance"] = person
    rule = Rule(frozenset())
    assert house.ask("bio-finance", "GET", "/statements/bio/2026-11", rule).status_code == 200
    assert house.ask("bio-finance", "GET", f"/statements/{slug}/{rest}", rule).status_code == 404
