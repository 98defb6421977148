"""The JSON routes of power budgets, and the form of the operator's page that sets one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Form, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from app.inventory.actions_power import MOST, set_budget
from app.inventory.facts import PowerBudget
from app.inventory.queries import cluster_named
from app.inventory.queries_power import budgets
from app.kernel.actor import Actor
from app.kernel.errors import Invalid, NotFound
from app.web import words
from app.web.deps import InTransaction, Operator, require_platform
from app.web.page import OnPage
from app.web.views.parts import Note

router = APIRouter()
Watcher = Annotated[Actor, Depends(require_platform("read", "operator", "auditor"), scope="function")]


class PowerBudgetIn(BaseModel):
    """What the nodes of one domain may draw together; no `watts` takes the budget away."""

    model_config = ConfigDict(extra="forbid")

    cluster: str = Field(max_length=63, examples=["alps"])
    level: Literal["rack", "leaf", "cluster"] = "rack"
    name: str = Field(default="", max_length=63, examples=["r07"])
    watts: int | None = Field(default=None, gt=0, le=MOST, examples=[40_000])


@router.get("/api/v1/power-budgets", tags=["operators"])
def list_budgets(
    work: InTransaction, _actor: Watcher, cluster: Annotated[str | None, Query(max_length=80)] = None
) -> dict[str, Any]:
    """What racks, leaves and clusters may draw. Booked units count with all of their power, whatever they compute."""
    found = budgets(work, None if cluster is None else [cluster_named(work, cluster).id])
    return {"items": [budget_json(b) for b in found], "next": None}


@router.put("/api/v1/power-budgets", tags=["operators"])
def put_budget(body: PowerBudgetIn, work: InTransaction, actor: Operator) -> dict[str, Any]:
    """Set the budget of a domain, or take it away. What is booked already stays; later bookings are placed within it."""
    found = set_budget(work, actor, body.cluster, body.level, body.name, body.watts)
    return {"items": [budget_json(b) for b in found], "next": None}


@router.post("/operator/power-budgets", include_in_schema=False)
def set_on_page(
    page: OnPage,
    work: InTransaction,
    actor: Operator,
    cluster: Annotated[str, Form(max_length=80)] = "",
    level: Annotated[str, Form(max_length=20)] = "rack",
    name: Annotated[str, Form(max_length=80)] = "",
    watts: Annotated[str, Form(max_length=20)] = "",
) -> Response:
    """Set one, or take it away where no watts are given."""
    plain = watts.strip().replace(",", "").replace("\N{NO-BREAK SPACE}", "")
    where = "/operator/maintenance#power"
    if plain and not (plain.isascii() and plain.isdigit()):
        return page.go(where, Note("bad", "The budget was not set", "Write the watts as a whole number, as in 40000."))
    try:
        set_budget(work, actor, cluster, level, name, int(plain) if plain else None)  # type: ignore[arg-type]
    except (Invalid, NotFound) as wrong:
        work.restart()
        return page.go(where, Note("bad", "The budget was not set", wrong.detail))
    domain = cluster if level == "cluster" else f"{level} {name.strip()} of {cluster}"
    said = f"may draw {words.number(int(plain))} W." if plain else "has no power budget now."
    return page.go(where, Note("ok", "Saved", f"{words.first_upper(domain)} {said}"))


def budget_json(budget: PowerBudget) -> dict[str, Any]:
    """A budget as the API gives it."""
    return {"cluster": budget.cluster, "level": budget.level, "name": budget.name, "watts": budget.watts}
