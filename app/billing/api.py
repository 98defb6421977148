"""Statements and the month's report over the API. Drafts follow the ledger until their month is closed."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response

from app.accounts.audit import record
from app.accounts.queries import TenantSeen, tenant, tenants
from app.billing import queries, rules
from app.billing.report import report_csv, statement_csv
from app.kernel import ids
from app.kernel.actor import Actor
from app.kernel.errors import Forbidden, Invalid, NotFound
from app.plumbing.db import Work
from app.web.deps import AnyActor, InTransaction

router = APIRouter(prefix="/api/v1", tags=["statements"])

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
        return date.fromisoformat(f"{text}-01")
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
