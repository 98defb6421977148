"""Work announced on nodes: rows of maintenance, and which nodes a domain means. Knows no booking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from app.kernel.errors import Invalid, NotFound, Reason
from app.kernel.window import Window
from app.plumbing.db import Work

Level = Literal["node", "nvlink", "leaf", "rack", "cluster"]


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Work on nodes of one cluster for a time, in which they are no capacity."""

    id: int
    cluster_id: int
    cluster: str
    name: str
    why: str
    start: datetime
    end: datetime
    made_by: str
    made_at: datetime
    cancelled_at: datetime | None
    version: int
    nodes: tuple[str, ...]
    layout: Mapping[str, str] = field(default_factory=dict)
    """How GPUs of its nodes are cut at its end, by node, in the words of a list of nodes."""

    @property
    def window(self) -> Window:
        """When."""
        return Window(self.start, self.end)


_MAINTENANCE = """
SELECT m.id, m.cluster_id, c.name, m.name, m.why, lower(m.during), upper(m.during), m.made_by, m.made_at, m.cancelled_at,
       m.version, ARRAY(SELECT n.name FROM maintenance_nodes x JOIN nodes n ON n.id = x.node_id
                         WHERE x.maintenance_id = m.id ORDER BY n.name),
       coalesce(m.layout->'nodes', '{}')
  FROM maintenances m JOIN clusters c ON c.id = m.cluster_id"""


def maintenances(
    work: Work, *, since: datetime | None = None, cluster_id: int | None = None
) -> tuple[Maintenance, ...]:
    """Those that end after `since` (None: all), by start; cancelled ones too."""
    rows = work.pg.execute(
        f"""{_MAINTENANCE} WHERE (%(since)s::timestamptz IS NULL OR upper(m.during) > %(since)s)
              AND (%(cluster)s::int IS NULL OR m.cluster_id = %(cluster)s) ORDER BY lower(m.during), m.id""",
        {"since": since, "cluster": cluster_id},
    ).fetchall()
    return tuple(Maintenance(*row[:11], tuple(row[11]), row[12]) for row in rows)


def maintenance_with_id(work: Work, number: int, *, lock: bool = False) -> Maintenance:
    """One of them; NotFound when there is none."""
    if lock:
        work.pg.execute("SELECT FROM maintenances WHERE id = %s FOR NO KEY UPDATE", [number])
    row = work.pg.execute(f"{_MAINTENANCE} WHERE m.id = %s", [number]).fetchone()
    if row is None:
        raise NotFound("maintenance_not_found", f"There is no maintenance {number}.")
    return Maintenance(*row[:11], tuple(row[11]), row[12])


def nodes_of_domain(work: Work, cluster_id: int, level: Level, names: Sequence[str]) -> dict[int, tuple[str, int]]:
    """The nodes that are, or lie in, the domains named: id -> name and pool. With `cluster` all of them.

    Raises Invalid for a name that nothing of that level has.
    """
    column = {"node": "name", "nvlink": "nvlink", "leaf": "leaf", "rack": "rack", "cluster": "NULL::text"}[level]
    rows = work.pg.execute(
        f"""SELECT id, name, pool_id, {column} FROM nodes WHERE cluster_id = %s AND removed_at IS NULL
              AND (%s OR {column} = ANY(%s)) ORDER BY name""",
        [cluster_id, level == "cluster", list(names)],
    ).fetchall()
    found = {row[3] for row in rows}
    unknown = [name for name in names if name not in found] if level != "cluster" else []
    if unknown or not rows:
        said = f"There is no {level} called {unknown[0]}." if unknown else "There are no nodes."
        raise Invalid(
            "unknown_nodes", said, (Reason("unknown_nodes", said, None, ", ".join(unknown[:5]), None, "nodes", True),)
        )
    return {row[0]: (row[1], row[2]) for row in rows}
