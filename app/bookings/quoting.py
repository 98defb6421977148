"""A quote from an offer: names of nodes, energy, terms, and the digest of what it promises. Reads names, decides nothing."""

from __future__ import annotations

from decimal import Decimal

from app.bookings import rules
from app.bookings.capacity import epoch
from app.bookings.offers import Desk, Offer, Quote
from app.bookings.schemas import Ask
from app.inventory import queries as inventory
from app.inventory.policy import Policy
from app.quotas.rules import QuotaEffect


def make_quote(desk: Desk, ask: Ask, offer: Offer, effects: tuple[QuotaEffect, ...]) -> Quote:
    """An offer in full, with names and digest."""
    by_id = inventory.node_names(desk.work, [p.node_id for p in offer.placement.parts])
    names = tuple((by_id[p.node_id].name, len(p.units)) for p in offer.placement.parts)
    kind = inventory.kinds(desk.work)[offer.pool.kind]
    hours = Decimal(offer.window.seconds) / 3600
    energy = rules.energy_kwh(ask.shape.total, hours, kind.tdp_watts, kind.node_kw, kind.units_per_node)
    terms = terms_of(offer.pool.policy)
    digest = digest_of(ask, offer, terms)
    return Quote(ask, desk.project, offer, effects, names, _where(desk, offer), energy, terms, digest)


def terms_of(policy: Policy) -> tuple[str, ...]:
    """What a quote promises beside its price; part of its digest."""
    prices = "Prices are those published now; they stay for this booking when they change."
    early = "Releasing early charges only the time until then."
    if not policy.cancel_fee_percent:
        return prices, f"Cancelling before the start is free. {early}"
    free, notice = rules.length_text(policy.free_cancel), rules.length_text(policy.cancel_notice)
    fee = f"{policy.cancel_fee_percent} % of the price"
    return prices, (
        f"Cancelling is free within {free} of booking and until {notice} before the start; later it costs {fee}. {early}"
    )


def digest_of(ask: Ask, offer: Offer, terms: tuple[str, ...] = ()) -> str:
    """What a quote promises: kind, length, start unless it is now, price schedule, price and currency."""
    return rules.quote_digest(
        {
            "kind": offer.pool.kind,
            "shape": [ask.shape.units, ask.shape.nodes, ask.shape.per_node, ask.shape.within],
            "length": offer.window.seconds,
            "start": "now" if offer.starts_now else epoch(offer.window.start),
            "prices": [
                [(s.window.start - offer.window.start).total_seconds(), str(s.per_hour)] for s in offer.segments
            ],
            "amount": str(offer.cost.amount),
            "currency": offer.cost.currency,
            "terms": list(terms),
            **({} if offer.approval is None else {"approval": offer.approval.approver}),
        }
    )


def _where(desk: Desk, offer: Offer) -> str:
    """The closest place that all nodes share, in words."""
    capacity = inventory.capacity_of(desk.work, [offer.pool])[offer.pool.id]
    chosen = {p.node_id for p in offer.placement.parts}
    nodes = [n for n in capacity.nodes if n.node_id in chosen]
    shared = []
    for level, word in (("rack", "rack"), ("leaf", "leaf")):
        values = {getattr(n, level) for n in nodes}
        if len(values) == 1 and None not in values:
            shared.append(f"{word} {values.pop()}")
    return ", ".join(shared)
