"""Random looks at a cluster: whatever was seen last is what can be given, and what is open tells exactly that."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from app.backends.contract import ExternalUse, Inventory, NodeFacts, UnhealthyUnit
from app.inventory import queries
from app.inventory.observing import apply_look, not_observed
from tests.inventory.world import START, World

NODES = "name,kind,gpus\n" + "".join(f"n{i},h100-sxm-80gb,{size}\n" for i, size in enumerate((8, 8, 4, 1)))
STEPS = 40


def some_look(dice: random.Random, base: Inventory, at) -> Inventory:
    """The cluster as it might be at an instant."""
    nodes = []
    for node in base.nodes:
        if dice.random() < 0.1:
            continue  # no longer listed
        sick = sorted(dice.sample(range(node.gpus), dice.randint(0, min(2, node.gpus))))
        used = sorted(dice.sample(range(node.gpus), dice.randint(0, min(3, node.gpus))))
        until = dice.choice((None, at + timedelta(hours=dice.randint(1, 5))))
        nodes.append(
            replace(
                node,
                state=dice.choice(("ready", "ready", "ready", "down", "drained", "unknown")),
                unhealthy=tuple(UnhealthyUnit(gpu, "XID", None) for gpu in sick),
                external=(ExternalUse(tuple(used), until, "job"),) if used else (),
                gpus=dice.choice((node.gpus, node.gpus, max(node.gpus - 1, 0))),
                observed_at=at,
            )
        )
    return Inventory(tuple(nodes), at, "dice")


def expected(seen: NodeFacts | None, installed: int) -> int:
    """The mask of units that this look shows as offered."""
    if seen is None or seen.state != "ready":
        return 0
    ill = {unit.gpu for unit in seen.unhealthy} | set(range(seen.gpus, installed))
    return sum(1 << gpu for gpu in range(installed) if gpu not in ill)


@pytest.mark.parametrize("seed", [1, 2417])
def test_what_was_seen_last_is_what_can_be_given(world: World, tmp_path: Path, seed: int) -> None:
    cluster = world.simulated(tmp_path, NODES)
    base = world.backend().inventory()
    dice = random.Random(seed)
    versions = [world.do(queries.pools_for)[0].capacity_version]
    for step in range(1, STEPS + 1):
        at = START + timedelta(minutes=step)
        world.set_clock(at)
        seen = some_look(dice, base, at)
        with world.plumbing.database.work() as work:
            apply_look(work, cluster, seen, at)
            pool = queries.pools_for(work)[0]
            capacity = queries.capacity_of(work, [pool])[pool.id]
            versions.append(pool.capacity_version)
        by_name = {node.name: node for node in seen.nodes}
        for node in capacity.nodes:
            facts = by_name.get(node.name)
            assert node.offered == expected(facts, len(node.units)), (step, node.name)
            if facts is not None:
                used = {gpu for use in facts.external for gpu in use.gpus if gpu < len(node.units)}
                taken = {
                    gpu
                    for lower, upper, _, end in capacity.taken
                    for gpu in range(lower // 64 - node.first_gpu, upper // 64 - node.first_gpu)
                    if 0 <= gpu < len(node.units) and end > at.timestamp()
                }
                assert taken == used, (step, node.name)
    assert versions == sorted(versions)
    # at any time exactly one outage is open for a node that is out, none for one that is not; none overlap
    out = world.rows("SELECT id FROM nodes WHERE state <> 'ready' ORDER BY id")
    assert world.rows("SELECT node_id FROM node_outages WHERE until IS NULL ORDER BY node_id") == out
    for table, subject in (("node_outages", "node_id"), ("unit_faults", "gpu")):
        overlaps = world.rows(
            f"""SELECT a.id FROM {table} a JOIN {table} b ON a.{subject} = b.{subject} AND a.id < b.id
                 AND tstzrange(a.since, a.until) && tstzrange(b.since, b.until)"""
        )
        assert overlaps == [], table
    # silence: everything goes, and comes back with the next look
    silent = START + timedelta(minutes=STEPS + 30)
    world.do(not_observed, cluster, silent)
    assert world.rows("SELECT DISTINCT state FROM nodes") == [("unknown",)]
    with world.plumbing.database.work() as work:
        apply_look(work, cluster, replace(base, observed_at=silent), silent)
        pool = queries.pools_for(work)[0]
        whole = queries.capacity_of(work, [pool])[pool.id]
    assert [node.offered for node in whole.nodes] == [255, 255, 15, 1]
    assert world.rows("SELECT count(*) FROM node_outages WHERE until IS NULL") == [(0,)]
