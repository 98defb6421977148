"""Tries of the verbs on a booking that is there: extend, shrink, move, hand over, share, cancel, release."""

from __future__ import annotations

from typing import Any

from app.bookings import extending, leaving, moving, sharing, shrinking
from app.bookings.moving import To
from app.bookings.shrinking import Kept
from app.kernel.errors import Problem, Refused
from app.plumbing.queue import NoQueue
from tests.model.company import PEOPLE, Row, codes
from tests.model.vocabulary import Broken

OPEN = ("BOOKED", "STARTING", "ACTIVE")


class Editing:
    """Verbs that change a booking. Each keeps the account of what was done in step."""

    def edit(self, verb: str, row: Row, act: Any, quote: Any = None, said: str = "") -> tuple[Any, Any]:
        """One edit, sometimes under a key (then sent twice), with the version that was seen or with an old one."""
        who, key = self.person_for(row), self.key()
        if self.chance.random() < 0.05:  # seen before somebody else changed it
            got, _ = self.attempt(verb, who, lambda w, a: act(w, a, None, row.version + 7), row=row, said="old version")
            if not isinstance(got, Problem):
                raise Broken(f"{verb} was made on a version that is not there")
            return got, None

        def now(work: Any, actor: Any) -> Any:
            return act(work, actor, key, row.version)

        got, shown = self.attempt(verb, who, now, quote, row, said=said)
        if key is not None and not isinstance(got, Problem):
            self.again(who, now)
        return got, shown

    def do_extend(self) -> None:
        row = self.some(*OPEN)
        if row is None:
            return
        by = self.minutes(1, 8)
        got, shown = self.edit(
            "extend", row,
            lambda w, a, key, version: extending.extend(w, NoQueue(), a, row.id, by, None, key, version),
            lambda w, a: extending.quote_extension(w, a, row.id, by, None), f"by {by}",
        )  # fmt: skip
        if isinstance(got, Refused) and got.refusal.alternatives and self.chance.random() < 0.5:
            self.post(self.owner_of(row), self.chance.choice(got.refusal.alternatives))
        if isinstance(got, Problem) or shown is None:
            return
        if shown.approval is not None:
            if got.ends_at != row.ends_at:
                raise Broken(f"B-{row.number} was extended before anybody approved")
            return
        if (got.ends_at, got.quoted) != (shown.end, shown.total.amount):
            raise Broken(
                f"promise 2: extended to {got.ends_at} for {got.quoted}, shown {shown.end}, {shown.total.amount}"
            )
        self.promises.accounts[row.id].end = row.ends_at + by

    def owner_of(self, row: Row) -> str:
        return next((p for p in PEOPLE if self.company.world.people[p] == row.account_id), f"{row.tenant}-lead")

    def do_shrink(self) -> None:
        row = self.some(*OPEN)
        if row is None:
            return
        end = units = nodes = None
        if self.chance.random() < 0.6:
            end = row.ends_at - self.minutes(1, 6)
        if end is None or self.chance.random() < 0.3:
            if row.nodes and row.nodes > 1 and self.chance.random() < 0.7:
                nodes = self.chance.randint(1, row.nodes)
            else:
                units = self.chance.randint(1, max(1, row.units))
        kept = Kept(end, units, nodes)
        got, shown = self.edit(
            "shrink", row, lambda w, a, key, version: shrinking.shrink(w, NoQueue(), a, row.id, kept, key, version),
            lambda w, a: shrinking.quote_shrink(w, a, row.id, kept), f"{kept}",
        )  # fmt: skip
        if isinstance(got, Problem) or shown is None:
            return
        if (got.ends_at, got.units, got.quoted) != (shown.end, shown.to.units, shown.total.amount):
            raise Broken(f"promise 2: B-{row.number} shrunk otherwise than shown")
        account = self.promises.accounts[row.id]
        account.end = end or account.end
        if got.units < row.units:
            self.fewer(row, got.units)

    def fewer(self, row: Row, units: int) -> None:
        account = self.promises.accounts[row.id]
        account.shrunk = True
        if self.company.now <= account.start:
            account.units = [(account.start, units)]
        else:
            account.units.append((self.company.now, units))

    def do_move(self) -> None:
        row = self.some("BOOKED")
        if row is None:
            return
        start = self.on_grid(self.minutes(1, 60)) if self.chance.random() < 0.8 else None
        length = self.minutes(1, 12) if self.chance.random() < 0.3 else None
        to = To(start, length, self.chance.choice([None, None, "any"]))
        got, shown = self.edit(
            "move", row, lambda w, a, key, version: moving.move(w, NoQueue(), a, row.id, to, key, version),
            lambda w, a: moving.quote_move(w, a, row.id, to), f"{to.start} {to.length}",
        )  # fmt: skip
        if isinstance(got, Problem) or shown is None:
            return
        window = shown.offer.window
        if (got.window, got.quoted) != (window, shown.offer.cost.amount):
            raise Broken(f"promise 2: B-{row.number} moved to {got.window} for {got.quoted}, shown {window}")
        account = self.promises.accounts[row.id]
        account.start, account.end, account.units, account.moved = (
            window.start,
            window.end,
            [(window.start, row.units)],
            True,
        )

    def do_hand_over(self) -> None:
        row = self.some(*OPEN)
        if row is None:
            return
        to = self.chance.choice(
            [f"{row.tenant}-member"] * 3 + [f"{row.tenant}-lead"] * 3 + ["bio-member", "physics-viewer"]
        )
        person = self.company.world.people[to]
        got, _ = self.edit(
            "hand_over", row, lambda w, a, key, version: sharing.hand_over(w, NoQueue(), a, row.id, person, key, version),
            lambda w, a: sharing.quote_hand_over(w, a, row.id, person), f"to {to}",
        )  # fmt: skip
        if not isinstance(got, Problem):
            self.promises.accounts[row.id].handed = True

    def do_share(self) -> None:
        row = self.some(*OPEN)
        if row is not None:
            shared = self.chance.random() < 0.6
            self.edit(
                "share", row, lambda w, a, key, version: sharing.share(w, NoQueue(), a, row.id, shared, key, version)
            )

    def do_cancel(self) -> None:
        row = self.some("BOOKED", "BOOKED", "STARTING", "REQUESTED", "WAITING")
        if row is not None:
            self.edit(
                "cancel", row, lambda w, a, key, version: leaving.cancel(w, NoQueue(), a, row.id, key, version),
                lambda w, a: _told(leaving.quote_cancel(w, a, row.id)),
            )  # fmt: skip

    def do_release(self) -> None:
        row = self.some("ACTIVE")
        if row is not None:
            self.edit("release", row, lambda w, a, key, version: leaving.release(w, NoQueue(), a, row.id, key, version))


def _told(terms: Any) -> Any:
    return terms


__all__ = ["Editing", "codes"]
