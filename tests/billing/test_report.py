"""The report's lines and files, without a database."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

from app.billing.report import report, report_csv, text
from app.billing.rules import Group

TENANT = UUID(int=1)
UNIT_HOUR = 3600 * 840


def group(booking: int, hours: int, *, person: str = "Robin", price: str = "2.00", kind: str = "use") -> Group:
    quantity = hours * UNIT_HOUR
    return Group(
        TENANT, UUID(int=booking), kind, Decimal(price), "4711", "CHF", quantity, quantity * Decimal(price), Decimal(0),
        booking, "Run", 1, "h100", "H100", "plasma", person, datetime(2026, 5, 1, tzinfo=UTC),
        datetime(2026, 5, 2, tzinfo=UTC), 1,
    )  # fmt: skip


def test_a_line_is_one_person_one_project_and_one_kind():
    groups = [
        group(1, 4),
        group(1, 2, price="3.00"),
        group(2, 10),
        group(3, 1, person="Sam"),
        group(2, -1, kind="credit"),
    ]
    lines = report(groups, {UUID(int=1): (5 * UNIT_HOUR, UNIT_HOUR), UUID(int=2): (2 * UNIT_HOUR, 0)})
    found = [(x.person, *(q // UNIT_HOUR for q in (x.reserved, x.used, x.unused, x.unknown)), x.amount) for x in lines]
    assert found == [("Robin", 16, 7, 1, 8, Decimal("32.00")), ("Sam", 1, 0, 0, 1, Decimal("2.00"))]


def test_what_is_measured_never_passes_what_is_reserved():
    (line,) = report([group(1, 4)], {UUID(int=1): (9 * UNIT_HOUR, 9 * UNIT_HOUR)})
    assert (line.used, line.unused, line.unknown) == (4 * UNIT_HOUR, 0, 0)


def test_no_name_becomes_a_formula_and_numbers_stay_numbers():
    harmless = ["plasma", "a=b", "4711", "", "x-1"]
    assert [text(cell) for cell in harmless] == harmless
    for cell in ("=HYPERLINK(1)", "+1", "-1", "@x", "\t=1", "\r=1", " =1", "\n=1"):
        assert text(cell) == f"'{cell}"
    (line,) = report([group(1, -3, kind="credit", person='=a "b", c')], {})
    made = report_csv([line], date(2026, 5, 1), {TENANT: "Bio\nLab"})
    (row,) = csv.DictReader(io.StringIO(made, newline=""))
    assert (row["person"], row["tenant"], row["amount"]) == ('\'=a "b", c', "Bio\nLab", "-6.00")
    assert made.count("\r\n") == 2
