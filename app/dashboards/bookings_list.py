"""Fills the list of bookings, and the same as a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import urlencode

from app.accounts import queries as accounts
from app.billing import queries as billing
from app.billing.report import text, to_csv
from app.bookings import queries as bookings
from app.bookings.facts import Booking
from app.dashboards import queries
from app.dashboards.booking_history import OUTCOMES
from app.dashboards.cards import booking_href, conditions
from app.kernel.actor import Actor
from app.plumbing.db import Work
from app.web import words
from app.web.views.booking import BookingRow, BookingsPage, Shape
from app.web.views.parts import Empty, Link, Money, Pager

GROUPS = {
    "active": ("STARTING", "ACTIVE", "ENDING"),
    "coming": ("WAITING", "REQUESTED", "BOOKED"),
    "over": ("ENDED", "CANCELLED", "REJECTED", "LAPSED"),
}
_PAGE = 50
_MOST_IN_FILE = 20_000
_NOTHING = ("CANCELLED", "REJECTED", "LAPSED")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which bookings: a group of states ("" all), only one's own, a text, and those before a number."""

    group: str = ""
    mine: bool = False
    query: str = ""
    before: int | None = None

    def href(self, path: str = "/bookings", **changes: object) -> str:
        """The same list, with changes."""
        words_ = {"state": self.group, "mine": "1" if self.mine else "", "q": self.query, **changes}
        said = {name: value for name, value in words_.items() if value}
        return f"{path}?{urlencode(said)}" if said else path


def bookings_page(work: Work, actor: Actor, project_slug: str | None, asked: Asked) -> BookingsPage:
    """One page of the list, newest first, of the chosen project or of all that the person may see."""
    now = work.product_now()
    found = _find(work, actor, project_slug, asked, _PAGE + 1)
    shown = found[:_PAGE]
    around = queries.around(work, [b.id for b in shown])
    charged = billing.charged(work, [b.id for b in shown])
    counts = bookings.count_by_state(
        work, projects=_projects(work, actor, project_slug), account_id=actor.account_id if asked.mine else None
    )
    rows = tuple(
        BookingRow(
            number=b.label,
            name=b.name,
            href=booking_href(b),
            state=b.state,  # type: ignore[arg-type]
            shape=Shape(b.units, b.kind_name, b.nodes, b.per_node),
            cluster=b.cluster,
            project=b.project_name,
            person=b.booked_by,
            start=b.starts_at,
            end=b.ends_at,
            money=Money(_money(b, charged.get(b.id)), b.currency),
            conditions=conditions(around[b.id], now),
            outcome=_outcome(b, charged.get(b.id)),
        )
        for b in shown
    )
    return BookingsPage(
        sentence=_sentence(counts),
        filters=_filters(asked, counts),
        rows=rows,
        query=asked.query,
        hidden=tuple((n, v) for n, v in (("state", asked.group), ("mine", "1" if asked.mine else "")) if v),
        pager=Pager(
            asked.href() if asked.before is not None else None,
            asked.href(before=shown[-1].number) if len(found) > _PAGE else None,
        ),
        csv=asked.href("/bookings.csv"),
        empty=_empty(actor, asked, sum(counts.values())),
    )


def bookings_csv(work: Work, actor: Actor, project_slug: str | None, asked: Asked) -> str:
    """The same bookings as a file: instants in UTC, money as numbers, texts that no spreadsheet takes for a formula."""
    found = _find(work, actor, project_slug, asked, _MOST_IN_FILE)
    charged = billing.charged(work, [b.id for b in found])
    head = ("number", "name", "state", "outcome", "kind", "units", "cluster", "project", "person", "start", "end",
            "cost_center", "reference", "currency", "quoted", "charged")  # fmt: skip
    return to_csv(head, (
        (b.label, text(b.name), b.state, b.outcome or "", b.kind, str(b.units), text(b.cluster), text(b.project),
         text(b.booked_by), f"{b.starts_at:%Y-%m-%dT%H:%M:%SZ}", f"{b.ends_at:%Y-%m-%dT%H:%M:%SZ}", text(b.cost_centre),
         text(b.reference), b.currency, str(b.quoted), str(charged.get(b.id, Decimal(0))))
        for b in found
    ))  # fmt: skip


def _find(work: Work, actor: Actor, project_slug: str | None, asked: Asked, limit: int) -> list[Booking]:
    return bookings.list_bookings(
        work,
        projects=_projects(work, actor, project_slug),
        states=GROUPS.get(asked.group, ()),
        account_id=actor.account_id if asked.mine else None,
        text=asked.query.strip()[:100],
        before=asked.before,
        limit=limit,
    )


def _projects(work: Work, actor: Actor, project_slug: str | None) -> list:
    seen = [p for p in accounts.projects(work, ended=True) if actor.sees_project(p.id)]
    return [p.id for p in seen if project_slug in (None, p.slug)]


def _money(booking: Booking, charged: Decimal | None) -> Decimal:
    """What was charged of a booking that is over, what was promised for any other."""
    if booking.state in _NOTHING:
        return Decimal(0)
    if booking.state == "ENDED":
        return charged or Decimal(0)
    return booking.quoted


def _outcome(booking: Booking, charged: Decimal | None) -> str:
    said = OUTCOMES.get(booking.outcome or "", "")
    back = booking.quoted - (charged or Decimal(0))
    if booking.outcome == "released" and back > 0:
        return f"{said}, {words.money(back, booking.currency)} back"
    return said


def _sentence(counts: dict[str, int]) -> str:
    active, coming = (sum(counts.get(state, 0) for state in GROUPS[group]) for group in ("active", "coming"))
    if not active and not coming:
        return "None is active, none is booked."
    return f"{_are(active, 'None')} active or being made ready, {_are(coming, 'none')} booked."


def _are(how_many: int, none: str) -> str:
    return f"{words.number(how_many)} are" if how_many > 1 else f"{how_many or none} is"


def _filters(asked: Asked, counts: dict[str, int]) -> tuple[Link, ...]:
    def count(states: Iterable[str]) -> int:
        return sum(counts.get(state, 0) for state in states)

    groups = [("", "All", tuple(counts)), *((name, name.capitalize(), states) for name, states in GROUPS.items())]
    links = [
        Link(label, asked.href(state=name), asked.group == name, count=count(states)) for name, label, states in groups
    ]
    return (*links, Link("Only mine", asked.href(mine="" if asked.mine else "1"), asked.mine))


def _empty(actor: Actor, asked: Asked, all_of_them: int) -> Empty:
    may_book = "admin" in actor.tenant_roles or any(role != "viewer" for role in actor.project_roles.values())
    link = Link("Book GPUs", "/book") if may_book else None
    if not all_of_them and not asked.query:
        return Empty("Nothing booked", "No booking was made here yet.", link)
    return Empty("No booking here", "None matches. Choose another state, or search for something else.", link)
