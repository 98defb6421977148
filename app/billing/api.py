"""Statements and the month's report over the API. Drafts follow the ledger until their month is closed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from app.accounts.audit import record
from app.accounts.queries import TenantSeen, members, project_by_slug, tenant, tenants
from app.billing import actions, queries, rules
from app.billing.passed import Passed, passed_limits
from app.billing.report import report_csv, statement_csv
from app.bookings import edits
from app.kernel import ids
from app.kernel.actor import Actor
from app.kernel.errors import Forbidden, Invalid, NotFound
from app.kernel.money import SCALE, WHOLE, line_amount
from app.plumbing.db import Work
from app.pricing.rules import hours_in_json
from app.quotas import queries as quotas
from app.quotas.rules import Scope, money_text, month_at
from app.web.deps import AnyActor, InTransaction, Reader, require_actor

router = APIRouter(prefix="/api/v1", tags=["statements"])
Manager = Annotated[Actor, Depends(require_actor("manage"), scope="function")]

SEES_ALL = frozenset({"finance", "auditor"})
"""Platform roles that see every tenant's money."""
SEES_OWN = frozenset({"admin", "finance", "auditor"})
"""Tenant roles that see their tenant's statements; members see what their projects cost elsewhere."""
MOST_MONTHS = 24
Month = Annotated[
    str | None, Query(description="YYYY-MM; without it all months with charges, newest first", max_length=7)
]
OfTenant = Annotated[str | None, Query(description="Slug of a tenant, for the platform's finance", max_length=63)]


def read_month(text: str) -> date:
    """The first day of the month in `YYYY-MM`; Invalid for anything else."""
    try:
        if len(text) != 7:
            raise ValueError(text)
        month = date.fromisoformat(f"{text}-01")
        if not 2000 <= month.year < 2200:
            raise ValueError(text)
        return month
    except ValueError:
        raise Invalid("month", f"A month is written as YYYY-MM, such as 2026-11, not {text!r}.") from None


def visible_tenants(work: Work, actor: Actor, slug: str | None = None) -> tuple[TenantSeen, ...]:
    """The tenants whose statements this person may see, or the one named. Reading across tenants is recorded.

    Raises Forbidden for people without a role over money, NotFound for a tenant that they may not see.
    """
    if actor.platform_roles & SEES_ALL:
        with work.read_all():
            seen = tuple(tenants(work))
        record(work, actor, "read statements", f"tenant {slug}" if slug else "all tenants", platform=True)
    elif actor.tenant_id is not None and actor.tenant_roles & SEES_OWN and actor.project_id is None:
        own = tenant(work, actor.tenant_id)
        seen = (own,) if own else ()
    else:
        raise Forbidden("role", "Statements are for finance, admin and auditor of the tenant, and of the platform.")
    if slug is None:
        return seen
    found = tuple(t for t in seen if t.slug == slug)
    if not found:
        raise NotFound("tenant", "There is no such tenant.")
    return found


def statements_of(
    work: Work, actor: Actor, seen: tuple[TenantSeen, ...], month: date | None = None
) -> list[tuple[TenantSeen, rules.Statement]]:
    """Drafts of a month, or of the newest months with charges, newest month first."""
    by_id: dict[UUID, TenantSeen] = {t.id: t for t in seen}

    def read() -> list[tuple[TenantSeen, rules.Statement]]:
        if month is not None:
            wanted = [(t.id, month) for t in seen]
        else:
            wanted = queries.months_charged(work, list(by_id))
            newest = sorted({m for _, m in wanted}, reverse=True)[:MOST_MONTHS]
            wanted = [(t, m) for t, m in wanted if m in newest]
        return [(by_id[t], queries.statement_of(work, by_id[t], m)) for t, m in wanted]

    if actor.platform_roles & SEES_ALL:
        with work.read_all():
            return read()
    return read()


@router.get("/statements")
def list_statements(
    work: InTransaction, actor: AnyActor, month: Month = None, tenant: OfTenant = None
) -> dict[str, Any]:
    """Statements of one's tenant; of all tenants for the platform's finance. With `month`, also one without lines."""
    seen = visible_tenants(work, actor, tenant)
    found = statements_of(work, actor, seen, None if month is None else read_month(month))
    return {"items": [in_json(s) for _, s in found], "next": None}


@router.get("/statements/{period}")
def one_statement(work: InTransaction, actor: AnyActor, period: str, tenant: OfTenant = None) -> dict[str, Any]:
    """The statement of a month, `YYYY-MM`. Who sees several tenants names one."""
    return in_json(_one(work, actor, period, tenant))


@router.get("/statements/{period}/csv")
def one_statement_csv(work: InTransaction, actor: AnyActor, period: str, tenant: OfTenant = None) -> Response:
    """The same lines as CSV."""
    return csv_file(statement_csv(_one(work, actor, period, tenant)), f"statement-{period}.csv")


@router.get("/reports/{period}/csv")
def month_report_csv(work: InTransaction, actor: AnyActor, period: str, tenant: OfTenant = None) -> Response:
    """Reserved, used, unused and not measured unit-hours and money of a month by project, person and kind, as CSV."""
    month = read_month(period)
    seen = visible_tenants(work, actor, tenant)
    return csv_file(report_of(work, actor, seen, month), f"report-{period}.csv")


def report_of(work: Work, actor: Actor, seen: tuple[TenantSeen, ...], month: date) -> str:
    """The report's CSV, read across tenants for those who may."""
    if actor.platform_roles & SEES_ALL:
        with work.read_all():
            lines = queries.month_report(work, [t.id for t in seen], month)
    else:
        lines = queries.month_report(work, [t.id for t in seen], month)
    return report_csv(lines, month, {t.id: t.name for t in seen})


@router.get("/bookings/{booking_id}/charges", tags=["bookings"])
def booking_charges(work: InTransaction, actor: Reader, booking_id: str) -> dict[str, Any]:
    """How a booking's charge comes about: every row of the ledger with its interval, price version and exact money.

    A line of a statement is the sum of `exact` over the rows of one charge, unit price and cost centre, rounded once, half
    away from zero, cumulatively over the months. `exact` is a fraction of the currency, written as numerator/denominator.
    `expected_credit` is what will be taken back at the end for units that were not there so far: it is no row yet.
    """
    booking = edits.find(work, actor, booking_id)
    lines = queries.ledger_of(work, booking.tenant_id, booking.id)
    amount = queries.charged(work, [booking.id]).get(booking.id, line_amount(Fraction(0), booking.currency))
    expected = rules.rounded(queries.credit_so_far(work, booking, work.product_now()), booking.currency)
    return {
        "booking": booking.public_id,
        "charged": {"currency": booking.currency, "amount": str(amount)},
        "expected_credit": {"currency": booking.currency, "amount": str(expected)},
        "items": [_ledger_json(line) for line in lines],
        "next": None,
    }


def _ledger_json(line: queries.LedgerLine) -> dict[str, Any]:
    return {
        "charge": line.kind,
        "why": line.why,
        "start": line.starts_at.isoformat(),
        "end": line.ends_at.isoformat(),
        "period": f"{line.month:%Y-%m}",
        "unit_hours": hours_in_json(line.quantity),
        "unit_price": str(line.unit_price),
        "exact": str(Fraction(line.exact) / SCALE),
        "cost_center": line.cost_centre,
        "interval": None
        if line.interval_id is None
        else {"id": str(line.interval_id), "positions": line.units, "evidence": line.evidence},
        "price_version": {
            "version": line.version,
            "published_at": line.published_at.isoformat(),
            "published_by": line.published_by,
        },
    }


# --- limits -----------------------------------------------------------------------------------------------------------


class Limit(BaseModel):
    """Units at once and unit-hours a month of the tenant, one of its projects, or one of its people; null: no limit."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"project": "plasma", "kind": None, "units": 96, "hours": 6000}}
    )

    project: str | None = Field(default=None, max_length=63)
    person: str | None = Field(default=None, max_length=200, description="e-mail address of a member")
    kind: str | None = Field(default=None, max_length=63)
    units: int | None = Field(default=None, ge=0, le=10**6)
    hours: int | None = Field(default=None, ge=0, le=10**9)
    money: Decimal | None = Field(
        default=None, ge=0, le=10**12, max_digits=18, decimal_places=6, description="a month, in the tenant's currency"
    )


@router.get("/limits", tags=["limits"])
def list_limits(work: InTransaction, actor: AnyActor, tenant: OfTenant = None) -> dict[str, Any]:
    """Every limit of the tenant with what is used and held of it this month, and where more is booked than it says: `kept`
    are the bookings beyond it. Operators name the tenant."""
    _act_for(work, actor, tenant, SEES_OWN, frozenset({"operator", "auditor"}))
    scopes = quotas.all_scopes(work)
    over = passed_limits(work, scopes, work.product_now())
    return {"items": [_limit_json(work, scope, over.get(scope.id, ())) for scope in scopes], "next": None}


@router.put("/limits", tags=["limits"])
def put_limit(body: Limit, work: InTransaction, actor: Manager, tenant: OfTenant = None) -> dict[str, Any]:
    """Set a limit: a tenant's own by operators, of projects and people by the tenant's admin too. What is booked stays."""
    _act_for(work, actor, tenant, frozenset({"admin"}), frozenset({"operator"}))
    project = None if body.project is None else project_by_slug(work, body.project)
    person = next((m for m in members(work) if m.email == body.person), None) if body.person else None
    if (body.project is not None and project is None) or (body.person is not None and person is None):
        raise NotFound("limit", "There is no such project or person in this tenant.")
    scope = actions.set_limit(
        work,
        actor,
        project_id=project and project.id,
        account_id=person and person.account_id,
        kind=body.kind,
        units=body.units,
        hours=body.hours,
        money=body.money,
    )
    return _limit_json(work, scope, passed_limits(work, [scope], work.product_now()).get(scope.id, ()))


def _act_for(
    work: Work, actor: Actor, slug: str | None, in_tenant: frozenset[str], on_platform: frozenset[str]
) -> None:
    """Act for one's own tenant, or for the one named if one runs the platform."""
    if actor.platform_roles & on_platform:
        with work.read_all():
            named = next((t for t in tenants(work) if t.slug == slug), None)
        if named is None:
            raise NotFound("tenant", "There is no such tenant: name one with ?tenant=slug.")
        work.act_for(named.id)
    elif actor.tenant_id is None or not actor.tenant_roles & in_tenant or actor.project_id is not None:
        raise Forbidden("role", f"This takes the tenant role of {' or '.join(sorted(in_tenant))}, or an operator.")


def _limit_json(work: Work, scope: Scope, over: Sequence[Passed]) -> dict[str, Any]:
    now = work.product_now()
    zone = work.pg.execute("SELECT zone FROM tenants WHERE tenant_id = %s", [work.tenant_id]).fetchone()[0]
    month = month_at(now, zone)
    taken = quotas.month_total(work, scope, month, now)
    spent = quotas.month_money(work, scope, month, now)
    return {
        "subject": scope.subject,
        "name": scope.name,
        "kind": scope.kind,
        "units": None if scope.max_rate is None else scope.max_rate // WHOLE,
        "hours": None if scope.max_quantity is None else scope.max_quantity // SCALE,
        "money": None if scope.max_money is None else f"{scope.max_money:f}",
        "currency": scope.currency,
        "month": f"{month:%Y-%m}",
        "used_hours": hours_in_json(taken.used),
        "held_hours": hours_in_json(taken.held),
        "used_money": None if spent is None else money_text(spent.used, scope.currency),
        "held_money": None if spent is None else money_text(spent.held, scope.currency),
        "over": [{"what": o.what, "taken": o.taken, "limit": o.limit, "by": o.by, "kept": list(o.kept)} for o in over],
    }


def in_json(statement: rules.Statement) -> dict[str, Any]:
    """The shape that outside programs rely on."""
    return rules.statement_json(statement, lambda booking_id: ids.public(ids.BOOKING, booking_id))


def csv_file(text: str, name: str) -> Response:
    """A CSV to keep."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text.encode(), media_type="text/csv; charset=utf-8; header=present", headers=headers)


def _one(work: Work, actor: Actor, period: str, slug: str | None) -> rules.Statement:
    month = read_month(period)
    seen = visible_tenants(work, actor, slug)
    if len(seen) != 1:
        raise Invalid("tenant", "Name the tenant whose statement it is: ?tenant=slug.")
    return statements_of(work, actor, seen, month)[0][1]
