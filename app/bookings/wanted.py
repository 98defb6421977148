"""Which kinds serve a request, and between which instants it may lie. Pure; knows no pool, price or person."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from app.bookings.rules import iso, length_text
from app.bookings.schemas import Ask
from app.inventory.facts import Kind
from app.inventory.policy import Policy
from app.kernel.errors import Reason

_SPEED = "bf16_tflops"


def kinds_for(ask: Ask, offered: Mapping[str, Kind]) -> frozenset[str]:
    """The slugs among those offered that serve the request: the one named, one as good as it where that will do, or
    any that has what is asked."""
    named = None if ask.kind is None else offered.get(ask.kind)
    if ask.kind is not None and not ask.or_better:
        return frozenset({ask.kind} & offered.keys())
    return frozenset(slug for slug, kind in offered.items() if _serves(ask, kind, named))


def _serves(ask: Ask, kind: Kind, named: Kind | None) -> bool:
    if ask.kind is not None:
        return named is not None and (kind.slug == named.slug or as_good(kind, named))
    if ask.kinds and kind.slug not in ask.kinds:
        return False
    return ask.memory_gb is None or (kind.memory_gb is not None and kind.memory_gb >= ask.memory_gb)


def as_good(kind: Kind, named: Kind) -> bool:
    """At least the memory and the speed (dense BF16) of the other, as far as the catalogue knows them; what is not
    known is never promised."""
    if kind.memory_gb is None or named.memory_gb is None or kind.memory_gb < named.memory_gb:
        return False
    mine, theirs = kind.facts.get(_SPEED), named.facts.get(_SPEED)
    return theirs is None or (mine is not None and mine >= theirs)


def check_between(ask: Ask, policy: Policy, now: datetime) -> list[Reason]:
    """What is wrong with `earliest` and `latest` in themselves."""
    if ask.latest is None:
        return []
    first = bounds(ask, policy, now)[0]
    if ask.latest <= now:
        return [
            Reason("start_in_past", f"The latest end lies in the past: it is {iso(now)} now.",
                   iso(now), iso(ask.latest), "Choose a later one.", "latest", True)
        ]  # fmt: skip
    if first + ask.length > ask.latest:
        room = max(ask.latest - first, timedelta(0))
        return [
            Reason("window_too_short", "The booking is longer than the time between the earliest start and the latest end.",
                   length_text(room), length_text(ask.length),
                   "Ask for less time, or for more time in which to find it.", "latest", True)
        ]  # fmt: skip
    return []


def bounds(ask: Ask, policy: Policy, now: datetime) -> tuple[datetime, datetime]:
    """The first start and the last end of a request for as soon as possible."""
    first, last = now + policy.lead, now + policy.horizon
    if ask.earliest is not None:
        first = max(first, ask.earliest)
    if ask.latest is not None:
        last = min(last, ask.latest)
    return first, last
