"""What finance sees: a month, a statement, price books."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Literal

from app.web.views.parts import Figure, Link, Note, Option, Step


@dataclass(frozen=True)
class CapacityKind:
    """Where a kind's capacity went, in unit-seconds; the parts add up to `installed`."""

    kind: str
    used: int
    unused: int
    unknown: int
    free: int
    external: int
    maintenance: int
    failed: int

    @property
    def installed(self) -> int:
        """The sum of all parts."""
        return self.used + self.unused + self.unknown + self.free + self.external + self.maintenance + self.failed


@dataclass(frozen=True)
class StatementRow:
    """A statement in a list. number None: a draft."""

    tenant: str
    href: str
    period: date
    number: str | None
    state: Literal["draft", "issued"]
    lines: int
    net: Decimal
    credits: Decimal
    tax: Decimal
    total: Decimal


@dataclass(frozen=True)
class UnbilledRow:
    """Money that is not on a bill yet, and why."""

    title: str
    why: str
    amount: Decimal


@dataclass(frozen=True)
class ReportRow:
    """The monthly report by project, person and kind; used None: not known."""

    tenant: str
    project: str
    person: str
    kind: str
    unit_seconds: int
    used: Fraction | None
    amount: Decimal


@dataclass(frozen=True)
class FinanceMonthPage:
    """GET /finance/{year}-{month}"""

    template: ClassVar[str] = "finance/month.html"
    month: date
    state: Literal["open", "closed"]
    sentence: str
    months: tuple[Link, ...]
    figures: tuple[Figure, ...]
    from_: datetime
    until: datetime
    capacity: tuple[CapacityKind, ...]
    statements: tuple[StatementRow, ...]
    report: tuple[ReportRow, ...]
    report_csv: str
    currency: str = "CHF"
    unbilled: tuple[UnbilledRow, ...] = ()
    steps: tuple[Step, ...] = ()
    proof: tuple[tuple[str, Decimal], ...] = ()
    """("Ledger", x), ("= invoiced", y), … : shown as adding up only when proof_ok."""
    proof_ok: bool = True
    notes: tuple[Note, ...] = ()
    statements_hint: str = "Drafts follow the ledger until the month is closed."


@dataclass(frozen=True)
class DrillRow:
    """A booking behind a line: its metered window, and the exact (unrounded) money."""

    booking: str
    href: str | None
    start: datetime
    end: datetime
    units: int
    unit_seconds: int
    exact: Fraction


@dataclass(frozen=True)
class StatementLine:
    """A printed line: the sum of rounded groups."""

    what: str
    unit_seconds: int | None
    used: Fraction | None
    unit_price: Decimal | None
    amount: Decimal
    hint: str = ""
    drill: tuple[DrillRow, ...] = ()
    drill_note: str = ""


@dataclass(frozen=True)
class StatementGroup:
    """Lines of one project, or fees and credits."""

    title: str
    detail: str
    amount: Decimal
    lines: tuple[StatementLine, ...]


@dataclass(frozen=True)
class StatementPage:
    """GET /statements/{id}: what do we owe, and does it add up? number None: a draft."""

    template: ClassVar[str] = "finance/statement.html"
    number: str | None
    state: Literal["draft", "issued"]
    tenant: str
    issuer: tuple[str, ...]
    month: date
    start: datetime
    end: datetime
    currency: str
    groups: tuple[StatementGroup, ...]
    net: Decimal
    credits: Decimal
    tax: Decimal
    total: Decimal
    facts: tuple[tuple[str, str], ...] = ()
    """("Cost centre", "4400"), ("Price book", "…"): shown in the head."""
    tax_label: str = "Tax"
    issued_at: datetime | None = None
    proof: tuple[tuple[str, Decimal], ...] = ()
    """Amounts that must be equal: ("Sum of lines", x), ("Statement, net", x)."""
    files: tuple[Link, ...] = ()
    back: Link = field(default_factory=lambda: Link("Finance", "/finance"))
    expected: tuple[StatementLine, ...] = ()
    """Credits of bookings that are not over: said below the total and in no sum."""

    @property
    def difference(self) -> Decimal:
        """Largest difference among the proof's amounts: zero when it adds up."""
        amounts = [amount for _, amount in self.proof]
        return max(amounts) - min(amounts) if amounts else Decimal(0)


@dataclass(frozen=True)
class StatementsPage:
    """GET /statements: the statements that the person may see."""

    template: ClassVar[str] = "finance/statements.html"
    rows: tuple[StatementRow, ...]
    currency: str = "CHF"


@dataclass(frozen=True)
class PriceRow:
    """A price of a version, per unit-hour. previous None: the kind was not priced before."""

    kind: str
    slug: str
    price: Decimal
    previous: Decimal | None = None


@dataclass(frozen=True)
class PriceVersion:
    """A published version of a price book; `by` published it."""

    version: int
    valid_from: datetime
    published_at: datetime
    by: str
    prices: tuple[PriceRow, ...]
    state: Literal["past", "current", "coming"]
    note: str = ""


@dataclass(frozen=True)
class PriceForm:
    """Posts book, valid_from (local), note, price.<slug> for every kind, step ("preview" | "publish")."""

    prices: tuple[tuple[str, str, str], ...]
    """(slug, kind's name, price as typed)."""
    valid_from: str
    idempotency_key: str
    note: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PricePreview:
    """What publishing would change, shown before it is done."""

    valid_from: datetime
    rows: tuple[PriceRow, ...]
    sentence: str


@dataclass(frozen=True)
class PriceBookPage:
    """GET /finance/prices?book="""

    template: ClassVar[str] = "finance/prices.html"
    book: str
    group: str
    currency: str
    books: tuple[Option, ...]
    versions: tuple[PriceVersion, ...]
    form: PriceForm | None
    preview: PricePreview | None = None
    book_value: str = ""
