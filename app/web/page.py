"""A page for whoever asked: the frame around a view, a redirect with a note, and where the person may go.

Of the rooms it knows accounts alone: names of tenants and projects, and roles. Rooms hand it views.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Annotated
from urllib.parse import quote, urlsplit

from fastapi import Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from app.accounts.queries import Caller, Place, places_of
from app.kernel.actor import Actor
from app.kernel.errors import Forbidden
from app.plumbing import outbox
from app.plumbing.db import Work
from app.web import csrf
from app.web.deps import InTransaction, Parts, SignedInCaller
from app.web.errors import is_fragment
from app.web.render import View, render
from app.web.views.parts import Frame, Link, NavGroup, Note, Person, Scope

_FLASH = "berth_note"
_LONGEST_NOTE = 2000


class Page:
    """What a page route answers with. `actor` and `caller` say who asks."""

    def __init__(self, request: Request, work: Work, caller: Caller, secure: bool) -> None:
        self.request, self.work, self.caller, self.actor = request, work, caller, caller.actor
        self._secure = secure
        self._frame: Frame | None = None

    @property
    def fragment(self) -> bool:
        """Whether htmx asks for a part."""
        return is_fragment(self.request)

    @property
    def frame(self) -> Frame:
        """The frame of this person's pages: product clock, zone, places, navigation, and a note left by `go`."""
        if self._frame is None:
            self._frame = _frame(self.request, self.work, self.caller, self._secure)
        return self._frame

    @property
    def project_slug(self) -> str | None:
        """The project the person has chosen to look at, if any."""
        chosen = self.frame.scope
        return chosen.value.partition("/")[2] or None if chosen else None

    def show(self, view: View, status: int = 200) -> HTMLResponse:
        """The view as a page or fragment. A note left by `go` is shown once."""
        response = HTMLResponse(render(view, self.frame), status)
        if self.frame.flashes and not self.fragment:
            csrf.drop_cookie(response, _FLASH, self._secure)
        return response

    def go(self, address: str, note: Note | None = None) -> Response:
        """To another page of ours (303), leaving a note that is shown there."""
        part = Response(status_code=204, headers={"HX-Redirect": address})
        response = part if self.fragment else RedirectResponse(address, 303)
        if note is not None and self.caller.session is not None:
            csrf.set_cookie(response, _FLASH, _seal(note, self.caller.session.csrf), self._secure, 60)
        return response


async def get_page(request: Request, work: InTransaction, caller: SignedInCaller, plumbing: Parts) -> Page:
    """The page of whoever is signed in with a browser; programs have the API."""
    if caller.session is None:
        raise Forbidden("for_browsers", "Pages are for browsers; programs use /api/v1.")
    return Page(request, work, caller, plumbing.settings.secure_cookies)


OnPage = Annotated[Page, Depends(get_page, scope="function")]


def local_address(text: str | None, otherwise: str = "/") -> str:
    """A path of ours, or `otherwise`: nobody is led to another site by a crafted link."""
    if not text or not text.startswith("/") or text.startswith(("//", "/\\")) or any(ord(c) < 32 for c in text):
        return otherwise
    parts = urlsplit(text)
    return text if not parts.scheme and not parts.netloc else otherwise


def with_next(address: str, following: str) -> str:
    """The address, with where to go on from there."""
    return address if following == "/" else f"{address}?next={quote(following, safe='')}"


def _frame(request: Request, work: Work, caller: Caller, secure: bool) -> Frame:
    actor, session = caller.actor, caller.session
    # both read in one statement: for showing, not for deciding
    now, movable, stopped = work.pg.execute("SELECT berth_now(), movable, frozen IS NOT NULL FROM clock").fetchone()
    token = session.csrf if session else ""
    sealed = request.cookies.get(csrf.cookie_name(_FLASH, secure))
    note = _unseal(sealed, token) if sealed else None
    places = places_of(work, actor.account_id) if actor.account_id else []
    return Frame(
        now=now,
        zone=actor.zone,
        csrf_token=token,
        person=Person(actor.name, role_label(actor)),
        scopes=tuple(_scope(place, actor, session.project_id if session else None) for place in places),
        nav=navigation(actor, request.url.path),
        flashes=(note,) if note else (),
        notices=outbox.unread(work, actor.account_id, bool(actor.platform_roles)) if actor.account_id else 0,
        book_href="/book" if any(r != "viewer" for r in actor.project_roles.values()) or "admin" in actor.tenant_roles
        else None,
        clock_note=("demo clock, stopped" if stopped else "demo clock") if movable else None,
    )  # fmt: skip


def role_label(actor: Actor) -> str:
    """The role that says most about the person, in the product's words."""
    for role in ("operator", "finance", "auditor"):
        if role in actor.platform_roles:
            return f"Platform {role}"
    for role in ("admin", "finance", "auditor"):
        if role in actor.tenant_roles:
            return f"Tenant {role}"
    for role in ("lead", "member", "viewer"):
        if role in actor.project_roles.values():
            return f"Project {role}" if role == "lead" else role.capitalize()
    return "No role yet"


def navigation(actor: Actor, path: str) -> tuple[NavGroup, ...]:
    """The pages this person may open, grouped by what one comes for."""
    groups: list[NavGroup] = []
    platform, tenant = actor.platform_roles, actor.tenant_roles
    if actor.tenant_id is not None:
        leads = not platform & {"operator", "auditor"} and ("admin" in tenant or "lead" in actor.project_roles.values())
        books = "admin" in tenant or any(role != "viewer" for role in actor.project_roles.values())
        groups.append(NavGroup(None, tuple(
            [_item("Home", "/", "home", path)]
            + ([_item("Book", "/book", "calendar-plus", path)] if books else [])
            + [_item("Timeline", "/timeline", "timeline", path), _item("Bookings", "/bookings", "list", path),
               _item("Projects", "/projects", "folders", path)]
            + ([_item("Requests", "/approvals", "user-question", path)] if leads else [])
            + ([_item("People", "/people", "users", path)] if "admin" in tenant and "operator" not in platform else [])
        )))  # fmt: skip
    elif platform:
        groups.append(
            NavGroup(None, (_item("Home", "/", "home", path), _item("Timeline", "/timeline", "timeline", path)))
        )
    if platform & {"operator", "auditor"}:
        groups.append(NavGroup("Run", (_item("Clusters", "/operator/clusters", "server-2", path),
                                       _item("Inventory", "/operator/inventory", "cpu", path),
                                       _item("Maintenance", "/operator/maintenance", "tool", path),
                                       _item("Rules", "/operator/policies", "adjustments", path),
                                       _item("Requests", "/approvals", "user-question", path),
                                       *([_item("People", "/people", "users", path)] if "operator" in platform else []),
                                       )))  # fmt: skip
    money: list[Link] = []
    if platform & {"finance", "auditor"}:
        money.append(_item("Month", "/finance", "report-money", path))
    if platform & {"finance", "auditor"} or tenant & {"admin", "finance", "auditor"}:
        money.append(_item("Statements", "/statements", "file-invoice", path))
    if platform & {"finance", "auditor"}:
        money.append(_item("Price books", "/finance/prices", "book", path))
    if money:
        longest = max((m.href for m in money if m.current), key=len, default="")
        groups.append(
            NavGroup("Money", tuple(m if m.href == longest else Link(m.label, m.href, False, m.icon) for m in money))
        )
    if platform & {"operator", "finance", "auditor"} or tenant & {"admin", "auditor"}:
        groups.append(NavGroup("Check", (_item("Audit", "/audit", "history", path),)))
    return tuple(groups)


def _item(label: str, href: str, icon: str, path: str) -> Link:
    here = path == href or (href != "/" and path.startswith(href + "/"))
    return Link(label, href, here, icon)


def _scope(place: Place, actor: Actor, project_id: object) -> Scope:
    current = place.tenant_id == actor.tenant_id and place.project_id == project_id
    return Scope(place.value, place.name, place.detail, current)


def _seal(note: Note, key: str) -> str:
    words = json.dumps([note.tone, note.title, note.text])[:_LONGEST_NOTE].encode()
    return base64.urlsafe_b64encode(words).decode() + "." + _mark(words, key)


def _unseal(sealed: str, key: str) -> Note | None:
    """The note, if this very session left it; a cookie somebody else planted is nothing."""
    body, _, mark = sealed.partition(".")
    try:
        words = base64.urlsafe_b64decode(body)
        if not key or not hmac.compare_digest(mark, _mark(words, key)):
            return None
        tone, title, text = json.loads(words)
    except ValueError:
        return None
    return Note(tone, title, text)


def _mark(words: bytes, key: str) -> str:
    return hmac.new(key.encode(), words, hashlib.sha256).hexdigest()
