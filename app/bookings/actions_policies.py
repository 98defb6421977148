"""Set a pool's policy or what is said over it for a tenant or a project; first look whom a change would touch.

Operators' verbs: one transaction each, the caller commits. The pool is locked, so that whoever books under its lock sees
the policy as it is. Nothing that is booked is changed: what would be refused today is kept, and shown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.accounts import audit
from app.accounts import queries as accounts
from app.bookings import preview as pure
from app.bookings import queries_policies as queries
from app.bookings.preview import FOLLOWED, Live, Preview
from app.inventory import actions as inventory_actions
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.inventory.policy import Policy, WrongPolicy, read_override
from app.inventory.rules import may_operate
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Forbidden, Invalid, NotFound, Reason
from app.plumbing.db import Work


@dataclass(frozen=True, slots=True)
class Said:
    """What is said about a pool in one place: of the pool itself, or for a tenant or a project over it.

    `policy` is what counts there, all layers together; `under` what would without these words. `etag` names them: a change
    says which ones it is a change of.
    """

    pool: Pool
    tenant: str | None
    project: str | None
    words: dict[str, Any]
    gap_seconds: int
    policy: Policy
    under: Policy

    @property
    def etag(self) -> str:
        """A digest of what is said."""
        text = json.dumps([self.words, self.gap_seconds], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """As audit rows write it."""
        whom = "/".join(n for n in (self.tenant, self.project) if n)
        return f"pool {self.pool.cluster}/{self.pool.name}" + (f" for {whom}" if whom else "")


def said(
    work: Work, actor: Actor, cluster: str, pool: str, tenant: str | None = None, project: str | None = None
) -> Said:
    """What is said of a pool, or for a tenant or a project over it. For operators and auditors."""
    if not actor.platform_roles & {"operator", "auditor"}:
        raise Forbidden("not_operator", "Only the platform's operators and auditors look at rules of pools.")
    return _said(work, _pool(work, cluster, pool, lock=False), *_place(work, tenant, project))


def preview(
    work: Work,
    actor: Actor,
    cluster: str,
    pool: str,
    words: Mapping[str, Any],
    gap_seconds: int | None = None,
    tenant: str | None = None,
    project: str | None = None,
) -> Preview:
    """Whom these words would touch if they were said instead of what is. Changes nothing; everyone's bookings are read,
    and the audit says so. Raises Invalid with every fault of the words."""
    may_operate(actor)
    found = _pool(work, cluster, pool, lock=False)
    at = _place(work, tenant, project)
    now_said = _said(work, found, *at)
    after = _after(now_said, found, words, gap_seconds, work)
    now = work.product_now()
    tenant_id, project_id = _ids(work, at)
    with work.read_all():
        live, more = queries.live_in_pool(work, found.id, now, tenant_id, project_id)
        others = queries.words_in_pool(work, found.id)
        names = {t.id: t.name for t in accounts.tenants(work)}
    pool_before, pool_after = found.policy, after if tenant_id is None else found.policy
    said_after = dict(others)
    if tenant_id is not None:
        said_after[(tenant_id, project_id)] = dict(words)

    def whose(base: Policy, laid: Mapping[tuple[UUID, UUID | None], dict[str, Any]]) -> pure.Whose:
        def policy_of(booking: Live) -> Policy:
            over = base.under(laid.get((booking.tenant_id, None), {}))
            return over.under(laid.get((booking.tenant_id, booking.project_id), {}))

        return policy_of

    before_of, after_of = whose(pool_before, others), whose(pool_after, said_after)
    refused, asked = pure.judge(live, before_of, after_of, now)
    changes = pure.changes_of(now_said.policy, after)
    closed = {f"{b.tenant_name}, {b.project_name}" for b in live if before_of(b).may_book and not after_of(b).may_book}
    contradicts = tuple(
        sorted(f"{names.get(t, 'a tenant')}: {fault}" for (t, _), fault in _contradictions(pool_after, said_after))
    )
    follows = {name for name, _, _ in changes} & set(FOLLOWED)
    followed = sum(any(getattr(before_of(b), n) != getattr(after_of(b), n) for n in follows) for b in live)
    audit.record(work, actor, "preview policy", now_said.name, None, dict(words), platform=True, tenant_id=tenant_id)
    return Preview(changes, tuple(refused), tuple(asked), followed, tuple(sorted(closed)), contradicts, len(live), more)


def set_policy(
    work: Work,
    actor: Actor,
    cluster: str,
    pool: str,
    words: Mapping[str, Any],
    gap_seconds: int | None = None,
    tenant: str | None = None,
    project: str | None = None,
    etag: str | None = None,
) -> Said:
    """Say these words of a pool, or for a tenant or project over it (no words: nothing is said there any more).

    `etag` is that of what the change was made from; Conflict when something else is said meanwhile.
    """
    may_operate(actor)
    found = _pool(work, cluster, pool, lock=True)
    at = _place(work, tenant, project)
    before = _said(work, found, *at)
    if etag is not None and etag != before.etag:
        raise Conflict("edited_meanwhile", f"The rules of {before.name} have changed since you looked. Look again.")
    if tenant is None:
        inventory_actions.set_policy(work, actor, cluster, pool, words, gap_seconds)
    else:
        _after(before, found, words, gap_seconds, work)
        _, project_id = _ids(work, at)
        queries.store_override(work, found.id, project_id, dict(words))
        inventory.raise_version(work, [found.id])
        audit.record(work, actor, "set policy", before.name, before.words, dict(words))
    return _said(work, _pool(work, cluster, pool, lock=False), *at)


def _pool(work: Work, cluster: str, pool: str, *, lock: bool) -> Pool:
    found = next((p for p in inventory.pools_for(work, None, cluster) if p.name == pool), None)
    if found is None:
        raise NotFound("pool_not_found", f"There is no pool {pool[:80]} on {cluster[:80]}.")
    return inventory.lock_pools(work, [found.id])[found.id] if lock else found


def _place(work: Work, tenant: str | None, project: str | None) -> tuple[str | None, str | None]:
    """Act for the tenant that is named, and see that its project is there."""
    if tenant is None:
        if project is not None:
            raise Invalid("tenant", "Name the tenant whose project it is.")
        return None, None
    with work.read_all():
        named = next((t for t in accounts.tenants(work) if t.slug == tenant), None)
    if named is None:
        raise NotFound("tenant", "There is no such tenant.")
    work.act_for(named.id)
    if project is not None and accounts.project_by_slug(work, project) is None:
        raise NotFound("project", "There is no such project in this tenant.")
    return tenant, project


def _ids(work: Work, at: tuple[str | None, str | None]) -> tuple[UUID | None, UUID | None]:
    tenant, project = at
    found = accounts.project_by_slug(work, project) if project is not None else None
    return work.tenant_id if tenant is not None else None, found.id if found else None


def _said(work: Work, pool: Pool, tenant: str | None, project: str | None) -> Said:
    gap = int(pool.policy.gap.total_seconds())
    if tenant is None:
        return Said(pool, None, None, pool.policy.words(), gap, pool.policy, Policy())
    _, project_id = _ids(work, (tenant, project))
    words = queries.find_override(work, pool.id, project_id) or {}
    under = _under(work, pool, project_id)
    return Said(pool, tenant, project, words, gap, under.under(words), under)


def _under(work: Work, pool: Pool, project_id: UUID | None) -> Policy:
    """What counts for a tenant or a project before its own words: the pool's, and for a project its tenant's."""
    return pool.policy if project_id is None else pool.policy.under(queries.find_override(work, pool.id, None) or {})


def _after(at: Said, pool: Pool, words: Mapping[str, Any], gap_seconds: int | None, work: Work) -> Policy:
    """The policy that counts with these words; Invalid with every fault of them."""
    try:
        if at.tenant is None:
            return Policy.of(words, at.gap_seconds if gap_seconds is None else gap_seconds)
        if gap_seconds is not None:
            raise WrongPolicy(("gap is said among the other rules here.",))
        return read_override(words, _under(work, pool, _ids(work, (at.tenant, at.project))[1]))
    except WrongPolicy as wrong:
        reasons = tuple(Reason("wrong_policy", fault, field="policy", in_request=True) for fault in wrong.faults)
        raise Invalid("wrong_policy", str(wrong), reasons) from None


def _contradictions(base: Policy, laid: Mapping[tuple[UUID, UUID | None], dict[str, Any]]):
    """Whose words do not go together with the pool's."""
    for (tenant, project), words in laid.items():
        over = base if project is None else base.under(laid.get((tenant, None), {}))
        try:
            read_override(words, over)
        except WrongPolicy as wrong:
            for fault in wrong.faults:
                yield (tenant, project), fault
