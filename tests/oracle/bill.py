"""An independent bill: what bookings cost, worked out from the trace of what happened and nothing of the product.

    python tests/oracle/bill.py --prices prices.json --bookings bookings.json --zone Europe/Zurich --currency CHF

It imports the standard library alone; every amount is a fraction until a line is rounded, and time is counted second by
second where prices or months change. It prints JSON:

    {"charges": {booking: "12.30"}, "statements": {"2026-11": {"net": "…", "credits": "…", "total": "…", "lines": 7}}}

prices.json: `{"items": [version…]}` or a list of versions, as GET /api/v1/prices answers:
    {"effective_at": "2026-11-01T00:00:00Z", "published_at": "…", "prices": {"h100": "2.40"}}
bookings.json: `{"items": [booking…]}` or a list of bookings, as GET /api/v1/bookings/{id} answers:
    {"id", "kind", "units", "booked_at", "start", "end", "provided_at", "released_at", "cost_center", "share840",
     "outages": [{"gpu", "since", "until"}]}
    `provided_at` null: never provided, nothing is charged. `booked_at` is the instant of confirmation. `share840`,
    `released_at`, `cost_center` and `outages` may be left out. `extensions`: [{"at", "from"}] in order, `from` the
    end that was passed; each added stretch has the prices published when it was added.
With `--statements FILE` (GET /api/v1/statements) it also compares, says every difference on standard error and ends
with 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

MINOR = {"JPY": 0, "KRW": 0, "KWD": 3, "BHD": 3, "TND": 3}


def instant(text: str | None) -> int | None:
    """Seconds since 1970 of an ISO time with offset."""
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise SystemExit(f"{text} has no offset")
    return int(at.timestamp())


def items(document: object) -> list[dict]:
    """The list in a document, with or without its envelope."""
    return document["items"] if isinstance(document, dict) else document


def price_at(versions: list[dict], kind: str, second: int, known_at: int) -> Fraction:
    """The price of a second: of what was published by then, the latest to have become effective."""
    best = None
    for order, version in enumerate(versions):
        if kind not in version["prices"]:
            continue
        effective, published = instant(version["effective_at"]), instant(version["published_at"])
        if published <= known_at and effective <= second:
            key = (effective, published, version.get("version", order))
            if best is None or key > best[0]:
                best = (key, version["prices"][kind])
    if best is None:
        raise SystemExit(f"no price of {kind} at {datetime.fromtimestamp(second, UTC)}")
    return Fraction(best[1])


def month_of(second: int, zone: ZoneInfo) -> str:
    """The calendar month of a second in the billing zone."""
    return datetime.fromtimestamp(second, zone).strftime("%Y-%m")


def next_month(second: int, zone: ZoneInfo) -> int:
    """The first second of the next calendar month in the billing zone."""
    local = datetime.fromtimestamp(second, zone)
    year, month = (local.year + 1, 1) if local.month == 12 else (local.year, local.month + 1)
    return int(datetime(year, month, 1, tzinfo=zone).timestamp())


def stretches(versions: list[dict], booking: dict, zone: ZoneInfo):
    """(from, until, month, price) of the charged time: cut where the price, the month, or what was promised changes."""
    provided = instant(booking.get("provided_at"))
    if provided is None:
        return
    end = min(e for e in (instant(booking["end"]), instant(booking.get("released_at"))) if e is not None)
    promises = [(instant(booking["booked_at"]), None)]
    for extension in booking.get("extensions") or ():
        promises[-1] = (promises[-1][0], instant(extension["from"]))
        promises.append((instant(extension["at"]), None))
    begin = instant(booking["start"])
    edges = {instant(v["effective_at"]) for v in versions}
    for known_at, until in promises:
        stop = min(end, until) if until is not None else end
        at = max(provided, begin)
        while at < stop:
            cut = min([stop, next_month(at, zone), *(e for e in edges if e > at)])
            yield at, cut, month_of(at, zone), price_at(versions, booking["kind"], at, known_at)
            at = cut
        begin = until if until is not None else begin


def lost_seconds(booking: dict, start: int, end: int) -> int:
    """Unit-seconds in a stretch in which units were not there; overlapping outages of a unit count once."""
    by_unit: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for outage in booking.get("outages") or ():
        until = end if outage["until"] is None else min(instant(outage["until"]), end)
        since = max(instant(outage["since"]), start)
        if since < until:
            by_unit[outage["gpu"]].append((since, until))
    seconds = 0
    for windows in by_unit.values():
        reached = start
        for since, until in sorted(windows):
            seconds += max(0, until - max(since, reached))
            reached = max(reached, until)
    return seconds


def rounded(money: Fraction, minor: int) -> Fraction:
    """Half away from zero to the minor unit."""
    scaled = abs(money) * 10**minor
    whole = int(scaled) + (1 if scaled - int(scaled) >= Fraction(1, 2) else 0)
    return Fraction(whole if money >= 0 else -whole, 10**minor)


def written(money: Fraction, minor: int) -> str:
    """An amount that is whole minor units, as text."""
    whole = abs(money) * 10**minor
    assert whole.denominator == 1, money
    digits = str(whole.numerator).rjust(minor + 1, "0")
    text = f"{digits[:-minor]}.{digits[-minor:]}" if minor else digits
    return f"-{text}" if money < 0 else text


def bill(versions: list[dict], bookings: list[dict], zone: ZoneInfo, currency: str) -> dict:
    """Charges of each booking and totals of each month."""
    minor = MINOR.get(currency, 2)
    charges: dict[str, str] = {}
    months: dict[str, dict] = {}
    for booking in bookings:
        groups: dict[tuple, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
        share = Fraction(booking.get("share840", 840), 840)
        for start, end, month, price in stretches(versions, booking, zone):
            hours = share * booking["units"] * (end - start) / 3600
            groups["use", price, booking.get("cost_center")][month] += hours * price
            lost = lost_seconds(booking, start, end)
            if lost:
                groups["credit", price, booking.get("cost_center")][month] -= share * lost / 3600 * price
        total = Fraction(0)
        for (what, _, _), by_month in groups.items():
            exact = said = Fraction(0)
            for month in sorted(by_month):
                exact += by_month[month]
                now = rounded(exact, minor)
                entry = months.setdefault(month, {"net": Fraction(0), "credits": Fraction(0), "lines": 0})
                entry["net" if what == "use" else "credits"] += now - said
                entry["lines"] += 1
                said = now
            total += said
        if groups:
            charges[booking["id"]] = written(total, minor)
    return {
        "charges": charges,
        "statements": {
            month: {
                "net": written(entry["net"], minor),
                "credits": written(entry["credits"], minor),
                "total": written(entry["net"] + entry["credits"], minor),
                "lines": entry["lines"],
            }
            for month, entry in sorted(months.items())
        },
    }


def differences(found: dict, bookings: list[dict], statements: list[dict]) -> list[str]:
    """What the API says otherwise: of each booking's charge, and of each month."""
    said = []
    for booking in bookings:
        charged = (booking.get("charged") or {}).get("amount")
        mine = found["charges"].get(booking["id"])
        if charged is not None and Fraction(charged) != Fraction(mine or 0):
            said.append(f"{booking['id']}: charged {charged}, should be {mine or 0}")
    by_month: dict[str, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for statement in statements:
        for key in ("net", "credits", "total"):
            by_month[statement["period"]][key] += Fraction(statement[key])
        by_month[statement["period"]]["lines"] += len(statement["lines"])
        if sum(Fraction(x["amount"]) for x in statement["lines"]) != Fraction(statement["total"]):
            said.append(f"{statement['tenant']}, {statement['period']}: lines do not add up to {statement['total']}")
    for month in sorted({*found["statements"], *by_month}):
        mine = found["statements"].get(month, {})
        for key in ("net", "credits", "total", "lines"):
            if Fraction(mine.get(key, 0)) != by_month[month][key]:
                said.append(f"{month}: {key} is {float(by_month[month][key])}, should be {mine.get(key, 0)}")
    return said


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("--prices", "--bookings"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--statements", type=Path)
    parser.add_argument("--zone", default="UTC")
    parser.add_argument("--currency", default="CHF")
    words = parser.parse_args(arguments)
    versions, bookings = (items(json.loads(p.read_text())) for p in (words.prices, words.bookings))
    found = bill(versions, bookings, ZoneInfo(words.zone), words.currency)
    print(json.dumps(found, indent=1))
    if words.statements is None:
        return 0
    wrong = differences(found, bookings, items(json.loads(words.statements.read_text())))
    print("\n".join(wrong) or "no difference", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
