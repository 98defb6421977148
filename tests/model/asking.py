"""Tries of everything that makes a booking: book, wait, alternatives and offers, series, classes, claims, answers to requests."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from app.accounts import cluster_users
from app.bookings import actions, approvals, claiming, classes, queries, series, waitlist
from app.bookings.claiming import Wish
from app.bookings.schemas import Ask, BookingIn
from app.bookings.series import SeriesAsk
from app.kernel.errors import Problem, Refused
from app.plumbing.queue import NoQueue
from tests.model.company import PEOPLE, PROJECTS, codes
from tests.model.vocabulary import Broken
from tests.world import H100, H200, OPERATOR

UTC_ISO = "%Y-%m-%dT%H:%M:%S+00:00"


class Asking:
    """Verbs that ask for units."""

    # -- book --

    def words(self) -> tuple[str, dict[str, Any]]:
        """A person and the body of a request, most of them such as people make."""
        chance = self.chance
        who = chance.choice(PEOPLE)
        tenant = who.split("-")[0]
        project = PROJECTS[tenant][0 if chance.random() < 0.7 else 1]
        if chance.random() < 0.02:
            project = chance.choice(["atlas", "nowhere"])
        body: dict[str, Any] = {"project": project, "name": f"Run {self.number}"}
        body["kind"] = chance.choices([H100, H200, "any"], [7, 2, 2])[0]
        if chance.random() < 0.6:
            body["units"] = chance.choices([1, 2, 3, 4, 6, 9, 13], [8, 6, 3, 4, 2, 1, 1])[0]
        else:
            body["nodes"], body["per_node"] = chance.choices([1, 2, 3], [4, 4, 1])[0], chance.choice([1, 2, 4])
        if chance.random() < 0.3:
            body["within"] = chance.choice(["node", "nvlink", "leaf", "rack"])
        elif chance.random() < 0.2:
            body["near"] = chance.choice(["node", "leaf"])
        length = self.minutes(1, 20) if chance.random() < 0.9 else self.minutes(20, 200)
        if chance.random() < 0.03:
            length += timedelta(minutes=chance.choice([1, 7]))
        body["duration"] = f"PT{int(length.total_seconds())}S"
        dice = chance.random()
        if dice < 0.4:
            body["start"] = "asap"
        elif dice < 0.5:
            body["start"] = "asap"
            body["earliest"] = self.on_grid(self.minutes(1, 40)).isoformat()
            if chance.random() < 0.5:
                body["latest"] = (self.on_grid(self.minutes(41, 80)) + length).isoformat()
        else:
            body["start"] = self.on_grid(self.minutes(0 if chance.random() < 0.05 else 1, 60)).isoformat()
        if chance.random() < 0.5:
            body["workload"] = chance.choice(["none", "training", "notebook"])
        if chance.random() < 0.15:
            body["cluster"] = "sim"
        return who, body

    def do_book(self) -> None:
        who, body = self.words()
        ask = Ask.of(BookingIn.model_validate(body))
        self.book(who, ask)

    def book(self, who: str, ask: Ask) -> None:
        key = self.key()

        def act(work: Any, actor: Any) -> Any:
            return actions.book(work, NoQueue(), actor, ask, key)

        got, shown = self.attempt("book", who, act, lambda w, a: actions.quote(w, a, ask), said=_said(ask))
        if isinstance(got, Problem):
            if isinstance(got, Refused):
                self.take_alternative(who, got)
            return
        offer = shown.offer
        if (got.starts_at, got.ends_at, got.quoted, got.kind) != (
            offer.window.start, offer.window.end, offer.cost.amount, offer.pool.kind
        ):  # fmt: skip
            raise Broken(
                f"promise 2: {got.label} is {got.window} for {got.quoted}, quoted was {offer.window}, {offer.cost.amount}"
            )
        if (got.state == "REQUESTED") != (offer.approval is not None):
            raise Broken(f"promise 5: {got.label} is {got.state}, the quote said approval {offer.approval}")
        if key is not None:
            self.again(who, act)

    def take_alternative(self, who: str, refused: Refused) -> None:
        """One of what was offered instead, posted unchanged while the clock stands still: it is booked as offered."""
        offered = refused.refusal.alternatives
        if len(offered) > 3 or len({a.kind_of_change for a in offered}) != len(offered):
            raise Broken(f"promise 4: alternatives {[a.kind_of_change for a in offered]}")
        if not offered or self.chance.random() < 0.5:
            return
        chosen = self.chance.choice(offered)
        self.post(who, chosen)

    def post(self, who: str, chosen: Any) -> None:
        body = BookingIn.model_validate(chosen.request)
        ask = Ask.of(body)

        def act(work: Any, actor: Any) -> Any:
            if body.wait:
                return waitlist.book_or_wait(work, NoQueue(), actor, ask, body.auto)
            return actions.book(work, NoQueue(), actor, ask)

        got, _ = self.attempt("alternative", who, act, said=f"{chosen.kind_of_change} {_said(ask)}")
        if isinstance(got, Problem):
            raise Broken(
                f"promise 4: offered instead ({chosen.kind_of_change}) and refused: {codes(got)} {chosen.request}"
            )
        if got.state != "WAITING" and not body.wait and str(got.quoted) != chosen.price["amount"]:
            raise Broken(f"promise 2: offered for {chosen.price}, booked for {got.quoted}: {chosen.request}")

    # -- the waiting list --

    def do_wait(self) -> None:
        who, body = self.words()
        ask = Ask.of(BookingIn.model_validate(body))
        auto, key = self.chance.random() < 0.5, self.key()

        def act(work: Any, actor: Any) -> Any:
            return waitlist.book_or_wait(work, NoQueue(), actor, ask, auto, key)

        got, shown = None, self.company.run(who, lambda w, a: actions.quote(w, a, ask))
        got, _ = self.attempt("wait", who, act, said=_said(ask))
        if isinstance(got, Problem):
            if not isinstance(shown, Problem):
                raise Broken(f"promise 5: quoted, and refused for {codes(got)}")
        elif got.state == "WAITING" and not isinstance(shown, Problem):
            raise Broken(f"promise 5: {got.label} waits for what could be booked")
        elif key is not None:
            self.again(who, act)

    def do_accept(self) -> None:
        self._answer_offer("accept", waitlist.accept)

    def do_decline(self) -> None:
        self._answer_offer("decline", waitlist.decline)

    def _answer_offer(self, verb: str, act: Any) -> None:
        offered = (
            "EXISTS (SELECT FROM requests r WHERE r.booking_id = b.id AND r.outcome IS NULL AND r.waits_for = 'answer')"
        )
        row = self.some("WAITING", where=offered)
        if row is None:
            return
        who = self.person_for(row)
        with self.company.world.work(row.tenant) as work:
            booking = queries.find_booking(work, row.id)
            wait = waitlist.wait_of(work, booking)
        offer = wait.offer if wait is not None else None
        got, _ = self.attempt(verb, who, lambda w, a: act(w, NoQueue(), a, row.id), row=row)
        if verb == "decline" or offer is None:
            return
        if isinstance(got, Problem):
            mine = self.company.world.people.get(who) == row.account_id
            if mine and self.company.now < offer.until and not codes(got) & {"needs_approval_first", "project_ended"}:
                raise Broken(f"promise 4: B-{row.number} was offered units and is refused for {codes(got)}")
            return
        window, _, amount = offer.at(self.company.now, row.units)
        if (got.window, got.quoted) != (window, amount):
            raise Broken(
                f"promise 2: {got.label} was offered {window} for {amount}, and is {got.window} for {got.quoted}"
            )

    # -- requests for approval --

    def do_approve(self) -> None:
        self._answer("approve", lambda w, a, id: approvals.approve(w, NoQueue(), a, id, "Fine."))

    def do_reject(self) -> None:
        self._answer("reject", lambda w, a, id: approvals.reject(w, NoQueue(), a, id, "No."))

    def _answer(self, verb: str, act: Any) -> None:
        found = self.company.rows(
            """SELECT r.id, r.approver, r.verb, r.wanted, r.booking_id FROM requests r
                WHERE r.outcome IS NULL AND r.waits_for = 'approval' ORDER BY r.id"""
        )
        if not found:
            return
        request, approver, kind, wanted, booking = self.chance.choice(found)
        (row,) = self.company.bookings("b.id = %s", booking)
        who: Any = OPERATOR if approver == "operator" else f"{row.tenant}-lead"
        if self.chance.random() < 0.1:
            who = self.chance.choice([OPERATOR, *PEOPLE])
        # one that held nothing goes to the waiting list when its units are taken, and the approver is told so
        own = frozenset({"units_taken"}) if not wanted.get("holds", True) and kind == "book" else frozenset()
        got, _ = self.attempt(verb, who, lambda w, a: act(w, a, request), row=row, said=kind, writes=own)
        if verb == "approve" and not isinstance(got, Problem) and kind == "extend":
            self.promises.accounts[booking].end = datetime.fromisoformat(wanted["end"].replace("Z", "+00:00"))

    def do_withdraw(self) -> None:
        asked = "EXISTS (SELECT FROM requests r WHERE r.booking_id = b.id AND r.outcome IS NULL AND r.waits_for = 'approval')"
        row = self.some("REQUESTED", "BOOKED", "ACTIVE", where=asked)
        if row is not None:
            self.attempt(
                "withdraw", self.person_for(row), lambda w, a: approvals.withdraw(w, NoQueue(), a, row.id), row=row
            )

    # -- series and classes --

    def _series_asked(self, who: str) -> SeriesAsk:
        chance = self.chance
        tenant = who.split("-")[0]
        body = {"project": PROJECTS[tenant][0], "name": f"Series {self.number}", "kind": H100, "units": chance.randint(1, 3),
                "start": "asap", "duration": "PT1H"}  # fmt: skip
        first = self.on_grid(self.minutes(4, 40)).replace(tzinfo=None)
        length = self.minutes(1, 8)
        rule = (
            f"FREQ={chance.choice(['DAILY', 'HOURLY'])};INTERVAL={chance.choice([1, 3])};COUNT={chance.randint(2, 4)}"
        )
        zone = chance.choice(["Europe/Zurich", "UTC"])
        ask = Ask.of(BookingIn.model_validate(body))
        return SeriesAsk(ask, rule, zone, first, first + length, chance.choice(["skip", "none"]))

    def do_series(self) -> None:
        who = self.chance.choice(PEOPLE)
        asked = self._series_asked(who)
        shown = self.company.run(who, lambda w, a: series.preview_series(w, NoQueue(), a, asked))
        got, _ = self.attempt("series", who, lambda w, a: series.book_series(w, NoQueue(), a, asked), said=asked.rule)
        if isinstance(shown, Problem):
            if not isinstance(got, Problem) or codes(got) != codes(shown):
                raise Broken(f"promise 5: the preview of a series was refused for {codes(shown)}, the series not so")
            return
        conflicts = bool(shown.conflicts) and (asked.on_conflict == "none" or not shown.booked)
        if isinstance(got, Problem) != conflicts:
            raise Broken(f"promise 5: a series shown with {len(shown.conflicts)} conflicts, {asked.on_conflict}: {got}")
        if not isinstance(got, Problem) and [b.window for b in got.booked] != [b.window for b in shown.booked]:
            raise Broken("promise 5: a series is booked otherwise than shown")

    def _some_series(self) -> tuple[UUID, str] | None:
        found = self.company.rows(
            """SELECT s.id, t.slug FROM series s JOIN tenants t USING (tenant_id) WHERE EXISTS (SELECT FROM bookings b
                WHERE b.series_id = s.id AND b.state IN ('BOOKED', 'REQUESTED')) ORDER BY s.number"""
        )
        return self.chance.choice(found) if found else None

    def do_cancel_series(self) -> None:
        found = self._some_series()
        if found is not None:
            who = f"{found[1]}-lead" if self.chance.random() < 0.8 else self.chance.choice(PEOPLE)
            since = self.company.now + self.minutes(0, 100) if self.chance.random() < 0.4 else None
            self.attempt("cancel_series", who, lambda w, a: series.cancel_series(w, NoQueue(), a, found[0], since))

    def do_change_series(self) -> None:
        found = self._some_series()
        if found is not None:
            who = f"{found[1]}-lead" if self.chance.random() < 0.8 else self.chance.choice(PEOPLE)
            asked = self._series_asked(f"{found[1]}-lead")
            self.attempt(
                "change_series", who, lambda w, a: series.change_series(w, NoQueue(), a, found[0], asked),
                lambda w, a: series.preview_change(w, NoQueue(), a, found[0], asked),
            )  # fmt: skip

    def do_class(self) -> None:
        who = self.chance.choice(["physics-lead", "bio-lead", "bio-member"])
        tenant = who.split("-")[0]
        body: dict[str, Any] = {"project": PROJECTS[tenant][0], "name": f"Class {self.number}", "kind": H100, "units": 1,
                                "start": "asap", "duration": "PT1H"}  # fmt: skip
        if self.chance.random() < 0.6:
            body["start"] = self.on_grid(self.minutes(1, 40)).isoformat()
        ask = Ask.of(BookingIn.model_validate(body))
        people = [f"member@{tenant}.example", f"lead@{tenant}.example"]
        if self.chance.random() < 0.1:
            people.append("nobody@nowhere.example")
        self.attempt(
            "class", who, lambda w, a: classes.book_class(w, NoQueue(), a, ask, people),
            lambda w, a: classes.preview_class(w, NoQueue(), a, ask, people),
        )  # fmt: skip

    def do_cancel_class(self) -> None:
        found = self.company.rows(
            """SELECT c.id, t.slug FROM classes c JOIN tenants t USING (tenant_id) WHERE EXISTS (SELECT FROM bookings b
                WHERE b.class_id = c.id AND b.state IN ('BOOKED', 'STARTING', 'ACTIVE')) ORDER BY c.number"""
        )
        if found:
            one, tenant = self.chance.choice(found)
            who = self.chance.choice([f"{tenant}-lead"] * 4 + list(PEOPLE))
            self.attempt("cancel_class", who, lambda w, a: classes.cancel_class(w, NoQueue(), a, one))

    # -- claim --

    def do_claim(self) -> None:
        """Somebody works on units without a booking, and claims them."""
        who = self.chance.choice(PEOPLE)
        tenant, person = who.split("-")[0], self.company.world.people[who]
        uses = self.company.rows("SELECT id FROM external_use WHERE ended_at IS NULL AND who <> '' ORDER BY id")
        if not uses or self.chance.random() < 0.7:
            with self.company.world.work() as work:
                names = cluster_users.names_on(work, self.company.cluster_id, [person])
            node, gpus = (
                self.chance.choice(["n0", "n1", "n2", "m0"]),
                self.chance.sample(range(4), self.chance.randint(1, 2)),
            )
            made = self.fault(
                "foreign_job",
                lambda: self.company.backend.faults.foreign_job(node, gpus, what="own", who=names[person]),
            )
            if made is None:
                return
            self.jobs.append(made)
            self.company.look()
            uses = self.company.rows(
                "SELECT id FROM external_use WHERE ended_at IS NULL AND who <> '' ORDER BY id DESC LIMIT 1"
            )
        if not uses:
            return
        use = self.chance.choice(uses)[0]
        wish = Wish(PROJECTS[tenant][0], f"Claim {self.number}", self.minutes(1, 8))
        got, shown = self.attempt(
            "claim", who, lambda w, a: claiming.claim(w, NoQueue(), a, use, wish),
            lambda w, a: claiming.quote_claim(w, a, use, wish),
        )  # fmt: skip
        if not isinstance(got, Problem) and got.quoted != shown.offer.cost.amount:
            raise Broken(f"promise 2: a claim for {got.quoted}, quoted {shown.offer.cost.amount}")


def _said(ask: Ask) -> str:
    when = "asap" if ask.start is None else f"{ask.start:%m-%d %H:%M}"
    s = ask.shape
    shape = f"{s.units}" if s.units else f"{s.nodes}x{s.per_node}"
    return f"{ask.project} {shape} {(ask.kind or 'any')[:4]} {s.within or ''} {when} {ask.length}"
