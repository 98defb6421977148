"""The operator's inventory: nodes as they are now, and the import of lists of nodes."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Form, Query, Response, UploadFile

from app.inventory import actions, pages_connect, queries
from app.inventory.facts import NodeNow
from app.inventory.rules import FULL_FORM, LIST_FORM, NodesRefused
from app.inventory.schemas import cursor_after, read_cursor
from app.kernel.actor import Actor
from app.plumbing.db import Work
from app.plumbing.queue import send_after_commit
from app.web import words
from app.web.deps import InTransaction, Operator, Parts, require_platform
from app.web.page import OnPage
from app.web.security import UPLOAD_LIMIT
from app.web.views.operator import ImportFault, ImportForm, ImportResult, InventoryPage, NodeRow
from app.web.views.parts import Action, Link, Option, Pager

router = APIRouter(include_in_schema=False)
router.include_router(pages_connect.router)

OperatorReader = Annotated[Actor, Depends(require_platform("read", "operator", "auditor"), scope="function")]
_ON_A_PAGE = 100
_STATES = {"ready": "Ready", "drained": "Drained", "down": "Down", "unknown": "Not observed"}
_TONES: dict[str, Any] = {"ready": "ok", "drained": "warn", "down": "bad", "unknown": "mute"}
Text = Annotated[str, Query(max_length=100)]


@router.get("/operator/inventory")
def inventory_page(
    page: OnPage,
    work: InTransaction,
    _actor: OperatorReader,
    cluster: Text = "",
    kind: Text = "",
    state: Text = "",
    q: Text = "",
    cursor: Annotated[str | None, Query(max_length=600)] = None,
) -> Response:
    """Nodes, those of a cluster, kind or state, or found by name or rack."""
    return page.show(_view(work, page.frame.zone, cluster, kind, state if state in _STATES else "", q, cursor))


@router.post("/operator/inventory/import", max_body_size=UPLOAD_LIMIT)
def import_page(
    page: OnPage,
    work: InTransaction,
    actor: Operator,
    parts: Parts,
    file: UploadFile,
    cluster: Annotated[str, Form(max_length=100)],
    pool: Annotated[str, Form(max_length=63)] = "",
    dry_run: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """Import a list, or see what an import would do. With a faulty line nothing is changed and all faults are shown."""
    called = (file.filename or "The list")[:80]
    text = file.file.read()
    try:
        done = actions.import_nodes(work, actor, cluster, text, pool=pool or None, dry_run=bool(dry_run))
    except NodesRefused as refused:
        faults = tuple(ImportFault(f.line, f.column, f.message) for f in refused.faults)
        lines = max(text.count(b"\n") - 1, 0) + (0 if text.endswith(b"\n") else 1)
        result = ImportResult(called, lines, 0, 0, 0, 0, faults)
        return page.show(_view(work, page.frame.zone, cluster, "", "", "", None, result), 422)
    if not dry_run:
        send_after_commit(work, parts.queue, "reconcile.look", queries.cluster_named(work, cluster).id)
    result = ImportResult(
        called,
        done.lines,
        done.added,
        done.changed,
        done.unchanged,
        done.units,
        preview=done.dry_run,
        actions=_after_import(work, cluster, done.dry_run),
    )
    return page.show(_view(work, page.frame.zone, cluster, "", "", "", None, result))


@router.get("/operator/inventory.csv")
def inventory_csv(
    work: InTransaction, _actor: OperatorReader, cluster: Text = "", kind: Text = "", state: Text = "", q: Text = ""
) -> Response:
    """The nodes in the form that the import takes."""
    rows = queries.nodes_listed(work, kind=kind or None, cluster=cluster or None, state=state or None, words=q or None)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(FULL_FORM)
    writer.writerows([_plain(cell) for cell in row] for row in rows)
    headers = {"Content-Disposition": 'attachment; filename="nodes.csv"'}
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def _after_import(work: Work, cluster: str, dry_run: bool) -> tuple[Action, ...]:
    """A simulated cluster has no nodes of its own: they are built from the list."""
    if dry_run or queries.cluster_named(work, cluster).backend != "simulated":
        return ()
    return (
        Action("Build these nodes in the simulated cluster", f"/operator/clusters/{cluster}/define", style="primary"),
    )


def _view(
    work: Work, zone: str, cluster: str, kind: str, state: str, q: str, cursor: str | None,
    result: ImportResult | None = None,
) -> InventoryPage:  # fmt: skip
    now = work.product_now()
    found = queries.nodes_now(
        work,
        kind=kind or None,
        cluster=cluster or None,
        state=state or None,
        words=q or None,
        after=read_cursor(cursor),
        limit=_ON_A_PAGE + 1,
    )
    nodes = found[:_ON_A_PAGE]
    offered = queries.kinds_offered(work)
    names = [c.name for c in queries.clusters(work)]
    kinds = queries.kinds(work)
    mine = [o for o in offered if not cluster or o.cluster == cluster]
    units, in_service = sum(o.units for o in mine), sum(o.in_service for o in mine)
    asked = {"kind": kind, "state": state, "q": q}
    here = {**asked, "cluster": cluster}
    return InventoryPage(
        sentence=_sentence(sum(o.nodes for o in mine), units, units - in_service),
        clusters=(
            Link("All", _href(asked), not cluster),
            *(Link(name, _href({**asked, "cluster": name}), name == cluster) for name in names),
        ),
        kinds=(
            Option("", "All kinds", not kind),
            *(Option(slug, kinds[slug].name, slug == kind) for slug in sorted({o.kind for o in offered})),
        ),
        states=(
            Option("", "All states", not state),
            *(Option(value, label, value == state) for value, label in _STATES.items()),
        ),
        nodes=tuple(_row(node, kinds[node.kind].name, now, zone) for node in nodes),
        form=ImportForm(
            clusters=tuple(Option(name, name, name == cluster) for name in names),
            formats=(
                ("Our own", ",".join(FULL_FORM)),
                ("Alibaba v2023 node list", ",".join(LIST_FORM)),
            ),
        ),
        query=q,
        hidden=(("cluster", cluster),) if cluster else (),
        result=result,
        pager=Pager(next=_href({**here, "cursor": cursor_after(nodes[-1])}) if len(found) > _ON_A_PAGE else None),
        csv=_href(here, "/operator/inventory.csv"),
    )


def _sentence(nodes: int, units: int, out: int) -> str:
    if not nodes:
        return "No node is known yet."
    head = f"{words.count(nodes, 'node')} with {words.count(units, 'unit')}. "
    return head + (f"{words.count(out, 'unit')} out of service." if out else "All are in service.")


def _row(node: NodeNow, kind: str, now: datetime, zone: str) -> NodeRow:
    state, tone, notes = _STATES[node.state], _TONES[node.state], [node.why or ""]
    if node.maintenance is not None:
        name, start, end = node.maintenance
        if node.worked_on(now):
            state, tone = ("In maintenance", "warn") if node.state == "ready" else (state, tone)
            notes.append(f"{name}, until {words.moment(end, zone, now)}")
        else:
            notes.append(f"{name} from {words.moment(start, zone, now)}")
    return NodeRow(
        name=node.name,
        cluster=node.cluster,
        kind=kind,
        units=node.units,
        free=node.free,
        external=node.external,
        unhealthy=node.unhealthy,
        state=state,
        tone=tone,
        rack=node.rack or "",
        leaf=node.leaf or "",
        nvlink=node.nvlink or "",
        observed_at=node.observed_at,
        note=". ".join(filter(None, (n.rstrip(".") for n in notes))),
    )


def _href(query: dict[str, str], path: str = "/operator/inventory") -> str:
    said = urlencode({name: value for name, value in query.items() if value})
    return f"{path}?{said}" if said else path


def _plain(cell: object) -> object:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
