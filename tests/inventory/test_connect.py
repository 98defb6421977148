"""Connecting a cluster: what its own backend says of the settings, before anything is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import pytest

from app.backends import registry
from app.backends.contract import BackendError, Probe, ProbeStep
from app.inventory import actions, queries
from app.inventory.pages_connect import read_lines
from app.kernel.errors import Invalid
from tests.accounts.world import World as People
from tests.servers import TestDatabase

FORM = {"name": "alps", "backend": "simulated", "settings": "", "secrets": "", "writes": "1", "billed": "1"}


@pytest.fixture
def people(database: TestDatabase, valkey_url: str, tmp_path: Path) -> Iterator[People]:
    """People of every role, and no cluster."""
    made = People(database, valkey_url, data=tmp_path, secret_key="k" * 40)
    with made.plumbing.database.work() as work:
        actions.make_installation(work)
        actions.load_catalogue(work)
    yield made
    made.close()


@pytest.fixture
def operator(people: People):
    browser = people.browser(people.platform["operator"])
    assert browser.see("/operator/clusters/connect").status_code == 200
    return browser


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> type:
    """A backend that wants a secret, and whose cluster does as it is told."""

    class Other:
        limit_seconds = 5.0
        answer: Probe | BackendError = Probe(False, "", (ProbeStep("log in", False, "The token is refused."),), None)

        def __init__(self, config, clock, secrets) -> None:
            self.token = secrets("token")
            self.config = dict(config)

        def probe(self) -> Probe:
            if isinstance(Other.answer, BackendError):
                raise Other.answer
            return Other.answer

    Other.__module__ = __name__
    known = registry.backend_class
    monkeypatch.setattr(registry, "backend_class", lambda name: Other if name == "other" else known(name))
    monkeypatch.setattr("app.inventory.reconcile_connect.backend_class", registry.backend_class)
    return Other


def clusters(people: People) -> list[str]:
    with people.plumbing.database.work() as work:
        return [c.name for c in queries.clusters(work)]


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({"backend": "slrm"}, "backend", "no kind of cluster called “slrm” here. Installed: "),
        ({"config": {"paht": "x"}}, "config", "knows no setting paht"),
        ({"config": {"path": "x", "seed": "many"}}, "config", "is not a number"),
        ({"name": "Alps!"}, "name", "is no name of a cluster"),
    ],
)
def test_the_api_refuses_what_could_never_work(people: People, body: dict, field: str, said: str) -> None:
    api = people.api(people.token(people.platform["operator"], None, "read", "manage"))
    answer = api.post("/api/v1/clusters", json={"name": "alps", "backend": "simulated", **body})
    assert answer.status_code == 422
    (reason,) = answer.json()["reasons"]
    assert reason["field"] == field
    assert said in reason["message"]
    assert clusters(people) == []


def test_a_simulated_cluster_needs_no_settings(people: People, operator, tmp_path: Path) -> None:
    answer = operator.submit("/operator/clusters/connect", **FORM, step="connect")
    assert answer.headers["location"] == "/operator/clusters?cluster=alps"
    with people.plumbing.database.work() as work:
        made = queries.cluster_named(work, "alps")
    assert made.config == MappingProxyType({"path": str(tmp_path / "cluster-alps.sqlite")})
    assert made.writes
    again = operator.submit("/operator/clusters/connect", **FORM, step="connect")
    assert again.status_code == 409
    assert "There is a cluster called alps already" in again.text


def test_a_test_keeps_nothing_and_says_what_is_missing(people: People, operator) -> None:
    answer = operator.submit("/operator/clusters/connect", **FORM, step="test")
    assert answer.status_code == 200
    assert "No nodes are defined yet." in answer.text
    assert "can be connected now and completed later" in answer.text
    assert clusters(people) == []


def test_observe_only_is_a_choice(people: People, operator) -> None:
    operator.submit("/operator/clusters/connect", **{**FORM, "writes": "", "billed": ""}, step="connect")
    with people.plumbing.database.work() as work:
        made = queries.cluster_named(work, "alps")
    assert (made.writes, made.billed) == (False, False)


def test_what_is_wrong_stands_at_its_field(people: People, operator, other) -> None:
    for fields, said in (
        ({"settings": "path x"}, "Line 1 is not written as name = value."),
        ({"settings": "paht = x"}, "knows no setting paht"),
        ({"backend": "nothing"}, "no kind of cluster called “nothing”"),
        ({"backend": "other"}, "The secret “token” is missing."),
        ({"name": "Alps!", "step": "connect"}, "is no name of a cluster"),
    ):
        answer = operator.submit("/operator/clusters/connect", **{**FORM, "step": "test", **fields})
        assert answer.status_code == 422
        assert said in answer.text
    assert clusters(people) == []


def test_one_that_does_not_let_us_in_is_connected_only_on_purpose(people: People, operator, other) -> None:
    form = {**FORM, "backend": "other", "secrets": "token = very-secret-word", "step": "connect"}
    for answer_of_the_cluster, said in (
        (other.answer, "The token is refused."),
        (BackendError("unreachable", "Nobody answers at that address."), "Nobody answers at that address."),
    ):
        other.answer = answer_of_the_cluster
        answer = operator.submit("/operator/clusters/connect", **form)
        assert answer.status_code == 409
        assert said in answer.text
        assert "very-secret-word" not in answer.text
        assert clusters(people) == []
    assert operator.submit("/operator/clusters/connect", **form, anyway="1").status_code == 303
    assert clusters(people) == ["alps"]
    with people.plumbing.database.work() as work:
        sealed = queries.sealed_secret(work, queries.cluster_named(work, "alps").id)
        assert work.pg.execute(
            "SELECT count(*) FROM platform_audit WHERE after::text LIKE '%very-secret%'"
        ).fetchone() == (0,)
    assert sealed is not None
    assert b"very-secret-word" not in sealed


def test_nodes_of_a_list_are_built_in_a_simulated_cluster(people: People, operator) -> None:
    from app.inventory import reconcile

    operator.submit("/operator/clusters/connect", **FORM, step="connect")
    from tests.accounts.world import ADDRESS

    page = operator.post(
        "/operator/inventory/import",
        data={"csrf_token": operator.form_token, "cluster": "alps"},
        files={"file": ("list.csv", "name,kind,gpus\nm1,h100,8\n", "text/csv")},
        headers={"Origin": ADDRESS},
    )
    assert "/operator/clusters/alps/define" in page.text
    assert operator.submit("/operator/clusters/alps/define").status_code == 303
    with people.plumbing.database.work() as work:
        cluster = queries.cluster_named(work, "alps")
    assert reconcile.sync_cluster(people.plumbing, cluster.id).nodes == 1


def test_lines_are_read_as_they_are_meant() -> None:
    text = '# a comment\n\nurl = https://x.example:6820/a=b\nseed: 7\nhard=true\nparts = ["a"]\nempty =\n'
    assert read_lines(text, "config") == {
        "url": "https://x.example:6820/a=b", "seed": 7, "hard": True, "parts": ["a"], "empty": "",
    }  # fmt: skip
    assert read_lines("token = 007", "secrets", plain=True) == {"token": "007"}
    for wrong in ("a = 1\na = 2", "just-a-secret", "= x"):
        with pytest.raises(Invalid) as refused:
            read_lines(wrong, "secrets")
        assert "just-a-secret" not in refused.value.detail
