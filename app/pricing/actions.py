"""What is done to price books: a new version is published. Nothing is ever changed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

import psycopg.errors

from app.accounts.audit import record
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Forbidden, Invalid, Reason
from app.plumbing.db import Work
from app.pricing import queries, rules

_FARTHEST = 10


def publish_version(
    work: Work,
    actor: Actor,
    price_group: str,
    currency: str,
    effective_at: datetime,
    prices: Mapping[str, Decimal],
    note: str = "",
) -> int:
    """Publish prices per unit-hour that count from `effective_at` (now or later) on; returns the version's id.

    Bookings that are confirmed keep the schedule that was published when they were. Finance of the platform only. The
    same prices for the same instant again are the same version.
    Raises Forbidden, Invalid with a reason a field, Conflict when the same was published in this very second.
    """
    if "finance" not in actor.platform_roles:
        raise Forbidden("role", "Prices are published by the platform's finance.")
    names = queries.kind_names(work)
    now = work.product_now()
    reasons = list(rules.wrong_prices(dict(prices), names))
    if effective_at.year >= now.year + _FARTHEST:
        said = "A price counts from within the next ten years on."
        reasons.append(Reason("effective_too_far", said, field="valid_from", in_request=True))
    elif effective_at.microsecond or effective_at.year < 2000 or effective_at < now:
        said = "A price counts from now or a later whole second on: what was published stays as it was."
        reasons.append(Reason("effective_in_past", said, field="valid_from", in_request=True))
    if len(currency) != 3 or not (currency.isascii() and currency.isalpha() and currency.isupper()):
        reasons.append(Reason("currency", "A currency is three capital letters, such as CHF.", field="currency"))
    if not price_group.strip():
        reasons.append(Reason("price_group", "A price book needs the name of its price group.", field="price_group"))
    if reasons:
        raise Invalid("prices", "These prices cannot be published.", tuple(reasons))
    same = next((v for v in queries.versions(work, price_group, currency) if v.effective_at == effective_at), None)
    if same is not None and same.prices == dict(prices):
        return same.id  # sent twice: what counts from then on is that already
    try:
        with work.pg.transaction():
            version = work.pg.execute(
                """INSERT INTO price_versions (price_group, currency, effective_at, published_at, published_by, note)
                   VALUES (%s, %s, %s, %s, %s, %s) RETURNING id""",
                [price_group, currency, effective_at, now, actor.label, note],
            ).fetchone()[0]
    except psycopg.errors.UniqueViolation:
        raise Conflict("published_already", "A version for that instant was published this very second.") from None
    kinds = sorted(prices)
    work.pg.execute(
        "INSERT INTO prices (version_id, kind, per_hour) SELECT %s, * FROM unnest(%s::text[], %s::numeric[])",
        [version, kinds, [prices[k] for k in kinds]],
    )
    record(
        work,
        actor,
        "publish prices",
        f"price book {price_group} {currency}",
        None,
        {"version": version, "effective_at": effective_at, "prices": {k: prices[k] for k in kinds}, "note": note},
        platform=True,
    )
    return version
