"""Random histories of asking, waiting, answering and giving back: at every moment nothing is held twice, everything that is
held has a living owner, and whatever is offered can be taken as it was offered."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from app.bookings import approvals, queries, queries_requests, waitlist
from app.bookings.facts import Booking
from app.kernel.errors import Problem
from app.plumbing.queue import NoQueue
from tests.bookings.test_waitlist_races import nothing_twice
from tests.world import H100, OPERATOR, START, World, make_world, nodes_csv

pytestmark = pytest.mark.timeout(600)
HOUR = timedelta(hours=1)
STEPS = int(os.environ.get("BERTH_WAIT_STEPS", "80"))
PEOPLE = ("physics-member", "bio-member")


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    """Two nodes of four units; more than eight GPU-hours have to be approved; one skip is enough."""
    made = make_world(database, tmp_path, csv=nodes_csv(2, gpus=4))
    made.set_policy(H100, approval_hours=8, skips=1, made_ahead=0)
    made.set_limit("physics", units=6, project_id=made.projects["plasma"])
    yield made
    made.close()


class History:
    """What people have asked for so far, and what they may do next."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.random = world, random.Random(seed)
        self.bookings: list[tuple[str, Booking]] = []
        self.done: Counter[str] = Counter()

    def step(self) -> None:
        """One thing that somebody does or that time does; what is refused is refused."""
        verbs = [self.ask, self.ask, self.wait, self.wait, self.wait, self.cancel, self.cancel, self.accept, self.accept,
                 self.decline, self.answer, self.answer, self.time]  # fmt: skip
        act = self.random.choice(verbs)
        try:
            if act() is not None:
                self.done[act.__name__] += 1
        except Problem:
            self.done[f"{act.__name__} refused"] += 1
        if self.random.random() < 0.7:
            self.world.answer()

    def words(self) -> dict[str, Any]:
        start = self.world.now().replace(minute=0, second=0) + self.random.randint(2, 5) * HOUR
        return {
            "units": self.random.choice((1, 2, 4, 4, 8)),
            "within": self.random.choice((None, None, "node")),
            "start": start.isoformat(),
            "duration": self.random.choice(("PT1H", "PT2H")),
        }

    def ask(self) -> Booking:
        person, words = self.random.choice(PEOPLE), self.words()
        return self._keep(person, self.world.book(person, **self._of(person), **words))

    def wait(self) -> Booking:
        person, words = self.random.choice(PEOPLE), self.words()
        if self.random.random() < 0.4:
            start = words["start"]
            words |= {"start": "asap", "earliest": start, "latest": (self.world.now() + 12 * HOUR).isoformat()}
        actor, auto = self.world.actor(person), self.random.random() < 0.3
        with self.world.plumbing.database.work(actor.tenant_id) as work:
            ask = self.world.ask(**self._of(person), **words)
            return self._keep(person, waitlist.book_or_wait(work, NoQueue(), actor, ask, auto))

    def cancel(self) -> Booking | None:
        return self._one(("BOOKED", "WAITING", "REQUESTED"), lambda p, b: self.world.do("cancel", b, p))

    def accept(self) -> Booking | None:
        return self._one(("WAITING",), lambda p, b: self.world.do(waitlist.accept, b, p))

    def decline(self) -> Booking | None:
        return self._one(("WAITING",), lambda p, b: self.world.do(waitlist.decline, b, p))

    def answer(self) -> Booking | None:
        def act(_person: str, booking: Booking) -> Booking:
            with self.world.plumbing.database.work(booking.tenant_id) as work:
                request = queries_requests.last_request(work, booking.id)
            with self.world.plumbing.database.work() as work:
                if self.random.random() < 0.7:
                    return approvals.approve(work, NoQueue(), OPERATOR, request.id)
                return approvals.reject(work, NoQueue(), OPERATOR, request.id, "No.")

        return self._one(("REQUESTED",), act)

    def time(self) -> bool:
        self.world.set_clock(self.world.now() + timedelta(minutes=self.random.choice((5, 10, 31))))
        self.world.answer()
        return True

    def _one(self, states: tuple[str, ...], act: Callable[[str, Booking], Booking]) -> Booking | None:
        found = [(p, b) for p, b in self.bookings if self.world.look(b).state in states]
        return act(*self.random.choice(found)) if found else None

    def _keep(self, person: str, booking: Booking) -> Booking:
        self.bookings.append((person, booking))
        return booking

    def _of(self, person: str) -> dict[str, str]:
        return {} if person.startswith("physics") else {"project": "atlas"}


class _NotForGood(Exception):
    """Ends a transaction in which something was only tried."""


def every_offer_can_be_taken(world: World, history: History) -> int:
    """Each open offer is accepted in a transaction that is dropped: with all its units, to the end, at its price."""
    offered = 0
    for person, booking in history.bookings:
        actor = world.actor(person)
        with world.plumbing.database.work(booking.tenant_id) as work:
            now = queries.find_booking(work, booking.id)
            wait = None if now is None else waitlist.wait_of(work, now)
        if wait is None or wait.offer is None or wait.offer.until <= world.now():
            continue
        offered += 1
        try:
            with world.plumbing.database.work(booking.tenant_id) as work:
                taken = waitlist.accept(work, NoQueue(), actor, booking.id)
                held = queries.holds_of(work, booking.id)
                raise _NotForGood
        except _NotForGood:
            pass
        assert taken.state in ("BOOKED", "REQUESTED")
        assert sum(len(h.gpus) for h in held) == booking.units
        assert taken.ends_at == wait.offer.window.end
        assert taken.starts_at == max(wait.offer.window.start, world.now())
        assert taken.quoted <= wait.offer.amount
        assert all(h.live and (h.start, h.end) == (taken.starts_at, taken.ends_at) for h in held)
    return offered


def no_hours_without_an_owner(world: World) -> None:
    with world.work() as work, work.read_all():
        lost = work.pg.execute(
            """SELECT count(*) FROM commitments c LEFT JOIN bookings b ON b.id = c.booking_id
                 LEFT JOIN requests r ON r.id = c.request_id
                WHERE b.state IN ('WAITING', 'CANCELLED', 'REJECTED', 'LAPSED') OR r.outcome IS NOT NULL"""
        ).fetchone()
    assert lost == (0,)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_held_twice_and_every_offer_can_be_taken(world: World, seed: int) -> None:
    seed = int(os.environ.get("BERTH_WAIT_SEED", seed))
    history, offered = History(world, seed), 0
    for number in range(STEPS):
        history.step()
        said = f"seed {seed}, step {number}"
        try:
            nothing_twice(world)
            no_hours_without_an_owner(world)
            offered += every_offer_can_be_taken(world, history)
        except BaseException:
            print(said)
            raise
    assert offered
    assert history.done["accept"], history.done
    assert history.done["wait"], history.done
    world.set_clock(START + 48 * HOUR)  # when all has gone by nothing is left over
    while world.answer():
        pass
    with world.work() as work, work.read_all():
        assert work.pg.execute("SELECT count(*) FROM waiting").fetchone() == (0,)
        assert work.pg.execute("SELECT count(*) FROM requests WHERE outcome IS NULL").fetchone() == (0,)
        assert work.pg.execute("SELECT count(*) FROM holds WHERE live AND request_id IS NOT NULL").fetchone() == (0,)
