"""What operators, admins, finance and time do, and what goes wrong on the cluster."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from app.accounts import actions as accounts
from app.backends.contract import Ref
from app.billing import actions as billing
from app.bookings import actions_policies, maintenance
from app.bookings.maintenance import Plan
from app.inventory import actions_maintenance as announcing
from app.kernel.actor import Actor
from app.kernel.errors import Problem
from app.kernel.window import Window
from app.plumbing.queue import NoQueue
from app.pricing import actions as pricing
from tests.model.company import PEOPLE, PROJECTS, codes
from tests.model.vocabulary import Broken
from tests.world import FINANCE, H100, H200, OPERATOR

NODES = ("n0", "n1", "n2", "m0")
HOUR = timedelta(hours=1)
POOL_WORDS: tuple[tuple[dict[str, Any], int], ...] = (
    ({}, 0),
    ({}, 0),
    ({}, 900),
    ({"no_show": None, "idle_release": 3600}, 300),
    ({"grace": 900, "reclaim_lead": 300}, 0),
    ({"min_gap": 1800}, 0),
    (
        {"give_up": 1800},
        0,
    ),  # a longer `made_ahead` is told to no due row: quotes of what should have begun differ until then
    ({"cancel_notice": 7200, "cancel_fee_percent": 50, "free_cancel": 0}, 0),
    ({"max_extension": 7200, "extend_within": 14_400}, 0),
)
OVER_WORDS: tuple[dict[str, Any], ...] = (
    {},
    {"approval_hours": 12, "approver": "lead"},
    {"approval_hours": 12, "approver": "operator"},
    {"approval_hours": 8, "approver": "operator", "requests_hold": False},
    {"approval_money": "20", "approver": "lead", "approval_for": 7200},
    {"max_units_user": 6, "ahead_hours_user": 60},
    {"offer_for": 3600, "skips": 1},
)


class Running:
    """Verbs of those who run it, time, looks and faults."""

    def do_time(self) -> None:
        length = timedelta(minutes=self.chance.choices([2, 10, 30, 60, 150], [4, 6, 6, 3, 1])[0])
        length += timedelta(seconds=self.chance.choice([0, 0, 0, 1, 17]))
        self.tally.count("time", None)
        self.company.pass_time(length, seeing=self.chance.random() < 0.3)
        self.say(f"{length} later")

    def do_look(self) -> None:
        self.tally.count("look", None)
        self.company.look()
        self.company.settle()

    # -- rules, limits, prices --

    def do_policy(self) -> None:
        over = self.chance.random() < 0.6
        tenant = self.chance.choice(list(PROJECTS)) if over else None
        project = PROJECTS[tenant][0] if tenant and self.chance.random() < 0.3 else None
        if over:
            words, gap = self.chance.choice(OVER_WORDS), None
        else:
            words, gap = self.chance.choice(POOL_WORDS)
            words = {"observed_within": 86_400, **words}
        pool = self.chance.choice([H100, H100, H200])
        who = OPERATOR if self.chance.random() < 0.9 else "physics-lead"
        shown = self.company.run(
            who, lambda w, a: actions_policies.preview(w, a, "sim", pool, words, gap, tenant, project)
        )
        got, _ = self.attempt(
            "policy", who, lambda w, a: actions_policies.set_policy(w, a, "sim", pool, words, gap, tenant, project),
            said=f"{pool[:4]} {tenant} {project} {words} {gap}",
        )  # fmt: skip
        if isinstance(got, Problem) != isinstance(shown, Problem):
            raise Broken(f"promise 5: a policy was {got}, its preview {shown}")

    def do_limit(self) -> None:
        tenant = self.chance.choice(list(PROJECTS))
        actor = Actor(None, "Admin", self.company.world.tenants[tenant], frozenset({"admin"}), frozenset({"operator"}))
        words: dict[str, Any] = {}
        dice = self.chance.random()
        if dice < 0.3:
            words["project_id"] = self.company.world.projects[self.chance.choice(PROJECTS[tenant])]
        elif dice < 0.5:
            words["account_id"] = self.company.world.people[f"{tenant}-member"]
        if self.chance.random() < 0.3:
            words["kind"] = H100
        words["units"] = self.chance.choice([None, None, 6, 10])
        words["hours"] = self.chance.choice([None, 2000, 5000, 100_000])
        if self.chance.random() < 0.3:
            words["money"] = Decimal(self.chance.choice([8000, 50_000]))
        got, _ = self.attempt("limit", actor, lambda w, a: billing.set_limit(w, a, **words), said=f"{tenant} {words}")
        if not isinstance(got, Problem):
            self.promises.limits_were_set()

    def do_price(self) -> None:
        prices = {k: Decimal(self.chance.choice(["2.40", "1.999999", "3.10", "0.50"])) for k in (H100, H200)}
        at = self.company.now + self.minutes(1, 100) + timedelta(seconds=self.number % 50)
        self.attempt(
            "price", FINANCE, lambda w, a: pricing.publish_version(w, a, "standard", "CHF", at, prices, "more")
        )

    # -- maintenance --

    def do_maintenance(self) -> None:
        start = self.on_grid(self.minutes(1, 60))
        nodes = tuple(self.chance.sample(NODES, self.chance.choice([1, 1, 2])))
        plan = Plan("sim", "node", nodes, Window(start, start + self.minutes(2, 10)), f"Work {self.number}", "Fans.")
        who: Any = OPERATOR if self.chance.random() < 0.95 else "bio-lead"
        shown = self.company.run(who, lambda w, a: maintenance.preview(w, NoQueue(), a, plan))
        digest = "" if isinstance(shown, Problem) else shown.digest
        wrong = self.chance.random() < 0.1
        got, _ = self.attempt(
            "maintenance", who,
            lambda w, a: maintenance.commit(w, NoQueue(), a, plan, "another" if wrong else digest), said=f"{nodes} {plan.window}",
        )  # fmt: skip
        if isinstance(got, Problem):
            if not wrong and not isinstance(shown, Problem):
                raise Broken(f"promise 5: a maintenance was shown and is refused: {codes(got)}")
            return
        self.say(f"fates: {[(f.booking.label, f.done, f.end) for f in got.fates]}")
        for fate in got.fates:
            if fate.done == "shorten":
                self.promises.accounts[fate.booking.id].end = fate.end
        crossing = self.company.rows(
            """SELECT h.booking_id FROM holds h JOIN nodes n ON n.id = h.node_id JOIN bookings b ON b.id = h.booking_id
                WHERE n.name = ANY(%s) AND h.live AND h.left_at IS NULL AND b.state <> 'ENDING'
                  AND tstzrange(b.starts_at, b.ends_at) && tstzrange(%s, %s)""",
            list(nodes), plan.window.start, plan.window.end,
        )  # fmt: skip
        if crossing:
            raise Broken(f"maintenance of {nodes} is crossed by {crossing}")

    def do_call_off(self) -> None:
        found = self.company.rows(
            "SELECT id FROM maintenances WHERE cancelled_at IS NULL AND upper(during) > berth_now() ORDER BY id"
        )
        if found:
            number = self.chance.choice(found)[0]
            who: Any = OPERATOR if self.chance.random() < 0.8 else "physics-lead"
            self.attempt("call_off", who, lambda w, a: announcing.call_off(w, a, number))

    # -- projects --

    def _second(self) -> tuple[str, UUID, Actor]:
        """The second project of a tenant, which comes and goes."""
        tenant = self.chance.choice(list(PROJECTS))
        admin = Actor(None, "Admin", self.company.world.tenants[tenant], frozenset({"admin"}))
        return tenant, self.company.world.projects[PROJECTS[tenant][1]], admin

    def do_end_project(self) -> None:
        tenant, project, admin = self._second()
        at = self.company.now + self.minutes(0, 40) if self.chance.random() < 0.7 else None
        who: Any = admin if self.chance.random() < 0.8 else f"{tenant}-member"
        self.attempt("end_project", who, lambda w, a: accounts.end_project(w, a, project, at=at), said=f"{tenant} {at}")
        self.company.settle()

    def do_renewal(self) -> None:
        tenant, project, _ = self._second()
        who = f"{tenant}-lead" if self.chance.random() < 0.8 else self.chance.choice(PEOPLE)
        self.attempt("renewal", who, lambda w, a: accounts.ask_renewal(w, a, project), said=tenant)

    def do_renew(self) -> None:
        tenant, project, admin = self._second()
        until = None if self.chance.random() < 0.7 else self.company.now + self.minutes(20, 400)
        self.attempt(
            "renew", admin, lambda w, a: accounts.renew_project(w, a, project, until), said=f"{tenant} {until}"
        )

    # -- what goes wrong --

    def do_fault(self) -> None:
        chance, faults, now = self.chance, self.company.backend.faults, self.company.now
        node, gpu = chance.choice(NODES), chance.randrange(4)
        later = now + timedelta(minutes=chance.choice([10, 30, 90]))
        name = chance.choices(
            ("node_dies", "node_ill", "node_returns", "gpu_mended", "node_drains", "take_away", "foreign_job", "foreign_ends",
             "workload_hangs", "metrics_gap", "clock_skew", "slow_start", "call_slow", "call_refused", "answer_lost"),
            (2, 2, 6, 2, 1, 1, 2, 3, 1, 1, 2, 2, 1, 2, 2),
        )[0]  # fmt: skip
        verb = chance.choice(["ensure", "observe", "release", "*", "inventory"])
        ref = self._ref()
        acts: dict[str, Any] = {
            "node_dies": lambda: faults.node_dies(node, until=chance.choice([None, later])),
            "node_ill": lambda: faults.node_ill(node, gpu, until=chance.choice([None, later])),
            "node_returns": lambda: faults.node_returns(node),
            "gpu_mended": lambda: faults.gpu_mended(node, gpu),
            "node_drains": lambda: faults.node_drains(node),
            "foreign_job": lambda: faults.foreign_job(node, (gpu,), until=later),
            "metrics_gap": lambda: faults.metrics_gap(now - HOUR, later, chance.choice([None, node])),
            "clock_skew": lambda: faults.clock_skew(chance.choice([0, 0, 5, 30])),
            "slow_start": lambda: faults.slow_start(chance.choice([60, 900, 4000]), 2),
            "call_slow": lambda: faults.call_slow(verb, chance.choice([1, 60]), 2, chance.choice(["before", "after"])),
            "call_refused": lambda: faults.call_refused(
                verb, chance.choice(["unreachable", "busy", "conflict", "capacity", "permission"]), chance.randint(1, 3)
            ),
            "answer_lost": lambda: faults.answer_lost(verb, chance.randint(1, 3)),
        }
        if name == "foreign_ends":
            acts[name] = lambda: [faults.foreign_ends(job) for job in self._jobs()]
        if name in ("take_away", "workload_hangs"):
            if ref is None:
                return
            own, where = ref
            acts["take_away"] = lambda: faults.take_away(where, Ref(own))
            acts["workload_hangs"] = lambda: faults.workload_hangs(Ref(own))
        self.fault(name, acts[name])
        if chance.random() < 0.5:
            self.company.look()
            self.company.settle()

    def _ref(self) -> tuple[str, str] | None:
        """The object of an active booking, and a node that it has."""
        found = self.company.rows(
            """SELECT a.name, n.name FROM bookings b JOIN holds h ON h.booking_id = b.id AND h.live JOIN nodes n ON n.id = h.node_id
                 JOIN allocations a ON a.id = h.allocation_id WHERE b.state = 'ACTIVE' ORDER BY b.number, n.name"""
        )
        return self.chance.choice(found) if found else None

    def _jobs(self) -> list[str]:
        with self.company.backend._log.look() as cluster:
            now = int(self.company.now.timestamp())
            return [j.id for j in cluster.foreign.values() if j.until is None or j.until > now]
