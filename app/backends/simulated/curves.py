"""What a GPU would have measured: utilisation, memory, power, temperature by workload kind. Pure, vectorised, no state.

Each number is a function of seed, names and the minute alone, so any stretch may be asked for in any order and at any
step, by any process, with the same answer. Nothing is integrated over time: temperature follows the load with a lag
in closed form over the (few) runs of a booking.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LAG_SECONDS = 170.0
"""Thermal inertia of a cooled accelerator: it has come two thirds of the way after this long."""

_U = np.uint64


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU as the curves see it. `watts` (TDP) and `memory_gb` None when they are not known."""

    key: int
    watts: int | None
    memory_gb: float | None


@dataclass(frozen=True, slots=True)
class Stint:
    """One workload on the card, `[start, end)` in seconds since 1970; `hangs` from when it stands still."""

    key: int
    kind: str
    start: int
    end: int
    hangs: int | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """Values at each asked instant. None for what cannot be known of this card."""

    utilisation: Floats
    memory_gb: Floats | None
    power_w: Floats | None
    temperature_c: Floats


def key_of(seed: int, *words: object) -> int:
    """A stable 64-bit number for a name."""
    text = "/".join(map(str, (seed, *words)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def curve(card: Card, stints: list[Stint], at: Ints) -> Curve:
    """What the card measures at these instants (seconds since 1970, ascending)."""
    use = np.zeros(len(at))
    full = np.full(len(at), 0.006 + 0.004 * _unit(card.key, 1))  # the driver's own
    strain = np.zeros(len(at))
    for stint in stints:
        inside = (at >= stint.start) & (at < stint.end)
        if not inside.any():
            continue
        t = at[inside]
        u, m, s = _SHAPES[stint.kind](card, stint, t)
        if stint.hangs is not None:
            u = np.where(t >= stint.hangs, 0.0, u)
        use[inside], full[inside], strain[inside] = u, m, s
    use = np.clip(use, 0.0, 1.0)
    idle = 0.105 + 0.025 * _unit(card.key, 2)
    load = idle + (0.985 - idle) * strain * use**0.85
    load = np.clip(load * (1 + 0.02 * _noise(card.key, 3, at // 60)), 0.05, 1.0)
    return Curve(
        utilisation=use,
        memory_gb=None if card.memory_gb is None else np.clip(full, 0.0, 0.985) * card.memory_gb,
        power_w=None if card.watts is None else load * card.watts,
        temperature_c=_temperature(card, stints, at),
    )


def _training(card: Card, stint: Stint, t: Ints) -> tuple[Floats, Floats, Floats]:
    """Loads and compiles for some minutes, then runs flat out with short checkpoints at even intervals."""
    age = (t - stint.start).astype(float)
    warm = 60 + 240 * _unit(stint.key, 11)
    plateau = 0.938 + 0.032 * _unit(stint.key, 12) + 0.008 * (_unit(card.key ^ stint.key, 13) - 0.5)
    use = plateau + 0.012 * _noise(card.key ^ stint.key, 14, t // 60)
    use = np.where(age < warm, 0.04 + 0.5 * plateau * (age / warm) ** 2, use)
    every = 60 * (20 + 25 * _unit(stint.key, 15))
    saving = (age > warm) & ((age - warm) % every > every - 60 - 30 * _unit(stint.key, 16))
    use = np.where(saving, 0.28 + 0.1 * _noise(stint.key, 17, t // 60), use)
    peak = 0.74 + 0.19 * _unit(stint.key, 18) + 0.01 * (_unit(card.key ^ stint.key, 19) - 0.5)
    full = peak * np.clip(0.1 + age / warm, 0.0, 1.0)
    return use, full, np.full(len(t), 0.93 + 0.06 * _unit(stint.key, 20))


def _inference(card: Card, stint: Stint, t: Ints) -> tuple[Floats, Floats, Floats]:
    """Load follows the hour of the day, with requests coming in clumps; memory is taken at once and kept."""
    hour = (t % 86_400) / 3600.0
    day = 0.5 - 0.5 * np.cos((hour - 3.0) / 24.0 * 2 * np.pi)
    wave = _smooth(stint.key, 31, t, 420.0)
    use = (0.12 + 0.55 * day) * (0.65 + 0.6 * wave) + 0.05 * _noise(card.key ^ stint.key, 32, t // 60)
    full = np.full(len(t), 0.86 + 0.06 * _unit(stint.key, 33))
    return np.clip(use, 0.01, 0.96), full, np.full(len(t), 0.78)


def _notebook(card: Card, stint: Stint, t: Ints) -> tuple[Floats, Floats, Floats]:
    """A person: bursts of some minutes, long looks at the result, nothing at all in the middle of it."""
    spell = (t - stint.start) // 480
    busy = _hash01(stint.key, 41, spell) < 0.38
    height = 0.25 + 0.65 * _hash01(stint.key, 42, spell)
    use = np.where(busy, height + 0.08 * _noise(card.key ^ stint.key, 43, t // 60), 0.0)
    # what a notebook has loaded it keeps: it grows over the first hours, and never shrinks
    grown = 1 - np.exp(-(t - stint.start) / (3600.0 * (0.5 + 1.5 * _unit(stint.key, 44))))
    full = 0.02 + (0.1 + 0.55 * _unit(stint.key, 45)) * grown
    return np.clip(use, 0.0, 0.98), full, np.full(len(t), 0.62)


def _job(card: Card, stint: Stint, t: Ints) -> tuple[Floats, Floats, Floats]:
    """A batch of steps: shorter stretches of work with reading in between."""
    use, full, strain = _training(card, stint, t)
    reading = ((t - stint.start) // 60) % 9 == 8
    return np.where(reading, 0.15, use * 0.92), full * 0.8, strain * 0.9


def _idle(card: Card, stint: Stint, t: Ints) -> tuple[Floats, Floats, Floats]:
    """Holds the card and computes nothing."""
    return np.zeros(len(t)), np.full(len(t), 0.012), np.zeros(len(t))


_SHAPES = {
    "training": _training,
    "inference": _inference,
    "notebook": _notebook,
    "shell": _notebook,
    "job": _job,
    "idle": _idle,
}

_RISE = {"training": 37.0, "inference": 19.0, "notebook": 9.0, "shell": 9.0, "job": 31.0, "idle": 1.0}
"""Degrees above the cold card that each kind tends to."""


def _temperature(card: Card, stints: list[Stint], at: Ints) -> Floats:
    """First-order lag behind a rise that is constant within each stint, plus a slow waver."""
    rise = np.zeros(len(at))
    cold, now, since = 29.0 + 6.0 * _unit(card.key, 51), 0.0, None
    edges: list[tuple[int, float]] = []
    for stint in sorted(stints, key=lambda s: s.start):
        aim = _RISE[stint.kind] * (0.93 + 0.14 * _unit(card.key ^ stint.key, 52))
        edges.append((stint.start, aim))
        if stint.hangs is not None and stint.hangs < stint.end:
            edges.append((max(stint.hangs, stint.start), 2.0))
        edges.append((stint.end, 0.0))
    aim = 0.0
    for edge, following in edges:
        if since is not None:
            now = aim + (now - aim) * float(np.exp(-(edge - since) / LAG_SECONDS))
        after = at >= edge
        rise[after] = following + (now - following) * np.exp(-(at[after] - edge) / LAG_SECONDS)
        since, aim = edge, following
    return np.clip(cold + rise + 1.4 * (_smooth(card.key, 53, at, 600.0) - 0.5), 15.0, 95.0)


# --- dice -------------------------------------------------------------------------------------------------------------


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finisher: every bit of the input moves every bit of the output."""
    x = (x ^ (x >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U(27))) * _U(0x94D049BB133111EB)
    return x ^ (x >> _U(31))


def _hash01(key: int, stream: int, index: Ints) -> Floats:
    """Even in [0, 1), one number an index."""
    start = _U((key + stream * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)
    mixed = _mix(_mix(index.astype(np.uint64) + start) ^ start)
    return (mixed >> _U(11)).astype(np.float64) / float(1 << 53)


def _unit(key: int, stream: int) -> float:
    return float(_hash01(key, stream, np.zeros(1, dtype=np.int64))[0])


def _noise(key: int, stream: int, index: Ints) -> Floats:
    """Between -1 and 1, mean 0, small values likelier."""
    return _hash01(key, stream, index) - _hash01(key, stream + 1000, index)


def _smooth(key: int, stream: int, t: Ints, period: float) -> Floats:
    """A slow waver in [0, 1]: dice at every period, eased between them."""
    where = t / period
    whole = np.floor(where).astype(np.int64)
    part = where - whole
    ease = part * part * (3 - 2 * part)
    return _hash01(key, stream, whole) * (1 - ease) + _hash01(key, stream, whole + 1) * ease
