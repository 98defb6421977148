"""Finance: the month at a glance, the list of statements, one statement. Reading across tenants is recorded."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Annotated
from uuid import UUID
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Response

from app.accounts.queries import TenantSeen
from app.billing import queries, rules
from app.billing.api import csv_file, read_month, report_of, statements_of, visible_tenants
from app.billing.capacity import KindCapacity
from app.billing.report import ReportLine, statement_csv
from app.kernel.actor import Actor
from app.kernel.money import WHOLE
from app.kernel.window import Window, month_of, month_window
from app.plumbing.db import Work
from app.web import words
from app.web.deps import AnyActor, InTransaction, require_platform
from app.web.page import OnPage
from app.web.views.money import (
    CapacityKind,
    DrillRow,
    FinanceMonthPage,
    ReportRow,
    StatementGroup,
    StatementLine,
    StatementPage,
    StatementRow,
    StatementsPage,
    UnbilledRow,
)
from app.web.views.parts import Figure, Link, Money, Note

router = APIRouter(include_in_schema=False)

FinanceReader = Annotated[Actor, Depends(require_platform("read", "finance", "auditor"), scope="function")]
_MONTHS_BACK = 3


# --- the month --------------------------------------------------------------------------------------------------------


@router.get("/finance")
def this_month(page: OnPage, work: InTransaction, actor: FinanceReader) -> Response:
    """The running month, in the reader's zone."""
    year, month = month_of(work.product_now(), ZoneInfo(actor.zone))
    return page.show(_month_page(work, actor, date(year, month, 1)))


@router.get("/finance/{period}/report.csv")
def report_file(page: OnPage, work: InTransaction, actor: FinanceReader, period: str) -> Response:
    """The report by project, person and kind, to keep."""
    month = read_month(period)
    return csv_file(report_of(work, actor, visible_tenants(work, actor), month), f"report-{period}.csv")


@router.get("/finance/month/{period}")
def one_month(page: OnPage, work: InTransaction, actor: FinanceReader, period: str) -> Response:
    """Any month."""
    return page.show(_month_page(work, actor, read_month(period)))


def _month_page(work: Work, actor: Actor, month: date) -> FinanceMonthPage:
    now = work.product_now()
    seen = visible_tenants(work, actor)
    window = month_window(month.year, month.month, ZoneInfo(actor.zone))
    until = max(window.start, min(now, window.end))
    currency = _main_currency(seen)
    shown = tuple(t for t in seen if t.currency == currency)
    every = statements_of(work, actor, shown, month)
    drafts = [(t, s) for t, s in every if s.groups]
    with work.read_all():
        lines = queries.month_report(work, [t.id for t in shown], month)
        kinds, names = ({}, {}) if until <= window.start else queries.capacity(work, Window(window.start, until))
        disputed = queries.contradictions(work, [t.id for t in shown], window)
        running = queries.not_charged_yet(work, [t.id for t in shown], now) if window.contains(now) else []
    by_id = {t.id: t for t in seen}
    charged = sum((s.total for _, s in drafts), Decimal(0))
    reported = sum((line.amount for line in lines), Decimal(0))
    others = sorted({t.currency for t in seen} - {currency})
    return FinanceMonthPage(
        month=month,
        state="open",
        sentence=_sentence(month, window, now, len(drafts), actor.zone),
        months=_months(month, now, actor.zone),
        figures=_figures(charged, drafts, lines, kinds, currency),
        from_=window.start,
        until=until,
        capacity=tuple(_capacity(names.get(k, k), kinds[k]) for k in sorted(kinds)),
        statements=tuple(_row(t, s) for t, s in drafts),
        report=tuple(_report_row(by_id[line.tenant_id], line) for line in lines),
        report_csv=f"/finance/{month:%Y-%m}/report.csv",
        currency=currency,
        unbilled=(
            *(_running(by_id[t], count, money) for t, count, _, money in running),
            *(_to_come_back(t, s.expected) for t, s in every if s.expected),
            *(_disputed(by_id[t], n, w, money, actor.zone, now) for t, n, w, money, _ in disputed),
        ),
        proof=(("Statements", charged), ("Report", reported)) if drafts else (),
        proof_ok=charged == reported,
        notes=tuple(
            Note("info", f"Tenants that pay in {other} are not on this page", "Their statements are in the list.")
            for other in others
        ),
    )


def _main_currency(seen: Iterable[TenantSeen]) -> str:
    """The currency of most tenants; of several the first by name."""
    counts: dict[str, int] = {}
    for one in seen:
        counts[one.currency] = counts.get(one.currency, 0) + 1
    return min(counts, key=lambda c: (-counts[c], c), default="CHF")


def _sentence(month: date, window: Window, now: datetime, drafts: int, zone: str) -> str:
    if now < window.start:
        return f"Begins {words.moment(window.start, zone, now)}."
    ends = "Ends" if now < window.end else "Ended"
    follow = (
        f"{words.count(drafts, 'draft statement')} {'follows' if drafts == 1 else 'follow'} the ledger."
        if drafts
        else "Nothing is charged in it."
    )
    return f"{ends} {words.moment(window.end, zone, now)}. {follow}"


def _months(month: date, now: datetime, zone: str) -> tuple[Link, ...]:
    year, running = month_of(now, ZoneInfo(zone))
    last = max(month, date(year, running, 1))
    shown = [last]
    while len(shown) < _MONTHS_BACK or month not in shown:
        first = shown[-1]
        shown.append(date(first.year - (first.month == 1), (first.month - 2) % 12 + 1, 1))
    return tuple(Link(f"{m:%b}", f"/finance/month/{m:%Y-%m}", m == month) for m in reversed(shown))


def _figures(
    charged: Decimal,
    drafts: list[tuple[TenantSeen, rules.Statement]],
    lines: tuple[ReportLine, ...],
    kinds: dict[str, KindCapacity],
    currency: str,
) -> tuple[Figure, ...]:
    reserved, unused = sum(line.reserved for line in lines), sum(line.unused for line in lines)
    unknown = sum(line.unknown for line in lines)
    free, installed = sum(k.parts["free"] for k in kinds.values()), sum(k.installed for k in kinds.values())
    credits = sum((s.credits for _, s in drafts), Decimal(0))
    of_reserved = f"{words.percent(Fraction(unused, reserved), 1)} of what was charged" if reserved else ""
    return (
        Figure("Charged so far", Money(charged, currency), f"{words.count(len(drafts), 'tenant')}, credits taken off"),
        Figure("Reserved but unused", f"{_hours(unused)} GPU-hours", of_reserved),
        Figure("Use not known", f"{_hours(unknown)} GPU-hours", "reserved, not measured"),
        Figure(
            "Not reserved",
            f"{_hours(free)} GPU-hours",
            f"{words.percent(Fraction(free, installed), 1)} of what is installed" if installed else "",
        ),
        Figure("Credits", Money(credits, currency), "for units that were not there"),
    )


def _capacity(name: str, kind: KindCapacity) -> CapacityKind:
    parts = {part: _seconds(quantity) for part, quantity in kind.parts.items() if part != "reserved"}
    return CapacityKind(name, _seconds(kind.used), _seconds(kind.unused), _seconds(kind.unknown), **parts)


def _seconds(quantity: int) -> int:
    """Unit-seconds of a quantity; slices of a card can leave a part of a second, which is dropped for showing."""
    return quantity // WHOLE


def _hours(quantity: int) -> str:
    return words.hours(Fraction(quantity, WHOLE))


def _report_row(tenant: TenantSeen, line: ReportLine) -> ReportRow:
    known = line.used + line.unused
    return ReportRow(
        tenant.name,
        line.project,
        line.person,
        line.unit_kind_name,
        _seconds(line.reserved),
        Fraction(line.used, line.reserved) if known else None,
        line.amount,
    )


def _running(tenant: TenantSeen, count: int, money: Decimal) -> UnbilledRow:
    why = f"{words.count(count, 'booking')} up to now: charged at midnight in {tenant.zone} and when they end."
    return UnbilledRow(f"Running, {tenant.name}", why, money)


def _to_come_back(tenant: TenantSeen, expected: tuple[rules.ExpectedCredit, ...]) -> UnbilledRow:
    bookings = len({e.booking_id for e in expected})
    why = f"{words.count(bookings, 'booking')} with units that were not there: taken back when they are over."
    return UnbilledRow(f"Credits expected so far, {tenant.name}", why, sum((e.amount for e in expected), Decimal(0)))


def _disputed(tenant: TenantSeen, number: int, when: Window, money: Decimal, zone: str, now: datetime) -> UnbilledRow:
    span = words.span(when.start, when.end, zone, now)
    why = f"{tenant.name}: two records for {span} differ. The second is not charged until one of them is chosen."
    return UnbilledRow(f"Usage of B-{number} is contradictory", why, money)


# --- statements -------------------------------------------------------------------------------------------------------


@router.get("/statements")
def statements_page(page: OnPage, work: InTransaction, actor: AnyActor) -> Response:
    """The statements that the person may see, newest month first."""
    seen = visible_tenants(work, actor)
    rows = statements_of(work, actor, seen)
    return page.show(StatementsPage(tuple(_row(t, s) for t, s in rows), _main_currency(seen)))


@router.get("/statements/{slug}/{period}")
def statement_page(page: OnPage, work: InTransaction, actor: AnyActor, slug: str, period: str) -> Response:
    """One statement, each line down to its bookings."""
    tenant, draft, measured = _statement(work, actor, slug, period)
    return page.show(_statement_page(actor, tenant, draft, measured))


@router.get("/statements/{slug}/{period}/lines.csv")
def statement_file(page: OnPage, work: InTransaction, actor: AnyActor, slug: str, period: str) -> Response:
    """The lines of a statement, to keep."""
    _, draft, _ = _statement(work, actor, slug, period)
    return csv_file(statement_csv(draft), f"statement-{slug}-{period}.csv")


def _statement(
    work: Work, actor: Actor, slug: str, period: str
) -> tuple[TenantSeen, rules.Statement, dict[UUID, tuple[int, int]]]:
    month = read_month(period)
    seen = visible_tenants(work, actor, slug)
    ((tenant, draft),) = statements_of(work, actor, seen, month)
    if actor.tenant_id == tenant.id:
        return tenant, draft, queries.measured(work, [tenant.id], month)
    with work.read_all():
        return tenant, draft, queries.measured(work, [tenant.id], month)


def _row(tenant: TenantSeen, draft: rules.Statement) -> StatementRow:
    return StatementRow(
        tenant.name,
        f"/statements/{tenant.slug}/{draft.period:%Y-%m}",
        draft.period,
        draft.number,
        draft.state,
        len(draft.groups),
        draft.net,
        draft.credits,
        draft.tax,
        draft.total,
    )


def _statement_page(
    actor: Actor, tenant: TenantSeen, draft: rules.Statement, measured: dict[UUID, tuple[int, int]]
) -> StatementPage:
    zone = ZoneInfo(tenant.zone)
    window = month_window(draft.period.year, draft.period.month, zone)
    groups = _groups(draft, measured, links=tenant.id == actor.tenant_id)
    across = bool(actor.platform_roles & {"finance", "auditor"})
    return StatementPage(
        number=draft.number,
        state=draft.state,
        tenant=tenant.name,
        issuer=("Berth",),
        month=draft.period,
        start=window.start,
        end=window.end,
        currency=draft.currency,
        groups=groups,
        net=draft.net,
        credits=draft.credits,
        tax=draft.tax,
        total=draft.total,
        facts=(("Price group", tenant.price_group), ("Month", f"in {tenant.zone}")),
        proof=(
            ("Sum of lines", sum((g.amount for g in groups), Decimal(0))),
            ("Statement before tax", draft.net + draft.credits),
        ),
        expected=tuple(_expected(e) for e in draft.expected),
        files=(Link("CSV", f"/statements/{tenant.slug}/{draft.period:%Y-%m}/lines.csv", icon="download"),),
        back=Link("Finance", f"/finance/month/{draft.period:%Y-%m}") if across else Link("Statements", "/statements"),
    )


def _expected(credit: rules.ExpectedCredit) -> StatementLine:
    what = f"{credit.name}, {credit.unit_kind_name} (B-{credit.number})"
    return StatementLine(what, -_seconds(-credit.quantity), None, credit.unit_price, credit.amount)


def _groups(
    draft: rules.Statement, measured: dict[UUID, tuple[int, int]], *, links: bool
) -> tuple[StatementGroup, ...]:
    """Use by project and cost centre, each kind and price a line; fees and credits last, a line each."""
    use = [g for g in draft.groups if g.kind == "use"]
    prices = {b: len({g.unit_price for g in use if g.booking_id == b}) for b in {g.booking_id for g in use}}
    once = {b: measured.get(b, (0, 0)) for b, count in prices.items() if count == 1}
    by_project: dict[tuple[str, str], dict[tuple[str, Decimal], list[rules.Group]]] = {}
    for group in use:
        lines = by_project.setdefault((group.project, group.cost_centre), {})
        lines.setdefault((group.unit_kind_name, group.unit_price), []).append(group)
    out = []
    for (project, cost_centre), lines in sorted(by_project.items()):
        made = tuple(_line(kind, price, groups, once, links) for (kind, price), groups in sorted(lines.items()))
        total = sum((line.amount for line in made), Decimal(0))
        out.append(StatementGroup(project, f"cost centre {cost_centre}", total, made))
    rest = [g for g in draft.groups if g.kind != "use"]
    if rest:
        made = tuple(
            StatementLine(
                f"{rules.what(g)} (B-{g.number})",
                _seconds(abs(g.quantity)) if g.kind == "fee" else -_seconds(-g.quantity),
                None,
                g.unit_price,
                g.amount,
                "units that were not there, at the price charged for them" if g.kind == "credit" else "",
                (_drill(g, links),),
            )
            for g in rest
        )
        out.append(StatementGroup("Fees and credits", "", sum((line.amount for line in made), Decimal(0)), made))
    return tuple(out)


def _line(
    kind: str, price: Decimal, groups: list[rules.Group], once: dict[UUID, tuple[int, int]], links: bool
) -> StatementLine:
    reserved = sum(g.quantity for g in groups)
    known = all(sum(once.get(g.booking_id, (0, 0))) for g in groups)
    used = sum(once[g.booking_id][0] for g in groups) if known else 0
    return StatementLine(
        kind,
        _seconds(reserved),
        min(Fraction(1), Fraction(used, reserved)) if known else None,
        price,
        sum((g.amount for g in groups), Decimal(0)),
        words.count(len(groups), "booking"),
        tuple(_drill(g, links) for g in groups),
        "Each booking is rounded once per price, half up, over all months together; the line is the sum of those.",
    )


def _drill(group: rules.Group, links: bool) -> DrillRow:
    return DrillRow(
        f"B-{group.number}, {group.name}",
        f"/bookings/{group.number}" if links else None,
        group.starts_at,
        group.ends_at,
        group.units,
        _seconds(group.quantity),
        group.exact,
    )
