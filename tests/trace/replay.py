"""Replay a public trace of GPU demands against a portal of this source tree, by its REST API, and check everything.

    python tests/trace/replay.py --nodes openb_node_list_gpu_node.csv --pods openb_pod_list_default.csv.gz

Two modes: `stepped`, in the trace's order with arrivals 10,000 times denser and the clock stepped, every demand from the
instant at which it arrives; and `at-once`, one frozen instant from which everybody wants everything. Sixteen clients post
at once. It prints what was accepted, refused, held, charged and stated; what is wrong goes to standard error and ends it
with 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run as a file: the packages lie two folders up
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import psycopg

from app.kernel import ids
from app.kernel.clock import monotonic
from tests.trace import checks
from tests.trace.checks import Promise
from tests.trace.clients import Answer
from tests.trace.demands import Demand, read_demands, read_installed, read_text
from tests.trace.portal import LATER, PRICES, START, Portal, open_portal

MODES = ("stepped", "at-once")
DENSER = 10_000
TRIED = 24
"""Of how many refusals an alternative is posted; fewer where fewer were refused."""


@dataclass
class Replay:
    """What has happened so far in one mode."""

    portal: Portal
    owner: psycopg.Connection
    chance: random.Random
    promises: dict[str, Promise] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    refusals: int = 0
    offered: Counter[str] = field(default_factory=Counter)
    without_alternative: int = 0
    tried: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def post(self, demands: list[Demand], at: datetime) -> None:
        """Everybody wants theirs from `at` on, which is now. Then, with the clock where it is, alternatives."""
        began = monotonic()
        bodies = [(f"trace {d.name}", body_of(d, at)) for d in demands]
        answers = self.portal.clients.post_all("/api/v1/bookings", bodies)
        self.seconds["posting"] += monotonic() - began
        refusals = []
        for demand, (_, body), answer in zip(demands, bodies, answers, strict=True):
            self.times.append(answer.seconds)
            if answer.status == 201:
                self._promised(body, answer)
            elif answer.status in (409, 422) and answer.body.get("reasons"):
                self._refused(answer)
                refusals.append((demand, body))
            else:
                self.wrong.append(f"{demand.name}: {answer.status} {answer.body}")
        left = TRIED - self.tried.total()
        for demand, body in self.chance.sample(refusals, min(left, len(refusals))):
            self._alternative(demand, body)

    def _promised(self, body: dict[str, Any], answer: Answer) -> None:
        booked = answer.body
        start, end = (datetime.fromisoformat(booked[word]) for word in ("start", "end"))
        asked = None if body["start"] == "asap" else datetime.fromisoformat(body["start"])
        if asked not in (None, start) or _duration(body["duration"]) != end - start or booked["units"] != _units(body):
            self.wrong.append(f"{body['name']}: asked for {body}, got {booked}")
        booking = str(ids.parse(ids.BOOKING, booked["id"]))
        self.promises[booking] = Promise(
            body["name"], _units(body), body.get("within"), start, end, booked["kind"], booked["price"]["amount"]
        )

    def _refused(self, answer: Answer) -> None:
        self.refusals += 1
        self.refused.update({reason["code"] for reason in answer.body["reasons"]})
        offered = answer.body.get("alternatives", [])
        self.offered.update(a["kind_of_change"] for a in offered)
        self.without_alternative += not offered

    def _alternative(self, demand: Demand, body: dict[str, Any]) -> None:
        """Ask again while nobody else does, and post what is offered instead, as it is."""
        again = self.portal.clients.post("/api/v1/bookings", body)
        offered = again.body.get("alternatives", [])
        if again.status == 201 or not offered:
            self.wrong.append(f"{demand.name}, refused before, asked alone: {again.status} {again.body}")
            return
        chosen = self.chance.choice(offered)
        answer = self.portal.clients.post("/api/v1/bookings", chosen["request"])
        self.tried[chosen["kind_of_change"]] += 1
        if answer.status != 201:
            self.wrong.append(f"{demand.name}: {chosen} was offered, and posted it is {answer.status} {answer.body}")
            return
        self._promised(chosen["request"], answer)
        if answer.body["price"] != chosen["price"]:
            self.wrong.append(f"{demand.name}: {chosen} was offered, and costs {answer.body['price']}")

    def look(self, now: datetime) -> None:
        """Compare what is held now with what was promised."""
        self.wrong += checks.wrong_now(self.promises, self.owner, now)

    def step(self, until: datetime | None) -> None:
        """Let time pass."""
        began = monotonic()
        self.seconds["steps"] += self.portal.pass_until(until)
        if until is not None:
            self.portal.move(until)
        self.seconds["stepping"] += monotonic() - began


def replay(
    mode: str,
    nodes: str,
    demands: list[Demand],
    database: Any,
    folder: Path,
    valkey_url: str,
    *,
    seed: int = 1,
    processes: int = 2,
) -> dict[str, Any]:
    """Replay in one mode on an empty database; figures, with what is wrong under `wrong`. `processes`: see portal."""
    began = monotonic()
    with (
        open_portal(database, folder, valkey_url, nodes, processes=processes) as portal,
        psycopg.connect(database.owner_url, autocommit=True) as owner,
    ):
        owner.execute("SET timezone = 'UTC'")
        run = Replay(portal, owner, random.Random(seed))
        for at, wanted in batches(mode, demands):
            run.step(at)
            run.post(wanted, at)
            run.look(at)
            settled = monotonic()
            portal.settle()
            run.seconds["stepping"] += monotonic() - settled
        run.step(None)
        figures = account(run, nodes)
    return {"mode": mode, "demands": len(demands), **figures, "took_s": round(monotonic() - began, 1)}


def batches(mode: str, demands: list[Demand]) -> Iterable[tuple[datetime, list[Demand]]]:
    """When what arrives."""
    if mode == "at-once":
        return [(START, demands)]
    grouped = groupby(demands, key=lambda d: (d.arrival - demands[0].arrival) // DENSER)
    return ((START + timedelta(seconds=second), list(group)) for second, group in grouped)


def account(run: Replay, nodes: str) -> dict[str, Any]:
    """When all is over: what the portal says, what the independent bill says, and what is wrong."""
    portal, promises = run.portal, run.promises
    holds, installed = checks.read_holds(run.owner), checks.read_nodes(run.owner)
    run.wrong += checks.wrong_holds(promises, holds, installed) + checks.overlaps(holds)
    bookings: list[dict[str, Any]] = []
    following: str | None = ""
    while following is not None:
        cursor = f"&cursor={following}" if following else ""
        page = portal.clients.get_as(portal.tokens[0], f"/api/v1/bookings?limit=500{cursor}")
        bookings += page["items"]
        following = page["next"]
    for item in bookings:
        item["uuid"] = str(ids.parse(ids.BOOKING, item["id"]))
    run.wrong += checks.wrong_bookings(promises, bookings)
    prices = portal.clients.get_as(portal.admin, "/api/v1/prices?group=standard&currency=CHF")
    published = [{k: Fraction(p) for k, p in v["prices"].items()} for v in prices["items"]]
    if published != [{k: Fraction(p) for k, p in book.items()} for book in (LATER, PRICES)]:
        run.wrong.append(f"the portal's prices are not those published: {prices}")
    statements = portal.clients.get_as(portal.admin, "/api/v1/statements")
    bill, differences = checks.ask_oracle(portal.folder, prices, bookings, statements, "Europe/Zurich", "CHF")
    if differences:
        run.wrong.append(f"the independent bill differs: {differences}")
    charged = sum((Fraction(item["charged"]["amount"]) for item in bookings), Fraction(0))
    billed = sum((Fraction(amount) for amount in bill["charges"].values()), Fraction(0))
    stated = {s["period"]: s["total"] for s in statements["items"]}
    if not charged == billed == sum((Fraction(total) for total in stated.values()), Fraction(0)):
        run.wrong.append(f"charged {charged}, billed {billed}, stated {stated}")
    times = sorted(run.times)
    return {
        "gpus": sum(read_installed(nodes).values()),
        "accepted": len(run.times) - run.refusals,
        "refused": run.refusals,
        "refused_by_reason": dict(run.refused.most_common()),
        "asked_again": portal.clients.asked_again,
        "alternatives_offered": dict(run.offered.most_common()),
        "refusals_without_alternative": run.without_alternative,
        "alternatives_posted": run.tried.total(),
        "alternatives_by_change": dict(run.tried.most_common()),
        "peak_units": checks.peak(promises.values()),
        "unit_hours": _text(checks.unit_hours(promises.values())),
        "charged": _text(charged),
        "statements": dict(sorted(stated.items())),
        "statement_total": _text(sum((Fraction(total) for total in stated.values()), Fraction(0))),
        "answer_p50_ms": round(times[len(times) // 2] * 1000, 1),
        "answer_p99_ms": round(times[len(times) * 99 // 100] * 1000, 1),
        "posting_s": round(run.seconds["posting"], 1),
        "stepping_s": round(run.seconds["stepping"], 1),
        "steps": int(run.seconds["steps"]),
        "wrong": run.wrong,
    }


def body_of(demand: Demand, at: datetime) -> dict[str, Any]:
    """A demand as a request for any kind."""
    shape = {"units": demand.units} | ({"within": demand.within} if demand.within else {})
    length = f"PT{demand.seconds}S"
    return {
        "project": "plasma",
        "name": demand.name,
        "kind": "any",
        **shape,
        "start": at.isoformat(),
        "duration": length,
    }


def _units(body: dict[str, Any]) -> int:
    return body["units"] if "units" in body else body["nodes"] * body["per_node"]


def _duration(text: str) -> timedelta:
    """An ISO 8601 duration of days, hours, minutes and seconds, read here anew."""
    days, _, clock = text.removeprefix("P").partition("T")
    total = int(days.removesuffix("D") or 0) * 86400
    number = ""
    for sign in clock:
        if sign.isdigit():
            number += sign
        else:
            total += int(number) * {"H": 3600, "M": 60, "S": 1}[sign]
            number = ""
    return timedelta(seconds=total)


def _text(value: Fraction) -> str:
    return f"{float(value):.2f}"


def report(figures: dict[str, Any]) -> str:
    """The figures for a terminal."""
    rows = [(k, v) for k, v in figures.items() if k != "wrong"]
    width = max(len(k) for k, _ in rows)
    lines = [
        f"{k:<{width}}  {', '.join(f'{a} {b}' for a, b in v.items()) if isinstance(v, dict) else v}" for k, v in rows
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=Path, required=True, help="CSV: sn,cpu_milli,memory_mib,gpu,model")
    parser.add_argument("--pods", type=Path, required=True, help="CSV of pods, may be gzipped")
    parser.add_argument("--mode", choices=MODES, action="append", help="one of them; both unless said")
    parser.add_argument("--limit", type=int, help="only so many demands")
    parser.add_argument("--first-nodes", type=int, help="only so many nodes")
    parser.add_argument("--seed", type=int, default=1, help="which refusals and alternatives are drawn")
    parser.add_argument("--web", type=int, default=2, help="web processes; 0: a server in a thread of this one")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    words = parser.parse_args(arguments)
    nodes = read_text(words.nodes)
    if words.first_nodes is not None:
        nodes = "\n".join(nodes.splitlines()[: words.first_nodes + 1]) + "\n"
    demands = read_demands(read_text(words.pods), words.limit)
    from tests.servers import Servers, new_database

    servers = Servers()
    figures = {}
    try:
        addresses = servers.start()
        for mode in words.mode or MODES:
            with tempfile.TemporaryDirectory(prefix="berth-trace-") as folder:
                database = new_database(addresses.superuser_url)
                figures[mode] = replay(
                    mode,
                    nodes,
                    demands,
                    database,
                    Path(folder),
                    addresses.valkey_url,
                    seed=words.seed,
                    processes=words.web,
                )
            print(report(figures[mode]), end="\n\n", flush=True)
            print("\n".join(map(str, figures[mode]["wrong"][:20])), file=sys.stderr)
    finally:
        servers.stop()
    if words.json is not None:
        words.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 1 if any(f["wrong"] for f in figures.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
