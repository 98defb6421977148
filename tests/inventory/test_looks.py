"""What a look at a simulated cluster writes: states, faults, outages, external use, cards; and operators' verbs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from app.inventory import actions, queries, reconcile, vault
from app.inventory.facts import FOREVER
from app.inventory.observing import apply_look
from app.inventory.policy import Policy
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Forbidden, Invalid
from tests.inventory.world import OPERATOR, RICH, START, World

NODES = RICH + "n1,h100-sxm-80gb,8,r1,l1,v1,,,\nn2,h100-sxm-80gb,8,r1,l1,v2,,,\nn3,mi300x-192gb,4,r2,l2,,,,\n"


def capacity(world: World, kind: str = "h100-sxm-80gb"):
    def read(work):
        (pool,) = queries.pools_for(work, kind)
        return queries.capacity_of(work, [pool])[pool.id]

    return world.do(read)


def offered(world: World, kind: str = "h100-sxm-80gb") -> dict[str, int]:
    return {node.name: node.offered for node in capacity(world, kind).nodes}


def version(world: World, kind: str = "h100-sxm-80gb") -> int:
    return world.do(queries.pools_for, kind)[0].capacity_version


def test_imported_nodes_are_no_capacity_until_the_cluster_shows_them(world: World, tmp_path: Path) -> None:
    world.do(actions.connect_cluster, OPERATOR, "sim", "simulated", {"path": str(tmp_path / "a.sqlite")})
    world.do(actions.import_nodes, OPERATOR, "sim", NODES)
    assert offered(world) == {"n1": 0, "n2": 0}
    looked = world.look()  # the cluster is there, and has none of them
    assert looked is not None
    assert looked.error is None
    assert offered(world) == {"n1": 0, "n2": 0}
    assert {row[0] for row in world.rows("SELECT why FROM nodes")} == {"The cluster does not list this node."}
    reconcile.define_on_backend(world.plumbing, OPERATOR, "sim")
    world.look()
    assert offered(world) == {"n1": 255, "n2": 255}
    assert offered(world, "mi300x-192gb") == {"n3": 15}
    assert world.rows("SELECT count(*) FROM node_outages WHERE until IS NULL") == [(0,)]
    node = capacity(world).nodes[0]
    assert (node.rack, node.leaf, node.nvlink, len(node.units)) == ("r1", "l1", "v1", 8)
    assert node.units[0] == (64 * node.first_gpu, 64 * node.first_gpu + 64)


def test_a_second_look_is_not_due_at_once_and_changes_nothing(world: World, tmp_path: Path) -> None:
    world.simulated(tmp_path, NODES)
    before = version(world)
    assert world.look() is None
    world.set_clock(START + reconcile.LOOK_EVERY)
    assert world.do(queries.due_clusters) == [world.cluster().id]
    looked = world.look()
    assert looked is not None
    assert (looked.nodes, looked.changed) == (3, 0)
    assert version(world) == before
    assert world.cluster().synced_at == START + reconcile.LOOK_EVERY
    assert {row[0] for row in world.rows("SELECT observed_at FROM nodes")} == {START + reconcile.LOOK_EVERY}


def test_a_node_that_dies_and_an_ill_unit_leave_and_come_back(world: World, tmp_path: Path) -> None:
    world.simulated(tmp_path, NODES)
    old, other = version(world), version(world, "mi300x-192gb")
    faults = world.backend().faults
    at = START + timedelta(minutes=1)
    world.set_clock(at)
    faults.node_dies("n1", at=at)
    faults.node_ill("n2", gpu=3, xid=79, at=at)
    world.look()
    assert offered(world) == {"n1": 0, "n2": 0b11110111}
    assert version(world) > old
    assert version(world, "mi300x-192gb") == other, "a pool whose capacity is the same keeps its version"
    ((gpu, why),) = world.rows("SELECT gpu - first_gpu, f.why FROM unit_faults f JOIN nodes n ON n.id = f.node_id")
    assert gpu == 3
    assert why.startswith("XID 79")
    assert world.rows("SELECT state, since, until FROM node_outages WHERE state = 'down'") == [("down", at, None)]
    back = at + timedelta(minutes=1)
    world.set_clock(back)
    faults.node_returns("n1", at=back)
    faults.gpu_mended("n2", 3, at=back)
    world.look()
    assert offered(world) == {"n1": 255, "n2": 255}
    assert world.rows("SELECT until FROM unit_faults") == [(back,)]
    assert world.rows("SELECT until FROM node_outages WHERE state = 'down'") == [(back,)]


def test_external_use_takes_capacity_until_its_own_limit_or_for_good(world: World, tmp_path: Path) -> None:
    world.simulated(tmp_path, NODES)
    faults = world.backend().faults
    at = START + timedelta(minutes=1)
    world.set_clock(at)
    until = at + timedelta(hours=2)
    faults.foreign_job("n1", (0, 1), until=until, what="Slurm job 4711")
    endless = faults.foreign_job("n2", (5,), what="Slurm job 4712")
    world.look()
    found = capacity(world)
    first = {node.name: node.first_gpu for node in found.nodes}
    assert sorted(found.taken) == sorted(
        [
            (64 * first["n1"], 64 * (first["n1"] + 2), int(at.timestamp()), int(until.timestamp())),
            (64 * (first["n2"] + 5), 64 * (first["n2"] + 6), int(at.timestamp()), FOREVER),
        ]
    )
    world.set_clock(at + timedelta(minutes=1))
    faults.foreign_ends(endless)
    world.look()
    assert len(capacity(world).taken) == 1
    assert world.rows("SELECT what, ended_at FROM external_use WHERE ended_at IS NOT NULL") == [
        ("Slurm job 4712", at + timedelta(minutes=1))
    ]


def test_a_cluster_that_does_not_answer_stops_being_capacity_after_the_pools_time(world: World, tmp_path: Path) -> None:
    world.simulated(tmp_path, NODES)
    faults = world.backend().faults
    faults.call_refused("inventory", count=100)
    at = START + timedelta(minutes=1)
    world.set_clock(at)
    looked = world.look()
    assert looked is not None
    assert looked.error == "The cluster refused this call."
    assert offered(world)["n1"] == 255, "one failed look is no loss yet"
    cluster = world.cluster()
    assert (cluster.failures, cluster.last_error) == (1, "The cluster refused this call.")
    assert world.look() is None, "the back-off is kept"
    looks = 0
    while offered(world)["n1"] and looks < 50:
        at = world.cluster().retry_at
        world.set_clock(at)
        assert world.look() is not None
        looks += 1
    assert offered(world) == {"n1": 0, "n2": 0}
    assert timedelta(minutes=10) <= at - START <= timedelta(minutes=12)
    assert world.rows("SELECT DISTINCT state, why FROM nodes") == [("unknown", "The cluster does not answer.")]
    # not known since it was last seen, not since the tenth minute
    assert world.rows("SELECT DISTINCT since FROM node_outages WHERE until IS NULL") == [(START,)]
    world.do(actions.look_now, OPERATOR, "sim")
    world.set_clock(START + timedelta(hours=1))
    for _ in range(100):
        looked = world.look()
        if looked is not None and looked.error is None:
            break
        world.do(actions.look_now, OPERATOR, "sim")
    assert offered(world) == {"n1": 255, "n2": 255}
    assert world.cluster().failures == 0


def test_two_workers_do_not_look_at_once(world: World, tmp_path: Path) -> None:
    world.simulated(tmp_path, NODES)
    world.do(actions.look_now, OPERATOR, "sim")
    cluster = world.cluster()
    token = uuid4()
    assert reconcile._claim(world.plumbing, cluster.id, token) is not None
    assert world.look() is None
    assert world.do(queries.due_clusters) == []
    world.wall_at += timedelta(minutes=5)  # the worker died
    assert world.do(queries.due_clusters) == [cluster.id]
    assert world.look() is not None
    # the first one wakes up late: nothing of what it brings is written
    with world.plumbing.database.work() as work:
        seen = world.backend().inventory()
        late = reconcile._seen(work, cluster, token, seen, None)
    assert late.error == "Another worker looks at this cluster now."


def test_a_node_of_another_kind_or_with_fewer_units_is_not_promised(world: World, tmp_path: Path) -> None:
    cluster = world.simulated(tmp_path, NODES)
    seen = world.backend().inventory()
    n1, n2, n3 = seen.nodes
    wrong = replace(seen, nodes=(replace(n1, kind="NVIDIA-H200"), replace(n2, gpus=6), n3, replace(n3, name="n4")))
    with world.plumbing.database.work() as work:
        changed, unlisted = apply_look(work, cluster, wrong, START)
    assert (changed, unlisted) == (2, ["n4"])
    assert offered(world) == {"n1": 0, "n2": 0b00111111}


def test_cards_are_kept_with_dates(world: World, tmp_path: Path) -> None:
    cluster = world.simulated(tmp_path, NODES)
    assert world.rows("SELECT count(*), count(DISTINCT uuid) FROM devices WHERE until IS NULL") == [(20, 20)]
    later = START + timedelta(days=3)
    seen = world.backend().inventory()
    n1 = replace(seen.nodes[0], uuids=("GPU-new", *seen.nodes[0].uuids[1:]))
    with world.plumbing.database.work() as work:
        apply_look(work, cluster, replace(seen, nodes=(n1, *seen.nodes[1:])), later)
    assert world.rows("SELECT since, until FROM devices WHERE until IS NOT NULL") == [(START, later)]
    assert world.rows("SELECT since FROM devices WHERE uuid = 'GPU-new' AND until IS NULL") == [(later,)]


def test_a_backend_nobody_installed_is_told_in_a_sentence(world: World) -> None:
    world.do(actions.connect_cluster, OPERATOR, "odd", "nimbus", {})
    looked = world.look("odd")
    assert looked is not None
    assert looked.error is not None
    assert looked.error.startswith("There is no backend 'nimbus'.")
    assert world.cluster("odd").failures == 1


def test_a_cluster_needs_a_plain_name_of_its_own(world: World) -> None:
    for name in ("", "Alps", "-a", "a b", "a" * 64):
        with pytest.raises(Invalid):
            world.do(actions.connect_cluster, OPERATOR, name, "simulated", {})
    assert world.rows("SELECT count(*) FROM clusters") == [(0,)]
    world.do(actions.connect_cluster, OPERATOR, "sim", "simulated", {})
    with pytest.raises(Conflict):
        world.do(actions.connect_cluster, OPERATOR, "sim", "simulated", {})


def test_secrets_are_kept_sealed_and_reach_the_backend_alone(world: World) -> None:
    key = world.plumbing.settings.secret_key.get_secret_value()
    made = world.do(actions.connect_cluster, OPERATOR, "k", "simulated", {}, secrets={"token": "s3cr3t-word"}, key=key)
    kept = world.do(queries.sealed_secret, made.id)
    assert b"s3cr3t-word" not in kept
    assert vault.unseal(key, kept) == {"token": "s3cr3t-word"}
    with pytest.raises(vault.Unreadable):
        vault.unseal("another key", kept)
    assert "s3cr3t-word" not in repr(world.rows("SELECT * FROM platform_audit")) + repr(made)


def test_only_operators_change_what_there_is(world: World) -> None:
    member = Actor(account_id=None, name="Mia Member")
    reader = Actor(account_id=None, name="Token", platform_roles=frozenset({"operator"}), scopes=frozenset({"read"}))
    for actor in (member, reader):
        with pytest.raises(Forbidden):
            world.do(actions.connect_cluster, actor, "sim", "simulated", {})
    world.do(actions.connect_cluster, OPERATOR, "sim", "simulated", {})
    for actor in (member, reader):
        for verb, words in (
            (actions.import_nodes, ("sim", NODES)),
            (actions.set_writes, ("sim", False)),
            (actions.set_policy, ("sim", "h100-sxm-80gb", {})),
            (actions.look_now, ("sim",)),
        ):
            with pytest.raises(Forbidden):
                world.do(verb, actor, *words)


def test_policies_and_the_switch_for_writes(world: World) -> None:
    world.do(actions.connect_cluster, OPERATOR, "sim", "simulated", {})
    world.do(actions.import_nodes, OPERATOR, "sim", NODES)
    before = world.do(queries.pools_for, "h100-sxm-80gb")[0]
    assert before.policy == Policy()
    world.do(
        actions.set_policy, OPERATOR, "sim", "h100-sxm-80gb", {"grid": 1, "min_length": 1, "horizon": 12_960_000}, 60
    )
    after = world.do(queries.pools_for, "h100-sxm-80gb")[0]
    assert after.policy == replace(
        Policy(),
        grid=timedelta(seconds=1),
        min_length=timedelta(seconds=1),
        horizon=timedelta(days=150),
        gap=timedelta(minutes=1),
    )
    assert after.version > before.version
    with pytest.raises(Invalid) as wrong:
        world.do(actions.set_policy, OPERATOR, "sim", "h100-sxm-80gb", {"grid": 0, "horizon": "long", "colour": 1})
    assert len(wrong.value.reasons) == 3
    assert world.do(queries.pools_for, "h100-sxm-80gb")[0].policy == after.policy
    assert world.do(actions.set_writes, OPERATOR, "sim", False).writes is False
    assert not any(pool.writes for pool in world.do(queries.pools_for))
    actions_done = [row[0] for row in world.rows("SELECT action FROM platform_audit ORDER BY seq")]
    assert actions_done == ["connect cluster", "import nodes", "set policy", "stop writes"]
