"""HTML routes about oneself (zone, tokens, sessions) and of the audit."""

from __future__ import annotations

import csv
import io
import json
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Response

from app.accounts import actions, audit, cluster_users, queries, sessions
from app.accounts.queries import AuditSeen
from app.accounts.rules import zones
from app.kernel.actor import SCOPES, Actor
from app.kernel.errors import Conflict, Forbidden, Invalid, NotFound
from app.kernel.ids import ACCOUNT, TOKEN, parse, public
from app.plumbing.db import Work
from app.web.deps import AnyActor, InTransaction, rate_limit
from app.web.page import OnPage, Page, role_label
from app.web.views.parts import Action, Note, Option, Pager
from app.web.views.people import AuditPage, AuditRow, ClusterUserRow, MePage, SessionRow, TokenForm, TokenRow

router = APIRouter(include_in_schema=False)
_PAGE, _EXPORT = 50, 10_000
_SCOPE_HINTS = {
    "read": "see what you may see",
    "book": "book, extend, release",
    "manage": "change clusters, nodes, pools",
    "bill": "change prices and months",
    "admin": "make tokens, change people",
}


@router.get("/me")
def me_page(page: OnPage, work: InTransaction, actor: AnyActor) -> Response:
    """Profile, tokens, sessions."""
    return page.show(_me(page, work, actor))


@router.post("/me")
def set_zone(page: OnPage, work: InTransaction, actor: AnyActor, zone: Annotated[str, Form(max_length=64)]) -> Response:
    """Another time zone."""
    sessions.set_zone(work, actor, zone)
    return page.go("/me", Note("ok", f"Times are shown in {zone} now"))


@router.post("/me/tokens", dependencies=[rate_limit("tokens", 30, 60)])
def create_token(
    page: OnPage,
    work: InTransaction,
    actor: AnyActor,
    name: Annotated[str, Form(max_length=200)] = "",
    scope: Annotated[list[str] | None, Form()] = None,
    project: Annotated[str, Form(max_length=100)] = "",
    days: Annotated[int, Form()] = 90,
) -> Response:
    """A new token, shown once on the page that answers."""
    try:
        found = queries.project_by_slug(work, project) if project else None
        if project and found is None:
            raise NotFound("unknown_project", "There is no such project, or you have no role in it.")
        made = actions.create_token(
            work, actor, label=name, scopes=scope or (), days=days, project_id=found.id if found else None
        )
    except Invalid as error:
        said: dict[str, str] = {}
        for reason in error.reasons:  # the days are chosen from a list: what is wrong with them stands at the name
            place = "scope" if reason.field == "scopes" else "name"
            said[place] = f"{said.get(place, '')} {reason.message}".strip()
        return page.show(_me(page, work, actor, name=name, errors=said), 422)
    return page.show(_me(page, work, actor, new_token=made.secret, new_token_name=name), 201)


@router.post("/me/tokens/{token}/revoke")
def revoke_token(token: str, page: OnPage, work: InTransaction, actor: AnyActor) -> Response:
    """End a token."""
    token_id = parse(TOKEN, token)
    if token_id is None:
        raise NotFound("unknown_token", "There is no such token of yours, or it is revoked already.")
    actions.revoke_token(work, actor, token_id)
    return page.go("/me", Note("ok", "The token is revoked", "The next request with it is refused."))


@router.post("/me/cluster-users", dependencies=[rate_limit("cluster-users", 30, 60)])
def ask_for_name(
    page: OnPage, work: InTransaction, actor: AnyActor, cluster: Annotated[str, Form(max_length=100)] = "",
    name: Annotated[str, Form(max_length=100)] = "",
) -> Response:  # fmt: skip
    """Enter the user name that one has on a cluster."""
    try:
        cluster_users.ask_for(work, actor, cluster, name.strip())
    except (Invalid, Conflict) as error:
        return page.show(_me(page, work, actor, wrong_name=(cluster, error.detail)), error.status)
    return page.go("/me", Note("ok", f"{name.strip()} waits for an operator", "Until then the name before it counts."))


@router.post("/me/sessions/{session}/end")
def end_session(session: str, page: OnPage, work: InTransaction, actor: AnyActor) -> Response:
    """Sign another browser out."""
    try:
        id_hash = bytes.fromhex(session)
    except ValueError:
        raise NotFound("unknown_session", "There is no such session of yours.") from None
    sessions.end_session(work, actor, id_hash)
    return page.go("/me", Note("ok", "That browser is signed out"))


@router.get("/audit")
def audit_page(
    page: OnPage,
    work: InTransaction,
    actor: AnyActor,
    person: Annotated[str, Query(max_length=200)] = "",
    action: Annotated[str, Query(max_length=200)] = "",
    q: Annotated[str, Query(max_length=200)] = "",
    before: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
) -> Response:
    """Who did what, newest first: of the tenant for its admins and auditors, of the platform for its people."""
    platform = _of_platform(actor)
    found = queries.audit_rows(
        work, platform=platform, person=person, action=action, text=q, before_seq=before, limit=_PAGE + 1
    )
    people, verbs = queries.audit_words(work, platform=platform)
    filters = {"person": person, "action": action, "q": q}
    more = {**filters, "before": found[_PAGE - 1].seq} if len(found) > _PAGE else None
    return page.show(
        AuditPage(
            rows=tuple(_row(one, "Platform" if platform else "") for one in found[:_PAGE]),
            people=_options("Everybody", people, person),
            actions=_options("Every action", verbs, action),
            query=q,
            pager=Pager(next=f"/audit?{urlencode(more)}" if more else None),
            csv=f"/audit.csv?{urlencode(filters)}",
        )
    )


@router.get("/audit.csv", dependencies=[rate_limit("audit", 20, 60)])
def audit_csv(
    work: InTransaction,
    actor: AnyActor,
    person: Annotated[str, Query(max_length=200)] = "",
    action: Annotated[str, Query(max_length=200)] = "",
    q: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """The same rows as a file, the newest 10,000 at most."""
    platform = _of_platform(actor)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["at", "person", "action", "subject", "before", "after", "why"])
    for one in queries.audit_rows(work, platform=platform, person=person, action=action, text=q, limit=_EXPORT):
        cells = [
            one.at.isoformat(),
            one.actor,
            one.action,
            one.subject,
            _json(one.before),
            _json(one.after),
            one.why or "",
        ]
        writer.writerow([_harmless(cell) for cell in cells])
    audit.record(work, actor, "export audit", "audit", platform=platform)
    return Response(
        out.getvalue(),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="audit.csv"'},
    )


def _me(
    page: Page, work: Work, actor: Actor, *, name: str = "", errors: dict[str, str] | None = None,
    new_token: str | None = None, new_token_name: str = "", wrong_name: tuple[str, str] = ("", ""),
) -> MePage:  # fmt: skip
    session = page.caller.session
    seen = queries.projects(work) if actor.tenant_id else []
    projects = [p for p in seen if actor.sees_project(p.id)]
    roles = [f"Tenant {r}" for r in sorted(actor.tenant_roles)] + [
        f"Platform {r}" for r in sorted(actor.platform_roles)
    ]
    roles += [f"{p.name}: {actor.project_roles[p.id]}" for p in projects if p.id in actor.project_roles]
    return MePage(
        name=actor.name,
        email=session.email if session else "",
        roles=tuple(roles) or (role_label(actor),),
        zones=tuple(Option(zone, zone, zone == actor.zone) for zone in sorted(zones())),
        token_form=TokenForm(
            scopes=tuple(Option(s, s, s == "read", _SCOPE_HINTS[s]) for s in _useful(actor)),
            projects=(Option("", "All my projects", True), *(Option(p.slug, p.name) for p in projects)),
            days=tuple(Option(str(d), f"{d} days", d == 90) for d in (7, 30, 90, 365)),
            name=name,
            errors=errors or {},
        ),
        tokens=tuple(_token(one, work) for one in queries.tokens_of(work, actor.account_id)),
        sessions=tuple(
            SessionRow(
                device=_device(one.agent),
                address=one.address,
                started=one.created_at,
                seen=one.seen_at,
                current=session is not None and one.id_hash == session.id_hash,
                end=None
                if session is not None and one.id_hash == session.id_hash
                else Action(
                    "Sign out", f"/me/sessions/{one.id_hash.hex()}/end", describe=f"Sign out {_device(one.agent)}"
                ),
            )
            for one in queries.sessions_of(work, actor.account_id)
        ),
        provider=None if session is None or session.issuer == sessions.LOCAL else session.issuer,
        new_token=new_token,
        new_token_name=new_token_name,
        account=public(ACCOUNT, actor.account_id) if actor.account_id else "",
        cluster_users=_cluster_users(work, actor, wrong_name),
    )


_HOW = {
    "claim": "As your sign-in provider says.",
    "rule": "Made of your e-mail address.",
    "entered": "Confirmed by an operator.",
}


def _cluster_users(work: Work, actor: Actor, wrong: tuple[str, str]) -> tuple[ClusterUserRow, ...]:
    """What one is called where one may book; the platform's people get into no booking."""
    if actor.account_id is None or (not actor.project_roles and "admin" not in actor.tenant_roles):
        return ()
    cluster_users.give_all(work, actor.account_id)
    none = "Nothing makes one: your address is not confirmed by your sign-in provider. Enter the name you have there."
    return tuple(
        ClusterUserRow(
            u.cluster,
            u.name or "",
            _HOW[u.source] if u.name and u.source else none,
            u.wanted or "",
            wrong[1] if wrong[0] == u.cluster else "",
        )
        for u in cluster_users.users_of(work, actor.account_id)
    )


def _useful(actor: Actor) -> tuple[str, ...]:
    """The scopes that open anything to this person: those of the platform's work do so outside of tenants alone."""
    platform = actor.platform_roles if actor.tenant_id is None else frozenset()
    needs = {"manage": "operator", "bill": "finance"}
    return tuple(s for s in SCOPES if s not in needs or needs[s] in platform)


def _token(one: queries.TokenSeen, work: Work) -> TokenRow:
    handle = public(TOKEN, one.id)
    return TokenRow(
        name=one.label,
        prefix=handle[:14],
        scopes=one.scopes,
        bound_to=" / ".join(n for n in (one.tenant, one.project) if n) or "Platform",
        created=one.created_at,
        expires=one.expires_at,
        last_used=one.used_at,
        revoke=Action("Revoke", f"/me/tokens/{handle}/revoke", style="danger", describe=f"Revoke {one.label}"),
        expired=one.expires_at <= work.wall,
    )


def _of_platform(actor: Actor) -> bool:
    """Whose audit this person sees; nobody's: refused."""
    if actor.project_id is not None:
        raise Forbidden("bound_token", "This token is bound to one project; the audit is of the whole tenant.")
    if actor.platform_roles:
        return True
    if actor.tenant_roles & {"admin", "auditor"}:
        return False
    raise Forbidden("role", "The audit is for the tenant's admin and auditor, and for the platform's people.")


def _row(one: AuditSeen, scope: str) -> AuditRow:
    return AuditRow(
        at=one.at,
        person=one.actor,
        action=one.action,
        subject=one.subject,
        why=one.why or "",
        scope=scope,
        changes=tuple(
            (name, _text((one.before or {}).get(name)), _text((one.after or {}).get(name)))
            for name in sorted({**(one.before or {}), **(one.after or {})})
        ),
    )


def _options(everything: str, values: list[str], chosen: str) -> tuple[Option, ...]:
    return (Option("", everything, not chosen), *(Option(v, v, v == chosen) for v in values))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _json(value: dict[str, Any] | None) -> str:
    return "" if value is None else json.dumps(value)


def _harmless(cell: str) -> str:
    """No cell is taken for a formula by a spreadsheet."""
    return "'" + cell if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def _device(agent: str) -> str:
    """A browser in two words, from what it says of itself."""
    browser = next((name for mark, name in _BROWSERS if mark in agent), agent[:40] or "Unknown browser")
    system = next((name for mark, name in _SYSTEMS if mark in agent), "")
    return f"{browser} on {system}" if system else browser


_BROWSERS = (("Edg/", "Edge"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"), ("curl/", "curl"))
_SYSTEMS = (("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Windows", "Windows"), ("Mac OS", "macOS"),
            ("Linux", "Linux"))  # fmt: skip
