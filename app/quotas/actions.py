"""Limits are set, and what was booked before a limit existed is counted against it."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from uuid import UUID

from app.accounts.audit import record
from app.kernel.actor import Actor
from app.kernel.errors import Forbidden, Invalid, NotFound, Reason
from app.kernel.money import SCALE, WHOLE
from app.plumbing.db import Work
from app.quotas import queries
from app.quotas.rules import Piece, Scope


def set_limit(
    work: Work,
    actor: Actor,
    *,
    project_id: UUID | None = None,
    account_id: UUID | None = None,
    kind: str | None = None,
    units: int | None,
    hours: int | None,
    money: Decimal | None = None,
) -> Scope:
    """Set how many units at once, how many unit-hours and how much money a month a tenant, project or person may take;
    None: no limit. A person's limit may be one in a project. Money is in the tenant's currency.

    The tenant is the one acted for. Without project and person it is the tenant's own limit, set by the platform's
    operators; below that by the tenant's admin. Lowering a limit cancels nothing: what is over it shows as
    over-committed and new bookings are refused. The caller then counts earlier bookings in (`count_in`), in the same
    transaction: until it ends nobody commits units for the tenant, so none is missed.
    """
    subject = "user" if account_id else "project" if project_id else "tenant"
    if subject == "tenant" and "operator" not in actor.platform_roles:
        raise Forbidden("role", "A tenant's limits are set by the platform's operators.")
    if subject != "tenant" and not ({"operator"} & actor.platform_roles or {"admin"} & actor.tenant_roles):
        raise Forbidden("role", "Limits of projects and people are set by the tenant's admin.")
    wrong = [
        Reason("limit_negative", "A limit is a whole number, 0 or more.", field=field, in_request=True)
        for field, value in (("units", units), ("hours", hours))
        if value is not None and value < 0
    ]
    if money is not None and (not money.is_finite() or not 0 <= money <= 10**12 or money.as_tuple().exponent < -6):
        said = "A limit of money is an amount of 0 or more, with at most 6 decimals."
        wrong.append(Reason("limit_money", said, field="money", in_request=True))
    if wrong:
        raise Invalid("limit", "These limits cannot be set.", tuple(wrong))
    if project_id is not None and not work.pg.execute("SELECT FROM projects WHERE id = %s", [project_id]).rowcount:
        raise NotFound("project", "There is no such project.")
    if kind is not None and not work.pg.execute("SELECT FROM kinds WHERE slug = %s", [kind]).rowcount:
        raise Invalid("unknown_kind", f"There is no kind named {kind}.")
    queries.own_limits(work)  # whoever books right now without knowing this limit has committed when it is counted
    before = queries.find_scope(work, project_id, account_id, kind)
    work.pg.execute(
        """INSERT INTO scopes (tenant_id, subject, project_id, account_id, kind, max_rate, max_quantity, max_money)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
           ON CONFLICT (tenant_id, subject, project_id, account_id, kind) DO UPDATE
           SET max_rate = excluded.max_rate, max_quantity = excluded.max_quantity, max_money = excluded.max_money""",
        [
            work.tenant_id,
            subject,
            project_id,
            account_id,
            kind,
            None if units is None else units * WHOLE,
            None if hours is None else hours * SCALE,
            money,
        ],
    )
    scope = queries.find_scope(work, project_id, account_id, kind)
    record(
        work,
        actor,
        "set limit",
        f"{subject} {scope.name}",
        None if before is None else _plain(before),
        _plain(scope),
    )
    return scope


def count_in(work: Work, scope: Scope, booked: Iterable[tuple[UUID, tuple[Piece, ...]]]) -> None:
    """Count bookings against a scope that did not exist when they were made. Counting one twice changes nothing."""
    for booking_id, pieces in booked:
        values = queries.commit_values(work.tenant_id, [scope], pieces, booking_id)
        work.pg.execute(f"{queries.COMMIT} WHERE {_UNCOUNTED.format('booking')}", values)


def count_in_requests(work: Work, scope: Scope, asked: Iterable[tuple[UUID, tuple[Piece, ...]]]) -> None:
    """The same for what requests hold beside their bookings."""
    for request_id, pieces in asked:
        values = queries.commit_values(work.tenant_id, [scope], pieces, None, request_id)
        work.pg.execute(f"{queries.COMMIT} WHERE {_UNCOUNTED.format('request')}", values)


# By owner and not by piece: what was counted before may since have been cut into others (handed over, shrunk).
_UNCOUNTED = "NOT EXISTS (SELECT FROM commitments c WHERE c.scope_id = s.id AND c.{0}_id = %({0})s)"


def _plain(scope: Scope) -> dict[str, int | str | None]:
    """A limit as people say it: units at once, unit-hours and money a month."""
    return {
        "units": None if scope.max_rate is None else scope.max_rate // WHOLE,
        "hours": None if scope.max_quantity is None else scope.max_quantity // SCALE,
        "money": None if scope.max_money is None else f"{scope.max_money:f}",
        "kind": scope.kind,
    }
