"""What a pool's owner allows: lengths, horizon, grid, how long a look at a cluster counts. Pure; knows no booking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import lru_cache
from typing import Any

_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
_LIMITS: dict[str, tuple[timedelta, timedelta]] = {
    "min_length": (timedelta(seconds=1), 366 * _DAY),
    "max_length": (timedelta(seconds=1), 366 * _DAY),
    "horizon": (timedelta(hours=1), 730 * _DAY),
    "grid": (timedelta(seconds=1), _DAY),
    "lead": (timedelta(0), 90 * _DAY),
    "max_extension": (timedelta(0), 366 * _DAY),
    "made_ahead": (timedelta(0), 30 * _DAY),
    "observed_within": (_MINUTE, _DAY),
}


class WrongPolicy(ValueError):
    """A policy that cannot be kept; `faults` are sentences, one for each field that is wrong."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__(" ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one pool. All lengths are whole seconds.

    A booking lasts `min_length` to `max_length` and starts and ends on multiples of `grid` since 1970 UTC (a start
    "now" starts now). It ends within `horizon` from now and starts at least `lead` from now. After its end its units
    stay blocked for `gap`. All extensions of a booking together add at most `max_extension` (None: only `max_length`
    counts). Units are reserved on the cluster `made_ahead` of the start. A cluster that could not be looked at for
    `observed_within` has no capacity until it is seen again.
    """

    min_length: timedelta = 15 * _MINUTE
    max_length: timedelta = 7 * _DAY
    horizon: timedelta = 90 * _DAY
    grid: timedelta = 15 * _MINUTE
    gap: timedelta = timedelta(0)
    lead: timedelta = timedelta(0)
    max_extension: timedelta | None = None
    made_ahead: timedelta = 10 * _MINUTE
    observed_within: timedelta = 10 * _MINUTE

    @classmethod
    def of(cls, words: Mapping[str, Any], gap_seconds: int = 0) -> Policy:
        """From `pools.policy` and `pools.gap_seconds`: whole seconds by field name; what is not said is default.

        Raises `WrongPolicy` with every fault at once.
        """
        return _read(tuple(sorted(words.items(), key=lambda item: item[0])), gap_seconds)

    def words(self) -> dict[str, int]:
        """The inverse of `of`, without the gap, and without what is default."""
        default = Policy()
        said = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "gap"}
        return {n: _seconds(v) for n, v in said.items() if v is not None and v != getattr(default, n)}


@lru_cache(maxsize=512)
def _read(words: tuple[tuple[str, Any], ...], gap_seconds: int) -> Policy:
    faults, values = [], {}
    for name, value in words:
        if name not in _LIMITS:
            faults.append(f"{name} is no rule of a pool. Rules are {', '.join(sorted(_LIMITS))}.")
        elif name == "max_extension" and value is None:
            values[name] = None
        elif isinstance(value, bool) or not isinstance(value, int):
            faults.append(f"{name} is a whole number of seconds, not {value!r}.")
        else:
            least, most = _LIMITS[name]
            if not _seconds(least) <= value <= _seconds(most):
                faults.append(f"{name} lies between {_seconds(least)} and {_seconds(most)} seconds, not at {value}.")
            else:
                values[name] = timedelta(seconds=value)
    if not 0 <= gap_seconds <= 86_400:
        faults.append(f"gap lies between 0 and 86400 seconds, not at {gap_seconds}.")
        gap_seconds = 0
    policy = Policy(**values, gap=timedelta(seconds=gap_seconds))
    if policy.min_length > policy.max_length:
        faults.append("min_length is longer than max_length.")
    if policy.max_length > policy.horizon:
        faults.append("max_length reaches beyond the horizon.")
    if faults:
        raise WrongPolicy(tuple(faults))
    return policy


def _seconds(length: timedelta) -> int:
    return length.days * 86_400 + length.seconds
