"""What a look at a cluster changes: what the cluster tells against what the database has. Pure; writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.backends.contract import ExternalUse, Inventory, NodeFacts
from app.inventory.facts import POSITIONS_PER_GPU, Range

FACTS = ("rack", "leaf", "nvlink", "power_watts", "cpu_milli", "memory_mib")
Use = tuple[tuple[Range, ...], str, str, int, int]
"""Positions in use, by what, whose it is ('' where the cluster does not say), and how much of the node's CPU (thousandths
of a core) and memory (MiB) it has."""


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node as the database has it. `faults`: open faults by number of the GPU; `uses`: open external use, with its
    row and its own limit; `devices`: the cards by number of the GPU."""

    id: int
    name: str
    pool_id: int
    kind: str
    first_gpu: int
    gpus: int
    state: str
    why: str | None
    observed_at: datetime | None
    facts: Mapping[str, Any]
    faults: Mapping[int, str] = field(default_factory=dict)
    uses: Mapping[Use, tuple[int, datetime | None]] = field(default_factory=dict)
    devices: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be written about one node. `capacity`: whether what it can give has changed."""

    node: KnownNode
    state: str
    why: str | None
    seen: bool
    facts: Mapping[str, Any]
    faults_begin: tuple[tuple[int, datetime, str], ...]
    faults_end: tuple[int, ...]
    uses_begin: tuple[tuple[Use, datetime | None], ...]
    uses_go_on: tuple[tuple[int, datetime | None], ...]
    uses_end: tuple[int, ...]
    devices: tuple[tuple[int, str], ...]
    capacity: bool

    @property
    def outage_changes(self) -> bool:
        """Whether the node went out of service, came back, or is out for another reason than before."""
        return self.state != self.node.state


def compare(
    known: Iterable[KnownNode], seen: Inventory, kinds: Mapping[str, str]
) -> tuple[list[Change], list[NodeFacts]]:
    """A change for every known node, and the nodes that the cluster has and the database has not.

    `kinds` are words for kinds in lower case with their slugs (`rules.kind_words`).
    """
    facts = {node.name: node for node in seen.nodes}
    changes = [_change(node, facts.pop(node.name, None), kinds) for node in known]
    return changes, list(facts.values())


def _change(node: KnownNode, seen: NodeFacts | None, kinds: Mapping[str, str]) -> Change:
    if seen is None:
        return _only_state(node, "unknown", "The cluster does not list this node.")
    slug = kinds.get(seen.kind.lower())
    if slug is not None and slug != node.kind:
        return _only_state(node, "unknown", f"The cluster shows {seen.kind}, the inventory has {node.kind}.")
    faults = _faults(node, seen)
    uses = _uses(node, seen.external)
    begin = tuple((gpu, since, why) for gpu, (since, why) in sorted(faults.items()) if gpu not in node.faults)
    end = tuple(sorted(gpu for gpu in node.faults if gpu not in faults))
    new = tuple((use, until) for use, until in sorted(uses.items()) if use not in node.uses)
    on = tuple((node.uses[use][0], until) for use, until in uses.items() if use in node.uses)
    over = tuple(row for use, (row, _) in node.uses.items() if use not in uses)
    moved = any(use in node.uses and node.uses[use][1] != until for use, until in uses.items())
    known = {name: node.facts.get(name) for name in FACTS}
    # what an operator has written stays; the cluster fills in what nobody has
    learnt = {name: getattr(seen, name) for name in FACTS if known[name] is None and getattr(seen, name) is not None}
    placed = any(name in learnt for name in ("rack", "leaf", "nvlink"))
    return Change(
        node=node,
        state=seen.state,
        why=seen.why or None,
        seen=True,
        facts=learnt,
        faults_begin=begin,
        faults_end=end,
        uses_begin=new,
        uses_go_on=on,
        uses_end=over,
        devices=_devices(node, seen.uuids),
        capacity=bool(seen.state != node.state or begin or end or new or over or moved or placed),
    )


def _only_state(node: KnownNode, state: str, why: str) -> Change:
    """Nothing is known of the node's units: their faults and use stay as they were last seen."""
    return Change(node, state, why, False, {}, (), (), (), (), (), (), capacity=node.state != state)


def _faults(node: KnownNode, seen: NodeFacts) -> dict[int, tuple[datetime, str]]:
    """Units that must not be given out, by number: ill ones, and those that the cluster no longer has."""
    found = {
        node.first_gpu + unit.gpu: (unit.since or seen.observed_at, unit.why)
        for unit in seen.unhealthy
        if 0 <= unit.gpu < node.gpus
    }
    for gpu in range(max(seen.gpus, 0), node.gpus):
        found[node.first_gpu + gpu] = (seen.observed_at, f"The cluster sees {seen.gpus} of {node.gpus} GPUs.")
    return found


def _uses(node: KnownNode, external: Sequence[ExternalUse]) -> dict[Use, datetime | None]:
    found: dict[Use, datetime | None] = {}
    for use in external:
        ranges = tuple(
            (POSITIONS_PER_GPU * (node.first_gpu + gpu), POSITIONS_PER_GPU * (node.first_gpu + gpu + 1))
            for gpu in sorted(set(use.gpus))
            if 0 <= gpu < node.gpus
        )
        if ranges or use.cpu_milli or use.memory_mib:
            found[(_joined(ranges), use.what, use.who, use.cpu_milli, use.memory_mib)] = use.until
    return found


def _joined(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """Ranges in order, those that touch made one: as the database keeps them."""
    joined: list[Range] = []
    for lower, upper in ranges:
        if joined and joined[-1][1] == lower:
            joined[-1] = (joined[-1][0], upper)
        else:
            joined.append((lower, upper))
    return tuple(joined)


def _devices(node: KnownNode, uuids: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """Cards that sit where another one, or none, was known."""
    numbered = ((node.first_gpu + i, uuid) for i, uuid in enumerate(uuids[: node.gpus]))
    return tuple((gpu, uuid) for gpu, uuid in numbered if uuid and node.devices.get(gpu) != uuid)
