"""At the end of a history: the independent bill, fed from rows and the history alone, says of each booking what it was
charged, and statements add up.

Left out are bookings whose prices were promised at another time than the rows of the history say (moved, from the waiting
list, approved extensions), and those with fewer units than at first, which the bill does not know; their reserved time is
compared like everybody's (`promises.py`).
"""

from __future__ import annotations

import importlib.util
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from app.accounts.queries import tenant as tenant_seen
from app.billing import queries
from tests.model.company import Company
from tests.model.promises import Account
from tests.model.vocabulary import Broken

spec = importlib.util.spec_from_file_location("independent_bill", Path(__file__).parents[1] / "oracle" / "bill.py")
assert spec is not None
assert spec.loader is not None
oracle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(oracle)


def bills_agree(company: Company, accounts: dict[Any, Account]) -> int:
    """How many bookings were compared; raises Broken."""
    compared = 0
    for tenant, id in company.world.tenants.items():
        bookings = _bookings(company, id, accounts)
        with company.world.work(tenant) as work:
            charged = queries.charged(work, [b["uuid"] for b in bookings])
            seen = tenant_seen(work, id)
            months = [
                m for (m,) in company.rows("SELECT DISTINCT month FROM charges WHERE tenant_id = %s ORDER BY 1", id)
            ]
            statements = {m: queries.statement_of(work, seen, m) for m in months}
        found = oracle.bill(_versions(company), bookings, ZoneInfo(seen.zone), seen.currency)["charges"]
        for b in bookings:
            mine, theirs = Decimal(found.get(b["id"], "0")), charged.get(b["uuid"], Decimal(0))
            if mine != theirs:
                raise Broken(f"promise 8: B-{b['number']} was charged {theirs}, the independent bill says {mine}: {b}")
        compared += len(bookings)
        for month, one in statements.items():
            _adds_up(company, id, month, one, statements)
    return compared


def _adds_up(company: Company, tenant: Any, month: date, one: Any, statements: dict[date, Any]) -> None:
    """Lines = statement = ledger: each group of a booking is rounded over all its months so far, once."""
    rows = company.rows(
        """SELECT booking_id, kind, unit_price, cost_centre, sum(quantity)::bigint, sum(quantity) FILTER (WHERE month < %s)::bigint
             FROM charges WHERE tenant_id = %s AND month <= %s GROUP BY 1, 2, 3, 4""",
        month, tenant, month,
    )  # fmt: skip
    ledger = sum((_line(q, p) - _line(before or 0, p) for _, _, p, _, q, before in rows), Decimal(0))
    if one.net + one.credits != ledger:
        raise Broken(f"promise 8: the statement of {month} says {one.net + one.credits}, the ledger {ledger}")


def _line(quantity: int, price: Decimal) -> Decimal:
    money = Fraction(quantity) * Fraction(price) / (3600 * 840)
    whole = int(abs(money) * 100 + Fraction(1, 2))
    return Decimal(whole if money >= 0 else -whole) / 100


def _versions(company: Company) -> list[dict[str, Any]]:
    rows = company.rows(
        """SELECT v.id, v.effective_at, v.published_at, jsonb_object_agg(p.kind, p.per_hour::text) FROM price_versions v
             JOIN prices p ON p.version_id = v.id GROUP BY v.id ORDER BY v.id"""
    )
    return [
        {"version": n, "effective_at": e.isoformat(), "published_at": p.isoformat(), "prices": prices}
        for n, e, p, prices in rows
    ]


def _bookings(company: Company, tenant: Any, accounts: dict[Any, Account]) -> list[dict[str, Any]]:
    rows = company.rows(
        """SELECT b.id, b.number, b.kind, b.units, b.starts_at, b.ends_at, b.provided_at, b.released_at, b.cost_centre,
                  (SELECT array_agg(h.event ORDER BY h.seq) FROM history h WHERE h.booking_id = b.id),
                  (SELECT min(h.at) FROM history h WHERE h.booking_id = b.id AND h.event IN ('book', 'ask')),
                  (SELECT jsonb_agg(jsonb_build_object('at', h.at, 'from', h.changes->'end'->>0) ORDER BY h.seq)
                     FROM history h WHERE h.booking_id = b.id AND h.event = 'extend'),
                  (SELECT jsonb_agg(jsonb_build_object('gpu', g, 'since', o.since, 'until', o.until)) FROM outages o,
                          unnest(o.units) r, generate_series(lower(r) / 64, (upper(r) - 1) / 64) g WHERE o.booking_id = b.id),
                  EXISTS (SELECT FROM requests r WHERE r.booking_id = b.id AND r.verb = 'extend')
             FROM bookings b WHERE b.tenant_id = %s AND b.state = 'ENDED' ORDER BY b.number""",
        tenant,
    )
    found = []
    for id, number, kind, units, start, end, provided, released, centre, events, at, extensions, outages, asked in rows:
        account = accounts.get(id)
        if account is None or account.moved or account.shrunk or asked or {"wait", "fee"} & set(events or ()):
            continue
        found.append(
            {"uuid": id, "id": str(id), "number": number, "kind": kind, "units": units, "booked_at": at.isoformat(),
             "start": start.isoformat(), "end": end.isoformat(), "provided_at": provided and provided.isoformat(),
             "released_at": released and released.isoformat(), "cost_center": centre, "outages": outages or [],
             "extensions": extensions or []}
        )  # fmt: skip
    return found
