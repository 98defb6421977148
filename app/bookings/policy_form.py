"""Rules as people write them: groups of fields with labels, lengths as `7 days` or `1 h 30 min`. Pure.

An empty field says nothing: of a pool that is the default, for a tenant or project what counts without it. `none` takes a
limit away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from app.bookings.rules import length_text
from app.inventory.policy import CHOICES, COUNTS, LENGTHS, OF_THE_POOL, SWITCHES, Policy, said_as

GROUPS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("When", (
        ("min_length", "Shortest booking"), ("max_length", "Longest booking"), ("grid", "Starts and lengths in steps of"),
        ("lead", "Booked at least … ahead"), ("horizon", "Ends at most … from now"),
        ("min_gap", "Least time left between bookings"), ("gap", "Cleaning after each booking"),
    )),
    ("Who", (("who", "Open to"), ("open", "May book"))),
    ("How much", (
        ("max_units_user", "Units at once of a person"), ("max_units_project", "Units at once of a project"),
        ("ahead_hours_user", "GPU-hours ahead of a person"), ("ahead_hours_tenant", "GPU-hours ahead of a tenant"),
        ("ahead_free", "Not counted as ahead: the next"),
    )),
    ("Approval", (
        ("approval_hours", "Above GPU-hours"), ("approval_money", "Above an amount of money"), ("approver", "By"),
        ("approval_for", "A request stands for"), ("requests_hold", "Requests hold units"),
    )),
    ("Extending and waiting", (
        ("extend_within", "Only in the last"), ("max_extension", "All extensions together"),
        ("offer_for", "An offer is held for"), ("skips", "Offers to others before one is kept"),
    )),
    ("Start and use", (
        ("made_ahead", "Reserved ahead of the start"), ("late_after", "Late after"), ("give_up", "Given up after"),
        ("no_show_warn", "Unused: warned after"), ("no_show", "Unused: released after"), ("no_show_fee", "Fee for that"),
        ("idle_warn", "Idle: warned after"), ("idle_release", "Idle: released after"),
    )),
    ("End", (
        ("end_warn", "First notice"), ("end_warn_last", "Last notice"), ("reclaim_lead", "Processes asked to end"),
        ("grace", "Grace when nobody comes after"),
    )),
    ("Cancelling", (
        ("free_cancel", "Free after booking for"), ("cancel_notice", "Free until … before the start"),
        ("cancel_fee_percent", "Later it costs, in percent"),
    )),
    ("Cluster", (("blip", "Outages that move nothing"), ("observed_within", "A look counts for"))),
)  # fmt: skip
"""Every rule by what it is about, in the order of the page."""

_UNITS = {"d": 86_400, "day": 86_400, "days": 86_400, "h": 3600, "hour": 3600, "hours": 3600, "min": 60, "m": 60,
          "minute": 60, "minutes": 60, "s": 1, "second": 1, "seconds": 1}  # fmt: skip
_PART = re.compile(r"\s*(\d{1,9})\s*([a-z]+)\s*")
_NONE = {"none", "no limit", "never"}
_DEFAULTS = Policy()
WORDS = {"all": "everyone", "named": "those named below", "lead": "a lead of the project", "operator": "an operator"}


@dataclass(frozen=True, slots=True)
class Written:
    """What was typed, as rules; faults by field."""

    words: dict[str, Any]
    gap_seconds: int | None
    errors: dict[str, str]


def read_length(text: str) -> int | None:
    """Whole seconds of `7 days`, `1 h 30 min`, `90 s`; None when it is not a length."""
    total, at = 0, 0
    text = text.lower()
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[2] not in _UNITS:
            return None
        total += int(part[1]) * _UNITS[part[2]]
        at = part.end()
    return total if text else None


def read_form(typed: Mapping[str, str], *, of_pool: bool) -> Written:
    """The rules of a form's fields by name. What the rules themselves forbid is found when they are said."""
    words: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name in field_names(of_pool=of_pool):
        text = typed.get(name, "").strip()
        if not text:
            continue
        if text.lower() in _NONE:
            words[name] = None
        elif name in LENGTHS:
            seconds = 0 if text == "0" else read_length(text)
            if seconds is None:
                errors[name] = "A length is written like 7 days, 8 h, 1 h 30 min or 90 s."
            else:
                words[name] = seconds
        elif name in COUNTS:
            if text.isascii() and text.isdigit() and len(text) < 12:
                words[name] = int(text)
            else:
                errors[name] = "This is a whole number."
        elif name in SWITCHES:
            words[name] = text == "yes"
        else:
            words[name] = text
    gap = words.pop("gap", None) if of_pool else None
    return Written(words, (gap or 0) if of_pool else None, errors)


def field_names(*, of_pool: bool) -> list[str]:
    """Every field of the form, in its order. `open` is for tenants and projects, what is the cluster's only for pools."""
    hidden = {"open"} if of_pool else OF_THE_POOL
    return [name for _, rows in GROUPS for name, _ in rows if name not in hidden]


def text_of(name: str, value: Any) -> str:
    """A rule's value (as JSON has it) as it would be typed."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return length_text(timedelta(seconds=value)) if name in LENGTHS else str(value)


def said_text(name: str, value: Any) -> str:
    """The same in a sentence: choices in words."""
    if name == "open" and value is None:
        return "as the pool says"
    return WORDS.get(str(value), text_of(name, value)) if name in CHOICES else text_of(name, value)


def default_text(name: str, policy: Policy = _DEFAULTS) -> str:
    """What counts where nothing is typed."""
    return said_text(name, said_as(getattr(policy, name)))


def options_of(name: str) -> tuple[str, ...]:
    """What can be chosen, for rules that are chosen; empty for those that are typed."""
    return ("yes", "no") if name in SWITCHES else CHOICES.get(name, ())
