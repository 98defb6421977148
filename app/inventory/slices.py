"""How a GPU is cut into slices: the profiles of the catalogue, where their instances may lie, and layouts in words. Pure.

A layout is written as `3g.40gb+3g.40gb` for every GPU of a node, or GPU by GPU as `0:3g.40gb*2;1-3:1g.10gb*7`; GPUs that
are not named stay whole, and `whole` says so. Memory is counted in eighths of the GPU, computing in shares of 840.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from app.inventory.facts import POSITIONS_PER_GPU, Kind

EIGHTHS = 8
WHOLE = "whole"
_PROFILE = re.compile(r"((\d+)g\.(\d+)gb(?:\+[a-z]+)?) x(\d+)")
_PART = re.compile(r"(?:(\d{1,2})(?:-(\d{1,2}))?:)?([^:]*)")
_TERM = re.compile(r"([0-9a-z.]+(?:\+(?:me|gfx)[a-z.]*)?)(?:\*(\d{1,2}))?")
# a plus sign parts slices, but for the one inside `1g.10gb+me`
_PLUS = re.compile(r"\+(?!me\b|gfx\b)")


@dataclass(frozen=True, slots=True)
class Profile:
    """A way to cut: memory in eighths of the GPU (`size`) and GB, computing in `share840`; `most` of them fit on one GPU,
    beginning at these eighths of the memory."""

    name: str
    size: int
    memory_gb: Decimal
    share840: int
    most: int
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Cut:
    """One slice of a GPU: from which eighth of its memory on, how many of them, and by which profile."""

    start: int
    size: int
    profile: str

    def positions(self, gpu: int) -> tuple[int, int]:
        """The same as positions of the installation; `gpu` is the number there."""
        per = POSITIONS_PER_GPU // EIGHTHS
        first = gpu * POSITIONS_PER_GPU
        return first + self.start * per, first + (self.start + self.size) * per


Layout = Mapping[int, tuple[Cut, ...]]
"""By the index of the GPU on its node: its slices in order. GPUs that are not in are whole."""


class WrongLayout(ValueError):
    """A layout that cannot be: the message is a sentence."""


def profiles(kind: Kind) -> dict[str, Profile]:
    """The profiles by which units of a kind can be cut, by name; empty where the catalogue knows none."""
    rows = [
        (m[1], int(m[2]), Decimal(m[3]), int(m[4]))
        for m in (_PROFILE.match(text) for text in kind.facts.get("partitions", ()))
        if m is not None
    ]
    if not rows or not kind.memory_gb:
        return {}
    engines = max(compute for _, compute, _, _ in rows)
    most = {name: count for name, _, _, count in rows}
    found = {}
    for name, compute, memory, count in rows:
        size = min(EIGHTHS, max(1, round(EIGHTHS * memory / kind.memory_gb)))
        places = max(count, most.get(name.partition("+")[0], 0))
        starts = tuple(size * i for i in range(places) if size * (i + 1) <= EIGHTHS)
        found[name] = Profile(name, size, memory, 840 * compute // engines, count, starts)
    return found


def slice_kind(kind: Kind, profile: Profile) -> Kind:
    """The kind of the slices that a profile makes: its memory and computing, the power of its share."""
    facts = {
        "aliases": [],
        "slice_of": kind.slug,
        "profile": profile.name,
        "memory_eighths": profile.size,
        "share840": profile.share840,
        **{name: kind.facts[name] for name in ("source", "confidence", "form_factor", "link") if name in kind.facts},
    }
    for name in ("bf16_tflops", "fp8_tflops", "fp4_tflops"):
        if name in kind.facts:
            facts[name] = round(kind.facts[name] * profile.share840 / 840, 1)
    watts = None if kind.tdp_watts is None else max(1, kind.tdp_watts * profile.share840 // 840)
    return Kind(
        slug=f"{kind.slug}-{profile.name}",
        name=f"{kind.name} {profile.name}",
        vendor=kind.vendor,
        memory_gb=profile.memory_gb,
        tdp_watts=watts,
        node_kw=kind.node_kw,
        units_per_node=kind.units_per_node * profile.most,
        facts=facts,
    )


def read_layout(text: str, gpus: int, kind: Kind) -> Layout:
    """The layout of a node with so many units of a kind. Raises WrongLayout with a sentence."""
    known = profiles(kind)
    layout: dict[int, tuple[Cut, ...]] = {}
    named: set[int] = set()
    parts = [part.strip() for part in text.split(";") if part.strip()]
    for part in parts:
        first, last, words = _gpus_of(part, gpus)
        if first is None and len(parts) > 1:
            raise WrongLayout(f"Say which GPU is cut into “{part[:40]}”, as in 0:{part[:40]}.")
        for gpu in range(gpus) if first is None else range(first, last + 1):
            if gpu in named:
                raise WrongLayout(f"GPU {gpu} is named twice.")
            named.add(gpu)
            cuts = _cut(words, known, kind)
            if cuts:
                layout[gpu] = cuts
    return layout


def layout_text(layout: Layout) -> str:
    """The inverse: GPU by GPU, equal neighbours together; '' where all are whole."""
    runs: list[list[int]] = []
    for gpu, cuts in sorted(layout.items()):
        if runs and runs[-1][1] == gpu - 1 and layout[gpu - 1] == cuts:
            runs[-1][1] = gpu
        else:
            runs.append([gpu, gpu])
    return ";".join(f"{a if a == b else f'{a}-{b}'}:{_terms(layout[a])}" for a, b in runs)


def _terms(cuts: Sequence[Cut]) -> str:
    names = [cut.profile for cut in cuts]
    return "+".join(n if names.count(n) == 1 else f"{n}*{names.count(n)}" for n in dict.fromkeys(names))


def _gpus_of(part: str, gpus: int) -> tuple[int | None, int, str]:
    match = _PART.fullmatch(part)
    if match is None:
        raise WrongLayout(f"“{part[:40]}” is no layout. Write 0:3g.40gb+3g.40gb;1:1g.10gb*7 or 3g.40gb+3g.40gb.")
    if match[1] is None:
        return None, 0, match[3].strip()
    first, last = int(match[1]), int(match[2] or match[1])
    if not first <= last < gpus:
        raise WrongLayout(f"There is no GPU {max(first, last)}: the node has {gpus}, from 0 to {gpus - 1}.")
    return first, last, match[3].strip()


def _cut(words: str, known: Mapping[str, Profile], kind: Kind) -> tuple[Cut, ...]:
    """The slices of one GPU, each where it may lie."""
    if words.lower() == WHOLE:
        return ()
    wanted: list[Profile] = []
    for term in _PLUS.split(words):
        match = _TERM.fullmatch(term.strip())
        profile = known.get(match[1]) if match else None
        if profile is None or match is None:
            ways = f"can be cut into {', '.join(known)}" if known else "cannot be cut, as far as the catalogue knows"
            raise WrongLayout(f"“{term.strip()[:40]}” is no slice of {kind.slug}, which {ways}.")
        wanted += [profile] * int(match[2] or 1)
    wanted.sort(key=lambda p: (-p.size, -p.share840, p.name))
    cuts = _lay(wanted, ()) if len(wanted) <= EIGHTHS and sum(p.share840 for p in wanted) <= 840 else None
    if cuts is None or any(wanted.count(p) > p.most for p in wanted):
        raise WrongLayout(f"{words[:80]} do not fit on one GPU.")
    return tuple(sorted(cuts))


def _lay(wanted: Sequence[Profile], laid: tuple[Cut, ...]) -> tuple[Cut, ...] | None:
    """All of them without overlap, the first way that works; at most eight, so looking at all ways is quick."""
    if not wanted:
        return laid
    profile = wanted[0]
    for start in profile.starts:
        if all(start >= c.start + c.size or start + profile.size <= c.start for c in laid):
            found = _lay(wanted[1:], (*laid, Cut(start, profile.size, profile.name)))
            if found is not None:
                return found
    return None


def slices_named(layouts: Iterable[Layout]) -> list[str]:
    """The profiles that occur, in order of name."""
    return sorted({cut.profile for layout in layouts for cuts in layout.values() for cut in cuts})
