"""Which user a person is on each cluster: by the sign-in provider's claim, by rule, or entered and confirmed.

A name is given when it is first needed and then stays, whatever becomes of the e-mail address. Nobody becomes another
user by typing a name: what is entered waits for an operator. On one cluster no two people have one name. Knows clusters
by their numbers and names alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.accounts import audit
from app.accounts.rules import cluster_user_of, numbered, refuse_wrong, wrong_cluster_user
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Forbidden, NotFound
from app.plumbing.db import Work

_MOST_ALIKE = 10_000


@dataclass(frozen=True, slots=True)
class ClusterUser:
    """A person on a cluster. `name` None: none yet, so he or she gets into no booking there; `wanted` waits."""

    account_id: UUID
    person: str
    cluster: str
    name: str | None
    source: str | None
    since: datetime | None
    wanted: str | None


def names_on(work: Work, cluster_id: int, account_ids: Iterable[UUID]) -> dict[UUID, str]:
    """The user names of these people on a cluster, given by claim or rule where there is none yet.

    Left out is who has none: without a claim, a usable e-mail address or a confirmed name there is nothing to go by.
    """
    wanted = sorted(set(account_ids))
    known = _names(work, cluster_id, wanted)
    missing = [account for account in wanted if account not in known]
    if not missing:
        return known
    # one at a time for one cluster: two that give the same name at once would wait for each other
    work.pg.execute("SELECT pg_advisory_xact_lock(hashtext('cluster_users'), %s)", [cluster_id])
    known = _names(work, cluster_id, wanted)
    rows = work.pg.execute(
        "SELECT id, email, cluster_user FROM accounts WHERE id = ANY(%s) ORDER BY created_at, id",
        [[account for account in wanted if account not in known]],
    )
    for account_id, email, claimed in rows.fetchall():
        name = (_give(work, account_id, cluster_id, claimed, "claim") if claimed else None) or _give_by_rule(
            work, account_id, cluster_id, email
        )
        if name is not None:
            known[account_id] = name
    return known


def name_on(work: Work, cluster_id: int, account_id: UUID) -> str | None:
    """A person's user name on a cluster, if there is one already."""
    return _names(work, cluster_id, [account_id]).get(account_id)


def users_of(work: Work, account_id: UUID) -> list[ClusterUser]:
    """What a person is called on each cluster, by the cluster's name; clusters without a name for him or her too."""
    rows = work.pg.execute(
        f"""{_SEEN} FROM clusters c JOIN accounts a ON a.id = %s
                    LEFT JOIN cluster_users u ON u.cluster_id = c.id AND u.account_id = a.id ORDER BY c.name""",
        [account_id],
    )
    return [ClusterUser(*row) for row in rows]


def waiting(work: Work) -> list[ClusterUser]:
    """Names that were entered and wait for an operator, oldest first."""
    rows = work.pg.execute(
        f"""{_SEEN} FROM cluster_users u JOIN accounts a ON a.id = u.account_id JOIN clusters c ON c.id = u.cluster_id
             WHERE u.wanted IS NOT NULL ORDER BY u.since, a.name LIMIT 200"""
    )
    return [ClusterUser(*row) for row in rows]


def give_all(work: Work, account_id: UUID) -> None:
    """Give a person names on every cluster where there is none: so that a page shows what will count."""
    for (cluster_id,) in work.pg.execute("SELECT id FROM clusters ORDER BY id").fetchall():
        names_on(work, cluster_id, [account_id])


def ask_for(work: Work, actor: Actor, cluster: str, name: str) -> None:
    """Enter the name that one has on a cluster. It counts when an operator has confirmed it."""
    if actor.account_id is None:
        raise Forbidden("no_account", "A user name on a cluster belongs to a person.")
    cluster_id = _cluster(work, cluster)
    refuse_wrong(wrong_cluster_user(name))
    _refuse_taken(work, actor.account_id, cluster_id, cluster, name)
    work.pg.execute(
        """INSERT INTO cluster_users (account_id, cluster_id, source, since, wanted) VALUES (%s, %s, 'entered', %s, %s)
           ON CONFLICT (account_id, cluster_id) DO UPDATE
             SET wanted = nullif(excluded.wanted, coalesce(cluster_users.name, '')), since = excluded.since""",
        [actor.account_id, cluster_id, work.wall, name],
    )
    subject = f"user {name} on {cluster}"
    audit.record(work, actor, "ask for cluster user", subject, None, {"name": name}, platform=True)


def set_name(work: Work, actor: Actor, account_id: UUID, cluster: str, name: str, why: str | None = None) -> None:
    """Give somebody this name on a cluster: what was entered is confirmed, or an operator knows it."""
    _as_operator(actor)
    cluster_id = _cluster(work, cluster)
    refuse_wrong(wrong_cluster_user(name))
    person = work.pg.execute("SELECT name FROM accounts WHERE id = %s", [account_id]).fetchone()
    if person is None:
        raise NotFound("unknown_account", "There is no such account.")
    work.pg.execute("SELECT pg_advisory_xact_lock(hashtext('cluster_users'), %s)", [cluster_id])
    _refuse_taken(work, account_id, cluster_id, cluster, name)
    before = _names(work, cluster_id, [account_id]).get(account_id)
    work.pg.execute(
        """INSERT INTO cluster_users (account_id, cluster_id, name, source, since) VALUES (%s, %s, %s, 'entered', %s)
           ON CONFLICT (account_id, cluster_id) DO UPDATE
             SET name = excluded.name, source = 'entered', since = excluded.since, wanted = NULL""",
        [account_id, cluster_id, name, work.wall],
    )
    after = {"person": person[0], "name": name}
    audit.record(
        work, actor, "set cluster user", f"user {name} on {cluster}", before and {"name": before}, after, why,
        platform=True,
    )  # fmt: skip


def refuse_name(work: Work, actor: Actor, account_id: UUID, cluster: str) -> None:
    """What was entered does not count; the name before it stays."""
    _as_operator(actor)
    cluster_id = _cluster(work, cluster)
    key = [account_id, cluster_id]
    row = work.pg.execute(
        "SELECT wanted, name FROM cluster_users WHERE account_id = %s AND cluster_id = %s", key
    ).fetchone()
    if row is None or row[0] is None:
        raise NotFound("nothing_waits", "No name of this person waits there.")
    if row[1] is None:
        work.pg.execute("DELETE FROM cluster_users WHERE account_id = %s AND cluster_id = %s", key)
    else:
        work.pg.execute("UPDATE cluster_users SET wanted = NULL WHERE account_id = %s AND cluster_id = %s", key)
    audit.record(work, actor, "refuse cluster user", f"user {row[0]} on {cluster}", platform=True)


def keep_claimed(work: Work, account_id: UUID, claimed: str | None) -> None:
    """What the provider's claim says at a sign-in: names of this source follow it, entered ones do not.

    A claim that is no user name counts as none.
    """
    name = claimed if claimed and wrong_cluster_user(claimed) is None else None
    row = work.pg.execute(
        "UPDATE accounts SET cluster_user = %s WHERE id = %s AND cluster_user IS DISTINCT FROM %s RETURNING id",
        [name, account_id, name],
    ).fetchone()
    if row is None:
        return
    work.pg.execute(
        "DELETE FROM cluster_users WHERE account_id = %s AND source <> 'entered' AND wanted IS NULL", [account_id]
    )
    work.pg.execute("UPDATE cluster_users SET name = NULL WHERE account_id = %s AND source <> 'entered'", [account_id])


_SEEN = "SELECT a.id, a.name, c.name, u.name, u.source, u.since, u.wanted"


def _names(work: Work, cluster_id: int, account_ids: list[UUID]) -> dict[UUID, str]:
    rows = work.pg.execute(
        "SELECT account_id, name FROM cluster_users WHERE cluster_id = %s AND account_id = ANY(%s) AND name IS NOT NULL",
        [cluster_id, account_ids],
    )
    return dict(rows.fetchall())


def _give_by_rule(work: Work, account_id: UUID, cluster_id: int, email: str) -> str | None:
    base = cluster_user_of(email)
    if base is None:
        return None
    for number in range(1, _MOST_ALIKE):
        if name := _give(work, account_id, cluster_id, numbered(base, number), "rule"):
            return name
    return None


def _give(work: Work, account_id: UUID, cluster_id: int, name: str, source: str) -> str | None:
    """The name if it could be given. One of a directory goes before one that a rule made up for somebody else."""
    if source == "claim":
        work.pg.execute(
            "DELETE FROM cluster_users WHERE cluster_id = %s AND name = %s AND source = 'rule' AND account_id <> %s",
            [cluster_id, name, account_id],
        )
    if work.pg.execute("SELECT FROM cluster_users WHERE cluster_id = %s AND name = %s", [cluster_id, name]).rowcount:
        return None
    work.pg.execute(
        """INSERT INTO cluster_users (account_id, cluster_id, name, source, since) VALUES (%s, %s, %s, %s, %s)
           ON CONFLICT (account_id, cluster_id) DO UPDATE SET name = excluded.name, source = excluded.source""",
        [account_id, cluster_id, name, source, work.wall],
    )
    return name


def _refuse_taken(work: Work, account_id: UUID, cluster_id: int, cluster: str, name: str) -> None:
    taken = work.pg.execute(
        "SELECT FROM cluster_users WHERE cluster_id = %s AND name = %s AND account_id <> %s",
        [cluster_id, name, account_id],
    )
    if taken.rowcount:
        raise Conflict("cluster_user_taken", f"Somebody else is {name} on {cluster}. Ask an operator if that is wrong.")


def _cluster(work: Work, name: str) -> int:
    row = work.pg.execute("SELECT id FROM clusters WHERE name = %s", [name]).fetchone()
    if row is None:
        raise NotFound("unknown_cluster", f"There is no cluster called {name[:80]}.")
    return row[0]


def _as_operator(actor: Actor) -> None:
    if actor.account_id is not None and "operator" not in actor.platform_roles:
        raise Forbidden("role", "This takes the platform role of operator.")
