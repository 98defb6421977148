"""The inventory by its routes: shapes, pages, imports refused whole, and who may do what."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from app.inventory import actions, queries, reconcile
from app.kernel.actor import SYSTEM
from tests.accounts.world import ADDRESS
from tests.accounts.world import World as People
from tests.inventory.world import RICH, START
from tests.servers import TestDatabase

NODES = RICH + "n1,h100-sxm-80gb,8,r1,l1,v1,,,\nn2,h100-sxm-80gb,8,r1,l1,v2,,,\nn3,mi300x-192gb,4,r2,l2,,,,\n"


@pytest.fixture
def people(database: TestDatabase, valkey_url: str, tmp_path: Path) -> Iterator[People]:
    """People of every role, and one simulated cluster that was looked at."""
    made = People(database, valkey_url)
    with psycopg.connect(database.owner_url) as connection:
        connection.execute("UPDATE clock SET movable = true, frozen = %s", [START])
    with made.plumbing.database.work() as work:
        actions.make_installation(work)
        actions.load_catalogue(work)
        actions.connect_cluster(work, SYSTEM, "sim", "simulated", {"path": str(tmp_path / "sim.sqlite")})
        actions.import_nodes(work, SYSTEM, "sim", NODES)
        cluster = queries.cluster_named(work, "sim")
    reconcile.define_on_backend(made.plumbing, SYSTEM, "sim")
    assert reconcile.sync_cluster(made.plumbing, cluster.id).error is None
    yield made
    made.close()


def test_nodes_kinds_and_clusters_in_their_shapes(people: People) -> None:
    member = people.api(people.token(people.tenants["acme"].people["member"], "acme", "read"))
    first = member.get("/api/v1/nodes", params={"limit": 2}).json()
    assert first["items"][0] == {
        "name": "n1",
        "cluster": "sim",
        "kind": "h100-sxm-80gb",
        "units": 8,
        "free": 8,
        "external": 0,
        "unhealthy": 0,
        "state": "ready",
        "rack": "r1",
        "leaf": "l1",
        "nvlink": "v1",
        "observed_at": "2026-11-30T12:00:00Z",
        "maintenance": None,
    }
    second = member.get("/api/v1/nodes", params={"limit": 2, "cursor": first["next"]}).json()
    assert [node["name"] for node in second["items"]] == ["n3"]
    assert second["next"] is None
    assert [n["name"] for n in member.get("/api/v1/nodes?kind=mi300x-192gb").json()["items"]] == ["n3"]
    assert member.get("/api/v1/nodes?cursor=nonsense").status_code == 422
    kinds = member.get("/api/v1/kinds?offered=true").json()["items"]
    assert [(k["slug"], k["memory_gb"], k["clusters"]) for k in kinds] == [
        ("h100-sxm-80gb", "80", [{"cluster": "sim", "nodes": 2, "units": 16, "in_service": 16}]),
        ("mi300x-192gb", "192", [{"cluster": "sim", "nodes": 1, "units": 4, "in_service": 4}]),
    ]
    (cluster,) = member.get("/api/v1/clusters").json()["items"]
    assert cluster["enforcement"] == "hard"
    assert not {"config", "backend", "last_error", "probe"} & set(cluster)
    auditor = people.api(people.token(people.platform["auditor"], None, "read"))
    assert auditor.get("/api/v1/clusters/sim").json()["backend"] == "simulated"
    assert auditor.get("/api/v1/clusters/nowhere").status_code == 404
    assert people.api().get("/api/v1/nodes").status_code == 401


def test_external_use_and_faults_are_told_apart_from_free(people: People) -> None:
    from app.inventory.connections import backend_of

    with people.plumbing.database.work() as work:
        cluster = queries.cluster_named(work, "sim")
        actions.look_now(work, SYSTEM, "sim")
    faults = backend_of(people.plumbing, cluster).faults
    faults.foreign_job("n1", (0, 1), until=START + timedelta(hours=1))
    faults.node_ill("n1", 7)
    faults.node_dies("n2")
    reconcile.sync_cluster(people.plumbing, cluster.id)
    auditor = people.api(people.token(people.platform["auditor"], None, "read"))
    n1, n2, _n3 = auditor.get("/api/v1/nodes").json()["items"]
    assert (n1["units"], n1["free"], n1["external"], n1["unhealthy"], n1["state"]) == (8, 5, 2, 1, "ready")
    assert (n2["free"], n2["state"]) == (0, "down")


def test_an_import_by_api_is_whole_or_nothing(people: People) -> None:
    operator = people.api(people.token(people.platform["operator"], None, "read", "manage"))
    csv = {"Content-Type": "text/csv"}
    where = "/api/v1/clusters/sim/nodes/import"
    refused = operator.post(where, content="name,kind,gpus\nm1,h100,8\nm2,h1000,8\nm1,h100,99\n", headers=csv)
    assert refused.status_code == 422
    assert refused.headers["content-type"].startswith("application/problem+json")
    assert [r["message"].split(":")[0] for r in refused.json()["reasons"]] == ["Line 3", "Line 4", "Line 4"]
    assert len(operator.get("/api/v1/nodes").json()["items"]) == 3
    tried = operator.post(where + "?dry_run=true", content="name,kind,gpus\nm1,h100,8\n", headers=csv)
    assert (tried.status_code, tried.json()["added"], tried.json()["dry_run"]) == (200, 1, True)
    assert len(operator.get("/api/v1/nodes").json()["items"]) == 3
    assert operator.post(where, content="name,kind,gpus\nm1,h100,8\n", headers=csv).json()["added"] == 1
    assert operator.get("/api/v1/nodes?state=unknown").json()["items"][0]["name"] == "m1"
    assert operator.post("/api/v1/clusters/sim/nodes/define").status_code == 200
    with people.plumbing.database.work() as work:
        cluster = queries.cluster_named(work, "sim")
    assert reconcile.sync_cluster(people.plumbing, cluster.id).error is None
    assert operator.get("/api/v1/nodes?kind=h100-sxm-80gb").json()["items"][0]["free"] == 8


def test_operators_verbs_are_for_operators(people: People) -> None:
    calls = [
        ("POST", "/api/v1/clusters", {"name": "new", "backend": "simulated", "config": {"path": "x"}}),
        ("POST", "/api/v1/clusters/sim/look", None),
        ("POST", "/api/v1/clusters/sim/nodes/define", None),
        ("PUT", "/api/v1/clusters/sim/writes", {"on": False}),
        ("PUT", "/api/v1/clusters/sim/pools/h100-sxm-80gb/policy", {"policy": {"grid": 60}}),
    ]
    others = [
        people.token(people.tenants["acme"].people["tenant-admin"], "acme", "read", "manage", "admin"),
        people.token(people.platform["finance"], None, "read", "manage"),
        people.token(people.platform["operator"], None, "read"),
    ]
    for token in others:
        for method, path, body in calls:
            assert people.api(token).request(method, path, json=body).status_code == 403, (method, path)
    operator = people.api(people.token(people.platform["operator"], None, "read", "manage"))
    for method, path, body in calls:
        answer = operator.request(method, path, json=body)
        assert answer.status_code in (200, 201, 202), (method, path, answer.text)
    assert operator.get("/api/v1/clusters/sim").json()["writes"] is False
    wrong = operator.put("/api/v1/clusters/sim/pools/h100-sxm-80gb/policy", json={"policy": {"grid": 0}})
    assert wrong.status_code == 422


def test_the_inventory_page_imports_and_shows_every_fault(people: People) -> None:
    browser = people.browser(people.platform["operator"])
    page = browser.see("/operator/inventory")
    assert page.status_code == 200
    assert "3 nodes with 20 units" in page.text
    assert "n3" not in browser.see("/operator/inventory?kind=h100-sxm-80gb").text

    def send(text: str, **fields: str):
        return browser.post(
            "/operator/inventory/import",
            data={"csrf_token": browser.form_token, "cluster": "sim", **fields},
            files={"file": ("list.csv", text, "text/csv")},
            headers={"Origin": ADDRESS},
        )

    bad = send("name,kind,gpus\nm1,h100,8\nm2,<b>h1000</b>,8\n")
    assert bad.status_code == 422
    assert "Nothing was changed" in bad.text
    assert "<b>h1000" not in bad.text
    tried = send("name,kind,gpus\nm1,h100,8\n", dry_run="1")
    assert "1 nodes would be added" in tried.text
    assert "3 nodes" in browser.see("/operator/inventory").text
    assert "1 nodes added" in send("name,kind,gpus\nm1,h100,8\n").text
    listed = browser.get("/operator/inventory.csv")
    assert listed.text.splitlines()[:2] == [
        "name,kind,gpus,rack,leaf,nvlink,power_watts,cpu_milli,memory_mib,layout",
        "m1,h100-sxm-80gb,8,,,,,,,",
    ]
    again = send(listed.text)
    assert "0 nodes added" in again.text
    member = people.browser(people.tenants["acme"].people["member"])
    assert member.see("/operator/inventory").status_code == 403
    assert member.get("/operator/inventory.csv").status_code == 403
