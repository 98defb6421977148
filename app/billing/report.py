"""The month's report by project, person and kind, and files of it. Pure; knows no database."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from uuid import UUID

from app.billing.rules import Group, Statement, what
from app.pricing.rules import hours_in_json


@dataclass(frozen=True, slots=True)
class ReportLine:
    """What one person reserved of one kind for one project in a month. Quantities as in kernel.money; the parts of
    `reserved` that were used, unused, and not measured add up to it. `amount` is the sum of rounded line groups."""

    tenant_id: UUID
    project: str
    person: str
    unit_kind: str
    unit_kind_name: str
    currency: str
    reserved: int
    used: int
    unused: int
    amount: Decimal

    @property
    def unknown(self) -> int:
        """Reserved and not measured."""
        return self.reserved - self.used - self.unused


def report(groups: Iterable[Group], measured: Mapping[UUID, tuple[int, int]]) -> tuple[ReportLine, ...]:
    """The report from line groups and (used, unused) of each booking, in order of tenant, project, person, kind."""
    reserved: dict[UUID, int] = {}
    lines: dict[tuple, list] = {}
    key_of: dict[UUID, tuple] = {}
    for group in groups:
        key = (group.tenant_id, group.project, group.person, group.unit_kind, group.unit_kind_name, group.currency)
        line = lines.setdefault(key, [0, 0, 0, Decimal(0)])
        line[3] += group.amount
        if group.kind == "use":
            line[0] += group.quantity
            reserved[group.booking_id] = reserved.get(group.booking_id, 0) + group.quantity
            key_of[group.booking_id] = key
    for booking_id, key in key_of.items():
        used, unused = measured.get(booking_id, (0, 0))
        used = min(used, reserved[booking_id])
        lines[key][1] += used
        lines[key][2] += min(unused, reserved[booking_id] - used)
    ordered = sorted(lines.items(), key=lambda item: (str(item[0][0]), *item[0][1:]))
    return tuple(ReportLine(*key, *values) for key, values in ordered)


def report_csv(lines: Iterable[ReportLine], month: date, tenants: Mapping[UUID, str]) -> str:
    """The report as RFC 4180 CSV: unit-hours with up to six decimals, amounts with the currency's minor unit."""
    head = ("month", "tenant", "project", "person", "kind", "reserved_unit_hours", "used_unit_hours",
            "unused_unit_hours", "unknown_unit_hours", "currency", "amount")  # fmt: skip
    return to_csv(
        head,
        (
            (
                f"{month:%Y-%m}",
                text(tenants[line.tenant_id]),
                text(line.project),
                text(line.person),
                text(line.unit_kind),
                *(hours_in_json(q) for q in (line.reserved, line.used, line.unused, line.unknown)),
                line.currency,
                str(line.amount),
            )
            for line in lines
        ),
    )


def statement_csv(statement: Statement) -> str:
    """A statement's lines as RFC 4180 CSV; they add up to its net and credits."""
    head = ("period", "tenant", "booking", "what", "charge", "kind", "project", "cost_center", "unit_hours",
            "unit_price", "currency", "amount")  # fmt: skip
    return to_csv(
        head,
        (
            (
                f"{statement.period:%Y-%m}",
                text(statement.tenant),
                f"B-{g.number}",
                text(what(g)),
                g.kind,
                text(g.unit_kind),
                text(g.project),
                text(g.cost_centre),
                hours_in_json(g.quantity),
                str(g.unit_price),
                g.currency,
                str(g.amount),
            )
            for g in statement.groups
        ),
    )


def text(cell: str) -> str:
    """Somebody's text as a cell that no spreadsheet takes for a formula. Numbers of our own do not go through this."""
    return f"'{cell}" if cell[:1] in ("\t", "\r", "\n") or cell.lstrip()[:1] in ("=", "+", "-", "@") else cell


def to_csv(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """RFC 4180: lines end in CR LF, quotes are doubled."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()
