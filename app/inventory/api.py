"""The JSON routes of the inventory: nodes, kinds, clusters; and operators' verbs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response

from app.backends.contract import BackendError
from app.inventory import actions, queries, reconcile, reconcile_connect
from app.inventory.facts import KindOffered
from app.inventory.schemas import (
    ClusterIn,
    WritesIn,
    cluster_json,
    cursor_after,
    imported_json,
    kind_json,
    node_json,
    read_cursor,
)
from app.kernel.errors import Unavailable
from app.plumbing.db import Work
from app.plumbing.queue import send_after_commit
from app.web.deps import AnyActor, InTransaction, Operator, Parts
from app.web.security import UPLOAD_LIMIT

router = APIRouter(prefix="/api/v1", tags=["inventory"])


@router.get("/nodes")
def list_nodes(
    work: InTransaction,
    _actor: AnyActor,
    kind: Annotated[str | None, Query(max_length=80)] = None,
    cluster: Annotated[str | None, Query(max_length=80)] = None,
    state: Annotated[str | None, Query(pattern="^(ready|drained|down|unknown)$")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[str | None, Query(max_length=600)] = None,
) -> dict[str, Any]:
    """Nodes as they are now, by cluster and name. `free` can be booked from now; a node that is not ready has none."""
    found = queries.nodes_now(work, kind=kind, cluster=cluster, state=state, after=read_cursor(cursor), limit=limit + 1)
    page = found[:limit]
    return {
        "items": [node_json(node) for node in page],
        "next": cursor_after(page[-1]) if len(found) > limit else None,
    }


@router.get("/kinds")
def list_kinds(work: InTransaction, _actor: AnyActor, offered: bool = False) -> dict[str, Any]:
    """Accelerator kinds with where they are offered; `offered=true` leaves out those that no cluster has."""
    by_kind: dict[str, list[KindOffered]] = {}
    for one in queries.kinds_offered(work):
        by_kind.setdefault(one.kind, []).append(one)
    kinds = queries.kinds(work).values()
    items = [kind_json(kind, by_kind.get(kind.slug, [])) for kind in kinds if not offered or kind.slug in by_kind]
    return {"items": items, "next": None}


@router.get("/clusters")
def list_clusters(work: InTransaction, actor: AnyActor) -> dict[str, Any]:
    """Clusters. How they are connected is shown to the platform's operators and auditors."""
    items = _clusters(work, operator=bool(actor.platform_roles & {"operator", "auditor"}))
    return {"items": items, "next": None}


@router.post("/clusters", status_code=201)
def connect(body: ClusterIn, work: InTransaction, actor: Operator, parts: Parts, response: Response) -> dict[str, Any]:
    """Connect a cluster. Berth looks at it at once. Settings that its backend refuses are a 422 with the reason."""
    config = reconcile_connect.with_defaults(parts, body.name, body.backend, body.config)
    reconcile_connect.refuse_wrong(parts, body.backend, config, body.secrets)
    key = parts.settings.secret_key
    made = actions.connect_cluster(
        work,
        actor,
        body.name,
        body.backend,
        config,
        secrets=body.secrets,
        key=key.get_secret_value() if key else None,
        writes=body.writes,
        billed=body.billed,
    )
    send_after_commit(work, parts.queue, "reconcile.look", made.id)
    response.headers["Location"] = f"/api/v1/clusters/{made.name}"
    return cluster_json(made, [], operator=True)


@router.get("/clusters/{name}")
def show_cluster(name: str, work: InTransaction, actor: AnyActor) -> dict[str, Any]:
    """One cluster."""
    queries.cluster_named(work, name)
    operator = bool(actor.platform_roles & {"operator", "auditor"})
    return next(c for c in _clusters(work, operator=operator) if c["name"] == name)


@router.post("/clusters/{name}/nodes/import", max_body_size=UPLOAD_LIMIT)
def import_nodes(
    name: str,
    work: InTransaction,
    actor: Operator,
    parts: Parts,
    text: Annotated[bytes, Body(media_type="text/csv")],
    pool: Annotated[str | None, Query(max_length=63)] = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Take nodes from a CSV list: all of them or, with every fault listed, none. Two forms, decided by the header."""
    done = actions.import_nodes(work, actor, name, text, pool=pool or None, dry_run=dry_run)
    if not dry_run:
        send_after_commit(work, parts.queue, "reconcile.look", queries.cluster_named(work, name).id)
    return imported_json(done)


@router.post("/clusters/{name}/nodes/define")
def define_nodes(name: str, work: InTransaction, actor: Operator, parts: Parts) -> dict[str, Any]:
    """Build the inventory's nodes in a simulated cluster's own log. A real cluster has its nodes by itself: 503."""
    cluster = queries.cluster_named(work, name)

    def define() -> None:  # after the commit: no transaction is open while a cluster is called
        try:
            reconcile.define_on_backend(parts, actor, name)
        except BackendError as error:
            raise Unavailable(f"backend_{error.kind}", error.sentence) from error

    work.after_commit(define)
    work.after_commit(lambda: parts.queue.send("reconcile.look", cluster.id))
    return {"cluster": name}


@router.post("/clusters/{name}/look", status_code=202)
def look(name: str, work: InTransaction, actor: Operator, parts: Parts) -> dict[str, Any]:
    """Look at a cluster as soon as possible, whatever its back-off."""
    cluster = actions.look_now(work, actor, name)
    send_after_commit(work, parts.queue, "reconcile.look", cluster.id)
    return cluster_json(cluster, [], operator=True)


@router.put("/clusters/{name}/writes")
def switch_writes(name: str, body: WritesIn, work: InTransaction, actor: Operator) -> dict[str, Any]:
    """Stop, or start again, all writes of Berth to a cluster. Looking goes on either way."""
    return cluster_json(actions.set_writes(work, actor, name, body.on), [], operator=True)


def _clusters(work: Work, *, operator: bool) -> list[dict[str, Any]]:
    by_cluster: dict[str, list[KindOffered]] = {}
    for one in queries.kinds_offered(work):
        by_cluster.setdefault(one.cluster, []).append(one)
    return [cluster_json(c, by_cluster.get(c.name, []), operator=operator) for c in queries.clusters(work)]
