"""Any history of verbs, time and faults on the real database with a simulated cluster, driven by a seed.

A plain seeded driver and not a hypothesis state machine: a step costs tens of milliseconds here, so that shrinking a
history of thousands would take hours, while the same seed runs into the same fault again in minutes and the log of the
last steps says what led there. The pure half (`engine.py`) is small enough to be shrunk.

Every verb that has a quote is asked for that first, the clock standing still: what one refuses the other refuses, with the
same codes; what one shows the other does.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from app.backends.contract import BackendError
from app.kernel.errors import Alternative, Problem, Refused
from tests.model.asking import Asking
from tests.model.bills import bills_agree
from tests.model.company import PEOPLE, Company, Row, codes, key_of
from tests.model.editing import Editing
from tests.model.promises import FINAL, HOLDING, Account, Promises
from tests.model.running import Running
from tests.model.vocabulary import Broken, Tally

LEAVING = frozenset({"release", "no_show", "withdraw", "fail", "give_up", "cancel"})
"""Events from whose instant on nothing counts."""
DEAR = 50
"""So many steps lie between two rounds of the dear checks."""
SHARES = {
    "book": 0.2, "alternative": 1.0, "wait": 0.1, "extend": 0.1, "shrink": 0.1, "move": 0.1, "hand_over": 0.1, "share": 0.2,
    "cancel": 0.1, "release": 0.1, "approve": 0.1, "reject": 0.1, "withdraw": 0.05, "accept": 0.1, "decline": 0.1,
    "claim": 0.05, "series": 0.1, "cancel_series": 0.1, "change_series": 0.05, "class": 0.1, "cancel_class": 0.1,
    "maintenance": 0.2, "call_off": 0.1, "policy": 0.5, "limit": 0.9, "price": 0.9, "end_project": 0.3, "renewal": 0.05,
    "renew": 0.5, "time": 1.0, "look": 1.0,
}  # fmt: skip
"""The share of its tries in which each verb must be accepted."""
FAULTS = (
    "node_dies", "node_ill", "node_returns", "gpu_mended", "node_drains", "take_away", "foreign_job", "foreign_ends",
    "workload_hangs", "metrics_gap", "clock_skew", "slow_start", "call_slow", "call_refused", "answer_lost",
)  # fmt: skip
REACHED = (
    *(f"state {s}" for s in ("WAITING", "REQUESTED", "BOOKED", "STARTING", "ACTIVE", "ENDING", *FINAL)),
    *(f"outcome {o}" for o in ("completed", "released", "cancelled", "no_show", "not_provided")),
    *(f"condition {c}" for c in ("at_risk", "late", "degraded", "blocked", "idle")),
    *(f"fault {f}" for f in FAULTS),
)  # fmt: skip
"""What a whole run must come to. The outcome `failed` is in the table of states, and nothing in the product leads there."""


class History(Asking, Editing, Running):
    """One run. `step()` does one thing and checks what must hold; everything random comes from the seed."""

    def __init__(self, company: Company, seed: int, tally: Tally | None = None) -> None:
        self.company = company
        self.chance = random.Random(seed)
        self.seed = seed
        self.tally = tally or Tally()
        self.promises = Promises(company)
        self.number = 0
        self.log: deque[str] = deque(maxlen=60)
        self.jobs: list[str] = []
        self.promises.each()
        self.weights = self._weights()

    def _weights(self) -> dict[str, int]:
        return {
            "book": 26, "wait": 8, "extend": 8, "shrink": 6, "move": 6, "hand_over": 3, "share": 2, "cancel": 8, "release": 5,
            "approve": 4, "reject": 2, "withdraw": 2, "accept": 4, "decline": 2, "claim": 2, "series": 2, "cancel_series": 1,
            "change_series": 1, "class": 2, "cancel_class": 1, "maintenance": 1, "call_off": 1, "policy": 2, "limit": 2,
            "price": 1, "end_project": 1, "renewal": 2, "renew": 1, "time": 18, "look": 3, "fault": 9,
        }  # fmt: skip

    def run(self, steps: int, told: Callable[[int], None] = lambda _: None) -> Tally:
        """So many steps; Broken with the last of them and how to run them again when a promise does not hold."""
        try:
            for _ in range(steps):
                self.step()
                told(self.number)
            self._look_at_everything()
            self.tally.reached["bills compared"] += bills_agree(self.company, self.promises.accounts)
        except Exception as error:
            told = "\n".join(self.log)
            raise Broken(
                f"{type(error).__name__}: {error}\n\nseed {self.seed}, step {self.number} of {steps}; again: "
                f"python -m tests.model --seed {self.seed} --steps {self.number}\n\nthe last steps:\n{told}"
                f"\n\n{self.tally.report()}"
            ) from error
        return self.tally

    def step(self) -> None:
        self.number += 1
        (verb,) = self.chance.choices(list(self.weights), list(self.weights.values()))
        self.say(f"-- {verb}")
        getattr(self, f"do_{verb}")()
        self._follow(self.promises.each())
        if self.number % DEAR == 0:
            self._look_at_everything()

    def _look_at_everything(self) -> None:
        self.company.settle()  # what is due is done: metered, too
        self._follow(self.promises.each())
        self.promises.all()
        self._what_was_reached()

    def say(self, text: str) -> None:
        self.log.append(f"{self.number:>6} {self.company.now:%m-%d %H:%M:%S} {text}")

    # -- one try of a verb --

    def attempt(
        self,
        verb: str,
        who: Any,
        act: Callable[..., Any],
        quote: Callable[..., Any] | None = None,
        row: Row | None = None,
        *,
        tenant: UUID | None = None,
        said: str = "",
        writes: frozenset[str] = frozenset(),
    ) -> tuple[Any, Any]:
        """Ask for the quote, then act, at the same instant: they agree, and whatever fails has written nothing.

        `writes`: codes of problems that write something on purpose.
        """
        whole = self.chance.random() < 0.3
        mark = self.company.mark() if whole else None
        before = self._dump(row)
        shown = self.company.run(who, quote, tenant) if quote is not None else None
        if quote is not None and self._dump(row) != before:
            raise Broken(f"promise 3: the quote of {verb} wrote something of B-{row.number if row else '?'}")
        got = self.company.run(who, act, tenant)
        refused = isinstance(got, Problem)
        self.tally.count(verb, codes(got) if refused else None)
        name = who if isinstance(who, str) else getattr(who, "name", "?")
        self.say(f"{verb} by {name} {f'B-{row.number} ({row.state})' if row else ''} {said}: "
                 f"{', '.join(sorted(codes(got))) if refused else 'done'}")  # fmt: skip
        if quote is not None and refused != isinstance(shown, Problem):
            other = codes(shown) if isinstance(shown, Problem) else "accepted"
            raise Broken(f"promise 5: {verb} was {codes(got) if refused else 'accepted'}, its quote {other}")
        if quote is not None and refused and codes(got) != codes(shown):
            raise Broken(f"promise 5: {verb} was refused for {codes(got)}, its quote for {codes(shown)}")
        if refused and not codes(got) & writes:
            if self._dump(row) != before:
                raise Broken(f"promise 3: {verb} failed with {codes(got)} and changed B-{row.number if row else '?'}")
            written = self.company.written_since(mark) if mark is not None else []
            if written:
                raise Broken(f"promise 3: {verb} failed with {codes(got)} and wrote {written}")
        return got, shown

    def again(self, who: Any, act: Callable[..., Any]) -> None:
        """The same request with the same key once more: the same answer, and nothing new."""
        mark = self.company.mark()
        got = self.company.run(who, act)
        if isinstance(got, Problem):
            raise Broken(f"a request sent again under its key was refused: {codes(got)}")
        written = self.company.written_since(mark)
        if written:
            raise Broken(f"a request sent again under its key wrote {written}")

    def key(self) -> Any:
        return key_of(f"{self.seed} {self.number}") if self.chance.random() < 0.15 else None

    def _dump(self, row: Row | None) -> list[tuple]:
        return [] if row is None else self.company.rows(_DUMP, *[row.id] * _DUMP.count("%s"))

    # -- choosing --

    def some(self, *states: str, where: str = "true") -> Row | None:
        """A booking, most often in one of these states."""
        if self.chance.random() < 0.06:
            every = self.company.bookings()[-60:]
        else:
            every = self.company.bookings(f"b.state = ANY(%s) AND {where}", list(states))
        return self.chance.choice(every) if every else None

    def person_for(self, row: Row) -> str:
        """Most often whose it is or the lead; sometimes somebody who may not."""
        dice = self.chance.random()
        owner = next((p for p in PEOPLE if self.company.world.people[p] == row.account_id), f"{row.tenant}-lead")
        if dice < 0.6 and row.class_id is None:
            return owner
        if dice < 0.93:
            return f"{row.tenant}-lead"
        return self.chance.choice([*PEOPLE, f"{row.tenant}-viewer"])

    def minutes(self, low: int, high: int, grid: int = 15) -> timedelta:
        return timedelta(minutes=grid * self.chance.randint(low, high))

    def on_grid(self, ahead: timedelta) -> datetime:
        at = self.company.now + ahead
        return at - timedelta(seconds=int(at.timestamp()) % 900)

    # -- the account of what was done --

    def _follow(self, events: list[tuple[UUID, str, str, datetime]]) -> None:
        """What is new in the history: bookings that were made, and what left its units when."""
        accounts = self.promises.accounts
        fresh = {
            booking for booking, _, after, _ in events if booking not in accounts and after in (*HOLDING, "REQUESTED")
        }
        if fresh:
            for row in self.company.bookings("b.id = ANY(%s)", list(fresh)):
                accounts[row.id] = Account(row.starts_at, row.ends_at, [(row.starts_at, row.units)])
        for booking, event, after, at in events:
            self.tally.reached[f"state {after}"] += 1
            account = accounts.get(booking)
            if event == "wait" and account is not None:  # it was asked for, and waits now: what it gets is new
                del accounts[booking]
            elif event in LEAVING and account is not None and account.left is None:
                account.left = at

    def _what_was_reached(self) -> None:
        for (outcome,) in self.company.rows("SELECT DISTINCT outcome FROM bookings WHERE outcome IS NOT NULL"):
            self.tally.reached[f"outcome {outcome}"] += 1
        for (condition,) in self.company.rows("SELECT DISTINCT type FROM conditions"):
            self.tally.reached[f"condition {condition}"] += 1

    def fault(self, name: str, act: Callable[[], Any]) -> Any:
        """One fault of the simulated cluster; what cannot be done to it now is left."""
        try:
            made = act()
        except BackendError as error:
            self.say(f"fault {name}: not possible, {error}")
            return None
        self.tally.reached[f"fault {name}"] += 1
        self.say(f"fault {name}")
        return made


_DUMP = " UNION ALL ".join(
    f"SELECT '{table}', t::text FROM {table} t WHERE {column} = %s"
    for table, column in (
        ("bookings", "id"), ("holds", "booking_id"), ("booking_prices", "booking_id"), ("commitments", "booking_id"),
        ("requests", "booking_id"), ("waiting", "booking_id"), ("conditions", "booking_id"), ("outages", "booking_id"),
        ("history", "booking_id"), ("metering", "booking_id"),
    )
) + " ORDER BY 1, 2"  # fmt: skip

__all__ = ["FAULTS", "REACHED", "SHARES", "Alternative", "Decimal", "History", "Refused"]
