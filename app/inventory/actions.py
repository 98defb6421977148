"""What operators do to the inventory: connect clusters, import nodes, set policies, stop writes.

Each works in the caller's transaction and writes an audit row. Calls no cluster: that is `reconcile`.
"""

from __future__ import annotations

import re
import secrets as random
from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb

from app.accounts import audit
from app.inventory import vault
from app.inventory.catalogue import read_catalogue
from app.inventory.facts import Cluster
from app.inventory.importing import import_nodes
from app.inventory.policy import Policy, WrongPolicy
from app.inventory.queries import cluster_named
from app.inventory.rules import may_operate
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Invalid, NotFound, Reason
from app.plumbing.db import Work

__all__ = [
    "connect_cluster",
    "import_nodes",
    "load_catalogue",
    "look_now",
    "make_installation",
    "set_policy",
    "set_writes",
]

_CLUSTER_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")


def make_installation(work: Work) -> str:
    """Give this installation its id, once: eight characters of `[0-9a-z]` that stand in every name on a cluster."""
    letters = "0123456789abcdefghjkmnpqrstvwxyz"
    work.pg.execute(
        "INSERT INTO installation VALUES (true, %s, %s) ON CONFLICT (one) DO NOTHING",
        ["".join(random.choice(letters) for _ in range(8)), work.wall],
    )
    return work.pg.execute("SELECT id FROM installation").fetchone()[0]


def load_catalogue(work: Work) -> int:
    """Bring the accelerator kinds of the catalogue up to date, and answer how many there are. Kinds that are not in the
    file stay as they are."""
    kinds = read_catalogue()
    with work.pg.cursor() as cursor:
        cursor.executemany(
            """INSERT INTO kinds (slug, name, vendor, memory_gb, tdp_watts, node_kw, units_per_node, facts)
               VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
               ON CONFLICT (slug) DO UPDATE SET name = excluded.name, vendor = excluded.vendor,
                 memory_gb = excluded.memory_gb, tdp_watts = excluded.tdp_watts, node_kw = excluded.node_kw,
                 units_per_node = excluded.units_per_node, facts = excluded.facts
               WHERE (kinds.name, kinds.vendor, kinds.memory_gb, kinds.tdp_watts, kinds.node_kw, kinds.units_per_node,
                      kinds.facts) IS DISTINCT FROM (excluded.name, excluded.vendor, excluded.memory_gb,
                      excluded.tdp_watts, excluded.node_kw, excluded.units_per_node, excluded.facts)""",
            [
                (k.slug, k.name, k.vendor, k.memory_gb, k.tdp_watts, k.node_kw, k.units_per_node, Jsonb(dict(k.facts)))
                for k in kinds
            ],
        )
    return len(kinds)


def connect_cluster(
    work: Work,
    actor: Actor,
    name: str,
    backend: str,
    config: Mapping[str, Any],
    *,
    secrets: Mapping[str, str] | None = None,
    key: str | None = None,
    writes: bool = True,
    billed: bool = True,
) -> Cluster:
    """Make a cluster known. Its nodes come by import or by the next look at it, which is due at once.

    `secrets` are sealed with `key` (the installation's) and never shown again. `writes` off is observe-only.
    """
    may_operate(actor)
    if not _CLUSTER_NAME.fullmatch(name):
        raise _wrong(
            "name", f"“{name[:80]}” is no name of a cluster: lower-case letters, digits, dots and dashes, at most 63."
        )
    if secrets and not key:
        raise ValueError("secrets are sealed with a key")
    sealed = vault.seal(key, secrets) if secrets and key else None
    made = work.pg.execute(
        """INSERT INTO clusters (name, backend, config, secret, writes, failures, billed)
           VALUES (%s, %s, %s, %s, %s, 0, %s) ON CONFLICT (name) DO NOTHING RETURNING id""",
        [name, backend, Jsonb(dict(config)), sealed, writes, billed],
    ).fetchone()
    if made is None:
        raise Conflict("cluster_exists", f"There is a cluster called {name} already.")
    after = {"backend": backend, "writes": writes, "billed": billed, "secrets": sorted(secrets or ())}
    audit.record(work, actor, "connect cluster", f"cluster {name}", None, after, platform=True)
    return cluster_named(work, name)


def set_writes(work: Work, actor: Actor, cluster: str, on: bool) -> Cluster:
    """Turn the switch that stops all writes of Berth to a cluster. Looking goes on either way."""
    may_operate(actor)
    before = cluster_named(work, cluster)
    if before.writes != on:
        work.pg.execute("UPDATE clusters SET writes = %s WHERE id = %s", [on, before.id])
        # whoever has decided on a booking there under the pool's lock must see the switch
        work.pg.execute("UPDATE pools SET version = version + 1 WHERE cluster_id = %s", [before.id])
        verb = "start writes" if on else "stop writes"
        audit.record(work, actor, verb, f"cluster {cluster}", {"writes": before.writes}, {"writes": on}, platform=True)
    return cluster_named(work, cluster)


def set_policy(
    work: Work, actor: Actor, cluster: str, pool: str, words: Mapping[str, Any], gap_seconds: int | None = None
) -> Policy:
    """Set a pool's policy; `words` are whole seconds by the names of `Policy`, what is left out is the default."""
    may_operate(actor)
    row = work.pg.execute(
        """SELECT p.id, p.policy, p.gap_seconds FROM pools p JOIN clusters c ON c.id = p.cluster_id
            WHERE c.name = %s AND p.name = %s FOR NO KEY UPDATE OF p""",
        [cluster, pool],
    ).fetchone()
    if row is None:
        raise NotFound("pool_not_found", f"There is no pool {pool[:80]} on {cluster[:80]}.")
    pool_id, before, gap_before = row
    gap = gap_before if gap_seconds is None else gap_seconds
    try:
        policy = Policy.of(words, gap)
    except WrongPolicy as wrong:
        raise Invalid(
            "wrong_policy", str(wrong), tuple(Reason("wrong_policy", fault, in_request=True) for fault in wrong.faults)
        ) from None
    work.pg.execute(
        "UPDATE pools SET policy = %s, gap_seconds = %s, version = version + 1 WHERE id = %s",
        [Jsonb(policy.words()), gap, pool_id],
    )
    audit.record(
        work,
        actor,
        "set policy",
        f"pool {cluster}/{pool}",
        {**before, "gap": gap_before},
        {**policy.words(), "gap": gap},
        platform=True,
    )
    return policy


def look_now(work: Work, actor: Actor, cluster: str) -> Cluster:
    """Make the next look at a cluster due at once, whatever its back-off."""
    may_operate(actor)
    found = cluster_named(work, cluster)
    work.pg.execute("UPDATE clusters SET retry_at = NULL WHERE id = %s", [found.id])
    return cluster_named(work, cluster)


def _wrong(field: str, sentence: str) -> Invalid:
    return Invalid("not_valid", sentence, (Reason("not_valid", sentence, field=field, in_request=True),))
