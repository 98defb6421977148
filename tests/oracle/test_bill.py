"""The independent bill: it shares no code with the product, has the cases' amounts, and finds a wrong statement."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.billing.rules import Priced, so_far, use_charges
from app.kernel.window import Window
from app.pricing.rules import Price, schedule
from app.usage.rules import Interval, interval_id, reserved

PROGRAM = Path(__file__).with_name("bill.py")
spec = importlib.util.spec_from_file_location("independent_bill", PROGRAM)
oracle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(oracle)

FLAT = [{"effective_at": "2026-01-01T00:00:00Z", "published_at": "2026-01-01T00:00:00Z", "prices": {"h100": "2.00"}}]


def booking(start: str, end: str, **words) -> dict:
    return {"id": "bk_1", "kind": "h100", "units": 1, "booked_at": "2026-01-02T00:00:00Z", "start": start, "end": end,
            "provided_at": start} | words  # fmt: skip


def of(bookings: list[dict], versions: list[dict] | None = None, zone: str = "UTC", currency: str = "CHF") -> dict:
    return oracle.bill(versions or FLAT, bookings, ZoneInfo(zone), currency)


def priced(price: str) -> list[dict]:
    return [FLAT[0] | {"prices": {"h100": price}}]


def test_it_imports_the_standard_library_alone():
    tree = ast.parse(PROGRAM.read_text())
    names = {n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("words", "price", "zone", "months"),
    [
        (("2026-01-30T12:00:00Z", "2026-02-02T06:00:00Z", {"units": 4}), "2.35", "UTC", ["338.40", "282.00"]),
        (("2026-01-31T22:20:00Z", "2026-02-01T01:40:00Z", {}), "0.05", "UTC", ["0.08", "0.09"]),
        (("2026-03-28T22:00:00+01:00", "2026-03-29T06:00:00+02:00", {}), "2.00", "Europe/Berlin", ["14.00"]),
        (("2026-10-24T22:00:00+02:00", "2026-10-25T06:00:00+01:00", {}), "2.00", "Europe/Berlin", ["18.00"]),
        (("2026-02-01T04:00:00Z", "2026-02-01T06:00:00Z", {}), "2.00", "America/New_York", ["2.00", "2.00"]),
        (("2026-05-01T00:00:00Z", "2026-05-01T05:00:00Z", {"share840": 360}), "2.80", "UTC", ["6.00"]),
        (
            ("2026-05-01T00:00:00Z", "2026-05-01T09:00:00Z", {"released_at": "2026-05-01T01:00:00Z"}),
            "2",
            "UTC",
            ["2.00"],
        ),
    ],
)
def test_the_amounts_of_the_cases(words, price, zone, months):
    start, end, more = words
    found = of([booking(start, end, **more)], priced(price), zone)
    assert [m["net"] for m in found["statements"].values()] == months


def test_prices_published_after_confirmation_do_not_count():
    later = {"effective_at": "2026-05-01T13:30:00Z", "prices": {"h100": "2.50"}}
    day = booking("2026-05-01T10:00:00Z", "2026-05-01T16:00:00Z", units=8)
    known = of([day], [*FLAT, later | {"published_at": "2026-01-01T12:00:00Z"}])
    unknown = of([day], [*FLAT, later | {"published_at": "2026-01-02T00:00:01Z"}])
    assert (known["charges"], unknown["charges"]) == ({"bk_1": "106.00"}, {"bk_1": "96.00"})
    assert known["statements"]["2026-05"]["lines"] == 2
    extended = day | {"extensions": [{"at": "2026-01-03T00:00:00Z", "from": "2026-05-01T14:30:00Z"}]}
    found = of([extended], [*FLAT, later | {"published_at": "2026-01-02T00:00:01Z"}])
    assert found["charges"] == {"bk_1": "102.00"}  # 4.5 h at 2.00, 1.5 h at 2.50


def test_what_was_never_provided_is_not_charged():
    found = of([booking("2026-05-01T10:00:00Z", "2026-05-01T16:00:00Z", provided_at=None)])
    assert found == {"charges": {}, "statements": {}}


def test_overlapping_outages_of_a_unit_are_credited_once():
    outages = [
        {"gpu": 0, "since": "2026-05-01T01:00:00Z", "until": "2026-05-01T03:00:00Z"},
        {"gpu": 0, "since": "2026-05-01T02:00:00Z", "until": "2026-05-01T04:00:00Z"},
    ]
    found = of([booking("2026-05-01T00:00:00Z", "2026-05-01T10:00:00Z", outages=outages)])
    assert found["statements"]["2026-05"] == {"net": "20.00", "credits": "-6.00", "total": "14.00", "lines": 2}


def test_minor_units_of_other_currencies():
    day = booking("2026-05-01T00:00:00Z", "2026-05-01T12:30:00Z")
    assert of([day], priced("137.3"), currency="JPY")["charges"] == {"bk_1": "1716"}
    assert of([day], priced("0.4567"), currency="KWD")["charges"] == {"bk_1": "5.709"}


def test_as_a_program_it_prints_the_bill_and_tells_every_difference(tmp_path):
    day = booking("2026-05-01T00:00:00Z", "2026-05-01T10:00:00Z", charged={"currency": "CHF", "amount": "20.00"})
    lines = [{"amount": "20.00"}]
    said = {"tenant": "T", "period": "2026-05", "lines": lines, "net": "20.00", "credits": "0.00", "total": "20.00"}

    def run(statement: dict) -> subprocess.CompletedProcess:
        for name, what in (("prices", {"items": FLAT}), ("bookings", [day]), ("statements", {"items": [statement]})):
            (tmp_path / f"{name}.json").write_text(json.dumps(what))
        files = [
            word for name in ("prices", "bookings", "statements") for word in (f"--{name}", tmp_path / f"{name}.json")
        ]
        return subprocess.run(
            [sys.executable, PROGRAM, *files], capture_output=True, text=True, timeout=60, check=False
        )

    right = run(said)
    assert (right.returncode, json.loads(right.stdout)["charges"]) == (0, {"bk_1": "20.00"})
    wrong = run(said | {"net": "20.01", "total": "20.01"})
    assert wrong.returncode == 1
    assert "2026-05: net is 20.01, should be 20.00" in wrong.stderr
    assert "lines do not add up" in wrong.stderr


PRICE = st.decimals(0, 20, places=6, allow_nan=False, allow_infinity=False)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(PRICE, st.integers(-86400, 90 * 86400), st.integers(-86400, 86400)), max_size=4),
    PRICE, st.integers(0, 60 * 86400), st.integers(1, 40 * 86400), st.integers(1, 64), st.integers(0, 86400),
    st.sampled_from(["UTC", "Europe/Zurich", "America/New_York", "Asia/Kolkata"]),
)  # fmt: skip
def test_it_agrees_with_the_product_on_any_prices_and_window(changes, first, offset, seconds, units, booked, zone):
    def second(n: int) -> datetime:
        return EPOCH + timedelta(seconds=n)

    published = [(first, -(10**8), -(10**8)), *changes]
    prices = [Price(n, "h100", p, second(e), second(pub)) for n, (p, e, pub) in enumerate(published)]
    versions = [
        {"version": n, "effective_at": second(e).isoformat(), "published_at": second(pub).isoformat(),
         "prices": {"h100": str(p)}}
        for n, (p, e, pub) in enumerate(published)
    ]  # fmt: skip
    window = Window(second(offset), second(offset + seconds))
    segments = [Priced(s.window, s.price_id, s.per_hour) for s in schedule(prices, "h100", window, second(booked))]
    text = booking(window.start.isoformat(), window.end.isoformat(), units=units, booked_at=second(booked).isoformat())
    found = of([text], versions, zone)
    assert Decimal(found["charges"]["bk_1"]) == so_far(segments, window, units, 840, "CHF")
    tz, months = ZoneInfo(zone), set()
    for piece in reserved(window, tz, [s.window.start for s in segments]):
        interval = Interval(interval_id(UUID(int=1), "u", piece), UUID(int=1), "u", piece, units * 840 * piece.seconds)
        months |= {f"{c.month:%Y-%m}" for c in use_charges(UUID(int=1), [interval], segments, tz)}
    assert set(found["statements"]) == months
