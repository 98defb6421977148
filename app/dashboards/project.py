"""A project's month: usage by member and kind, cost that adds up to the bill, limits, what is still held, members."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from uuid import UUID
from zoneinfo import ZoneInfo

from app.accounts import queries as accounts
from app.accounts.queries import ProjectSeen, TenantSeen
from app.billing import queries as billing
from app.billing.rules import Group
from app.bookings import queries as bookings
from app.bookings.facts import Booking
from app.dashboards import queries
from app.dashboards.booking_money import figures
from app.dashboards.cards import booking_href, conditions, limit_meters
from app.dashboards.home import NEXT_STATES, NOW_STATES
from app.dashboards.queries import ChargeLine
from app.inventory import queries as inventory
from app.kernel.actor import Actor
from app.kernel.errors import NotFound
from app.kernel.money import WHOLE, hours_text
from app.kernel.window import Window, month_of, month_window, split_days
from app.plumbing.db import Work
from app.quotas import queries as quotas
from app.web import words
from app.web.views.parts import Link, Money, Note
from app.web.views.project import (
    DailySeries,
    HeldBooking,
    IdleBooking,
    MemberRow,
    ProjectPage,
    ProjectsPage,
    ProjectSummary,
    UsageRow,
)

_MOST = 200
"""Live bookings that are looked at one by one."""
SPLITS = {"member": "Member", "kind": "Kind"}


@dataclass(frozen=True, slots=True)
class Month:
    """One month of a project. `groups` are those of the bill, so that their amounts add up to it."""

    first: date
    window: Window
    zone: ZoneInfo
    groups: tuple[Group, ...]
    lines: tuple[ChargeLine, ...]
    measured: dict[UUID, tuple[int, int]]
    running: dict[UUID, Decimal]
    """What bookings that go on cost beside what is in the ledger, which has only what is over."""

    @property
    def cost(self) -> Decimal:
        """What the month costs so far: the rounded groups added up, and what runs."""
        return sum((g.amount for g in self.groups), Decimal(0)) + sum(self.running.values(), Decimal(0))


def project_page(work: Work, actor: Actor, slug: str, month: str, by: str) -> ProjectPage:
    """Fill the page. Raises `NotFound` for a project that is not there or not the actor's to see."""
    project, tenant = _seen(work, actor, slug)
    now = work.product_now()
    zone = ZoneInfo(tenant.zone)
    this = date(*month_of(now, zone), 1)
    first = _read_month(month) or this
    live = bookings.list_bookings(
        work, projects=[project.id], states=(*NOW_STATES, *NEXT_STATES), oldest_first=True, limit=_MOST
    )
    of = read_month(work, tenant, project, first)
    if first == this:
        of = _with_running(work, of, live, now)
    kinds = {k: kind.name for k, kind in inventory.kinds(work).items()}
    used = sorted({line.unit_kind for line in of.lines if line.kind == "use"})
    by = by if by in SPLITS else "member"
    people = {m.name: m.role for m in accounts.members(work, project.id)}
    rows = _rows(of, used, by, people, kinds)
    held = tuple(_held(work, b, now) for b in live)
    runs = sum(of.running.values(), Decimal(0))
    base = f"/projects/{project.slug}"
    idle = _idle(work, live, now)
    scopes = [s for s in quotas.all_scopes(work) if s.subject == "tenant" or s.project_id == project.id]
    days = _days(of.window, zone)
    return ProjectPage(
        name=project.name,
        tenant=tenant.name,
        sentence=" · ".join(
            part
            for part in (
                f"Cost centre {project.cost_centre}",
                f"price group {tenant.price_group}",
                _role(actor, project.id),
                f"{words.money(runs, tenant.currency)} of this month is of bookings that still run" if runs else "",
            )
            if part
        ),
        notes=_notes(idle),
        month=first,
        months=tuple(
            Link(words.month(m), f"{base}?month={m:%Y-%m}&by={by}", m == first)
            for m in sorted({this, first, *queries.months_of_project(work, project.id)})[-6:]
        ),
        splits=tuple(Link(label, f"{base}?month={first:%Y-%m}&by={key}", key == by) for key, label in SPLITS.items()),
        split_label=SPLITS[by],
        kinds=tuple(kinds.get(k, k) for k in used),
        rows=tuple(row for row, _ in rows),
        total_hours=tuple(sum(row.hours[i] for row, _ in rows) for i in range(len(used))),
        total=Money(of.cost, tenant.currency),
        days=days,
        daily=_daily(of, by, [key for _, key in rows], days, kinds),
        limits=limit_meters(work, scopes, first, now, kinds),
        held=held,
        held_total=Money(sum((h.held for h in held), Decimal(0)), tenant.currency),
        members=tuple(
            MemberRow(m.name, m.email, m.role)
            for m in sorted(accounts.members(work, project.id), key=lambda m: (m.role != "lead", m.name))
        ),
        idle=idle,
        idle_sentence=_unused_sentence(of),
        csv=f"{base}.csv?month={first:%Y-%m}",
    )


def projects_page(work: Work, actor: Actor) -> ProjectsPage:
    """The projects that the person may see, with this month's cost."""
    tenant = accounts.tenant(work, work.tenant_id) if work.tenant_id else None
    if tenant is None:
        raise NotFound("no_tenant", "Choose a tenant first.")
    now = work.product_now()
    first = date(*month_of(now, ZoneInfo(tenant.zone)), 1)
    groups = billing.groups_of(work, [tenant.id], first)
    owner = queries.projects_of_bookings(work, {g.booking_id for g in groups})
    counts = queries.counts_by_project(work)
    live = bookings.list_bookings(work, projects=None, states=NOW_STATES, oldest_first=True, limit=_MOST)
    runs = [(b, _running(work, b, now)) for b in live]
    found = []
    for project in accounts.projects(work):
        if not actor.sees_project(project.id):
            continue
        mine = [g for g in groups if owner.get(g.booking_id) == project.id]
        going = [r for b, r in runs if r is not None and b.project_id == project.id]
        cost = sum((g.amount for g in mine), Decimal(0)) + sum((money for _, money in going), Decimal(0))
        used = sum(g.quantity for g in mine if g.kind == "use") + sum(line.quantity for line, _ in going)
        active, booked = counts.get(project.id, (0, 0))
        found.append(
            ProjectSummary(
                name=project.name,
                href=f"/projects/{project.slug}",
                role=_role(actor, project.id) or "",
                cost_center=project.cost_centre,
                active=active,
                booked=booked,
                month_cost=Money(cost, tenant.currency),
                month_hours=used // WHOLE,
            )
        )
    return ProjectsPage(tenant.name, tuple(found))


def project_csv(work: Work, actor: Actor, slug: str, month: str) -> tuple[str, str]:
    """(name of the file, text) of a project's month: one line a group of the bill, so that the column adds up to it."""
    project, tenant = _seen(work, actor, slug)
    first = _read_month(month) or date(*month_of(work.product_now(), ZoneInfo(tenant.zone)), 1)
    of = read_month(work, tenant, project, first)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(("booking", "name", "person", "kind", "charge", "cost_center", "unit_hours", "unit_price", "amount",
                     "currency"))  # fmt: skip
    for g in of.groups:
        cells = (f"B-{g.number}", g.name, g.person, g.unit_kind, g.kind, g.cost_centre)
        numbers = (hours_text(g.quantity), str(g.unit_price), str(g.amount), g.currency)
        writer.writerow([*map(_plain, cells), *numbers])
    return f"{project.slug}-{first:%Y-%m}.csv", text.getvalue()


def read_month(work: Work, tenant: TenantSeen, project: ProjectSeen, first: date) -> Month:
    """What was charged to a project in a month of the tenant's billing zone."""
    zone = ZoneInfo(tenant.zone)
    window = month_window(first.year, first.month, zone)
    groups = billing.groups_of(work, [tenant.id], first)
    owner = queries.projects_of_bookings(work, {g.booking_id for g in groups})
    measured = billing.use_by_booking(work, [tenant.id], {tenant.zone: window})
    return Month(
        first,
        window,
        zone,
        tuple(g for g in groups if owner.get(g.booking_id) == project.id),
        tuple(queries.charge_lines(work, project.id, first)),
        {booking: (used, unused) for booking, (used, unused, _) in measured.items()},
        {},
    )


# --- parts ------------------------------------------------------------------------------------------------------------


def _seen(work: Work, actor: Actor, slug: str) -> tuple[ProjectSeen, TenantSeen]:
    project = accounts.project_by_slug(work, slug)
    tenant = accounts.tenant(work, work.tenant_id) if work.tenant_id else None
    if project is None or tenant is None or not actor.sees_project(project.id):
        raise NotFound("project_not_found", f"There is no project called {slug[:80]} that you can see.")
    return project, tenant


def _rows(
    of: Month, used: Sequence[str], by: str, people: dict[str, str], kinds: dict[str, str]
) -> list[tuple[UsageRow, str]]:
    """A row for each member or kind, the dearest first, with its key."""
    quantity: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    bookings_of: dict[str, set[UUID]] = defaultdict(set)
    for line in of.lines:
        key = line.person if by == "member" else line.unit_kind
        bookings_of[key].add(line.booking_id)
        if line.kind == "use":
            quantity[key][line.unit_kind] += line.quantity
    cost: dict[str, Decimal] = defaultdict(Decimal)
    name = {line.unit_kind: kinds.get(line.unit_kind, line.unit_kind) for line in of.lines}
    person_of = {line.booking_id: line.person for line in of.lines}
    kind_of = {line.booking_id: line.unit_kind for line in of.lines}
    for group in of.groups:
        key = person_of.get(group.booking_id, group.person) if by == "member" else kind_of[group.booking_id]
        cost[key] += group.amount
    for booking_id, amount in of.running.items():
        cost[person_of[booking_id] if by == "member" else kind_of[booking_id]] += amount
    rows = []
    for key in sorted(bookings_of, key=lambda k: (-cost[k], k)):
        label = key if by == "member" else name[key]
        detail = people.get(key, "") if by == "member" else ""
        hours = tuple(quantity[key][kind] // WHOLE for kind in used)
        rows.append((UsageRow(label, detail, hours, cost[key], _share(of, bookings_of[key])), key))
    return rows


def _share(of: Month, ids: Iterable[UUID]) -> Fraction | None:
    """Of the time that was measured, the part that was used; None when nothing was measured."""
    used = sum(of.measured[i][0] for i in ids if i in of.measured)
    unused = sum(of.measured[i][1] for i in ids if i in of.measured)
    return Fraction(used, used + unused) if used + unused else None


def _days(window: Window, zone: ZoneInfo) -> tuple[date, ...]:
    return tuple(day for day, _ in split_days(window, zone))


def _daily(
    of: Month, by: str, keys: Sequence[str], days: Sequence[date], kinds: dict[str, str]
) -> tuple[DailySeries, ...]:
    """Unit-hours a day for each row; use that crosses midnight counts on both days."""
    at = {day: i for i, day in enumerate(days)}
    hours = {key: [0.0] * len(days) for key in keys}
    for line in of.lines:
        if line.kind != "use":
            continue
        window = Window(line.start, line.end)
        for day, part in split_days(window, of.zone):
            if day in at:
                share = Fraction(line.quantity * part.seconds, window.seconds * WHOLE * 3600)
                hours[line.person if by == "member" else line.unit_kind][at[day]] += float(share)
    return tuple(DailySeries(key if by == "member" else kinds.get(key, key), hours[key]) for key in keys)


def _with_running(work: Work, of: Month, live: Sequence[Booking], now: datetime) -> Month:
    """The month with what goes on now."""
    found = [r for b in live if b.state in NOW_STATES for r in [_running(work, b, now)] if r is not None]
    return replace(
        of,
        lines=(*of.lines, *(line for line, _ in found)),
        running={line.booking_id: money for line, money in found},
    )


def _running(work: Work, booking: Booking, now: datetime) -> tuple[ChargeLine, Decimal] | None:
    """What of a booking was provided and is not in the ledger yet, with its money; None when that is nothing."""
    of = figures(work, booking, now)
    if of.window is None:
        return None
    quantity, charged = queries.in_ledger(work, booking.id)
    left = of.reserved * WHOLE - quantity
    since = max(of.window.start, booking.metered_until or of.window.start)
    if left <= 0 or since >= of.window.end:
        return None
    line = ChargeLine(booking.id, "use", booking.kind, booking.booked_by, left, since, of.window.end)
    return line, of.charged - (billing.charged(work, [booking.id]).get(booking.id, Decimal(0)) if charged else 0)


def _held(work: Work, booking: Booking, now: datetime) -> HeldBooking:
    """What a live booking still costs if it goes on to its end."""
    return HeldBooking(
        name=booking.name,
        href=booking_href(booking),
        person=booking.booked_by,
        units=booking.units,
        start=booking.starts_at,
        end=booking.ends_at,
        held=figures(work, booking, now).still_to_come,
        active=booking.state in NOW_STATES,
    )


def _idle(work: Work, live: Sequence[Booking], now: datetime) -> tuple[IdleBooking, ...]:
    active = [b for b in live if b.state == "ACTIVE"]
    around = queries.around(work, [b.id for b in active])
    return tuple(
        IdleBooking(
            booking.name,
            booking_href(booking),
            condition,
            f"{booking.booked_by} · {booking.units} {booking.kind_name} on {booking.cluster}",
        )
        for booking in active
        for condition in conditions(around[booking.id], now)
        if condition.type == "idle"
    )


def _notes(idle: Sequence[IdleBooking]) -> tuple[Note, ...]:
    if not idle:
        return ()
    title = f"{words.count(len(idle), 'booking')} of the project {'is' if len(idle) == 1 else 'are'} idle"
    text = "What is released early is charged only until then."
    return (Note("warn", title, text, links=tuple(Link(i.name, i.href) for i in idle[:3]), icon="zzz"),)


def _unused_sentence(of: Month) -> str:
    ids = {line.booking_id for line in of.lines}
    share = _share(of, ids)
    if share is None:
        return ""
    return f"{words.percent(1 - share)} of the measured time of this month was reserved and not used."


def _role(actor: Actor, project_id: UUID) -> str:
    role = actor.project_roles.get(project_id)
    if role:
        return f"you are a {role}"
    for name in ("admin", "finance", "auditor"):
        if name in actor.tenant_roles:
            return f"you are the tenant's {name}"
    return ""


def _read_month(text: str) -> date | None:
    """A month of the address (`2026-11`); None for none, or for what is no month."""
    try:
        month = date.fromisoformat(f"{text}-01") if text else None
        return month if month is not None and 2000 <= month.year < 2200 else None
    except ValueError:
        return None


def _plain(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
