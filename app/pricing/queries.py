"""Reads of price books. `price_list` stands in the way of every booking: one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from app.kernel.money import WHOLE
from app.plumbing.db import Work
from app.pricing.rules import Price

PRICE_LIST = """
SELECT p.id, p.kind, p.per_hour, v.effective_at, v.published_at
  FROM price_versions v JOIN prices p ON p.version_id = v.id
 WHERE v.price_group = %s AND v.currency = %s AND v.published_at <= %s AND p.kind = ANY(%s)"""

TENANT_PRICES = """
SELECT p.id, p.kind, p.per_hour, v.effective_at, v.published_at
  FROM tenants t JOIN price_versions v ON v.price_group = t.price_group AND v.currency = t.currency
  JOIN prices p ON p.version_id = v.id
 WHERE t.tenant_id = berth_tenant() AND (%s::text IS NULL OR p.kind = %s)"""
"""The same for the tenant acted for, of one kind or of all: for a caller who does not know its price group yet."""


@dataclass(frozen=True, slots=True)
class Version:
    """A published version: `prices` maps the slug of a kind to money per unit-hour."""

    id: int
    price_group: str
    currency: str
    effective_at: datetime
    published_at: datetime
    published_by: str
    note: str
    prices: dict[str, Decimal]


def price_list(work: Work, price_group: str, currency: str, kinds: Sequence[str], at: datetime) -> tuple[Price, ...]:
    """Every price of these kinds that was published at `at`, past and coming: what `rules.schedule` chooses from."""
    return tuple(Price(*row) for row in work.pg.execute(PRICE_LIST, [price_group, currency, at, list(kinds)]))


def price_books(work: Work) -> tuple[tuple[str, str], ...]:
    """(price group, currency) of every book that has a version, in order of name."""
    rows = work.pg.execute("SELECT DISTINCT price_group, currency FROM price_versions ORDER BY 1, 2")
    return tuple(rows.fetchall())


def books_in_use(work: Work) -> tuple[tuple[str, str], ...]:
    """(price group, currency) that tenants pay by, what most of them have first.

    Reads across tenants: call it inside `Work.read_all`.
    """
    rows = work.pg.execute("SELECT price_group, currency FROM tenants GROUP BY 1, 2 ORDER BY count(*) DESC, 1, 2")
    return tuple(rows.fetchall())


def versions(work: Work, price_group: str, currency: str) -> tuple[Version, ...]:
    """All versions of a book, the one that counts latest first."""
    rows = work.pg.execute(
        """SELECT v.id, v.effective_at, v.published_at, v.published_by, v.note,
                  array_agg(p.kind ORDER BY p.kind), array_agg(p.per_hour ORDER BY p.kind)
             FROM price_versions v JOIN prices p ON p.version_id = v.id
            WHERE v.price_group = %s AND v.currency = %s
            GROUP BY v.id ORDER BY v.effective_at DESC, v.published_at DESC, v.id DESC""",
        [price_group, currency],
    )
    return tuple(
        Version(i, price_group, currency, effective, published, by, note, dict(zip(kinds, prices, strict=True)))
        for i, effective, published, by, note, kinds, prices in rows
    )


def form_names(work: Work) -> dict[str, str]:
    """The same as `kind_names`, saying of slices what their price is of: a whole GPU-hour, of which each pays its share."""
    rows = work.pg.execute("SELECT slug, (facts->>'share840')::int FROM kinds WHERE facts->>'slice_of' IS NOT NULL")
    shares = {slug: str(Fraction(share, WHOLE)) for slug, share in rows}
    names = kind_names(work)
    return {
        slug: f"{name} (by the GPU; one pays {shares[slug]})" if slug in shares else name
        for slug, name in names.items()
    }


def kind_names(work: Work) -> dict[str, str]:
    """The catalogue's kinds that can be priced: slug to name, in order of name."""
    return dict(work.pg.execute("SELECT slug, name FROM kinds ORDER BY name, slug").fetchall())
