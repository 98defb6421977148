"""A month of the company's life, lived on a stepped clock through the same verbs as everybody's.

The clock jumps from one due instant to the next, everything due is done, and people book, extend, cancel and release in
between. What has happened is what the database says: broken off anywhere, it goes on from the product clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import psycopg

from app import rounds
from app.accounts import queries as accounts
from app.bookings import actions as bookings
from app.bookings import due, extending, leaving, queries_keys
from app.bookings.edits import Key
from app.bookings.lifecycle import Pace
from app.bookings.schemas import Ask, BookingIn
from app.demo import company
from app.demo.company import ALPS, DELTA, H100, H200, MI300X, PEOPLE, Person, actor_of
from app.demo.measuring import FINE_FOR
from app.inventory import actions as inventory
from app.inventory import queries as inventory_queries
from app.inventory.connections import backend_of
from app.kernel.actor import Actor
from app.kernel.errors import Problem
from app.notices import actions as notices
from app.plumbing.db import Database
from app.plumbing.queue import NoQueue
from app.plumbing.runtime import Plumbing
from app.rounds import Haste
from app.usage import queries as usage

DAYS = 31
BOOKINGS = 400
SEED = 2417
_LOOKS = frozenset({"reconcile.look"})
_HASTE = Haste(Pace(every=timedelta(days=2)), _LOOKS | {"reconcile.usage"}, fine_for=FINE_FOR)
"""While the clock is stepped; measurements are collected once, when the month is over."""
_GIVEN_UP = {"cancel": leaving.cancel, "release": leaving.release}
_OPERATOR = Actor(None, "Set-up", platform_roles=frozenset({"operator"}))


@dataclass(frozen=True, slots=True)
class Span:
    """From when until when the history is lived, and how many bookings people make by chance in it."""

    began: datetime
    ends: datetime
    bookings: int = BOOKINGS


@dataclass(frozen=True, slots=True)
class Deed:
    """Something a person does at an instant. `verb` is book, release, cancel or extend; `number` says which booking of
    the plan it is about."""

    at: datetime
    verb: str
    number: int
    person: Person
    words: dict | None = None


def plan(span: Span) -> list[Deed]:
    """What everybody does, in order: the same for the same span. Most of it happens in working hours."""
    began, ends = span.began, span.ends
    chance = random.Random(SEED)
    zone = ZoneInfo(company.ZONE)
    members = [p for p in PEOPLE if p.role in ("project:member", "project:lead")]
    deeds: list[Deed] = []
    for number in range(span.bookings):
        person = chance.choice(members)
        share = (number + chance.random()) / span.bookings
        day = (began + (ends - timedelta(hours=3) - began) * share).astimezone(zone)
        if chance.random() < 0.8:
            day = day.replace(hour=chance.randint(8, 18))
        at = (
            min(day, ends - timedelta(minutes=30))
            .astimezone(UTC)
            .replace(minute=chance.randint(0, 59), second=chance.randint(0, 59), microsecond=0)
        )
        if not began < at < ends:
            at = began + (ends - began) * share
            at = at.replace(microsecond=0)
        kind = chance.choices((H100, H200, MI300X, "any"), (55, 25, 12, 8))[0]
        hours = chance.choices((1, 2, 4, 6, 8, 12, 24, 36), (8, 12, 20, 22, 14, 12, 8, 4))[0]
        words: dict = {
            "project": person.project,
            "name": f"{chance.choice(_NAMES)} {number + 1}",
            "kind": kind,
            "duration": f"PT{hours}H",
            "start": "asap",
            "reference": chance.choice(("", "", "grant 12", "SNF 200021")),
        }
        if chance.random() < 0.25:
            words |= {"nodes": chance.choice((2, 2, 4)), "per_node": 8, "within": chance.choice(("leaf", "rack", None))}
        else:
            words |= {"units": chance.choice((1, 2, 4, 4, 8, 8, 8))}
            words["within"] = "node" if words["units"] > 1 else None
        if chance.random() < 0.35:
            later = at + timedelta(hours=chance.randint(2, 60))
            words["start"] = (later.replace(minute=0, second=0) + timedelta(hours=1)).isoformat()
        if chance.random() < 0.1:
            words["workload"] = chance.choice(("notebook", "none", "inference"))
        deeds.append(Deed(at, "book", number, person, words))
        fate = chance.random()
        if fate < 0.16:
            deeds.append(Deed(at + timedelta(hours=hours * chance.uniform(0.3, 0.9)), "release", number, person))
        elif fate < 0.21:
            deeds.append(Deed(at + timedelta(minutes=chance.randint(5, 90)), "cancel", number, person))
        elif fate < 0.29:
            deeds.append(
                Deed(
                    at + timedelta(minutes=chance.randint(10, 50)),
                    "extend",
                    number,
                    person,
                    {"hours": chance.choice((1, 2, 4))},
                )
            )
    deeds += _last_hours(ends, span.bookings)
    whole = [Deed(d.at.replace(microsecond=0), d.verb, d.number, d.person, d.words) for d in deeds]
    return sorted((d for d in whole if d.at < ends), key=lambda d: (d.at, d.number, d.verb))


def _last_hours(ends: datetime, before: int) -> list[Deed]:
    """What a visitor finds: bookings that run, some that come, one that was refused."""
    by_mail = {p.email: p for p in PEOPLE}
    robin, mara, nora, ines = (
        by_mail[m] for m in ("robin@physics.example", "mara@physics.example", "nora@bio.example", "ines@bio.example")
    )
    tomorrow = (
        (ends + timedelta(days=1)).astimezone(ZoneInfo(company.ZONE)).replace(hour=9, minute=0, second=0, microsecond=0)
    )
    ago = lambda minutes: ends - timedelta(minutes=minutes)  # noqa: E731

    def book(number: int, at: datetime, person: Person, **words: object) -> Deed:
        body = {"project": person.project, "start": "asap", **words}
        return Deed(at, "book", before + number, person, body)

    return [
        book(0, ago(170), robin, name="Tokamak surrogate, run 7", kind=H100, nodes=2, per_node=8, within="leaf", duration="PT24H"),
        book(1, ago(160), robin, name="Diagnostics notebook", kind=H200, units=4, within="node", duration="PT8H", workload="notebook"),
        book(2, ago(150), nora, name="Atlas embedding", kind=H200, nodes=2, per_node=8, within="rack", duration="PT12H"),
        book(3, ago(140), ines, name="Folding sweep", kind=MI300X, units=8, within="node", duration="PT10H"),
        book(4, ago(60), robin, name="Ablation sweep", kind=H200, units=8, within="node", duration="PT6H", start=tomorrow.isoformat()),
        book(5, ago(50), mara, name="Full-scale training, run 8", kind=H100, nodes=4, per_node=8, within="rack", duration="PT48H",
             start=(tomorrow + timedelta(days=3)).isoformat()),
        book(6, ago(40), ines, name="Everything at once", kind=H100, nodes=12, per_node=8, within="rack", duration="PT12H"),
    ]  # fmt: skip


_NAMES = (
    "Surrogate fine-tune", "Ablation", "Hyper-parameter sweep", "Evaluation", "Embedding run", "Pre-training", "Checkpoint resume",
    "Inference test", "Notebook", "Docking screen", "Lattice sweep", "Data loading test",
)  # fmt: skip


class History:
    """The demo's clock and what has been done. `say` is told how far it is, from 0 to 1.

    `lived` is a file that says until when people have done what they do: what was refused then is not tried again by a
    history that goes on.
    """

    def __init__(
        self,
        plumbing: Plumbing,
        clock: StoppedClock,
        people: tuple[Person, ...],
        lived: Path,
        say: Callable[[float], None] = lambda done: None,
    ) -> None:
        # nobody else moves the clock: asking the database where it stands would be every seventh statement
        own = Database(plumbing.database.engine, plumbing.wall, clock.now)
        self.plumbing = replace(plumbing, database=own)
        self._clock = clock
        self._lived = lived
        self.people = {p.email: p for p in people}
        self.say = say

    def take_over(self) -> None:
        """Before anything else: what a history that was killed had taken in hand is free again. Leases run by the wall
        clock, on which a month passes faster than one of them."""
        with self.plumbing.database.work() as work:
            due.end_leases(work)
            usage.end_leases(work)

    def live(self, span: Span) -> None:
        """Everything from where the clock stands until the end of the span."""
        began, ends = span.began, span.ends
        faults = self._faults(ends)
        deeds = plan(span)
        moments = sorted({*(d.at for d in deeds), *(at for at, _ in faults)})
        stands, lived = self._clock.now(), self._lived_until(began)
        if stands > ends:
            return
        if stands not in moments or stands <= lived:  # broken off while it did what was due
            rounds.do_all(self.plumbing, _HASTE)
        for moment in (m for m in moments if m >= stands and m > lived):
            self._step_to(moment)
            for at, act in faults:
                if at == moment:
                    act()
                    self._look()
            for deed in deeds:
                if deed.at == moment:
                    self._do(deed)
            self._lived.write_text(moment.isoformat(), encoding="utf-8")
            rounds.do_all(self.plumbing, _HASTE)
            self.say(0.8 * ((moment - began) / (ends - began)))
        self._step_to(ends)
        self._look()
        rounds.do_all(self.plumbing, replace(_HASTE, without=_LOOKS))
        self._read(ends - timedelta(hours=12))

    def _read(self, until: datetime) -> None:
        """People have read what they were told until yesterday."""
        with self.plumbing.database.work() as work, work.read_all():
            every = [tenant.id for tenant in accounts.tenants(work)]
        for tenant in every:
            with self.plumbing.database.work(tenant) as work:
                notices.read_until(work, until)

    def _step_to(self, until: datetime) -> None:
        """From one due instant to the next, doing what is due at each; what is due at `until` is left to do."""
        while (instant := rounds.next_instant(self.plumbing)) is not None and instant < until:
            self._clock.set(instant)
            rounds.do_all(self.plumbing, _HASTE)
        self._clock.set(until)

    def _lived_until(self, began: datetime) -> datetime:
        try:
            return datetime.fromisoformat(self._lived.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # not begun, or broken off while it was written
            return began

    def _do(self, deed: Deed) -> None:
        """One person's deed; what the rules refuse is refused, as in life."""
        person = self.people[deed.person.email]
        key = Key(f"demo-{deed.number}-{deed.verb}", b"demo")
        queue = NoQueue()
        with self.plumbing.database.work() as work:
            actor = actor_of(work, person)
            try:
                if deed.verb == "book":
                    ask = Ask.of(BookingIn.model_validate(deed.words))
                    bookings.book(work, queue, actor, ask, key)
                    return
                kept = queries_keys.kept_under(work, f"demo-{deed.number}-book")
                if kept is None:
                    return
                if deed.verb == "extend":
                    by = timedelta(hours=(deed.words or {})["hours"])
                    extending.extend(work, queue, actor, kept, by, None, key)
                else:
                    _GIVEN_UP[deed.verb](work, queue, actor, kept, key)
            except Problem:
                work.restart()

    def _faults(self, ends: datetime) -> list[tuple[datetime, Callable[[], object]]]:
        """What breaks: nodes that die and come back, and one that is ill when the visitor comes."""
        alps, delta = (self._backend(name) for name in (ALPS, DELTA))
        return [
            (_hour(ends - timedelta(days=19, hours=4)), lambda: alps.faults.node_dies("alps-0304")),
            (_hour(ends - timedelta(days=18, hours=6)), lambda: alps.faults.node_returns("alps-0304")),
            (_hour(ends - timedelta(days=6, hours=9)), lambda: delta.faults.node_dies("delta-0102")),
            (_hour(ends - timedelta(days=6, hours=2)), lambda: delta.faults.node_returns("delta-0102")),
            (_hour(ends - timedelta(days=2)), lambda: alps.faults.node_ill("alps-0506", 5)),
        ]

    def _backend(self, name: str):
        with self.plumbing.database.work() as work:
            cluster = inventory_queries.cluster_named(work, name)
        return backend_of(self.plumbing, cluster)

    def _look(self) -> None:
        """Look at the clusters now."""
        for name in (ALPS, DELTA):
            with self.plumbing.database.work() as work:
                cluster = inventory.look_now(work, _OPERATOR, name)
            rounds.look_at_cluster(self.plumbing, cluster.id)


class StoppedClock:
    """The product clock in the hands of the demo, as the tables' owner. Only demo and tests may."""

    def __init__(self, owner_url: str) -> None:
        self._owner = psycopg.connect(owner_url, autocommit=True)
        self._stopped: datetime | None = None

    def now(self) -> datetime:
        """Where it stands: as it was set here last, else as the database says."""
        if self._stopped is not None:
            return self._stopped
        return self._owner.execute("SELECT berth_now()").fetchone()[0].astimezone(UTC)

    def set(self, at: datetime | None) -> None:
        """Stop it at an instant; None: it runs with the wall clock again."""
        self._owner.execute("UPDATE clock SET movable = true, frozen = %s, shift = interval '0'", [at])
        self._stopped = at

    def close(self) -> None:
        """Give the connection back."""
        self._owner.close()


def _hour(instant: datetime) -> datetime:
    return instant.replace(minute=0, second=0, microsecond=0)
