"""What the pages around bookings show: home, book with its quote, timeline, list, one booking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Literal

from app.web.views.parts import (
    Action,
    Condition,
    Empty,
    Link,
    Meter,
    Money,
    Note,
    Option,
    Pager,
    PricePart,
    Step,
)

State = Literal[
    "WAITING", "REQUESTED", "BOOKED", "STARTING", "ACTIVE", "ENDING", "ENDED", "CANCELLED", "REJECTED", "LAPSED"
]


@dataclass(frozen=True)
class Shape:
    """How much of what: 2 nodes x 8 = 16 H100-SXM-80GB, or 4 H200-SXM-141GB (nodes and per_node None)."""

    units: int
    kind: str
    nodes: int | None = None
    per_node: int | None = None


# ---------------------------------------------------------------------------------------------------------- home
@dataclass(frozen=True)
class BookingCard:
    """A booking in a list of Now or Next. `links` are ways in; `actions` post; verbs with a choice are links."""

    number: str
    name: str
    href: str
    state: State
    shape: Shape
    cluster: str
    start: datetime
    end: datetime
    price: Money
    charged: Money | None = None
    node_names: tuple[str, ...] = ()
    planned: bool = False
    """True while node names are a plan and not yet pinned."""
    used: Fraction | None = None
    """Share of the reserved time that was used; None when not known."""
    conditions: tuple[Condition, ...] = ()
    sentence: str = ""
    links: tuple[Link, ...] = ()
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True)
class FreeStep:
    """How many units are free from `start` to `end`."""

    start: datetime
    end: datetime
    free: int


@dataclass(frozen=True)
class KindFree:
    """What is free of a kind, now and over the next hours (`steps` are in order and touch)."""

    name: str
    detail: str
    units: int
    free_now: int
    free_tomorrow: int | None
    price: Money
    book_href: str
    largest: str = ""
    hint: str = ""
    steps: tuple[FreeStep, ...] = ()


@dataclass(frozen=True)
class Notice:
    """Something to know that asks for nothing at once."""

    title: str
    text: str = ""
    icon: str = "info-circle"
    href: str | None = None
    at: datetime | None = None
    unread: bool = False


@dataclass(frozen=True)
class ProjectLimits:
    """A project's meters on the home page."""

    name: str
    href: str
    meters: tuple[Meter, ...]


@dataclass(frozen=True)
class HomePage:
    """GET / : what must I do now, what runs, what is next, what is free."""

    template: ClassVar[str] = "home/page.html"
    sentence: str
    notes: tuple[Note, ...]
    now: tuple[BookingCard, ...]
    next: tuple[BookingCard, ...]
    free: tuple[KindFree, ...]
    free_at: datetime | None
    """The instant tomorrow that `KindFree.free_tomorrow` speaks of."""
    projects: tuple[ProjectLimits, ...]
    notices: tuple[Notice, ...]
    may_book: bool = True
    read: Action = field(
        default_factory=lambda: Action(
            "Mark as read", "/notices/read", (("next", "/"),), describe="Mark all notices as read"
        )
    )
    empty: Empty = field(
        default_factory=lambda: Empty(
            "Nothing booked", "You have no active or coming booking.", Link("Book GPUs", "/book")
        )
    )


# ---------------------------------------------------------------------------------------------------------- book
@dataclass(frozen=True)
class KindChoice:
    """A kind to choose: slug is what the form posts as `kind` ("any" for the cheapest that fits)."""

    slug: str
    name: str
    price: Money | None
    hint: str
    chosen: bool = False


@dataclass(frozen=True)
class BookForm:
    """The form of the Book page. Its fields are posted to POST /book and, while it is filled, to POST /book/quote:

    project, name, kind, shape ("nodes" | "units"), nodes, per_node, units, within ("" | node | nvlink | leaf | rack),
    prefer ("yes": that closeness is wished for, not required), memory_gb and kinds (with kind any), or_better ("yes"),
    when ("asap" | "between" | "exact"), start, earliest, latest (local, `2026-12-01T09:00`, in the person's zone), hours
    (decimal text), cluster
    ("" any), cost_center, reference, quote (digest of the quote shown, only on confirm), idempotency_key, csrf_token.
    GET /book?kind=…&… takes the same names and shows the page filled, with its quote: links and people without
    JavaScript use it. All values are texts as the person typed them; `errors` maps a field name to a sentence.
    """

    projects: tuple[Option, ...]
    kinds: tuple[KindChoice, ...]
    clusters: tuple[Option, ...]
    idempotency_key: str
    name: str = ""
    shape: Literal["nodes", "units"] = "units"
    nodes: str = "1"
    per_node: str = "8"
    units: str = "8"
    within: Literal["", "node", "nvlink", "leaf", "rack"] = ""
    when: Literal["asap", "between", "exact"] = "asap"
    start: str = ""
    hours: str = "6"
    cost_center: str = ""
    reference: str = ""
    limits_hint: str = "In steps of 15 minutes, at most 7 days."
    within_hint: str = ""
    workloads: tuple[Option, ...] = ()
    """What can be started in it, posted as `workload`; empty: the field is not shown."""
    errors: Mapping[str, str] = field(default_factory=dict)
    prefer: bool = False
    kinds_only: str = ""
    """Slugs with commas: with kind any only these."""
    memory_gb: str = ""
    or_better: bool = False
    earliest: str = ""
    latest: str = ""


@dataclass(frozen=True)
class QuoteView:
    """Fragment of POST /book/quote when it is possible. Status 200. The confirm button posts the form with `quote`."""

    template: ClassVar[str] = "book/_quote.html"
    start: datetime
    end: datetime
    shape: Shape
    cluster: str
    place: str
    """Rack, leaf or domain in words, may be empty."""
    node_names: tuple[str, ...]
    planned: bool
    enforced: str
    """How others are kept out, in words; may be empty."""
    parts: tuple[PricePart, ...]
    total: Money
    project: str
    meters: tuple[Meter, ...]
    terms: tuple[str, ...]
    digest: str
    energy_kwh: Decimal | None = None
    needs_approval: str = ""
    """Why somebody must approve it; empty when nobody must."""
    changed: bool = False
    """True when the confirm was refused with `quote_changed` and this is the new quote."""
    curl: str = ""
    cli: str = ""


@dataclass(frozen=True)
class ReasonView:
    """One reason of a refusal: what, what helps, asked beside limit (texts with units), the stable code."""

    code: str
    title: str
    message: str
    asked: str = ""
    limit: str = ""


@dataclass(frozen=True)
class AlternativeView:
    """What would work: `fields` are posted unchanged to POST /book (same names as BookForm; start may carry an
    offset). `differs` says what is other than asked, `same` what is as asked."""

    title: str
    change: str
    start: datetime
    end: datetime
    price: Money
    fields: tuple[tuple[str, str], ...]
    differs: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    needs_approval: bool = False


@dataclass(frozen=True)
class RefusedView:
    """Fragment of POST /book/quote when it is not possible (status 409 or 422), and part of the page after a refused
    POST /book. `asked` is the shape in words, `window` None when no start was found or asked."""

    template: ClassVar[str] = "book/_refused.html"
    asked: str
    start: datetime | None
    end: datetime | None
    checked_at: datetime
    reasons: tuple[ReasonView, ...]
    alternatives: tuple[AlternativeView, ...] = ()
    parts: tuple[PricePart, ...] = ()
    total: Money | None = None
    may_wait: bool = False
    """Whether only other bookings stand in the way: then one can wait for the units."""


@dataclass(frozen=True)
class StartOption:
    """A start at which the request fits; `href` is GET /book with that start filled in."""

    start: datetime
    end: datetime
    price: Money
    href: str
    places: int | None = None


@dataclass(frozen=True)
class BookPage:
    """GET /book, and the answer to a POST /book that did not book (refused True: reasons lead the page)."""

    template: ClassVar[str] = "book/page.html"
    form: BookForm
    quote: QuoteView | RefusedView | None = None
    starts: tuple[StartOption, ...] = ()
    starts_title: str = ""
    refused: bool = False


# ------------------------------------------------------------------------------------------------------ timeline
BarKind = Literal["mine", "project", "requested", "busy", "external", "maint", "faulty"]


@dataclass(frozen=True)
class Bar:
    """Something on a node over time. `first` and `count` say which units of the node (of the row's `units`).

    Others' bookings: kind "busy", label "", href None; not even the title may name them.
    """

    kind: BarKind
    start: datetime
    end: datetime
    first: int
    count: int
    label: str = ""
    href: str | None = None
    planned: bool = False


@dataclass(frozen=True)
class TimelineRow:
    """A node with its bars. `note` is said beside its name ("7 of 8"), red when `bad`."""

    node: str
    units: int
    bars: tuple[Bar, ...]
    note: str = ""
    bad: bool = False


@dataclass(frozen=True)
class TimelineGroup:
    """Nodes of a rack (or leaf). `free` counts free units, `units` is the most there can be.

    Rows given: a <details> that is open when `open`. No rows but `href`: a link that opens it on the server."""

    label: str
    units: int
    free: tuple[FreeStep, ...]
    rows: tuple[TimelineRow, ...] = ()
    note: str = ""
    bad: bool = False
    open: bool = False
    href: str | None = None


@dataclass(frozen=True)
class TimelinePage:
    """GET /timeline?cluster=&kind=&by=&range=&from= : who has what, when is enough free."""

    template: ClassVar[str] = "timeline/page.html"
    sentence: str
    clusters: tuple[Link, ...]
    kinds: tuple[Option, ...]
    groupings: tuple[Option, ...]
    ranges: tuple[Link, ...]
    earlier: str
    today: str
    later: str
    start: datetime
    end: datetime
    cluster: str
    units: int
    free: tuple[FreeStep, ...]
    groups: tuple[TimelineGroup, ...]
    hidden: tuple[tuple[str, str], ...] = ()
    """Fields that the kind and grouping form carries along (cluster, range, from)."""


# ------------------------------------------------------------------------------------------------------ bookings
@dataclass(frozen=True)
class BookingRow:
    """A booking in the list. `money` is what was charged or will be."""

    number: str
    name: str
    href: str
    state: State
    shape: Shape
    cluster: str
    project: str
    person: str
    start: datetime
    end: datetime
    money: Money
    conditions: tuple[Condition, ...] = ()
    outcome: str = ""


@dataclass(frozen=True)
class BookingsPage:
    """GET /bookings?state=&q=&mine= : all bookings of the scope that the person may see."""

    template: ClassVar[str] = "bookings/page.html"
    sentence: str
    filters: tuple[Link, ...]
    rows: tuple[BookingRow, ...]
    query: str = ""
    hidden: tuple[tuple[str, str], ...] = ()
    pager: Pager = field(default_factory=Pager)
    csv: str | None = None
    empty: Empty = field(
        default_factory=lambda: Empty(
            "No booking here", "No booking matches. Choose another state, or book.", Link("Book GPUs", "/book")
        )
    )


# ------------------------------------------------------------------------------------------------------- booking
@dataclass(frozen=True)
class AccessWay:
    """A way in: what to do, the commands, a link."""

    label: str
    text: str
    commands: str = ""
    link: Link | None = None


@dataclass(frozen=True)
class UnitNow:
    """A unit's newest sample; None is "not observed". Memory in GB (10^9 bytes)."""

    index: int
    utilisation: Fraction | None = None
    memory_gb: float | None = None
    power_watt: int | None = None
    temperature_c: int | None = None
    note: str = ""


@dataclass(frozen=True)
class NodeUnits:
    """The units of one node that belong to the booking."""

    node: str
    units: tuple[UnitNow, ...]


@dataclass(frozen=True)
class UnitSeries:
    """Samples of one unit, aligned with `Samples.times`; None is a gap and is never drawn as zero."""

    node: str
    unit: int
    utilisation: tuple[float | None, ...]
    memory_gb: tuple[float | None, ...]
    power_watt: tuple[float | None, ...]
    temperature_c: tuple[float | None, ...]


@dataclass(frozen=True)
class Samples:
    """What the charts draw. Limits None: no line."""

    times: tuple[datetime, ...]
    every: timedelta
    series: tuple[UnitSeries, ...]
    memory_gb: int
    power_watt: int | None = None
    slows_down_c: int | None = None


@dataclass(frozen=True)
class WorkloadRow:
    """A workload in the booking; `tone` colours its state ("Running": ok, "Failed": bad, "Finished": None)."""

    name: str
    hint: str
    state: str
    tone: Literal["ok", "bad", "warn"] | None
    units: int
    started: datetime | None
    unit_seconds: int | None


@dataclass(frozen=True)
class Effect:
    """One effect of a verb, shown before anything happens: "Adds" Money, "Possible until" an instant, "Stops" text."""

    label: str
    value: Money | datetime | str


@dataclass(frozen=True)
class VerbView:
    """A verb with its effect. Fragment of GET /bookings/{number}/effect?verb=extend&by=PT6H as well.

    The form posts `field` (the chosen option's value), `idempotency_key`, csrf_token to `href`. `blocked` says why it
    cannot be done now (then no button). `button` carries the effect ("Extend for CHF 230.40"). `name` and `blocked` say
    which form it is: `card`."""

    template: ClassVar[str] = "booking/_verb.html"
    name: Literal["extend", "release", "cancel"]
    title: str
    href: str
    button: str
    idempotency_key: str
    effects: tuple[Effect, ...] = ()
    style: Literal["primary", "plain", "danger"] = "plain"
    field: str = ""
    options: tuple[Option, ...] = ()
    effect_href: str = ""
    blocked: str = ""

    @property
    def card(self) -> str:
        """Which form this is: one that stays the same lets the live part replace its figures alone."""
        return f"{self.name}-blocked" if self.blocked else self.name

    @property
    def chosen(self) -> str:
        """The value of the option that is chosen, empty where there is nothing to choose."""
        return next((option.value for option in self.options if option.chosen), "")


@dataclass(frozen=True)
class CostRow:
    """A row of the cost table: mark is its swatch; unit_seconds None for fees and credits."""

    label: str
    unit_seconds: int | None
    amount: Decimal
    mark: Literal["used", "unused", "unknown", "coming", "sum", "fee"] = "sum"


@dataclass(frozen=True)
class CostView:
    """Cost so far by use, and what is still to come. The rows add up to `total`."""

    rows: tuple[CostRow, ...]
    total: Money
    total_seconds: int
    final: bool = False


@dataclass(frozen=True)
class BookingPage:
    """GET /bookings/{number}: one booking. Unit-seconds: reserved = used + unused + unknown."""

    template: ClassVar[str] = "booking/page.html"
    number: str
    name: str
    state: State
    shape: Shape
    cluster: str
    place: str
    node_names: tuple[str, ...]
    planned: bool
    project: str
    person: str
    start: datetime
    end: datetime
    quoted: Money
    charged: Money
    at_end: Money
    reserved: int
    used: int
    unknown: int
    unused_cost: Money | None
    energy_kwh: Decimal | None = None
    energy_measured: bool = False
    outcome: str = ""
    cost_center: str = ""
    reference: str = ""
    conditions: tuple[Condition, ...] = ()
    notes: tuple[Note, ...] = ()
    access: tuple[AccessWay, ...] = ()
    units: tuple[NodeUnits, ...] = ()
    samples: Samples | None = None
    sampled_at: datetime | None = None
    workloads: tuple[WorkloadRow, ...] = ()
    verbs: tuple[VerbView, ...] = ()
    cost: CostView | None = None
    history: tuple[Step, ...] = ()

    @property
    def every(self) -> int | None:
        """Seconds between two looks at the live part, None when nothing changes any more."""
        return {"STARTING": 2, "ENDING": 2, "ACTIVE": 15, "BOOKED": 5}.get(self.state)

    @property
    def cards(self) -> tuple[str, ...]:
        """The verbs' forms on the page."""
        return tuple(verb.card for verb in self.verbs)

    def verb(self, name: str) -> VerbView | None:
        """One verb, None while it cannot be done."""
        return next((verb for verb in self.verbs if verb.name == name), None)


@dataclass(frozen=True)
class BookingLive:
    """Fragment of GET /bookings/{number}/live?seen=STARTING&cards=extend,cancel&by=PT6H, polled by the page.

    The query's words are passed through. `seen` says what the page showed (the state, and whether units were
    observed); when that differs from now, the parts that depend on it (way in, charts) are sent along. `cards` are the
    verbs' forms that it showed and `by` is what was chosen in one: of a form that is still the same only the figures
    are sent, others come, go or are replaced."""

    template: ClassVar[str] = "booking/_live.html"
    booking: BookingPage
    seen: str
    cards: tuple[str, ...] = ()
    by: str = ""

    def keeps(self, verb: VerbView) -> bool:
        """Whether the form on the page is still the right one: the same verb, and its choice is still possible."""
        return verb.card in self.cards and (not verb.options or self.by in ("", verb.chosen))

    def had(self, name: str) -> bool:
        """Whether the page showed a form of this verb."""
        return any(card in (name, f"{name}-blocked") for card in self.cards)
