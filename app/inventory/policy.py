"""What a pool's owner allows, and what becomes of bookings by rule: every setting with its default. Pure; knows no booking.

A pool has a policy; tenants and projects may have words laid over it (`Policy.under`). Wherever a case of the booking engine
says "policy", the answer is a field here, the same for page, API and worker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Literal

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
_NONE = timedelta(0)
_YEAR = 366 * _DAY

LENGTHS: dict[str, tuple[timedelta, timedelta]] = {
    "min_length": (timedelta(seconds=1), _YEAR),
    "max_length": (timedelta(seconds=1), _YEAR),
    "horizon": (_HOUR, 730 * _DAY),
    "grid": (timedelta(seconds=1), _DAY),
    "gap": (_NONE, _DAY),
    "lead": (_NONE, 90 * _DAY),
    "min_gap": (_NONE, 7 * _DAY),
    "max_extension": (_NONE, _YEAR),
    "extend_within": (_MINUTE, _YEAR),
    "ahead_free": (_NONE, 30 * _DAY),
    "approval_for": (_MINUTE, 90 * _DAY),
    "offer_for": (_MINUTE, 7 * _DAY),
    "made_ahead": (_NONE, 30 * _DAY),
    "late_after": (_NONE, _DAY),
    "give_up": (_MINUTE, _YEAR),
    "no_show_warn": (_NONE, 7 * _DAY),
    "no_show": (_MINUTE, 7 * _DAY),
    "idle_warn": (_MINUTE, 7 * _DAY),
    "idle_release": (_MINUTE, 7 * _DAY),
    "end_warn": (_NONE, 7 * _DAY),
    "end_warn_last": (_NONE, 7 * _DAY),
    "grace": (_NONE, _DAY),
    "reclaim_lead": (_NONE, _DAY),
    "free_cancel": (_NONE, 30 * _DAY),
    "cancel_notice": (_NONE, 90 * _DAY),
    "blip": (_NONE, _DAY),
    "observed_within": (_MINUTE, _DAY),
}
"""Lengths by name: the least and the most of each. Said in whole seconds."""
COUNTS: dict[str, tuple[int, int]] = {
    "max_units_user": (1, 1_000_000),
    "max_units_project": (1, 1_000_000),
    "approval_hours": (0, 1_000_000_000),
    "ahead_hours_user": (0, 1_000_000_000),
    "ahead_hours_tenant": (0, 1_000_000_000),
    "cancel_fee_percent": (0, 100),
    "skips": (0, 100),
}
"""Whole numbers by name: units, GPU-hours, percent, times."""
AMOUNTS = frozenset({"approval_money", "no_show_fee"})
"""Money, in the tenant's currency. Said as text ("1500.00") or a whole number, so that nothing is lost on the way."""
CHOICES: dict[str, tuple[str, ...]] = {"approver": ("operator", "lead"), "who": ("all", "named")}
SWITCHES = frozenset({"open", "requests_hold"})
OF_THE_POOL = frozenset({"observed_within", "blip", "who"})
"""What cannot differ by tenant: it is said of the cluster, or (`who`) of everyone at once."""


class WrongPolicy(ValueError):
    """A policy that cannot be kept; `faults` are sentences, one for each field that is wrong."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__(" ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one pool, or those of one tenant or project in it. All lengths are whole seconds.

    Windows: a booking lasts `min_length` to `max_length` and starts and ends on multiples of `grid` since 1970 UTC (a start
    "now" starts now). It ends within `horizon` from now and starts at least `lead` from now. After its end its units stay
    blocked for `gap`. It leaves no time free between itself and another booking on its units that is shorter than `min_gap`.

    Extending: only when the end is at most `extend_within` away (None: at any time); all extensions of a booking together
    add at most `max_extension` (None: only `max_length` counts).

    Who: `who` is "all", or "named": then only tenants and projects that have `open` said for them. `open` false keeps a
    tenant or project out.

    How much: at most `max_units_user` units at any instant in one person's bookings in this pool, `max_units_project` in one
    project's. Future bookings of a person hold at most `ahead_hours_user` GPU-hours, those of a tenant `ahead_hours_tenant`;
    hours that lie within `ahead_free` from now are not counted.

    Approval: a booking of more than `approval_hours` GPU-hours, or that costs more than `approval_money`, is asked for at
    first; the `approver` (the project's lead, or an operator) answers within `approval_for`, at the latest an hour before the
    start. Requests hold units and quota meanwhile if `requests_hold`.

    Waiting: freed units are held `offer_for` for whoever waited; after `skips` offers to others the earliest window that fits
    is kept for them.

    Start and use: units are reserved on the cluster `made_ahead` of the start. A start that is not done after `late_after` is
    late; after `give_up` (None: at the window's end) it ends as not provided. A booking that nothing used is warned about
    `no_show_warn` after its start and released `no_show` after it (None: never), for a fee of `no_show_fee` beside the time.
    One that was used and is not any longer: a warning after `idle_warn`, a release after `idle_release` (None: never).

    End: notices `end_warn` and `end_warn_last` ahead; processes are asked to end `reclaim_lead` ahead, and may run on for
    `grace` when nobody else comes.

    Cancelling is free within `free_cancel` of booking, and until `cancel_notice` before the start; later it costs
    `cancel_fee_percent` of the price.

    Cluster: a node away for less than `blip` moves nothing. A cluster that could not be looked at for `observed_within` has
    no capacity until it is seen again.
    """

    min_length: timedelta = 15 * _MINUTE
    max_length: timedelta = 7 * _DAY
    horizon: timedelta = 90 * _DAY
    grid: timedelta = 15 * _MINUTE
    gap: timedelta = _NONE
    lead: timedelta = _NONE
    max_extension: timedelta | None = None
    made_ahead: timedelta = 10 * _MINUTE
    observed_within: timedelta = 10 * _MINUTE
    min_gap: timedelta = _NONE
    extend_within: timedelta | None = None
    who: Literal["all", "named"] = "all"
    open: bool | None = None
    max_units_user: int | None = None
    max_units_project: int | None = None
    ahead_hours_user: int | None = None
    ahead_hours_tenant: int | None = None
    ahead_free: timedelta = 6 * _HOUR
    approval_hours: int | None = None
    approval_money: Decimal | None = None
    approver: Literal["operator", "lead"] = "operator"
    approval_for: timedelta = 72 * _HOUR
    requests_hold: bool = True
    offer_for: timedelta = 30 * _MINUTE
    skips: int = 3
    late_after: timedelta = _MINUTE
    give_up: timedelta | None = None
    no_show_warn: timedelta = 15 * _MINUTE
    no_show: timedelta | None = 30 * _MINUTE
    no_show_fee: Decimal | None = None
    idle_warn: timedelta | None = 20 * _MINUTE
    idle_release: timedelta | None = None
    end_warn: timedelta | None = 30 * _MINUTE
    end_warn_last: timedelta | None = 5 * _MINUTE
    grace: timedelta = _NONE
    reclaim_lead: timedelta = _NONE
    free_cancel: timedelta = 15 * _MINUTE
    cancel_notice: timedelta = _NONE
    cancel_fee_percent: int = 0
    blip: timedelta = 2 * _MINUTE

    @classmethod
    def of(cls, words: Mapping[str, Any], gap_seconds: int = 0) -> Policy:
        """From `pools.policy` and `pools.gap_seconds`: by field name, lengths in whole seconds; what is not said is default.

        Raises `WrongPolicy` with every fault at once.
        """
        return _read(_text(words), gap_seconds)

    def words(self) -> dict[str, Any]:
        """The inverse of `of`, without the gap, and without what is default. Fit for JSON."""
        default = Policy()
        said = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "gap"}
        return {n: said_as(v) for n, v in said.items() if v != getattr(default, n)}

    def under(self, words: Mapping[str, Any]) -> Policy:
        """This policy with the words of a tenant or a project laid over it; null takes a limit away.

        Fields are as `read_override` found them. Lengths that contradict each other are left so: then nothing fits,
        and the reasons say it.
        """
        return _under(self, _text(words)) if words else self

    @property
    def may_book(self) -> bool:
        """Whether the pool takes bookings of those this policy is for."""
        return self.who == "all" if self.open is None else self.open


def read_override(words: Mapping[str, Any], base: Policy) -> Policy:
    """The policy that `words` laid over `base` give. Raises `WrongPolicy` with every fault at once."""
    values, faults = _values(words)
    faults += [f"{name} is the pool's alone." for name in words if name in OF_THE_POOL]
    policy = replace(base, **values)
    faults += _contradictions(policy)
    if faults:
        raise WrongPolicy(tuple(faults))
    return policy


def said_as(value: Any) -> Any:
    """A field's value as JSON has it: whole seconds, a whole number, a yes or no, text."""
    if isinstance(value, timedelta):
        return _seconds(value)
    return f"{value:f}" if isinstance(value, Decimal) else value


@lru_cache(maxsize=2048)
def _read(text: str, gap_seconds: int) -> Policy:
    words = json.loads(text)
    faults = ["gap is said beside the other rules, as gap_seconds."] if "gap" in words else []
    values, wrong = _values({name: value for name, value in words.items() if name != "gap"})
    faults += wrong
    if not 0 <= gap_seconds <= 86_400:
        faults.append(f"gap lies between 0 and 86400 seconds, not at {gap_seconds}.")
        gap_seconds = 0
    policy = Policy(**values, gap=timedelta(seconds=gap_seconds))
    faults += _contradictions(policy)
    if faults:
        raise WrongPolicy(tuple(faults))
    return policy


@lru_cache(maxsize=2048)
def _under(policy: Policy, text: str) -> Policy:
    return replace(policy, **_values(json.loads(text))[0])


def _values(words: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The fields that the words say, and what is wrong with the others."""
    faults: list[str] = []
    values: dict[str, Any] = {}
    for name, value in words.items():
        if name not in _DEFAULTS:
            faults.append(f"{name} is no rule of a pool. Rules are {', '.join(sorted(_DEFAULTS))}.")
        elif value is None:
            if name in _MAY_BE_NONE:
                values[name] = None
            else:
                faults.append(f"{name} cannot be left open.")
        elif name in LENGTHS:
            least, most = (_seconds(limit) for limit in LENGTHS[name])
            if _whole(value, least, most, name, "seconds", faults):
                values[name] = timedelta(seconds=value)
        elif name in COUNTS:
            if _whole(value, *COUNTS[name], name, _UNITS.get(name, ""), faults):
                values[name] = value
        elif name in AMOUNTS:
            amount = _amount(value)
            if amount is None:
                faults.append(f'{name} is money from 0 on, as text like "1500.00" or a whole number, not {value!r}.')
            else:
                values[name] = amount
        elif name in SWITCHES:
            if isinstance(value, bool):
                values[name] = value
            else:
                faults.append(f"{name} is true or false, not {value!r}.")
        elif value in CHOICES[name]:
            values[name] = value
        else:
            faults.append(f"{name} is {' or '.join(CHOICES[name])}, not {value!r}.")
    return values, faults


def _contradictions(policy: Policy) -> list[str]:
    faults = []
    if policy.min_length > policy.max_length:
        faults.append("min_length is longer than max_length.")
    if policy.max_length > policy.horizon:
        faults.append("max_length reaches beyond the horizon.")
    if policy.lead >= policy.horizon:
        faults.append("lead reaches beyond the horizon.")
    if policy.no_show is not None and policy.no_show < policy.no_show_warn:
        faults.append("no_show_warn comes after no_show: nobody would be warned.")
    if policy.idle_release is not None and policy.idle_warn is not None and policy.idle_release < policy.idle_warn:
        faults.append("idle_warn comes after idle_release: nobody would be warned.")
    return faults


def _whole(value: Any, least: int, most: int, name: str, unit: str, faults: list[str]) -> bool:
    unit = f" {unit}" if unit else ""
    if isinstance(value, bool) or not isinstance(value, int):
        faults.append(f"{name} is a whole number{f' of{unit}' if unit else ''}, not {value!r}.")
        return False
    if not least <= value <= most:
        faults.append(f"{name} lies between {least} and {most}{unit}, not at {value}.")
        return False
    return True


def _amount(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        amount = Decimal(value)
    except InvalidOperation:
        return None
    exponent = amount.as_tuple().exponent
    whole = isinstance(exponent, int) and exponent >= -6
    return amount if whole and 0 <= amount <= 10**12 else None


def _text(words: Mapping[str, Any]) -> str:
    """Words as a key: `true` is not 1 there, as it would be in a tuple."""
    return json.dumps(dict(words), sort_keys=True)


def _seconds(length: timedelta) -> int:
    return length.days * 86_400 + length.seconds


_DEFAULTS = {f.name: f.default for f in fields(Policy)}
_MAY_BE_NONE = frozenset(name for name, default in _DEFAULTS.items() if default is None) | {
    "no_show",
    "idle_warn",
    "end_warn",
    "end_warn_last",
}
_UNITS = {
    "max_units_user": "units",
    "max_units_project": "units",
    "approval_hours": "GPU-hours",
    "ahead_hours_user": "GPU-hours",
    "ahead_hours_tenant": "GPU-hours",
    "cancel_fee_percent": "percent",
    "skips": "",
}
