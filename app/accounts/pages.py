"""HTML routes of signing in and out, by password or provider, and of choosing where to act."""

from __future__ import annotations

import base64
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from app.accounts import groups, pages_me, pages_people, sessions
from app.accounts.oidc import Provider
from app.accounts.queries import places_of
from app.accounts.rules import grants_of
from app.kernel.errors import Forbidden, NotFound, Unavailable
from app.web import csrf
from app.web.deps import SESSION_COOKIE, AnyActor, InTransaction, Parts, PerhapsCaller, address_limit
from app.web.errors import bare_frame
from app.web.page import OnPage, local_address, with_next
from app.web.render import render
from app.web.views.parts import Note, Scope
from app.web.views.people import ChooseScopePage, SignInPage

router = APIRouter(include_in_schema=False)
router.include_router(pages_me.router)
router.include_router(pages_people.router)
_ATTEMPT_SECONDS = 600
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@router.get("/sign-in")
def sign_in_page(request: Request, parts: Parts, caller: PerhapsCaller, next: str = "/") -> Response:
    """The form, unless somebody is signed in already."""
    if caller is not None and caller.session is not None:
        return RedirectResponse(local_address(next), 303)
    return _sign_in(request, parts, next=local_address(next))


@router.post("/sign-in", dependencies=[address_limit("sign-in", 60, 60)])
def sign_in(
    request: Request,
    work: InTransaction,
    parts: Parts,
    email: Annotated[str, Form(max_length=200)] = "",
    password: Annotated[str, Form(max_length=2000)] = "",
    next: Annotated[str, Form(max_length=2000)] = "/",
    csrf_token: Annotated[str, Form()] = "",
) -> Response:
    """Begin a session, or say what is wrong."""
    secure = parts.settings.secure_cookies
    expected = request.cookies.get(csrf.cookie_name("berth_form", secure), "")
    try:
        csrf.check(request, csrf_token, expected)
    except Forbidden as error:
        return _sign_in(request, parts, next=local_address(next), email=email, error=error.detail, status=403)
    old = request.cookies.get(csrf.cookie_name(SESSION_COOKIE, secure))
    answer = sessions.sign_in_local(work, email, password, _browser(request), replaces=old)
    if isinstance(answer, sessions.NotSignedIn):
        status = 429 if answer.code == "locked" else 401
        page = _sign_in(request, parts, next=local_address(next), email=email, error=answer.why, status=status)
        if answer.retry_after:
            page.headers["Retry-After"] = str(answer.retry_after)
        return page
    return _signed_in(local_address(next), answer.secret, secure)


@router.post("/sign-out")
def sign_out(request: Request, work: InTransaction, parts: Parts, caller: PerhapsCaller) -> Response:
    """End this session, and the provider's where it has one."""
    target = "/sign-in"
    provider = _provider(request)
    if caller is not None and caller.session is not None:
        sessions.sign_out(work, caller)
        if provider is not None and caller.session.issuer != sessions.LOCAL:
            target = provider.sign_out_address(caller.session.id_token) or target
    response = RedirectResponse(target, 303)
    csrf.drop_cookie(response, SESSION_COOKIE, parts.settings.secure_cookies)
    return response


@router.get("/oidc/start", dependencies=[address_limit("sign-in", 60, 60)])
def start_oidc(request: Request, parts: Parts, next: str = "/") -> Response:
    """Send the browser to the provider. No transaction is open meanwhile."""
    provider = _provider(request)
    if provider is None:
        raise NotFound("no_provider", "No sign-in provider is set up here.")
    ours, asked = urlsplit(parts.settings.address), request.url
    if asked.netloc != ours.netloc and {asked.hostname, ours.hostname} <= _LOOPBACK:
        # cookies know localhost and 127.0.0.1 as two places, and the provider leads back to one of them
        return RedirectResponse(with_next(f"{parts.settings.address}/oidc/start", local_address(next)), 303)
    try:
        attempt = provider.begin()
    except Unavailable as error:
        return _sign_in(request, parts, next=local_address(next), error=error.detail, status=503)
    response = RedirectResponse(attempt.url, 303)
    kept = base64.urlsafe_b64encode(f"{attempt.kept} {local_address(next)}".encode()).decode()
    csrf.set_cookie(response, _attempt_cookie(attempt.state), kept, parts.settings.secure_cookies, _ATTEMPT_SECONDS)
    return response


@router.get("/auth/callback", dependencies=[address_limit("sign-in", 60, 60)])
def finish_oidc(request: Request, parts: Parts) -> Response:
    """The provider sent the browser back: check everything, then begin a session."""
    provider = _provider(request)
    if provider is None:
        raise NotFound("no_provider", "No sign-in provider is set up here.")
    secure = parts.settings.secure_cookies
    cookie = _attempt_cookie(request.query_params.get("state", ""))
    kept, target = _kept(request.cookies.get(csrf.cookie_name(cookie, secure)))
    try:
        identity = provider.finish(dict(request.query_params), kept)
        with parts.database.work() as work:
            account_id = groups.account_of(work, identity, grants_of(identity.groups, request.app.state.group_map))
            old = request.cookies.get(csrf.cookie_name(SESSION_COOKIE, secure))
            secret = sessions.open_session(
                work, account_id, _browser(request), replaces=old, id_token=identity.id_token
            )
        response = _signed_in(target, secret, secure)
    except (Forbidden, Unavailable) as error:
        response = _sign_in(request, parts, next=target, error=error.detail, status=error.status)
    csrf.drop_cookie(response, cookie, secure)
    return response


@router.get("/scope")
def choose_scope_page(page: OnPage, work: InTransaction, actor: AnyActor, next: str = "/") -> Response:
    """Where a person may act; none yet is said too."""
    places = places_of(work, actor.account_id)
    chosen = page.caller.session.project_id if page.caller.session else None
    scopes = tuple(
        Scope(p.value, p.name, p.detail, p.tenant_id == actor.tenant_id and p.project_id == chosen) for p in places
    )
    return page.show(ChooseScopePage(scopes=scopes, next=local_address(next)))


@router.post("/scope")
def choose_scope(
    page: OnPage,
    work: InTransaction,
    actor: AnyActor,
    scope: Annotated[str, Form(max_length=200)],
    next: Annotated[str, Form(max_length=2000)] = "/",
) -> Response:
    """Act there from now on."""
    place = sessions.choose_place(work, page.caller, scope)
    return page.go(local_address(next), Note("ok", f"You now act for {place.name}", place.detail))


def _sign_in(
    request: Request, parts: Parts, *, next: str, email: str = "", error: str = "", status: int = 200
) -> HTMLResponse:
    secure = parts.settings.secure_cookies
    token = csrf.before_sign_in(request, secure)
    provider = _provider(request)
    view = SignInPage(
        next=next,
        email=email,
        error=error,
        provider=provider.name if provider else None,
        provider_href=with_next("/oidc/start", next),
    )
    response = HTMLResponse(render(view, bare_frame(token)), status)
    csrf.keep_before_sign_in(response, token, secure)
    return response


def _signed_in(target: str, secret: str, secure: bool) -> Response:
    response = RedirectResponse(target, 303)
    csrf.set_cookie(response, SESSION_COOKIE, secret, secure, int(sessions.SESSION_LIFE.total_seconds()))
    csrf.drop_cookie(response, "berth_form", secure)
    return response


def _provider(request: Request) -> Provider | None:
    return request.app.state.provider


def _browser(request: Request) -> sessions.Browser:
    return sessions.Browser(request.headers.get("user-agent", ""), request.client.host if request.client else "")


def _attempt_cookie(state: str) -> str:
    """A name of its own for each attempt, so that two tabs do not take each other's."""
    return "berth_oidc_" + "".join(c for c in state[:12] if c.isalnum())


def _kept(cookie: str | None) -> tuple[str | None, str]:
    try:
        kept, _, target = base64.urlsafe_b64decode(cookie or "").decode().partition(" ")
    except ValueError:
        return None, "/"
    return kept or None, local_address(target)
