"""Who keeps the people of a tenant, and of which tenant: its admin, or an operator of the platform who names it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from app.accounts import queries
from app.accounts.queries import TenantSeen
from app.kernel.actor import Actor
from app.kernel.errors import Forbidden, Invalid, NotFound, Reason
from app.plumbing.db import Work
from app.web.deps import SignedInCaller, require_actor


async def require_keeper(
    _may: Annotated[Actor, Depends(require_actor("admin"), scope="function")], caller: SignedInCaller
) -> Actor:
    """The admin of the tenant acted for, or an operator. A token needs the scope admin and no bond to one project."""
    actor = caller.actor
    if actor.project_id is not None:
        raise Forbidden("bound_token", "This token is bound to one project; people belong to the whole tenant.")
    if "operator" not in actor.platform_roles and "admin" not in actor.tenant_roles:
        raise Forbidden("role", "This takes the role of the tenant's admin, or of the platform's operator.")
    return actor


Keeper = Annotated[Actor, Depends(require_keeper, scope="function")]


def kept_tenant(work: Work, actor: Actor, slug: str) -> TenantSeen | None:
    """The tenant whose people are kept: one's own, or the one that an operator names; the work acts for it then.

    None: an operator who names none and acts for none. `NotFound` for one that is not there or not the actor's.
    """
    if "operator" in actor.platform_roles and slug:
        with work.read_all():
            found = next((t for t in queries.tenants(work) if t.slug == slug), None)
        if found is None:
            raise NotFound("unknown_tenant", "There is no such tenant.")
        work.act_for(found.id)
        return found
    own = queries.tenant(work, actor.tenant_id) if actor.tenant_id is not None and actor.tenant_roles else None
    if own is None and "operator" not in actor.platform_roles:
        raise Forbidden("no_tenant", "Choose a tenant first: this concerns the things of one tenant.")
    if slug and own is not None and own.slug != slug:
        raise NotFound("unknown_tenant", "There is no such tenant.")
    return own


def named_tenant(work: Work, actor: Actor, slug: str) -> TenantSeen:
    """The same where there has to be one: `Invalid` when an operator names none."""
    found = kept_tenant(work, actor, slug)
    if found is None:
        said = "Say which tenant is meant, by its short name."
        raise Invalid("tenant", said, (Reason("tenant", said, field="tenant", in_request=True),))
    return found
