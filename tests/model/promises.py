"""What must hold after every step of a history on the real database, in SQL and sums of its own.

Nothing here is the product's: rows are read as they stand, and reserved time is worked out from the account that the
history keeps of what was done (`Account`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from tests.model.company import Company
from tests.model.vocabulary import Broken

HOLDING = ("BOOKED", "STARTING", "ACTIVE")
FINAL = ("ENDED", "CANCELLED", "REJECTED", "LAPSED")
WATCHED = (
    "state", "outcome", "starts_at", "ends_at", "units", "nodes", "per_node", "quoted", "account_id", "shared", "name",
    "cluster_id", "pool_id",
)  # fmt: skip
"""Columns of a booking whose change is a change of the booking: it has a history row and another version."""
NAMED = {
    "starts_at": "start",
    "ends_at": "end",
    "units": "units",
    "account_id": "account",
    "shared": "shared",
    "quoted": "quoted",
}
"""Columns whose change stands in `history.changes` with before and after, and how it is called there."""


@dataclass
class Account:
    """What the history knows a booking to have had, from what was done to it: independent of intervals and charges."""

    start: datetime
    end: datetime
    units: list[tuple[datetime, int]] = field(default_factory=list)
    left: datetime | None = None
    handed: bool = False
    moved: bool = False
    shrunk: bool = False

    def stretches(self, provided: datetime | None) -> Iterable[tuple[datetime, datetime, int]]:
        """(from, until, units) of the time that counts."""
        begin = max(self.start, provided or self.start)
        until = self.end if self.left is None else min(self.end, self.left)
        for number, (since, many) in enumerate(self.units):
            ends = self.units[number + 1][0] if number + 1 < len(self.units) else until
            a, b = max(begin, since), min(until, ends)
            if a < b:
                yield a, b, many

    def seconds(self, provided: datetime | None) -> int:
        return sum(int((b - a).total_seconds()) * many for a, b, many in self.stretches(provided))


class Promises:
    """The checks, with what was seen of every booking and its history up to the last step."""

    def __init__(self, company: Company) -> None:
        self.company = company
        self.seen: dict[UUID, dict[str, Any]] = {}
        self.versions: dict[UUID, int] = {}
        self.seq = 0
        self.xid = 0
        self.accounts: dict[UUID, Account] = {}
        self.over: dict[tuple[int, Any], int] = {}
        """What stood against a limit when it was set: more than it allows stays, and grows no more."""

    # -- after every step --

    def each(self) -> list[tuple[UUID, str, str, datetime]]:
        """The cheap checks; answers (booking, event, state after, when) of the history that is new."""
        new = self.company.rows(
            "SELECT seq, booking_id, at, actor, event, before, after, changes FROM history WHERE seq > %s ORDER BY seq",
            self.seq,
        )
        self.seq = new[-1][0] if new else self.seq
        touched = self._every_change_is_in_the_history(new)
        self._no_unit_twice()
        if touched:
            self._as_promised(touched)
        return [(booking, event, after, at) for _, booking, at, _, event, _, after, _ in new]

    def _every_change_is_in_the_history(self, new: list[tuple]) -> list[UUID]:
        mark, since = self.xid, self.company.mark()[0]
        found = self.company.rows(
            f"SELECT id, version, {', '.join(WATCHED)} FROM bookings WHERE xmin::text::bigint >= %s ORDER BY number",
            mark,
        )
        self.xid = since
        lines: dict[UUID, list[tuple]] = defaultdict(list)
        for _, booking, at, actor, event, before, after, changes in new:
            lines[booking].append((at, actor, event, before, after, changes or {}))
            if not actor or not event or not after:
                raise Broken(f"promise 10: a history row of {booking} does not say who or what: {event}")
            if at > self.company.now:
                raise Broken(f"promise 10: {event} of {booking} is dated {at}, which lies ahead")
        touched = []
        for id, version, *values in found:
            row = dict(zip(WATCHED, values, strict=True))
            before = self.seen.get(id)
            self.seen[id] = row
            old_version, self.versions[id] = self.versions.get(id), version
            if before == row:
                continue
            touched.append(id)
            mine = lines[id]
            if not mine:
                raise Broken(f"promise 10: {id} has changed without a history row: {_difference(before, row)}")
            if old_version is not None and version <= old_version:
                raise Broken(f"{id} has changed and kept its version {version}: {_difference(before, row)}")
            states = [None if before is None else before["state"], *(line[4] for line in mine)]
            for was, line in zip(states, mine, strict=False):
                if line[3] != was:
                    raise Broken(f"promise 10: {line[2]} of {id} says it was {line[3]}, and it was {was}")
            if states[-1] != row["state"]:
                raise Broken(f"promise 10: the history of {id} ends in {states[-1]}, the booking is {row['state']}")
            for column, word in NAMED.items():
                if before is None or before[column] == row[column] or (before["state"] in ("WAITING", "REQUESTED")):
                    continue
                if not any(word in line[5] for line in mine):
                    raise Broken(
                        f"promise 10: {column} of {id} went from {before[column]} to {row[column]}, and no row says so"
                    )
                last = [line[5][word] for line in mine if word in line[5]][-1]
                if _plain(row[column]) != _plain(last[1]):
                    raise Broken(f"promise 10: the history of {id} says {word} is {last[1]}, and it is {row[column]}")
        return touched

    def _no_unit_twice(self) -> None:
        twice = self.company.rows(
            """SELECT a.booking_id, a.request_id, b.booking_id, b.request_id, a.units * b.units, a.during * b.during
                 FROM holds a JOIN holds b ON a.id < b.id AND b.live AND a.during && b.during AND a.units && b.units
                WHERE a.live"""
        )
        if twice:
            raise Broken(f"promise 1: held twice: {twice}")

    def _as_promised(self, which: list[UUID] | None = None) -> None:
        """A booking is n units, in the shape promised, at every instant that is left of its window; else it is nothing."""
        every = self.company.bookings("b.id = ANY(%s)", which) if which else self.company.bookings(
            "b.state <> ALL(%s)", list(FINAL)
        )  # fmt: skip
        held: dict[UUID, list[tuple]] = defaultdict(list)
        for booking, *rest in self.company.rows(
            """SELECT h.booking_id, n.id, n.rack, n.leaf, n.nvlink, lower(h.during), upper(h.during), h.left_at,
                      (SELECT sum(upper(r) - lower(r)) / 64 FROM unnest(h.units) r)
                 FROM holds h JOIN nodes n ON n.id = h.node_id WHERE h.live AND h.booking_id = ANY(%s)""",
            [b.id for b in every],
        ):
            held[booking].append(tuple(rest))
        for b in every:
            mine = [h for h in held[b.id] if h[6] is None]
            if b.state in FINAL and held[b.id]:
                raise Broken(f"promise 3: B-{b.number} is {b.state} and holds units")
            if b.state == "WAITING" and held[b.id]:
                raise Broken(f"promise 3: B-{b.number} waits and holds units of its own")
            if b.state not in HOLDING and not (b.state == "REQUESTED" and mine):
                continue
            since = max(b.starts_at, self.company.now)
            for at in sorted({since, *(h[4] for h in mine), *(h[5] for h in mine)}):
                if not since <= at < b.ends_at:
                    continue
                then = [h for h in mine if h[4] <= at < h[5]]
                if sum(h[7] for h in then) != b.units:
                    raise Broken(
                        f"promise 3: B-{b.number} has {sum(h[7] for h in then)} of its {b.units} units at {at}"
                    )
                if b.nodes is not None and sorted(h[7] for h in then) != [b.per_node] * b.nodes:
                    raise Broken(f"promise 3: B-{b.number} is not {b.nodes} x {b.per_node} at {at}: {then}")
                level = {"node": 0, "rack": 1, "leaf": 2, "nvlink": 3}.get(b.within or "")
                if level is not None and (len({h[level] for h in then}) != 1):
                    raise Broken(f"promise 3: B-{b.number} does not lie in one {b.within} at {at}: {then}")

    # -- from time to time --

    def all(self) -> None:
        """The dear checks."""
        self._as_promised()
        self._the_cluster_was_asked_for_the_same()
        self._nothing_of_others()
        self._limits()
        self._reserved()
        self._money()

    def _the_cluster_was_asked_for_the_same(self) -> None:
        """What the simulated cluster was ordered last is what the booking holds, and no two orders share a GPU in time."""
        found = self.company.rows(
            """SELECT b.number, b.state, a.name, b.starts_at, least(b.ends_at, b.released_at, b.emptied_at), a.ensured = a.wanted,
                      (SELECT array_agg(DISTINCT n.name || ':' || (g - n.first_gpu)) FROM holds h JOIN nodes n ON n.id = h.node_id,
                              unnest(h.units) r, generate_series(lower(r) / 64, (upper(r) - 1) / 64) g
                        WHERE h.booking_id = b.id AND h.live AND h.left_at IS NULL AND upper(h.during) > berth_now())
                 FROM allocations a JOIN holds o ON o.allocation_id = a.id JOIN bookings b ON b.id = o.booking_id
                WHERE b.asked GROUP BY b.id, a.id"""
        )
        with self.company.backend._log.look() as cluster:
            orders = {name: json.loads(r.order) for name, r in cluster.reservations.items()}
        taken: dict[tuple[str, int], list[tuple[datetime, datetime, int]]] = defaultdict(list)
        for number, state, name, start, end, settled, units in found:
            order = orders.get(name)
            if order is None:
                continue
            asked = {f"{node}:{gpu}" for node, gpus in order["places"] for gpu in gpus}
            if state == "ACTIVE" and settled and asked != set(units or ()):
                raise Broken(
                    f"promise 1: the cluster was asked for {sorted(asked)} for B-{number}, which holds {sorted(units)}"
                )
            if start < end and state == "ACTIVE" and settled:
                for node, gpus in order["places"]:
                    for gpu in gpus:
                        taken[node, gpu].append((start, end, number))
        for unit, windows in taken.items():
            windows.sort()
            for (_, end, first), (start, _, second) in pairwise(windows):
                if start < end:
                    raise Broken(f"promise 1: the cluster was asked for {unit} for B-{first} and B-{second} at once")

    def _nothing_of_others(self) -> None:
        """As the app's role, acting for one tenant, no row of another is there."""
        tables = [
            t
            for (t,) in self.company.rows(
                "SELECT relname FROM pg_class WHERE relrowsecurity AND relkind = 'r' ORDER BY 1"
            )
        ]
        for tenant, id in self.company.world.tenants.items():
            with self.company.world.work(tenant) as work:
                sql = " UNION ALL ".join(f"SELECT '{t}', count(*) FROM {t} WHERE tenant_id <> '{id}'" for t in tables)
                seen = [row for row in work.pg.execute(sql) if row[1]]
            if seen:
                raise Broken(f"promise 9: {tenant} sees rows of others: {seen}")

    def _limits(self) -> None:
        """What stands against each limit is what the account says the bookings take; nothing was let past a limit."""
        scopes = self.company.rows(
            "SELECT id, tenant_id, subject, project_id, account_id, kind, max_quantity FROM scopes"
        )
        counted: dict[tuple[int, UUID], int] = defaultdict(int)
        for scope, booking, amount in self.company.rows(
            "SELECT scope_id, booking_id, sum(quantity)::bigint FROM commitments WHERE booking_id IS NOT NULL GROUP BY 1, 2"
        ):
            counted[scope, booking] = amount
        for b in self.company.bookings():
            account = self.accounts.get(b.id)
            if account is None:
                continue
            mine = self._counts(b, account)
            for scope, tenant, subject, project, person, kind, _ in scopes:
                if tenant != b.tenant_id or kind not in (None, b.kind) or project not in (None, b.project_id):
                    continue
                if subject == "user" and (b.class_id is not None or account.handed or person != b.account_id):
                    continue
                if counted[scope, b.id] != mine * 840:
                    raise Broken(
                        f"promise 8: B-{b.number} ({b.state}) counts {counted[scope, b.id] / 840} unit-seconds in limit {scope} "
                        f"({subject}), the account says {mine}{self._story(b.id)}"
                    )

        self._within_limits()

    def _within_limits(self) -> None:
        """used + held is what is committed, and never more than the limit, or than stood there when it was set."""
        for (scope, month), (amount, most) in self._standing().items():
            if most is not None and amount > max(most, self.over.get((scope, month), 0)):
                raise Broken(f"promise 8: {amount} stand against {most} of limit {scope} ({month or 'at once'})")

    def limits_were_set(self) -> None:
        """Remember what stands against every limit now."""
        self.over = {key: amount for key, (amount, _) in self._standing().items()}

    def _standing(self) -> dict[tuple[int, Any], tuple[int, int | None]]:
        """For each limit and month the quantity committed, and (month None) the most units at once; with what it allows."""
        most = {
            i: (rate, hours) for i, rate, hours in self.company.rows("SELECT id, max_rate, max_quantity FROM scopes")
        }
        found: dict[tuple[int, Any], int] = defaultdict(int)
        steps: dict[int, list[tuple[datetime, int]]] = defaultdict(list)
        for scope, day, start, end, rate in self.company.rows(
            "SELECT scope_id, day, starts_at, ends_at, rate FROM commitments"
        ):
            found[scope, day.replace(day=1)] += rate * int((end - start).total_seconds())
            steps[scope] += [(start, rate), (end, -rate)]
        for scope, every in steps.items():
            at_once = 0
            for _, change in sorted(every):
                at_once += change
                found[scope, None] = max(found[scope, None], at_once)
        return {(scope, month): (amount, most[scope][month is not None]) for (scope, month), amount in found.items()}

    def _story(self, id: UUID) -> str:
        """All that is known of one booking, for whoever has to find out."""
        parts = [self.accounts.get(id)]
        for sql in (
            "SELECT at, actor, event, after, changes FROM history WHERE booking_id = %s ORDER BY seq",
            "SELECT state, units, starts_at, ends_at, provided_at, released_at, left_by FROM bookings WHERE id = %s",
            "SELECT scope_id, starts_at, ends_at, rate / 840 FROM commitments WHERE booking_id = %s ORDER BY 1, 2",
            "SELECT starts_at, ends_at, units, per_hour FROM booking_prices WHERE booking_id = %s ORDER BY 1",
            "SELECT units, during, live, left_at FROM holds WHERE booking_id = %s",
            "SELECT during, units, quantity / 840 FROM intervals WHERE booking_id = %s ORDER BY during",
        ):
            parts += self.company.rows(sql, id)
        return "\n  " + "\n  ".join(_short(p) for p in parts)

    def _counts(self, b: Any, account: Account) -> int:
        if b.state in ("WAITING", "CANCELLED", "REJECTED", "LAPSED"):
            return 0
        if b.state == "REQUESTED" and not self.company.rows("SELECT FROM holds WHERE booking_id = %s AND live", b.id):
            return 0
        if b.state in ("ENDING", "ENDED") and b.provided_at is None:
            return 0
        return account.seconds(b.provided_at)

    def _reserved(self) -> None:
        """Metered and charged is what was provided and kept, to the second, once."""
        found = self.company.rows(
            """SELECT b.id, b.number, b.state, b.outcome, b.provided_at, b.ends_at, b.released_at,
                      (SELECT coalesce(sum(i.quantity), 0)::bigint FROM intervals i WHERE i.booking_id = b.id AND NOT i.void),
                      (SELECT coalesce(sum(c.quantity), 0)::bigint FROM charges c WHERE c.booking_id = b.id AND c.kind = 'use'),
                      (SELECT coalesce(sum(c.quantity), 0)::bigint FROM charges c WHERE c.booking_id = b.id AND c.kind = 'credit')
                 FROM bookings b WHERE b.provided_at IS NOT NULL OR b.state = ANY(%s)""",
            list(FINAL),
        )
        for id, number, state, outcome, provided, ends, released, metered, used, credited in found:
            if provided is None:
                if metered or used:
                    raise Broken(
                        f"promise 6: B-{number} was never provided, and {metered}, {used} was metered and charged"
                    )
                continue
            account = self.accounts.get(id)
            over = min(i for i in (ends, released) if i is not None) <= self.company.now
            if account is None:
                continue
            mine = account.seconds(provided) * 840
            if over and (metered != mine or used != mine):
                raise Broken(
                    f"promise 7: B-{number} ({state}, {outcome}): the account says {mine // 840} unit-seconds, metered is "
                    f"{metered / 840}, charged {used / 840}{self._story(id)}"
                )
            if metered > mine or used > metered or -credited > used:
                raise Broken(
                    f"promise 7: B-{number}: {mine // 840} so far, metered {metered / 840}, charged {used / 840}"
                )
        twice = self.company.rows(
            """SELECT a.booking_id, b.booking_id FROM intervals a JOIN intervals b ON a.id < b.id AND NOT b.void
                  AND a.during && b.during AND a.units && b.units WHERE NOT a.void"""
        )
        if twice:
            raise Broken(f"promise 7: unit-seconds metered twice: {twice}")
        conflicts = self.company.rows(
            "SELECT booking_id, during, units FROM interval_conflicts WHERE settled_at IS NULL"
        )
        if conflicts:
            raise Broken(f"promise 7: the product contradicts its own ledger: {conflicts}")

    def _money(self) -> None:
        """Every row of the ledger is quantity x the price in the booking's schedule then."""
        wrong = self.company.rows(
            """SELECT c.booking_id, c.kind, c.starts_at, c.unit_price FROM charges c WHERE c.kind = 'use' AND NOT EXISTS (
                 SELECT FROM booking_prices p WHERE p.booking_id = c.booking_id AND p.per_hour = c.unit_price
                    AND p.starts_at <= c.starts_at AND p.ends_at >= c.ends_at)"""
        )
        if wrong:
            raise Broken(f"promise 2: charged at another price than was promised: {wrong}")


def _difference(before: dict[str, Any] | None, after: dict[str, Any]) -> str:
    if before is None:
        return f"new, {after['state']}"
    return ", ".join(f"{k} {before[k]} -> {after[k]}" for k in after if before[k] != after[k])


def _short(part: Any) -> str:
    values = part if isinstance(part, tuple) else (part,)
    return " | ".join(f"{v:%m-%d %H:%M:%S}" if isinstance(v, datetime) else str(v) for v in values)


def _plain(value: Any) -> str:
    """As the history writes it."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return str(value)
