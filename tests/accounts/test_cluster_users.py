"""User names on clusters: by claim, by rule, or entered and confirmed; one person a name."""

from __future__ import annotations

import pytest

from app.accounts import cluster_users, groups
from app.accounts.groups import Identity
from app.accounts.rules import cluster_user_of, wrong_cluster_user
from app.inventory import actions as inventory
from app.kernel.actor import SYSTEM, Actor
from app.kernel.errors import Conflict, Forbidden, Invalid, NotFound
from tests.accounts.world import World


@pytest.fixture
def clusters(world: World) -> dict[str, int]:
    """Two clusters and their numbers."""
    with world.work() as work:
        return {
            name: inventory.connect_cluster(work, SYSTEM, name, "simulated", {"path": "unused"}).id
            for name in ("alps", "delta")
        }


def person(world: World, name: str, email: str) -> Actor:
    with world.work() as work:
        return Actor(world.account(work, name, email=email), name)


def names(world: World, cluster: int, *people: Actor) -> list[str | None]:
    with world.work() as work:
        found = cluster_users.names_on(work, cluster, [p.account_id for p in people])
    return [found.get(p.account_id) for p in people]


@pytest.mark.parametrize(
    ("email", "name"),
    [
        ("lena@example.test", "lena"), ("Zoë.Müller+x@example.test", "zoe-muller-x"), ("lena", "lena"),
        ("1st@example.test", "u-1st"), ("-dash-@example.test", "dash"), ("root@example.test", "u-root"),
        ("Slurm@example.test", "u-slurm"), ("a" * 60 + "@x.test", "a" * 32), ("山田@example.test", None), ("", None),
        ("@example.test", None), ("_x@example.test", "_x"),
    ],
)  # fmt: skip
def test_the_rule_makes_a_name_that_every_cluster_takes(email: str, name: str | None) -> None:
    assert cluster_user_of(email) == name
    assert name is None or wrong_cluster_user(name) is None


def test_people_of_the_same_first_part_get_names_of_their_own_on_each_cluster(world: World, clusters) -> None:
    first = person(world, "one", "lena@physics.example")
    second = person(world, "two", "lena@bio.example")
    assert names(world, clusters["alps"], second) == ["lena"]  # who comes first has it
    assert names(world, clusters["alps"], first, second) == ["lena2", "lena"]
    assert names(world, clusters["delta"], first) == ["lena"]  # another cluster, another list
    with world.work() as work:  # a new address changes nothing: files on the cluster belong to the name
        work.pg.execute("UPDATE accounts SET email = 'new@x.example' WHERE id = %s", [first.account_id])
    assert names(world, clusters["alps"], first) == ["lena2"]


def test_without_an_address_there_is_no_name(world: World, clusters) -> None:
    assert names(world, clusters["alps"], person(world, "none", "")) == [None]


def test_the_providers_claim_goes_before_what_a_rule_made_up(world: World, clusters) -> None:
    other = person(world, "rule", "pone@x.example")
    assert names(world, clusters["alps"], other) == ["pone"]
    identity = Identity("https://sso.example", "s-1", "Person One", "person.one@x.example", (), cluster_user="pone")
    with world.work() as work:
        claimed = Actor(groups.account_of(work, identity, ()), "Person One")
    assert names(world, clusters["alps"], claimed) == ["pone"]
    assert names(world, clusters["alps"], other) == ["pone2"]
    again = Identity("https://sso.example", "s-1", "Person One", "person.one@x.example", (), cluster_user="p1")
    with world.work() as work:
        groups.account_of(work, again, ())
    assert names(world, clusters["alps"], claimed) == ["p1"]


def test_a_claim_that_is_a_machines_own_user_counts_as_none(world: World, clusters) -> None:
    identity = Identity("https://sso.example", "s-2", "Eve", "eve@x.example", (), cluster_user="root")
    with world.work() as work:
        eve = Actor(groups.account_of(work, identity, ()), "Eve")
    assert names(world, clusters["alps"], eve) == ["eve"]


def test_nobody_becomes_another_by_typing_a_name(world: World, clusters) -> None:
    lena, eve = person(world, "lena", "lena@x.example"), person(world, "eve", "eve@x.example")
    assert names(world, clusters["alps"], lena, eve) == ["lena", "eve"]
    with world.work() as work, pytest.raises(Conflict):
        cluster_users.ask_for(work, eve, "alps", "lena")
    with world.work() as work, pytest.raises(Invalid):
        cluster_users.ask_for(work, eve, "alps", "root")
    with world.work() as work:
        cluster_users.ask_for(work, eve, "alps", "evelyn")
    assert names(world, clusters["alps"], eve) == ["eve"]
    with world.work() as work, pytest.raises(Forbidden):
        cluster_users.set_name(work, eve, eve.account_id, "alps", "evelyn")
    operator = Actor(world.platform["operator"], "op", platform_roles=frozenset({"operator"}))
    with world.work() as work:
        (waiting,) = cluster_users.waiting(work)
        assert (waiting.person, waiting.cluster, waiting.name, waiting.wanted) == ("eve", "alps", "eve", "evelyn")
        cluster_users.set_name(work, operator, eve.account_id, "alps", "evelyn")
        assert cluster_users.waiting(work) == []
    assert names(world, clusters["alps"], eve) == ["evelyn"]
    with world.work() as work:
        told = work.pg.execute("SELECT after->>'name' FROM platform_audit WHERE action = 'set cluster user'").fetchall()
    assert told == [("evelyn",)]


def test_what_is_refused_leaves_the_name_before_it(world: World, clusters) -> None:
    operator = Actor(world.platform["operator"], "op", platform_roles=frozenset({"operator"}))
    eve, none = person(world, "eve", "eve@x.example"), person(world, "none", "")
    names(world, clusters["alps"], eve)
    for one in (eve, none):
        with world.work() as work:
            cluster_users.ask_for(work, one, "alps", f"x-{one.name}")
            cluster_users.refuse_name(work, operator, one.account_id, "alps")
        with world.work() as work, pytest.raises(NotFound):
            cluster_users.refuse_name(work, operator, one.account_id, "alps")
    assert names(world, clusters["alps"], eve, none) == ["eve", None]


def test_ones_own_page_shows_and_takes_the_name(world: World, clusters) -> None:
    browser = world.browser(world.tenants["acme"].people["member"])
    page = browser.see("/me")
    assert page.text.count("acme-member") >= 2
    assert browser.submit("/me/cluster-users", cluster="alps", name="Bad Name").status_code == 422
    assert "begins with a letter" in browser.submit("/me/cluster-users", cluster="alps", name="Bad Name").text
    assert browser.submit("/me/cluster-users", cluster="alps", name="mem").status_code == 303
    assert "<code>mem</code> waits for an operator" in browser.see("/me").text
    api = world.api(world.token(world.tenants["acme"].people["member"], "acme", "read", "admin"))
    listed = api.get("/api/v1/cluster-users").json()["items"]
    assert listed[0] == {"cluster": "alps", "name": "acme-member", "source": "rule", "wanted": "mem"}
    assert api.put("/api/v1/cluster-users/delta", json={"name": "mem"}).status_code == 202
    assert api.put("/api/v1/cluster-users/nowhere", json={"name": "mem"}).status_code == 404
    operator = world.browser(world.platform["operator"])
    assert "mem" in operator.see("/people").text
    from app.kernel.ids import ACCOUNT, public

    account = public(ACCOUNT, world.tenants["acme"].people["member"])
    assert operator.submit("/people/cluster-users", account=account, cluster="alps", name="mem").status_code == 303
    assert operator.submit("/people/cluster-users", account=account, cluster="delta").status_code == 303
    listed = api.get("/api/v1/cluster-users").json()["items"]
    assert [(u["name"], u["wanted"]) for u in listed] == [("mem", None), ("acme-member", None)]
