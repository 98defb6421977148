"""What the pages around people show: sign-in, scope, me, audit, errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar

from app.web.views.parts import Action, Empty, Link, Option, Pager, Scope


@dataclass(frozen=True)
class SignInPage:
    """GET /sign-in. The local form posts email, password, next to /sign-in; a provider is a link that starts OIDC."""

    template: ClassVar[str] = "accounts/sign_in.html"
    next: str = "/"
    email: str = ""
    error: str = ""
    provider: str | None = None
    """The configured provider's name for "Sign in with …"."""
    provider_href: str = "/sign-in/oidc"
    local: bool = True
    hint: str = ""


@dataclass(frozen=True)
class ChooseScopePage:
    """GET /scope: a person of several tenants or projects chooses. Posts scope and next to /scope."""

    template: ClassVar[str] = "accounts/scope.html"
    scopes: tuple[Scope, ...]
    next: str = "/"


@dataclass(frozen=True)
class TokenRow:
    """An API token as listed: never the secret."""

    name: str
    prefix: str
    scopes: tuple[str, ...]
    bound_to: str
    created: datetime
    expires: datetime | None
    last_used: datetime | None
    revoke: Action
    expired: bool = False


@dataclass(frozen=True)
class SessionRow:
    """A signed-in browser. `end` is None for the current one (it has Sign out)."""

    device: str
    address: str
    started: datetime
    seen: datetime
    current: bool
    end: Action | None


@dataclass(frozen=True)
class TokenForm:
    """Posts name, scope (several), project ("" all), days to /me/tokens."""

    scopes: tuple[Option, ...]
    projects: tuple[Option, ...]
    days: tuple[Option, ...]
    name: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterUserRow:
    """What one is called on a cluster. `name` "": no name yet; `wanted` waits for an operator.

    Its form posts cluster and name to /me/cluster-users.
    """

    cluster: str
    name: str = ""
    how: str = ""
    wanted: str = ""
    error: str = ""


@dataclass(frozen=True)
class MePage:
    """GET /me. Profile form posts zone to /me; sign-out posts to /sign-out; `new_token` is shown once."""

    template: ClassVar[str] = "accounts/me.html"
    name: str
    email: str
    roles: tuple[str, ...]
    zones: tuple[Option, ...]
    token_form: TokenForm
    tokens: tuple[TokenRow, ...]
    sessions: tuple[SessionRow, ...]
    provider: str | None = None
    new_token: str | None = None
    new_token_name: str = ""
    account: str = ""
    """The account's public id, by which others add a person whom a provider signs in."""
    cluster_users: tuple[ClusterUserRow, ...] = ()


@dataclass(frozen=True)
class MemberHeld:
    """A role that somebody holds. Its form posts account, place, role, new_role to /people/role; `remove` to
    /people/remove. `given_by_group`: neither, since a group of the sign-in provider decides."""

    name: str
    email: str
    account: str
    place: str
    """The project's short name, "" for the whole tenant."""
    place_name: str
    role: str
    roles: tuple[Option, ...]
    remove: Action
    given_by_group: bool = False
    disabled: bool = False


@dataclass(frozen=True)
class PersonForm:
    """Posts login, name, place ("" the whole tenant), role to /people."""

    places: tuple[Option, ...]
    roles: tuple[Option, ...]
    login: str = ""
    name: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ProjectForm:
    """Posts slug, name, cost_center to /people/projects."""

    slug: str = ""
    name: str = ""
    cost_center: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TenantForm:
    """Posts slug, name, zone, currency, price_group to /people/tenants."""

    zones: tuple[Option, ...]
    slug: str = ""
    name: str = ""
    currency: str = "CHF"
    price_group: str = "standard"
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ProjectKept:
    """A project of the tenant. `end` or `reopen` posts; ending shows its effect first and takes a reason."""

    slug: str
    name: str
    cost_center: str
    people: int
    created: datetime
    ended: datetime | None
    turn: str
    """Where the form posts: to end it, or to let people book in it again."""


@dataclass(frozen=True)
class NameWaiting:
    """A user name on a cluster that somebody entered, for an operator to confirm or refuse."""

    person: str
    cluster: str
    now: str
    wanted: str
    since: datetime
    confirm: Action
    refuse: Action


@dataclass(frozen=True)
class PeoplePage:
    """GET /people?tenant=&q= : who belongs to a tenant, with which roles, and its projects.

    Forms carry `hidden` (the tenant, for operators). `tenants` is empty for whoever has but one. `tenant` "": none is
    chosen yet, and `tenant_form` makes one. `password` is a first password, shown once.
    """

    template: ClassVar[str] = "accounts/people.html"
    tenant: str
    sentence: str
    people: tuple[MemberHeld, ...] = ()
    more: int = 0
    projects: tuple[ProjectKept, ...] = ()
    person_form: PersonForm | None = None
    project_form: ProjectForm | None = None
    tenant_form: TenantForm | None = None
    tenants: tuple[Option, ...] = ()
    hidden: tuple[tuple[str, str], ...] = ()
    query: str = ""
    waiting: tuple[NameWaiting, ...] = ()
    password: str | None = None
    password_of: str = ""


@dataclass(frozen=True)
class AuditRow:
    """Who did what, when, why, from what to what. `changes` are (field, before, after) texts."""

    at: datetime
    person: str
    action: str
    subject: str
    href: str | None = None
    why: str = ""
    scope: str = ""
    changes: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class AuditPage:
    """GET /audit?person=&action=&q="""

    template: ClassVar[str] = "accounts/audit.html"
    rows: tuple[AuditRow, ...]
    people: tuple[Option, ...]
    actions: tuple[Option, ...]
    query: str = ""
    pager: Pager = field(default_factory=Pager)
    csv: str | None = None
    empty: Empty = field(
        default_factory=lambda: Empty("Nothing recorded", "No action matches these filters.", None, "history")
    )


@dataclass(frozen=True)
class ErrorPage:
    """Any error as a page: what happened, why, what helps. `fragment` errors use `error/_error.html` with the same.

    progress: for 503 while something is being prepared (0..100), with `since` and `retry` (how soon it looks again).
    """

    template: ClassVar[str] = "error/page.html"
    status: int
    title: str
    text: str
    helps: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    reference: str = ""
    progress: int | None = None
    progress_text: str = ""
    retry: timedelta | None = None


@dataclass(frozen=True)
class ErrorFragment:
    """An error inside a page, for htmx requests."""

    template: ClassVar[str] = "error/_error.html"
    status: int
    title: str
    text: str
    helps: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    reference: str = ""
