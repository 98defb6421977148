"""Routes of the pages that join rooms: home, timeline, projects, the operator's clusters."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Form, Query, Response

from app.dashboards import clusters, home, project, timeline
from app.inventory import actions
from app.inventory import queries as inventory
from app.kernel.actor import Actor
from app.plumbing.queue import send_after_commit
from app.web.deps import AnyActor, InTransaction, Operator, Parts, Reader, require_platform
from app.web.page import OnPage
from app.web.views.operator import ConnectionTestView
from app.web.views.parts import Note

router = APIRouter(include_in_schema=False)

OperatorReader = Annotated[Actor, Depends(require_platform("read", "operator", "auditor"), scope="function")]
Text = Annotated[str, Query(max_length=100)]


@router.get("/")
def home_page(page: OnPage, work: InTransaction, actor: AnyActor) -> Response:
    """What must I do now. People of the platform who act for no tenant begin at their own work."""
    if actor.tenant_id is None:
        roles = actor.platform_roles
        begins = {"operator": "/operator/clusters", "finance": "/finance", "auditor": "/audit"}
        return page.go(next((where for role, where in begins.items() if role in roles), "/scope"))
    return page.show(home.home(work, actor, ZoneInfo(actor.zone), page.project_slug))


@router.get("/timeline")
def timeline_page(
    page: OnPage,
    work: InTransaction,
    actor: AnyActor,
    cluster: Text = "",
    kind: Text = "",
    by: Text = "rack",
    length: Annotated[str, Query(alias="range", max_length=20)] = "week",
    first: Annotated[str, Query(alias="from", max_length=20)] = "",
    opened: Annotated[list[str] | None, Query(alias="open", max_length=200)] = None,
) -> Response:
    """Who has what, when is enough free."""
    asked = timeline.Asked(
        cluster,
        kind,
        by if by in timeline.GROUPINGS else "rack",
        length if length in timeline.RANGES else "week",
        timeline.read_day(first),
        frozenset(opened or ()),
    )
    return page.show(timeline.timeline(work, actor, ZoneInfo(actor.zone), asked))


@router.get("/projects")
def projects_page(page: OnPage, work: InTransaction, actor: Reader) -> Response:
    """The projects that the person may see."""
    return page.show(project.projects_page(work, actor))


@router.get("/projects/{slug}.csv")
def project_csv(slug: str, work: InTransaction, actor: Reader, month: Text = "") -> Response:
    """A project's month as a file, one line a group of the bill."""
    name, text = project.project_csv(work, actor, slug, month)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/projects/{slug}")
def project_page(
    page: OnPage, slug: str, work: InTransaction, actor: Reader, month: Text = "", by: Text = "member"
) -> Response:
    """A project's month."""
    return page.show(project.project_page(work, actor, slug, month, by))


@router.get("/operator/clusters")
def clusters_page(page: OnPage, work: InTransaction, actor: OperatorReader, cluster: Text = "") -> Response:
    """Is a cluster wrong, and what helps."""
    return page.show(clusters.clusters_page(work, actor, cluster))


@router.get("/operator/clusters/{name}/test")
def test_fragment(page: OnPage, name: str, work: InTransaction, actor: OperatorReader) -> Response:
    """The connection test as it stands; without htmx, the page around it."""
    if not page.fragment:
        return page.show(clusters.clusters_page(work, actor, name))
    acts = "operator" in actor.platform_roles
    return page.show(ConnectionTestView(clusters.connection_test(inventory.cluster_named(work, name), acts)))


@router.post("/operator/clusters/{name}/test")
def test_now(page: OnPage, name: str, work: InTransaction, actor: Operator, parts: Parts) -> Response:
    """Look at the cluster at once: its connection, its rights, its nodes."""
    cluster = actions.look_now(work, actor, name)
    send_after_commit(work, parts.queue, "reconcile.look", cluster.id)
    return page.go(f"/operator/clusters?cluster={cluster.name}")


@router.post("/operator/clusters/{name}/writes")
def switch_writes(
    page: OnPage, name: str, work: InTransaction, actor: Operator, on: Annotated[str, Form(max_length=5)] = ""
) -> Response:
    """Stop all writes of Berth to a cluster, or allow them again."""
    cluster = actions.set_writes(work, actor, name, bool(on))
    title = f"Berth writes to {name} again." if cluster.writes else f"Berth writes nothing to {name} any more."
    text = (
        "" if cluster.writes else "What is booked there stays as it is on the cluster. Nothing new can be booked there."
    )
    return page.go(f"/operator/clusters?cluster={cluster.name}", Note("ok" if cluster.writes else "warn", title, text))
