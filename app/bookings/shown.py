"""Fills the views of the Book page: the form with what is free, the quote, a refusal with what would work instead.

On the floor of pages: reads by queries and use cases, writes nothing, and knows no route.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

from app.bookings import actions, offers, rules, waitlist
from app.bookings.capacity import Shape
from app.bookings.form import BookFields, fields_of, offset_text
from app.bookings.offers import Quote
from app.bookings.rules_load import Approval
from app.bookings.schemas import Ask, BookingIn
from app.inventory.facts import Cluster, Pool
from app.kernel import ids
from app.kernel.actor import Actor
from app.kernel.errors import Alternative, Reason, Refused
from app.kernel.money import WHOLE
from app.kernel.window import Window
from app.plumbing.db import Work
from app.pricing.rules import Cost, cost
from app.quotas.rules import QuotaEffect, money_text
from app.web import words
from app.web.views import booking as views
from app.web.views.parts import Meter, Money, PricePart

_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|\+00:00)")
_MOST_NAMES = 12
_NO_BREAK = "\N{NO-BREAK SPACE}"
_SECOND = timedelta(seconds=1)
_WITHIN = {
    "node": "in one node",
    "nvlink": "in one NVLink domain",
    "leaf": "below one leaf switch",
    "rack": "in one rack",
}
_FORM_FIELDS = {"duration": "hours", "end": "hours"}


@dataclass(frozen=True, slots=True)
class Speech:
    """Sentences for programs made readable: kinds by their names, instants in the person's zone."""

    names: Mapping[str, str]
    zone: str
    now: datetime

    def say(self, text: str) -> str:
        """The same sentence for people."""
        text = _ISO.sub(lambda m: words.moment(datetime.fromisoformat(m[0]), self.zone, self.now), text)
        for slug in sorted(self.names, key=len, reverse=True):
            text = text.replace(slug, self.names[slug])
        return text

    def reason(self, reason: Reason) -> views.ReasonView:
        """A reason: its first sentence (up to a colon) is the title, the others and what helps follow."""
        first, _, rest = self.say(reason.message).partition(". ")
        title, colon, detail = first.partition(": ")
        if colon:
            rest = f"{words.first_upper(detail)}{'.' if rest else ''} {rest}".strip()
        helps = " ".join(part for part in (rest, self.say(reason.fix or "")) if part)
        return views.ReasonView(
            reason.code, title.rstrip("."), helps, self.say(reason.asked or ""), self.say(reason.limit or "")
        )


def fresh_key() -> str:
    """An idempotency key for one form that is shown."""
    return f"page-{ids.short(ids.new_id())}"


def shape_view(shape: Shape, kind: str) -> views.Shape:
    """A shape with its kind's name."""
    return views.Shape(shape.total, kind, shape.nodes, shape.per_node)


def shape_words(shape: Shape, kind: str) -> str:
    """`2 nodes × 8 H100-SXM-80GB below one leaf switch`."""
    if shape.nodes is not None:
        text = f"{words.count(shape.nodes, 'node')} × {shape.per_node} {kind}"
    else:
        text = f"{words.number(shape.total)} {kind}"
    return text if shape.within is None else f"{text} {_WITHIN[shape.within]}"


def node_words(nodes: Iterable[tuple[str, int]], whole: int | None) -> tuple[str, ...]:
    """Names of nodes, with how many units where that is not all of them (`whole`); only the first of very many."""
    nodes = tuple(nodes)
    said = [name if units == whole or len(nodes) == 1 else f"{name} ({units})" for name, units in nodes[:_MOST_NAMES]]
    return (*said, f"and {len(nodes) - _MOST_NAMES} more") if len(nodes) > _MOST_NAMES else tuple(said)


# --- quote ------------------------------------------------------------------------------------------------------------


def quote_view(
    quote: Quote, body: BookingIn, speech: Speech, cluster: Cluster, address: str, *, changed: bool
) -> views.QuoteView:
    """The quote as it stands beside the form. `address` is where programs reach the API."""
    offer, ask = quote.offer, quote.ask
    name = speech.names[offer.pool.kind]
    return views.QuoteView(
        start=offer.window.start,
        end=offer.window.end,
        shape=shape_view(ask.shape, name),
        cluster=offer.pool.cluster,
        place=quote.place,
        node_names=node_words(quote.node_names, ask.shape.per_node),
        planned=True,
        enforced=_enforced(cluster),
        parts=price_parts(offer.cost, name),
        total=Money(offer.cost.amount, offer.cost.currency),
        project=quote.project.name,
        meters=tuple(meter_view(effect, quote.project.name, speech) for effect in quote.effects),
        terms=quote.terms,
        digest=quote.digest,
        energy_kwh=quote.energy_kwh,
        needs_approval=approval_words(offer.approval, speech),
        changed=changed,
        curl=_curl(body, address),
    )


def approval_words(needed: Approval | None, speech: Speech) -> str:
    """Who has to approve it, and why; empty when nobody has."""
    if needed is None:
        return ""
    why = " ".join(speech.say(reason.message) for reason in needed.reasons)
    return f"{words.first_upper(needed.who)} has to approve it. {why}"


def price_parts(price: Cost, kind: str) -> tuple[PricePart, ...]:
    """The rounded line groups of a cost."""
    return tuple(
        PricePart(kind, part.quantity // (WHOLE * (part.length // _SECOND)), part.length, part.unit_price, part.amount)
        for part in price.parts
    )


def _enforced(cluster: Cluster) -> str:
    can = (cluster.probe or {}).get("capabilities") or {}
    return {
        "hard": "Hard: the cluster keeps others out",
        "soft": "Soft: the project is kept within its booking, others are asked to keep away",
        "none": "Not at all: the cluster keeps nobody out",
    }.get(can.get("enforcement"), "")


def meter_view(effect: QuotaEffect, project: str, speech: Speech) -> Meter:
    """A limit before and with the booking. Units are whole, hours are unit-seconds, money is in the tenant's currency."""
    whose = {"project": "", "user": "You: ", "tenant": f"{effect.scope.name}: "}[effect.scope.subject]
    label = speech.say(effect.what)
    label = f"{whose}{label if whose else words.first_upper(label)}"
    this = effect.after - effect.before
    used = effect.before if effect.measure == "units" else effect.used
    raw = (used, effect.before - used, this, effect.limit)
    if effect.measure == "money":
        currency = effect.scope.currency or ""
        amounts = (Decimal(money_text(value, currency)) for value in raw)
        return Meter(label, effect.measure, *amounts, currency=currency)
    return Meter(label, effect.measure, *(Fraction(value) / WHOLE for value in raw))


def _curl(body: BookingIn, address: str) -> str:
    request = Ask.of(body.model_copy(update={"quote": None})).to_post()
    request = {name: value for name, value in request.items() if value not in (None, "")}
    text = shlex.quote(json.dumps(request, ensure_ascii=False))
    return (
        f"curl -sS {shlex.quote(address + '/api/v1/bookings')} \\\n"
        '  -H "Authorization: Bearer $BERTH_TOKEN" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f'  -H "Idempotency-Key: {fresh_key()}" \\\n'
        f"  -d {text}"
    )


# --- refusal ----------------------------------------------------------------------------------------------------------


def refused_view(work: Work, actor: Actor, ask: Ask, refused: Refused, speech: Speech) -> views.RefusedView:
    """Every reason, what would work instead with its price now, and what it would have cost."""
    end = ask.start + ask.length if ask.start is not None and ask.length > timedelta(0) else None
    price = _would_cost(work, actor, ask)
    kind = "units of any kind" if ask.kind is None else speech.names.get(ask.kind, ask.kind)
    alternatives = (alternative_view(work, actor, ask, it, speech) for it in refused.refusal.alternatives)
    asked = words.first_upper(shape_words(ask.shape, kind))
    return views.RefusedView(
        asked=asked if end else f"{asked} for {rules.length_text(ask.length)}",
        start=ask.start,
        end=end,
        checked_at=speech.now,
        reasons=tuple(speech.reason(reason) for reason in refused.refusal.reasons),
        may_wait=waitlist.may_wait(refused),
        alternatives=tuple(it for it in alternatives if it is not None),
        parts=() if price is None else price_parts(price, kind),
        total=None if price is None else Money(price.amount, price.currency),
    )


def faults_view(
    faults: Mapping[str, str], fields: BookFields, now: datetime, instead: tuple[views.AlternativeView, ...] = ()
) -> views.RefusedView:
    """Texts that mean nothing yet, as reasons."""
    reasons = tuple(views.ReasonView(f"field_{name}", said.rstrip("."), "") for name, said in faults.items())
    return views.RefusedView(fields.name.strip() or "Not a booking yet", None, None, now, reasons, instead)


def field_errors(refused: Refused, fields: BookFields, speech: Speech) -> dict[str, str]:
    """For each field of the form that a reason lies in, one sentence."""
    errors: dict[str, str] = {}
    for reason in refused.refusal.reasons:
        if reason.field is None or not reason.in_request:
            continue
        name = _FORM_FIELDS.get(reason.field, reason.field)
        if name == "units" and fields.shape == "nodes":
            name = "nodes"
        both = reason.limit and reason.asked
        said = f"Asked {reason.asked}, limit {reason.limit}." if both else reason.message
        errors.setdefault(name, speech.say(said))
    return errors


def alternative_view(
    work: Work, actor: Actor, asked: Ask, it: Alternative, speech: Speech
) -> views.AlternativeView | None:
    """What would work, with when and for how much by a quote of its own; None when that has just gone."""
    ask = Ask.of(BookingIn.model_validate(it.request))
    try:
        quote = actions.quote(work, actor, ask)
    except Refused:
        return None
    offer = quote.offer
    kind = speech.names[offer.pool.kind]
    differs, same = _compared(asked, ask, offer.window, offer.pool, speech)
    return views.AlternativeView(
        title=f"{shape_words(ask.shape, kind)} for {rules.length_text(ask.length).replace(' ', _NO_BREAK)}",
        change=_CHANGES.get(it.kind_of_change, "Otherwise"),
        start=offer.window.start,
        end=offer.window.end,
        price=Money(offer.cost.amount, offer.cost.currency),
        fields=fields_of(it.request, fresh_key()),
        differs=differs,
        same=same,
        needs_approval=offer.approval is not None,
    )


def both_views(
    work: Work, actor: Actor, body: BookingIn, instants: tuple[datetime, ...], speech: Speech
) -> tuple[views.AlternativeView, ...]:
    """The two bookings that a local start which exists twice may mean; those that are possible."""
    found = []
    for instant in instants:
        request = Ask.of(body.model_copy(update={"start": instant})).to_post()
        view = alternative_view(work, actor, Ask.of(body), Alternative("time", request, {}), speech)
        if view is not None:
            change = f"Start at {offset_text(instant, ZoneInfo(speech.zone))}"
            found.append(replace(view, change=change, differs=(), same=("All else as asked",)))
    return tuple(found)


_CHANGES = {
    "time": "Another time",
    "length": "Another length",
    "shape": "Laid out otherwise",
    "kind": "Another kind",
    "cluster": "Another cluster",
    "units_and_kind": "Fewer, of another kind",
    "units_and_time": "Fewer, at another time",
    "units_and_length": "Fewer, and shorter",
    "units": "Fewer units",
}


def _compared(
    asked: Ask, ask: Ask, window: Window, pool: Pool, speech: Speech
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What differs from what was asked, a line each, and what does not, in one."""
    differs, same = [], []
    if ask.kind == asked.kind:
        same.append("kind")
    else:
        was = "any kind" if asked.kind is None else speech.names.get(asked.kind, asked.kind)
        differs.append(f"{speech.names[pool.kind]} on {pool.cluster} instead of {was}")
    if ask.shape == asked.shape:
        same.append("size")
    else:
        closeness = ask.shape.within != asked.shape.within
        differs.append(f"{_size(ask.shape, closeness)} instead of {_size(asked.shape, closeness)}")
    if ask.length == asked.length:
        same.append("length")
    else:
        differs.append(f"{rules.length_text(ask.length)} instead of {rules.length_text(asked.length)}")
    if ask.start == asked.start:
        same.append("start" if asked.start is not None else "as soon as possible")
    elif asked.start is not None:
        shift = window.start - asked.start
        if shift:
            differs.append(f"Starts {words.countdown(abs(shift))} {'later' if shift > timedelta(0) else 'earlier'}")
        else:
            same.append("start")
    else:
        differs.append(f"Starts {words.moment(window.start, speech.zone, speech.now)}")
    if ask.cluster != asked.cluster:
        differs.append(f"On {pool.cluster} instead of {asked.cluster or 'any cluster'}")
    said = f"{words.first_upper(', '.join(same))}: as asked" if same else ""
    return tuple(differs), (said,) if said else ()


def _size(shape: Shape, closeness: bool) -> str:
    text = words.count(shape.total, "unit")
    if shape.nodes is not None:
        text = f"{words.count(shape.nodes, 'node')} × {shape.per_node}"
    return f"{text} {_WITHIN.get(shape.within or '', 'anywhere')}" if closeness else text


def _would_cost(work: Work, actor: Actor, ask: Ask) -> Cost | None:
    """At the prices published now; None where it could not even be priced."""
    if ask.kind is None or ask.length <= timedelta(0) or ask.length > timedelta(days=800):
        return None
    try:
        desk = offers.open_desk(work, actor, ask.project)
    except Refused:
        return None
    start = ask.start or desk.now
    segments = desk.segments(ask.kind, Window(start, start + ask.length))
    share = next((p.share840 for p in desk.pools() if p.kind == ask.kind), WHOLE)
    return None if segments is None else cost(segments, ask.shape.total, desk.project.currency, share)
