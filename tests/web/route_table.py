"""Who may open which route: every one of them, by name. `test_routes.py` walks the application and holds it to this.

A route that is not here fails the tests. `may` names the people who are let in; what they get then (an answer, 404 for
a thing that is not there, 409, 422) is for the room's own tests. `stranger` is what a lead of another tenant gets who
asks for a thing of this one: None where the route names no tenant's thing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PROJECT = frozenset({"viewer", "member", "lead"})
TENANT = PROJECT | {"admin", "finance", "auditor"}
PLATFORM = frozenset({"platform-operator", "platform-finance", "platform-auditor"})
SIGNED_IN = TENANT | PLATFORM
EVERYBODY = SIGNED_IN | {"nobody"}
BOOKERS = frozenset({"member", "lead", "admin"})
LEADERS = frozenset({"lead", "admin"})
OPERATOR = frozenset({"platform-operator"})
KEEPERS = OPERATOR | {"admin"}
RUNS = OPERATOR | {"platform-auditor"}
FINANCE = frozenset({"platform-finance"})
MONEY = FINANCE | {"platform-auditor"}
TENANT_MONEY = frozenset({"admin", "finance", "auditor"}) | MONEY
CHECKS = PLATFORM | {"admin", "auditor"}


@dataclass(frozen=True)
class Rule:
    """One route: who may, the scope that a token needs, what to send so that it gets as far as the use case."""

    may: frozenset[str]
    scope: str | None = "read"
    stranger: int | None = None
    json: Any = None
    form: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)


ASK = {"project": "plasma", "name": "Run", "kind": "h100-sxm-80gb", "units": 1, "start": "asap", "duration": "PT1H"}
SERIES = {
    **{k: v for k, v in ASK.items() if k not in ("start", "duration")},
    "rule": "FREQ=DAILY;COUNT=2",
    "zone": "Europe/Berlin",
    "local_start": "2026-12-05T09:00",
    "local_end": "2026-12-05T10:00",
    "on_conflict": "skip",
}
MAINTENANCE = {
    "cluster": "sim",
    "nodes": ["n0"],
    "start": "2026-12-24T08:00:00+01:00",
    "end": "2026-12-24T12:00:00+01:00",
    "name": "x",
}
ASK_FORM = {"project": "plasma", "name": "Run", "kind": "h100-sxm-80gb", "units": "1", "start": "asap", "hours": "1"}
PRICES = {
    "price_group": "standard",
    "currency": "CHF",
    "effective_at": "2030-01-01T00:00:00Z",
    "note": "x",
    "prices": {},
}

ROUTES: dict[tuple[str, str], Rule] = {
    # the process itself
    ("GET", "/healthz"): Rule(EVERYBODY, None),
    ("GET", "/readyz"): Rule(EVERYBODY, None),
    ("GET", "/metrics"): Rule(EVERYBODY, None),
    ("GET", "/api/v1/openapi.json"): Rule(EVERYBODY, None),
    # people
    ("GET", "/api/v1/me"): Rule(SIGNED_IN),
    ("GET", "/api/v1/projects"): Rule(TENANT),
    ("GET", "/api/v1/tokens"): Rule(SIGNED_IN),
    ("POST", "/api/v1/tokens"): Rule(SIGNED_IN, "admin", json={"label": "x", "scopes": ["read"], "days": 1}),
    ("DELETE", "/api/v1/tokens/{token}"): Rule(SIGNED_IN, "admin"),
    ("GET", "/api/v1/tenants"): Rule(OPERATOR, "admin"),
    ("POST", "/api/v1/tenants"): Rule(OPERATOR, "admin", json={"slug": "all", "name": "x"}),
    ("GET", "/api/v1/people"): Rule(KEEPERS, "admin", query={"tenant": "physics"}),
    ("POST", "/api/v1/people"): Rule(
        KEEPERS,
        "admin",
        query={"tenant": "physics"},
        json={"login": "ac_nobody", "role": "member", "project": "plasma"},
    ),
    ("DELETE", "/api/v1/people/{account}"): Rule(KEEPERS, "admin", query={"tenant": "physics", "role": "member"}),
    ("POST", "/api/v1/projects"): Rule(
        KEEPERS, "admin", query={"tenant": "physics"}, json={"slug": "all", "name": "x", "cost_center": "1"}
    ),
    ("POST", "/api/v1/projects/{slug}/end"): Rule(KEEPERS, "admin", query={"tenant": "physics"}),
    ("PUT", "/api/v1/projects/{slug}/end"): Rule(
        KEEPERS, "admin", query={"tenant": "physics"}, json={"end": "2027-06-01T00:00:00Z"}
    ),
    ("POST", "/api/v1/projects/{slug}/renewal"): Rule(LEADERS, "book", 404),
    ("POST", "/api/v1/projects/{slug}/reopen"): Rule(KEEPERS, "admin", query={"tenant": "physics"}),
    ("GET", "/api/v1/cluster-users"): Rule(SIGNED_IN),
    ("PUT", "/api/v1/cluster-users/{cluster}"): Rule(SIGNED_IN, "admin", json={"name": "Not A Name"}),
    ("GET", "/people"): Rule(KEEPERS, query={"tenant": "physics"}),
    ("POST", "/people"): Rule(KEEPERS, form={"tenant": "physics", "login": "ac_nobody", "role": "member"}),
    ("POST", "/people/role"): Rule(KEEPERS, form={"tenant": "physics", "account": "ac_nobody"}),
    ("POST", "/people/remove"): Rule(KEEPERS, form={"tenant": "physics", "account": "ac_nobody"}),
    ("POST", "/people/projects"): Rule(KEEPERS, form={"tenant": "physics", "slug": "all"}),
    ("POST", "/people/projects/{slug}/end"): Rule(KEEPERS, form={"tenant": "physics"}),
    ("POST", "/people/projects/{slug}/reopen"): Rule(KEEPERS, form={"tenant": "physics"}),
    ("POST", "/people/tenants"): Rule(OPERATOR, form={"slug": "all"}),
    ("POST", "/people/cluster-users"): Rule(OPERATOR, form={"account": "ac_nobody"}),
    ("POST", "/me/cluster-users"): Rule(SIGNED_IN, form={"cluster": "sim", "name": "Not A Name"}),
    ("GET", "/sign-in"): Rule(EVERYBODY, None),
    ("POST", "/sign-in"): Rule(EVERYBODY, None, form={"email": "nobody@example.test", "password": "wrong"}),
    ("POST", "/sign-out"): Rule(EVERYBODY, None),
    ("GET", "/oidc/start"): Rule(EVERYBODY, None),
    ("GET", "/auth/callback"): Rule(EVERYBODY, None),
    ("GET", "/scope"): Rule(SIGNED_IN),
    ("POST", "/scope"): Rule(SIGNED_IN, stranger=404, form={"scope": "physics/plasma"}),
    ("GET", "/me"): Rule(SIGNED_IN),
    ("POST", "/me"): Rule(SIGNED_IN, form={"zone": "Europe/Zurich"}),
    ("POST", "/me/tokens"): Rule(SIGNED_IN, form={"name": "x", "scope": "read", "days": "1"}),
    ("POST", "/me/tokens/{token}/revoke"): Rule(SIGNED_IN),
    ("POST", "/me/sessions/{session}/end"): Rule(SIGNED_IN),
    ("GET", "/audit"): Rule(CHECKS),
    ("GET", "/notices"): Rule(SIGNED_IN),
    ("POST", "/notices/read"): Rule(SIGNED_IN, form={"next": "/notices"}),
    ("GET", "/api/v1/notices"): Rule(SIGNED_IN),
    ("POST", "/api/v1/notices/read"): Rule(SIGNED_IN, json={}),
    ("GET", "/audit.csv"): Rule(CHECKS),
    # inventory
    ("GET", "/api/v1/nodes"): Rule(SIGNED_IN),
    ("GET", "/api/v1/kinds"): Rule(SIGNED_IN),
    ("GET", "/api/v1/clusters"): Rule(SIGNED_IN),
    ("POST", "/api/v1/clusters"): Rule(OPERATOR, "manage", json={"name": "sim", "backend": "simulated", "config": {}}),
    ("GET", "/api/v1/clusters/{name}"): Rule(SIGNED_IN),
    ("POST", "/api/v1/clusters/{name}/nodes/import"): Rule(OPERATOR, "manage"),
    ("POST", "/api/v1/clusters/{name}/nodes/define"): Rule(OPERATOR, "manage"),
    ("POST", "/api/v1/clusters/{name}/look"): Rule(OPERATOR, "manage"),
    ("PUT", "/api/v1/clusters/{name}/writes"): Rule(OPERATOR, "manage"),
    ("GET", "/api/v1/policies"): Rule(TENANT, stranger=404, query={"project": "plasma"}),
    ("GET", "/api/v1/clusters/{name}/pools/{pool}/policy"): Rule(RUNS),
    ("PUT", "/api/v1/clusters/{name}/pools/{pool}/policy"): Rule(OPERATOR, "manage", json={"policy": {}}),
    ("PUT", "/api/v1/clusters/{name}/pools/{pool}/policy/overrides"): Rule(
        OPERATOR, "manage", json={"policy": {}}, query={"tenant": "physics"}
    ),
    ("GET", "/operator/clusters/connect"): Rule(OPERATOR),
    ("POST", "/operator/clusters/connect"): Rule(OPERATOR, form={"name": "x", "backend": "nothing"}),
    ("POST", "/operator/clusters/{name}/define"): Rule(OPERATOR),
    ("GET", "/operator/inventory"): Rule(RUNS),
    ("POST", "/operator/inventory/import"): Rule(OPERATOR),
    ("GET", "/operator/inventory.csv"): Rule(RUNS),
    ("GET", "/api/v1/power-budgets"): Rule(RUNS),
    ("PUT", "/api/v1/power-budgets"): Rule(
        OPERATOR, "manage", json={"cluster": "sim", "level": "cluster", "watts": 90_000}
    ),
    ("POST", "/operator/power-budgets"): Rule(OPERATOR, form={"cluster": "sim", "level": "cluster", "watts": "90000"}),
    ("GET", "/api/v1/maintenances"): Rule(RUNS),
    ("POST", "/api/v1/maintenances"): Rule(OPERATOR, "manage", query={"dry_run": "true"}, json=MAINTENANCE),
    ("POST", "/api/v1/maintenances/{maintenance}/call-off"): Rule(OPERATOR, "manage"),
    ("GET", "/operator/maintenance"): Rule(RUNS),
    ("POST", "/operator/maintenance"): Rule(OPERATOR, form={"name": "x", "step": "preview"}),
    ("POST", "/operator/maintenance/{maintenance_id}/call-off"): Rule(OPERATOR, form={"version": "1"}),
    ("POST", "/api/v1/bookings/{booking_id}/displace"): Rule(OPERATOR, "manage", json={"why": "A flood."}),
    ("GET", "/operator/policies"): Rule(RUNS),
    ("POST", "/operator/policies"): Rule(OPERATOR, form={"pool": "sim/h100-sxm-80gb", "step": "preview"}),
    ("GET", "/operator/clusters"): Rule(RUNS),
    ("GET", "/operator/clusters/{name}/test"): Rule(RUNS),
    ("POST", "/operator/clusters/{name}/test"): Rule(OPERATOR),
    ("POST", "/operator/clusters/{name}/writes"): Rule(OPERATOR, form={"on": "yes"}),
    # prices
    ("GET", "/api/v1/prices"): Rule(SIGNED_IN),
    ("POST", "/api/v1/prices"): Rule(FINANCE, "bill", json=PRICES),
    ("GET", "/finance/prices"): Rule(MONEY),
    ("POST", "/finance/prices"): Rule(FINANCE),
    # bookings
    ("POST", "/api/v1/quotes"): Rule(BOOKERS, "book", 422, json=ASK),
    ("POST", "/api/v1/bookings"): Rule(BOOKERS, "book", 422, json=ASK),
    ("GET", "/api/v1/bookings"): Rule(TENANT),
    ("GET", "/api/v1/bookings/{booking_id}"): Rule(TENANT, stranger=404),
    ("POST", "/api/v1/bookings/{booking_id}/cancel"): Rule(BOOKERS, "book", 404),
    ("POST", "/api/v1/bookings/{booking_id}/release"): Rule(BOOKERS, "book", 404),
    ("POST", "/api/v1/bookings/{booking_id}/extend"): Rule(BOOKERS, "book", 404, json={"duration": "PT1H"}),
    ("GET", "/api/v1/bookings/{booking_id}/cancel"): Rule(BOOKERS, "book", 404),
    ("POST", "/api/v1/bookings/{booking_id}/shrink"): Rule(BOOKERS, "book", 404, json={"duration": "PT1H"}),
    ("POST", "/api/v1/bookings/{booking_id}/move"): Rule(BOOKERS, "book", 404, json={"duration": "PT1H"}),
    ("GET", "/api/v1/bookings/{booking_id}/members"): Rule(BOOKERS, "book", 404),
    ("POST", "/api/v1/bookings/{booking_id}/hand-over"): Rule(BOOKERS, "book", 404, json={"to": "ac_x"}),
    ("POST", "/api/v1/bookings/{booking_id}/share"): Rule(BOOKERS, "book", 404),
    ("POST", "/api/v1/bookings/{booking_id}/unshare"): Rule(BOOKERS, "book", 404),
    ("GET", "/api/v1/uses"): Rule(TENANT),
    ("POST", "/api/v1/uses/{use_id}/claim"): Rule(BOOKERS, "book", json={"project": "plasma", "duration": "PT1H"}),
    ("POST", "/api/v1/series"): Rule(BOOKERS, "book", 422, json=SERIES),
    ("GET", "/api/v1/series"): Rule(TENANT),
    ("GET", "/api/v1/series/{series_id}"): Rule(TENANT, stranger=404),
    ("POST", "/api/v1/series/{series_id}/change"): Rule(BOOKERS, "book", 404, json=SERIES),
    ("POST", "/api/v1/series/{series_id}/cancel"): Rule(BOOKERS, "book", 404, json={}),
    ("POST", "/api/v1/classes"): Rule(LEADERS, "book", 422, json=ASK | {"people": ["x@physics.example"]}),
    ("GET", "/api/v1/classes/{class_id}"): Rule(TENANT, stranger=404),
    ("POST", "/api/v1/classes/{class_id}/cancel"): Rule(LEADERS, "book", 404),
    ("GET", "/api/v1/approvals"): Rule(LEADERS | RUNS),
    ("GET", "/api/v1/approvals/{request_id}"): Rule(SIGNED_IN, stranger=404),
    ("POST", "/api/v1/approvals/{request_id}/approve"): Rule(LEADERS | PLATFORM, "book", 404),
    ("POST", "/api/v1/approvals/{request_id}/reject"): Rule(LEADERS | PLATFORM, "book", 404, json={"why": "no"}),
    ("POST", "/api/v1/bookings/{booking_id}/withdraw"): Rule(BOOKERS, "book", 404),
    ("POST", "/api/v1/bookings/{booking_id}/accept"): Rule(BOOKERS, "book", 404),
    ("POST", "/api/v1/bookings/{booking_id}/decline"): Rule(BOOKERS, "book", 404),
    ("POST", "/api/v1/waitlist"): Rule(BOOKERS, "book", 422, json=ASK),
    ("GET", "/api/v1/waitlist"): Rule(TENANT),
    ("GET", "/approvals"): Rule(LEADERS | RUNS),
    ("POST", "/approvals/{request_id}/approve"): Rule(LEADERS | PLATFORM, stranger=404),
    ("POST", "/approvals/{request_id}/reject"): Rule(LEADERS | PLATFORM, stranger=404, form={"why": "no"}),
    ("POST", "/bookings/{number}/withdraw"): Rule(BOOKERS, stranger=404),
    ("POST", "/bookings/{number}/accept"): Rule(BOOKERS, stranger=404),
    ("POST", "/bookings/{number}/decline"): Rule(BOOKERS, stranger=404),
    ("GET", "/book"): Rule(BOOKERS),
    ("GET", "/book/series"): Rule(BOOKERS),
    ("POST", "/book/series"): Rule(BOOKERS, form={"project": "plasma", "name": "x"}),
    ("GET", "/book/class"): Rule(LEADERS),
    ("POST", "/book/class"): Rule(LEADERS, form={"project": "plasma", "name": "x"}),
    ("GET", "/series/{series_id}"): Rule(TENANT, stranger=404),
    ("POST", "/series/{series_id}/cancel"): Rule(BOOKERS, stranger=404),
    ("GET", "/classes/{class_id}"): Rule(TENANT, stranger=404),
    ("POST", "/classes/{class_id}/cancel"): Rule(LEADERS, stranger=404),
    ("POST", "/book/quote"): Rule(BOOKERS, form=ASK_FORM),
    ("POST", "/book"): Rule(BOOKERS, form=ASK_FORM),
    ("GET", "/bookings"): Rule(TENANT),
    ("GET", "/bookings.csv"): Rule(TENANT),
    ("GET", "/bookings/{number}"): Rule(TENANT, stranger=404),
    ("GET", "/bookings/{number}/live"): Rule(TENANT, stranger=404, query={"seen": "BOOKED"}),
    ("GET", "/bookings/{number}/effect"): Rule(TENANT, stranger=404, query={"verb": "extend", "by": "PT1H"}),
    ("POST", "/bookings/{number}/cancel"): Rule(BOOKERS, stranger=404),
    ("POST", "/bookings/{number}/release"): Rule(BOOKERS, stranger=404),
    ("POST", "/bookings/{number}/extend"): Rule(BOOKERS, stranger=404, form={"by": "PT1H"}),
    ("GET", "/bookings/{number}/change"): Rule(TENANT, stranger=404),
    ("GET", "/bookings/{number}/change/{verb}"): Rule(TENANT, stranger=404),
    ("POST", "/bookings/{number}/shrink"): Rule(BOOKERS, stranger=404, form={"by": "PT15M"}),
    ("POST", "/bookings/{number}/units"): Rule(BOOKERS, stranger=404, form={"by": "1"}),
    ("POST", "/bookings/{number}/move"): Rule(
        BOOKERS, stranger=404, form={"start": "2026-12-03T09:00", "hours": "1", "cluster": "sim"}
    ),
    ("POST", "/bookings/{number}/hand_over"): Rule(
        BOOKERS, stranger=404, form={"by": "00000000-0000-0000-0000-000000000000"}
    ),
    ("POST", "/bookings/{number}/share"): Rule(BOOKERS, stranger=404),
    ("POST", "/bookings/{number}/unshare"): Rule(BOOKERS, stranger=404),
    ("GET", "/uses"): Rule(TENANT),
    ("POST", "/uses/{use_id}/claim"): Rule(BOOKERS, form={"project": "plasma", "duration": "PT1H"}),
    # money and limits
    ("GET", "/api/v1/limits"): Rule(frozenset({"admin", "finance", "auditor"}) | RUNS, query={"tenant": "physics"}),
    ("PUT", "/api/v1/limits"): Rule(
        OPERATOR | {"admin"},
        "manage",
        query={"tenant": "physics"},
        json={"project": "plasma", "units": 96, "hours": 10},
    ),
    ("GET", "/api/v1/bookings/{booking_id}/charges"): Rule(TENANT, stranger=404),
    ("GET", "/api/v1/statements"): Rule(TENANT_MONEY, query={"tenant": "physics"}),
    ("GET", "/api/v1/statements/{period}"): Rule(TENANT_MONEY, query={"tenant": "physics"}),
    ("GET", "/api/v1/statements/{period}/csv"): Rule(TENANT_MONEY, query={"tenant": "physics"}),
    ("GET", "/api/v1/reports/{period}/csv"): Rule(TENANT_MONEY, query={"tenant": "physics"}),
    ("GET", "/finance"): Rule(MONEY),
    ("GET", "/finance/month/{period}"): Rule(MONEY),
    ("GET", "/finance/{period}/report.csv"): Rule(MONEY),
    ("GET", "/statements"): Rule(TENANT_MONEY),
    ("GET", "/statements/{slug}/{period}"): Rule(TENANT_MONEY),
    ("GET", "/statements/{slug}/{period}/lines.csv"): Rule(TENANT_MONEY),
    # pages that join rooms
    ("GET", "/"): Rule(SIGNED_IN),
    ("GET", "/timeline"): Rule(SIGNED_IN),
    ("GET", "/projects"): Rule(TENANT),
    ("GET", "/projects/{slug}"): Rule(TENANT, stranger=404),
    ("GET", "/projects/{slug}.csv"): Rule(TENANT, stranger=404),
}
