"""The operator's page of maintenance: what is announced, what a new one would do to each booking, and doing that."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Form, Request, Response
from starlette.datastructures import FormData

from app.bookings import form as fields
from app.bookings import maintenance
from app.bookings.maintenance import Fate, Impact, Plan
from app.inventory import actions_maintenance as announcing
from app.inventory import queries as inventory
from app.inventory import queries_maintenance as rows
from app.inventory import queries_power
from app.inventory.facts import PowerBudget
from app.inventory.queries_maintenance import Maintenance
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Invalid, NotFound
from app.kernel.window import Window
from app.plumbing.db import Work
from app.web import words
from app.web.deps import InTransaction, Operator, Parts, require_platform
from app.web.page import OnPage
from app.web.views import maintenance as views
from app.web.views.parts import Action, Money, Note, Option

router = APIRouter(include_in_schema=False)
Watcher = Annotated[Actor, Depends(require_platform("read", "operator", "auditor"), scope="function")]
_LEVELS = {
    "node": "Nodes",
    "nvlink": "NVLink domains",
    "leaf": "Leaf switches",
    "rack": "Racks",
    "cluster": "The whole cluster",
}
_DONE = {"move": "Goes to other nodes", "shorten": "Ends when the work begins", "cancel": "Is cancelled"}


async def sent_form(request: Request) -> FormData:
    """The fields of the form, with a choice for each booking."""
    return await request.form()


@router.get("/operator/maintenance")
def maintenance_page(page: OnPage, work: InTransaction, actor: Watcher) -> Response:
    """What is announced, and the form."""
    return page.show(_view(work, actor, {}, page.frame.zone))


@router.post("/operator/maintenance")
def announce(
    page: OnPage, work: InTransaction, actor: Operator, parts: Parts, form: Annotated[FormData, Depends(sent_form)]
) -> Response:
    """Show what it would do, or do what was shown."""
    typed = {name: str(value)[:4000] for name, value in form.items()}
    zone = page.frame.zone
    plan, errors = _read(typed, ZoneInfo(zone))
    if plan is None:
        return page.show(_view(work, actor, typed, zone, errors), 422)
    try:
        if typed.get("step") == "commit":
            impact = maintenance.commit(work, parts.queue, actor, plan, typed.get("digest", ""))
            title = f"Announced: {plan.name}, {words.count(len(impact.maintenance.nodes), 'node')}"
            note = Note("ok", title, f"{words.first_upper(words.count(len(impact.fates), 'booking'))} changed.")
            return page.go("/operator/maintenance", note)
        impact = maintenance.preview(work, parts.queue, actor, plan)
    except Invalid as wrong:
        work.restart()
        names = {r.field or "": r.message for r in wrong.reasons} or {"": wrong.detail}
        return page.show(_view(work, actor, typed, zone, {k if k in _FIELDS else "": v for k, v in names.items()}), 422)
    except NotFound as wrong:
        work.restart()
        return page.show(_view(work, actor, typed, zone, {"cluster": wrong.detail}), 422)
    except Conflict as conflict:
        work.restart()
        impact = maintenance.preview(work, parts.queue, actor, plan)
        return page.show(_view(work, actor, typed, zone, {"": conflict.detail}, impact), 409)
    return page.show(_view(work, actor, typed, zone, {}, impact))


@router.post("/operator/maintenance/{maintenance_id}/call-off")
def call_off(
    maintenance_id: int, page: OnPage, work: InTransaction, actor: Operator, version: Annotated[int, Form()]
) -> Response:
    """Give the nodes back."""
    try:
        one = announcing.call_off(work, actor, maintenance_id, version)
    except Conflict as conflict:
        work.restart()
        return page.go("/operator/maintenance", Note("bad", "Not called off", conflict.detail))
    return page.go("/operator/maintenance", Note("ok", f"{one.name} is called off", "Its nodes can be booked again."))


_FIELDS = ("name", "cluster", "nodes", "start", "end", "layout")


def _read(typed: Mapping[str, str], zone: ZoneInfo) -> tuple[Plan | None, dict[str, str]]:
    errors: dict[str, str] = {}
    instants: dict[str, Any] = {}
    for name in ("start", "end"):
        faults: dict[str, str] = {}
        found, twice = fields.read_start(typed.get(name, ""), zone, faults)
        if faults:
            errors[name] = faults["start"] if typed.get(name, "").strip() else "Choose a time."
        instants[name] = twice[0] if twice else found
        if twice:
            errors.pop(name, None)  # the first of the two: nodes are out a little longer at most
    for name in ("start", "end"):
        if isinstance(instants[name], str):
            try:
                instants[name] = datetime.fromisoformat(instants[name]).astimezone(UTC)
            except ValueError:
                errors[name] = "Write it as 2026-12-01T09:00."
    if not typed.get("name", "").strip():
        errors["name"] = "Say what is done."
    level = typed.get("level", "node") if typed.get("level") in _LEVELS else "node"
    names = tuple(dict.fromkeys(n.strip() for n in typed.get("nodes", "").split(",") if n.strip()))
    if level != "cluster" and not names:
        errors["nodes"] = "Name the nodes, or the domains of the level."
    if not errors and instants["end"] <= instants["start"]:
        errors["end"] = "The end lies at or before the start."
    if errors:
        return None, errors
    choices: Any = {k.removeprefix("choice:"): v for k, v in typed.items() if k.startswith("choice:") and v in _DONE}
    window = Window(instants["start"].replace(microsecond=0), instants["end"].replace(microsecond=0))
    chosen: Any = level
    return Plan(
        typed.get("cluster", ""), chosen, names, window, typed["name"].strip(), typed.get("why", "").strip(), choices,
        typed.get("layout", "").strip(),
    ), {}  # fmt: skip


def _view(
    work: Work, actor: Actor, typed: Mapping[str, str], zone: str, errors: Mapping[str, str] | None = None,
    impact: Impact | None = None,
) -> views.MaintenancePage:  # fmt: skip
    now = work.product_now()
    may_change = "operator" in actor.platform_roles
    every = rows.maintenances(work)
    shown = sorted(every, key=lambda m: (m.end <= now or m.cancelled_at is not None, m.start))[:200]
    clusters = [c.name for c in inventory.clusters(work)]
    return views.MaintenancePage(
        "Nodes that are worked on are no capacity: bookings are placed around them. What becomes of those that are "
        "there already is shown before anything is changed.",
        tuple(_row(m, now, may_change) for m in shown),
        views.MaintenanceForm(
            tuple(Option(name, name, name == typed.get("cluster")) for name in clusters),
            tuple(Option(level, label, level == typed.get("level")) for level, label in _LEVELS.items()),
            *(typed.get(name, "") for name in ("nodes", "start", "end", "name", "why", "layout")),
            errors or {},
        ),
        may_change,
        None if impact is None else _preview(impact),
        tuple(_power(b, may_change) for b in queries_power.budgets(work)),
    )


def _power(budget: PowerBudget, may_change: bool) -> views.PowerRow:
    domain = "All of it" if budget.level == "cluster" else f"{words.first_upper(budget.level)} {budget.name}"
    of = (("cluster", budget.cluster), ("level", budget.level), ("name", budget.name))
    said = f"Take away the budget of {domain} of {budget.cluster}"
    act = Action("Take away", "/operator/power-budgets", of, "danger", describe=said) if may_change else None
    return views.PowerRow(budget.cluster, domain, budget.watts, act)


def _row(one: Maintenance, now: datetime, may_change: bool) -> views.MaintenanceRow:
    if one.cancelled_at is not None:
        state, tone = "Called off", "ended"
    elif one.end <= now:
        state, tone = "Over", "ended"
    elif one.start <= now:
        state, tone = "Going on", "warn"
    else:
        state, tone = "Announced", "booked"
    open_ = may_change and tone in ("warn", "booked")
    act = Action("Call off", f"/operator/maintenance/{one.id}/call-off", (("version", str(one.version)),), "danger",
                 describe=f"Call off {one.name}") if open_ else None  # fmt: skip
    return views.MaintenanceRow(
        one.name, one.why, one.cluster, _few(one.nodes), one.start, one.end, state, tone, one.made_by, _cut(one), act
    )


def _cut(one: Maintenance) -> str:
    texts = set(one.layout.values())
    if not texts:
        return ""
    if len(texts) == 1:
        return f"Its GPUs are cut anew at the end: {texts.pop()}"
    return f"GPUs of {words.count(len(one.layout), 'node')} are cut anew at the end"


def _preview(impact: Impact) -> views.MaintenancePreview:
    fates, one = impact.fates, impact.maintenance
    if not fates:
        said = "No booking has units there then."
    else:
        counts = {done: sum(f.done == done for f in fates) for done in _DONE}
        parts = [f"{n} {text}" for n, text in (
            (counts["move"], "to other nodes at the same time"), (counts["shorten"], "shortened"), (counts["cancel"], "cancelled"),
        ) if n]  # fmt: skip
        said = f"{words.first_upper(words.count(len(fates), 'booking'))} concerned: {', '.join(parts)}."
    return views.MaintenancePreview(
        said, f"{words.count(len(one.nodes), 'node')}: {_few(one.nodes)}", tuple(_fate(f) for f in fates), impact.digest,
        impact.withdrawn, tuple(sorted(one.layout.items())),
    )  # fmt: skip


def _fate(fate: Fate) -> views.FateRow:
    booking = fate.booking
    detail = {"move": f"{_few(fate.left)} to {_few(fate.took)}", "shorten": "", "cancel": ""}[fate.done]
    return views.FateRow(
        booking.label, booking.name, f"{fate.tenant}, {booking.project_name}", booking.booked_by, booking.starts_at,
        booking.ends_at, _DONE[fate.done], detail, tuple(Option(c, _DONE[c], c == fate.done) for c in fate.possible),
        Money(fate.back, booking.currency) if fate.back else None,
    )  # fmt: skip


def _few(names: tuple[str, ...], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
