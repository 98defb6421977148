"""What routes declare: the transaction, who acts, and what that person must hold. The one place that looks at cookies.

Of the rooms it knows accounts alone. How to write a route (all are plain `def`):

    @router.post("/bookings", status_code=201)
    def book(body: BookBody, work: InTransaction, actor: Booker) -> dict: ...

The transaction is committed after the function returned and before the answer leaves; any error rolls it back.
Dependencies that wait for nothing are `async`, so that they cost no change of thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import cache
from typing import Annotated, Any

import anyio
import redis
from anyio.lowlevel import RunVar
from fastapi import Depends, Request

from app.accounts.queries import Caller, caller_by_session, caller_by_token
from app.kernel.actor import Actor
from app.kernel.clock import monotonic
from app.kernel.errors import Forbidden, TooMany, Unauthenticated
from app.plumbing.db import Work
from app.plumbing.log import get_log
from app.plumbing.runtime import Plumbing
from app.web import csrf
from app.web.errors import is_api

log = get_log("web")
SESSION_COOKIE = "berth_session"
IN_FLIGHT = 32
"""Requests with a transaction at a time in one process: as many as it has threads, fewer than it has connections."""
UNKNOWN_TOKENS = 120
"""Tokens that nobody has, from one address in a minute, before the answer is to wait."""
_BREAK_SECONDS = 5.0
_gate: RunVar[anyio.Semaphore | None] = RunVar("berth_gate")  # one for each event loop


async def get_plumbing(request: Request) -> Plumbing:
    """The parts of this process."""
    return request.app.state.plumbing


async def pass_gate() -> AsyncIterator[None]:
    """Let so many requests at a time to the database, and the others wait outside.

    A request takes a connection first and threads afterwards. Without the gate those that wait for a connection would
    hold every thread, those that have one would wait for a thread, and nothing would move.
    """
    gate = _gate.get(None)
    if gate is None:
        gate = anyio.Semaphore(IN_FLIGHT)
        _gate.set(gate)
    async with gate:
        yield


def get_work(
    plumbing: Annotated[Plumbing, Depends(get_plumbing)],
    _sent: Annotated[str, Depends(csrf.sent_token)],
    _passed: Annotated[None, Depends(pass_gate, scope="function")],
) -> Iterator[Work]:
    """One transaction for one request; messages leave after its commit.

    The form is read before: a slow sender holds no connection.
    """
    with plumbing.database.work() as work:
        yield work


Parts = Annotated[Plumbing, Depends(get_plumbing)]
InTransaction = Annotated[Work, Depends(get_work, scope="function")]


def get_caller(
    request: Request,
    work: InTransaction,
    plumbing: Parts,
    form_token: Annotated[str, Depends(csrf.sent_token)],
) -> Caller | None:
    """Who sent this request, acting for the tenant of the token or the one chosen; None when nobody is signed in.

    A session that changes something must send its form token: no route can forget to ask.
    """
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    if kind:
        caller = caller_by_token(work, secret.strip()) if kind.lower() == "bearer" else None
        if caller is None:
            # whoever tries tokens has a new one each time: what counts is where they come from
            _refuse_more_than(plumbing, "unknown-token", UNKNOWN_TOKENS, 60, _address(request))
            raise Unauthenticated("token_unknown", "This token is not known here, has expired or was revoked.")
        return caller
    cookie = request.cookies.get(csrf.cookie_name(SESSION_COOKIE, plumbing.settings.secure_cookies))
    caller = caller_by_session(work, cookie) if cookie else None
    if caller is not None and caller.session is not None:
        csrf.check(request, form_token, caller.session.csrf)
    return caller


PerhapsCaller = Annotated[Caller | None, Depends(get_caller, scope="function")]


async def get_signed_in(request: Request, caller: PerhapsCaller) -> Caller:
    """Who sent this request; nobody: sign in first."""
    if caller is None:
        said = "Send a token: Authorization: Bearer berth_pat_…" if is_api(request) else "Sign in to see this page."
        raise Unauthenticated("unauthenticated", said)
    return caller


SignedInCaller = Annotated[Caller, Depends(get_signed_in, scope="function")]


@cache
def require_actor(scope: str | None = "read") -> Callable[..., Awaitable[Actor]]:
    """A dependency: somebody is signed in, and a token carries this scope. Which tenant, if any, is not asked."""

    async def known(caller: SignedInCaller) -> Actor:
        _check_scope(caller.actor, scope)
        return caller.actor

    return known


@cache
def require_tenant(scope: str = "read", *roles: str) -> Callable[..., Awaitable[Actor]]:
    """A dependency: as `require_actor`, acting for a tenant; with roles, one of them there.

    A role is "admin", "finance", "auditor" of the tenant, or "lead", "member", "viewer" in any of its projects; which
    project it is about is for the use case to check.
    """

    async def in_tenant(caller: SignedInCaller) -> Actor:
        actor = caller.actor
        _check_scope(actor, scope)
        if actor.tenant_id is None:
            raise Forbidden("no_tenant", "Choose a tenant first: this concerns the things of one tenant.")
        held = actor.tenant_roles | set(actor.project_roles.values())
        if roles and not held & set(roles):
            raise Forbidden("role", f"This takes the role of {_or(roles)}.")
        return actor

    return in_tenant


@cache
def require_platform(scope: str = "read", *roles: str) -> Callable[..., Awaitable[Actor]]:
    """A dependency: as `require_actor`, holding one of these roles on the platform (any, if none is named)."""

    async def on_platform(caller: SignedInCaller) -> Actor:
        actor = caller.actor
        _check_scope(actor, scope)
        wanted = set(roles) or {"operator", "finance", "auditor"}
        if not actor.platform_roles & wanted:
            raise Forbidden("role", f"This takes the platform role of {_or(tuple(sorted(wanted)))}.")
        return actor

    return on_platform


def rate_limit(name: str, times: int, seconds: int) -> Any:
    """A dependency: at most so many requests in so many seconds from one token or session; from one address where
    nobody is signed in. What a request says of itself counts only once it is known: an invented token or cookie is
    nobody's. Counted in the broker's memory; when that is away everybody may pass, and the log says so.
    """

    def within_limit(request: Request, plumbing: Parts, caller: PerhapsCaller) -> None:
        _refuse_more_than(plumbing, name, times, seconds, _who(request, caller))

    return Depends(within_limit, scope="function")


def address_limit(name: str, times: int, seconds: int) -> Any:
    """The same from one address, whoever asks: for signing in. Opens no transaction."""

    def within_limit(request: Request, plumbing: Parts) -> None:
        _refuse_more_than(plumbing, name, times, seconds, _address(request))

    return Depends(within_limit, scope="function")


def _check_scope(actor: Actor, scope: str | None) -> None:
    if scope is not None and not actor.may(scope):
        raise Forbidden("scope", f"This token may not do that: it lacks the scope {scope}.")


def _or(roles: tuple[str, ...]) -> str:
    return " or ".join([", ".join(roles[:-1]), roles[-1]] if len(roles) > 1 else roles)


def _who(request: Request, caller: Caller | None) -> str:
    if caller is None:
        return _address(request)
    if caller.session is not None:
        return f"session {caller.session.id_hash.hex()}"
    return f"token {request.headers.get('authorization', '')}"


def _address(request: Request) -> str:
    return f"address {request.client.host if request.client else ''}"


def _refuse_more_than(plumbing: Plumbing, name: str, times: int, seconds: int, who: str) -> None:
    """Count once more, and raise `TooMany` above so many. Nothing of a token or an address goes into the broker."""
    now = int(plumbing.wall().timestamp())
    digest = hashlib.sha256(who.encode()).hexdigest()[:24]
    used = _count(plumbing.redis, f"berth:rate:{name}:{now // seconds}:{digest}", seconds)
    if used is not None and used > times:
        left = seconds - now % seconds
        raise TooMany("rate_limit", f"At most {times} of these in {seconds} seconds. Wait {left} seconds.", left)


_silent_until = [0.0]


def _count(client: redis.Redis, key: str, seconds: int) -> int | None:
    """How often this key was counted; None when the broker is away (asked again after a few seconds)."""
    if monotonic() < _silent_until[0]:
        return None
    try:
        with client.pipeline(transaction=False) as pipe:
            pipe.incr(key)
            pipe.expire(key, seconds + 1)
            return int(pipe.execute()[0])
    except (redis.RedisError, OSError) as error:
        _silent_until[0] = monotonic() + _BREAK_SECONDS
        log.warning("rate limits are not counted: the broker is away", error=type(error).__name__)
        return None


Reader = Annotated[Actor, Depends(require_tenant("read"), scope="function")]
"""Somebody acting for a tenant who may read."""
Booker = Annotated[Actor, Depends(require_tenant("book"), scope="function")]
"""Somebody acting for a tenant whose token, if it is one, may book. Which project: the use case checks."""
AnyActor = Annotated[Actor, Depends(require_actor("read"), scope="function")]
"""Anybody signed in, with or without a tenant."""
Operator = Annotated[Actor, Depends(require_platform("manage", "operator"), scope="function")]
"""A platform operator who changes clusters, pools, nodes."""
PlatformReader = Annotated[Actor, Depends(require_platform("read"), scope="function")]
"""Platform people of any role, reading."""
PlatformFinance = Annotated[Actor, Depends(require_platform("bill", "finance"), scope="function")]
"""Platform finance, changing prices and months."""
