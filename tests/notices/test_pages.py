"""Notices as their person reads them: the page, the bell, the API; and nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from app.accounts import actions as accounts
from app.kernel.actor import SYSTEM, Actor
from app.notices import actions, queries
from app.notices.pages import cursor, read_cursor
from app.notices.wording import say
from app.plumbing import outbox
from tests.world import START, World, make_world, nodes_csv

ZONE = "Europe/Zurich"


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(1))
    yield made
    made.close()


def tell(world: World, person: str, kind: str = "booking_active", at=START, **words) -> None:
    with world.work(person.split("-")[0]) as work:
        outbox.tell(work, kind, at, world.people[person], None, **({"number": 1, "name": "Run"} | words))


def seen(world: World, actor: Actor, tenant: str | None, **words) -> list[queries.Notice]:
    with world.work(tenant) as work:
        return queries.notices(work, actor, **({"limit": 50} | words))


def test_each_reads_ones_own_newest_first_and_page_by_page(world: World) -> None:
    for n in range(5):
        tell(world, "physics-member", at=START + timedelta(minutes=n // 2), number=n)
    tell(world, "physics-lead", number=99)
    tell(world, "bio-member", number=98)
    actor = world.actor("physics-member")
    first = seen(world, actor, "physics", limit=2)
    rest = seen(world, actor, "physics", before=read_cursor(cursor(first[-1])))
    assert sorted(n.payload["number"] for n in [*first, *rest]) == list(range(5))
    assert [n.at for n in [*first, *rest]] == sorted((n.at for n in [*first, *rest]), reverse=True)
    assert read_cursor("nonsense") is None


def test_what_is_read_is_no_longer_new(world: World) -> None:
    for n in range(3):
        tell(world, "physics-member", number=n)
    tell(world, "physics-lead")
    actor, lead = world.actor("physics-member"), world.actor("physics-lead")

    def unread(who: Actor) -> int:
        with world.work("physics") as work:
            return outbox.unread(work, who.account_id, False)

    assert (unread(actor), unread(lead)) == (3, 1)
    one, *_ = seen(world, actor, "physics")
    with world.work("physics") as work:
        assert actions.read(work, lead, [one.id]) == 0, "nobody reads for another"
        assert actions.read(work, actor, [one.id, uuid4()]) == 1
    assert (unread(actor), len(seen(world, actor, "physics", unread=True))) == (2, 2)
    with world.work("physics") as work:
        assert actions.read(work, actor) == 2
        assert actions.read(work, actor) == 0
    assert (unread(actor), unread(lead)) == (0, 1)


def test_people_of_the_platform_read_what_they_were_told_in_every_tenant(world: World) -> None:
    with world.work() as work:
        olga = accounts.create_account(work, SYSTEM, login="olga@berth.example", name="Olga")
    for tenant in ("physics", "bio"):
        with world.work(tenant) as work:
            outbox.tell(
                work, "units_at_risk", START, olga, None, cluster="sim", count=2, nodes="n0", bookings="B-1, B-2"
            )
    operator = Actor(olga, "Olga", platform_roles=frozenset({"operator"}))
    assert len(seen(world, operator, None)) == 2
    with world.work() as work:
        assert outbox.unread(work, olga, True) == 2
        assert actions.read(work, operator) == 2
        assert outbox.unread(work, olga, True) == 0
        assert work.tenant_id is None
    plain = Actor(olga, "Olga", tenant_id=world.tenants["physics"])
    assert len(seen(world, plain, "physics")) == 1, "without the role one sees the tenant acted for alone"


def test_a_notice_told_in_a_transaction_that_fails_was_never_told(world: World) -> None:
    def fail() -> None:
        with world.work("physics") as work:
            outbox.tell(work, "booking_active", START, world.people["physics-member"], None, number=1, name="Run")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert seen(world, world.actor("physics-member"), "physics") == []


KINDS = [
    ("booking_unused", {"since": START.isoformat(), "release_at": (START + timedelta(minutes=30)).isoformat(),
                        "refund": "12.40", "currency": "CHF"},
     "Nobody uses “Run”",
     "Nothing has used it since today, 13:00. It is released today, 13:30 unless that changes. "
     "Release it now and CHF 12.40 is not charged."),
    ("booking_no_show", {"fee": "5.00", "currency": "CHF"}, "“Run” was released: nobody used it",
     "Only the time until then is charged, and a fee of CHF 5.00."),
    ("booking_replaced", {"why": "n0 became n1.", "active": "True"}, "“Run” has other units",
     "n0 became n1. What runs on its other nodes ran on."),
    ("booking_cancelled", {"by": "Mara"}, "Mara cancelled “Run”", ""),
    ("something_nobody_worded", {"why": "It had to"}, "“Run”: something nobody worded", "It had to."),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "words", "title", "text"), KINDS, ids=[k[0] for k in KINDS])
def test_a_notice_in_words(kind: str, words: dict, title: str, text: str) -> None:
    said = say(kind, {"number": 7, "name": "Run"} | words, ZONE, START + timedelta(minutes=16))
    assert (said.title, said.text, said.href) == (title, text, "/bookings/B-7")


def test_a_payload_of_an_older_release_is_still_said() -> None:
    for kind in ("booking_ending", "booking_idle", "approval_asked", "units_at_risk", "wait_place"):
        assert say(kind, {}, ZONE, START).title


def test_an_address_in_a_payload_leads_nowhere_else() -> None:
    assert say("x", {"href": "https://elsewhere.example"}, ZONE, START).href is None
