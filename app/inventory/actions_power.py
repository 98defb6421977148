"""Sets what a rack, a leaf or a cluster may draw. Bookings that are there already stay: a budget binds what comes after."""

from __future__ import annotations

from app.accounts import audit
from app.inventory.facts import PowerBudget
from app.inventory.queries import cluster_named
from app.inventory.queries_power import LEVELS, Level, budgets, domain
from app.inventory.rules import may_operate
from app.kernel.actor import Actor
from app.kernel.errors import Invalid, Reason
from app.plumbing.db import Work

MOST = 100_000_000


def set_budget(
    work: Work, actor: Actor, cluster: str, level: Level, name: str, watts: int | None
) -> tuple[PowerBudget, ...]:
    """Set the watts of a domain, or take its budget away (None). Answers with all budgets of the cluster.

    Raises Invalid for a domain that is not there, or with nodes whose draw nobody knows: nothing could be kept there.
    """
    may_operate(actor)
    found = cluster_named(work, cluster)
    name = cluster if level == "cluster" else name.strip()
    if level not in LEVELS:
        raise _wrong("level", f"A budget is of a {', a '.join(LEVELS[:-1])} or of a {LEVELS[-1]}.")
    if watts is not None and not 0 < watts <= MOST:
        raise _wrong("watts", f"A budget has 1 to {MOST:,} watts.")
    # budgets before pools, as whoever books does; the pools' new version tells those who have read without the lock
    work.pg.execute("SELECT FROM power_budgets WHERE cluster_id = %s ORDER BY id FOR NO KEY UPDATE", [found.id])
    work.pg.execute("SELECT FROM pools WHERE cluster_id = %s ORDER BY id FOR NO KEY UPDATE", [found.id])
    before = {b.name: b.watts for b in budgets(work, [found.id]) if b.level == level and b.name == name}
    if watts is None:
        work.pg.execute(
            "DELETE FROM power_budgets WHERE cluster_id = %s AND level = %s AND name = %s", [found.id, level, name]
        )
    else:
        there = domain(work, found.id, level, name)
        if there is None:
            raise _wrong("name", f"{cluster} has no {level} called {name[:80]}.")
        if there.unknown:
            nodes = ", ".join(there.unknown[:5])
            raise _wrong("name", f"Nobody knows what {nodes} draw. Import their power_watts first.")
        work.pg.execute(
            """INSERT INTO power_budgets (cluster_id, level, name, watts) VALUES (%s, %s, %s, %s)
               ON CONFLICT ON CONSTRAINT one_budget DO UPDATE SET watts = excluded.watts""",
            [found.id, level, name, watts],
        )
    work.pg.execute(
        """UPDATE pools SET version = version + 1, capacity_version = nextval('capacity_versions')
            WHERE cluster_id = %s""",
        [found.id],
    )
    audit.record(
        work, actor, "set power budget", f"cluster {cluster}", {"level": level, **before},
        {"level": level, "name": name, "watts": watts}, platform=True,
    )  # fmt: skip
    return budgets(work, [found.id])


def _wrong(field: str, sentence: str) -> Invalid:
    return Invalid("not_valid", sentence, (Reason("not_valid", sentence, field=field, in_request=True),))
