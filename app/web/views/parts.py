"""The parts that many pages are made of: frame, notes, meters, figures, steps, links. Plain values, no HTML.

How to fill a view: give raw values (money as `Money`, instants as aware UTC datetimes, lengths as timedelta, work as
unit-seconds). Templates format them. A sentence is a plain `str`, written with `app.web.words`; in sentences the
template sets money such as `CHF 1,234.50` in its own type. Nothing here is escaped by hand: templates escape all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Literal

Tone = Literal["info", "ok", "warn", "bad"]


@dataclass(frozen=True)
class Money:
    """An amount in a currency (ISO 4217), already rounded to its minor unit unless a template says `exact`."""

    amount: Decimal
    currency: str = "CHF"


@dataclass(frozen=True)
class Link:
    """A way to another page. `current` marks the chosen one of several; `count` is shown beside a label."""

    label: str
    href: str
    current: bool = False
    icon: str | None = None
    count: int | None = None


@dataclass(frozen=True)
class Action:
    """A button that posts: the effect stands in its label ("Release, get CHF 65.72 back").

    `fields` are hidden form fields; the CSRF token is added by the template. Give every action that changes money or
    bookings an `idempotency_key` field. `describe` is the accessible name when the label alone is not enough.
    """

    label: str
    href: str
    fields: tuple[tuple[str, str], ...] = ()
    style: Literal["primary", "plain", "danger"] = "plain"
    icon: str | None = None
    describe: str | None = None


@dataclass(frozen=True)
class Note:
    """What happened, why, and what helps. `title` says it, `text` says why; the buttons carry the effect."""

    tone: Tone
    title: str
    text: str = ""
    actions: tuple[Action, ...] = ()
    links: tuple[Link, ...] = ()
    icon: str | None = None


@dataclass(frozen=True)
class NavGroup:
    """Pages one comes for, under a small heading (None: no heading). Only pages that the person may open."""

    label: str | None
    items: tuple[Link, ...]


@dataclass(frozen=True)
class Scope:
    """A tenant, or a project in it, that the person may act in. `value` is what POST /scope takes as `scope`."""

    value: str
    name: str
    detail: str
    current: bool = False


@dataclass(frozen=True)
class Person:
    """Who is signed in: `role` in the product's words ("Member", "Finance")."""

    name: str
    role: str
    href: str = "/me"


@dataclass(frozen=True)
class Frame:
    """What every page of a signed-in person shares; also given to fragments.

    now: the product clock; zone: the person's IANA time zone, in which everything is shown.
    nonce-free: there is no inline script or style anywhere. `person` is None on pages before sign-in.
    """

    now: datetime
    zone: str
    csrf_token: str
    person: Person | None = None
    scopes: tuple[Scope, ...] = ()
    nav: tuple[NavGroup, ...] = ()
    flashes: tuple[Note, ...] = ()
    notices: int = 0
    notices_href: str = "/notices"
    book_href: str | None = "/book"
    clock_note: str | None = None
    """Shown beside the clock when the product clock is not the wall clock ("demo clock, stopped")."""

    @property
    def scope(self) -> Scope | None:
        """The chosen scope, if any."""
        return next((s for s in self.scopes if s.current), None)


@dataclass(frozen=True)
class Condition:
    """A condition beside a booking's state, with its amount: type "idle", label "Idle 1 h 48 min"."""

    type: Literal["at_risk", "late", "degraded", "blocked", "idle"]
    label: str
    why: str = ""


@dataclass(frozen=True)
class Meter:
    """A limit and what stands against it. Numbers are money, unit-seconds ("hours") or units ("units").

    used is solid, held hatched, this the booking in question (dotted, orange). limit None: no limit, shown in words.
    Available is limit - used - held - this; the template says so, or says by how much it is over.
    """

    label: str
    measure: Literal["money", "hours", "units"]
    used: Decimal | Fraction | int
    held: Decimal | Fraction | int = 0
    this: Decimal | Fraction | int = 0
    limit: Decimal | Fraction | int | None = None
    currency: str = "CHF"
    forecast: Decimal | Fraction | int | None = None
    forecast_on: date | None = None
    sentence: str = ""


@dataclass(frozen=True)
class Figure:
    """A key figure: `value` is money or words ("18 h 18 min"), `hint` the line below."""

    label: str
    value: Money | str
    hint: str = ""


@dataclass(frozen=True)
class Step:
    """One step of a test, a history, a month's close."""

    state: Literal["ok", "warn", "bad", "now", "none"]
    title: str
    text: str = ""
    at: datetime | None = None
    took: timedelta | None = None
    aside: str = ""
    """Shown at the right when neither `at` nor `took` says it."""
    commands: str = ""
    icon: str | None = None
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True)
class Empty:
    """What is true, what to do, one way on."""

    title: str
    text: str
    link: Link | None = None
    icon: str = "calendar-plus"


@dataclass(frozen=True)
class Pager:
    """Links to the neighbouring pages of a list, None at its ends."""

    previous: str | None = None
    next: str | None = None


@dataclass(frozen=True)
class Option:
    """One choice of a select or radio group."""

    value: str
    label: str
    chosen: bool = False
    hint: str = ""


@dataclass(frozen=True)
class PricePart:
    """A line of a price: "Peak" over 2 h 30 min for 16 units at 2.40. The amount is a rounded line group."""

    what: str
    units: int
    length: timedelta
    unit_price: Decimal
    amount: Decimal
