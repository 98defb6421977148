"""Price books with their history, and the form by which finance publishes a new version."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.datastructures import FormData

from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Invalid
from app.kernel.ids import new_id, short
from app.plumbing.db import Work
from app.pricing import actions, queries, rules
from app.web import words
from app.web.deps import InTransaction, PlatformFinance, require_platform
from app.web.page import OnPage
from app.web.views.money import PriceBookPage, PriceForm, PricePreview, PriceRow, PriceVersion
from app.web.views.parts import Note, Option

router = APIRouter(include_in_schema=False)
FinanceReader = Annotated[Actor, Depends(require_platform("read", "finance", "auditor"), scope="function")]


async def sent_form(request: Request) -> FormData:
    """The fields as sent: one price a kind, so their names are not known beforehand."""
    return await request.form()


SentForm = Annotated[FormData, Depends(sent_form)]


@router.get("/finance/prices")
def prices_page(
    page: OnPage, work: InTransaction, actor: FinanceReader, book: Annotated[str, Query(max_length=80)] = ""
) -> Response:
    """A price book: `book` is group/CURRENCY, otherwise the one that most tenants pay by."""
    group, currency = _book(work, book)
    return page.show(_view(work, actor, group, currency))


@router.post("/finance/prices")
def publish_page(page: OnPage, work: InTransaction, actor: PlatformFinance, form: SentForm) -> Response:
    """Show what a version would change, or publish it."""
    group, currency = _book(work, str(form.get("book", "")))
    names = queries.form_names(work)
    typed = {slug: str(form.get(f"price.{slug}", "")).strip() for slug in names}
    valid_from, note = str(form.get("valid_from", "")), str(form.get("note", ""))[:200]
    prices, errors = _read_prices(typed)
    effective, wrong = _read_instant(valid_from, actor.zone, work.product_now())
    errors |= {"valid_from": wrong} if wrong else {}
    errors |= {r.field: r.message for r in rules.wrong_prices(prices, names) if r.field and r.field not in errors}
    sent = PriceForm(
        tuple((slug, names[slug], typed[slug]) for slug in names), valid_from, short(new_id()), note, errors
    )
    if errors or effective is None:
        return page.show(_view(work, actor, group, currency, sent), 422)
    if form.get("step") != "publish":
        return page.show(_view(work, actor, group, currency, sent, _preview(work, group, currency, effective, prices)))
    try:
        version = actions.publish_version(work, actor, group, currency, effective, prices, note)
    except (Invalid, Conflict) as problem:
        found = {r.field: r.message for r in getattr(problem, "reasons", ()) if r.field}
        failed = PriceForm(sent.prices, valid_from, sent.idempotency_key, note, found or {"valid_from": problem.detail})
        return page.show(_view(work, actor, group, currency, failed), problem.status)
    said = f"Version {version} counts from {words.moment(effective, actor.zone, work.product_now())}."
    return page.go(f"/finance/prices?book={group}/{currency}", Note("ok", "Prices published", said))


def _book(work: Work, value: str) -> tuple[str, str]:
    """The book asked for, else that of most tenants; before any is published, where their first prices would go."""
    books = queries.price_books(work)
    asked = tuple(value.rsplit("/", 1))
    if asked in books:
        return asked  # type: ignore[return-value]
    with work.read_all():
        used = queries.books_in_use(work)
    if not books:
        return used[0] if used else ("internal", "CHF")
    return next((book for book in used if book in books), books[0])


def _read_prices(typed: dict[str, str]) -> tuple[dict[str, Decimal], dict[str, str]]:
    """Prices of the fields that are filled in, and what is wrong with the others."""
    prices, errors = {}, {}
    for slug, text in typed.items():
        if not text:
            continue
        try:
            prices[slug] = Decimal(text)
        except InvalidOperation:
            errors[f"price.{slug}"] = f"{text} is not a number. Write it like 2.40."
    if not prices and not errors:
        errors["valid_from"] = "Fill in at least one price."
    return prices, errors


def _read_instant(text: str, zone: str, now: datetime) -> tuple[datetime | None, str]:
    """The instant of a local time in the person's zone, or what is wrong with it. An empty field means now."""
    if not text:
        return now, ""
    try:
        local = datetime.fromisoformat(text)
    except ValueError:
        return None, "Write day and time, such as 2027-01-01T00:00."
    if local.tzinfo is not None:
        return None, "Write the time in your own zone, without an offset."
    if not 2000 <= local.year < 2200:
        return None, "Write a year between 2000 and 2200."
    tz = ZoneInfo(zone)
    instant = local.replace(tzinfo=tz).astimezone(now.tzinfo)
    if instant.astimezone(tz).replace(tzinfo=None) != local:
        return None, "This local time does not exist: the clocks change then."
    if now - timedelta(minutes=1) < instant < now:
        instant = now  # the field has no seconds: the running minute is now
    return (None, "A price counts from now or later on.") if instant < now else (instant, "")


def _preview(work: Work, group: str, currency: str, effective: datetime, prices: dict[str, Decimal]) -> PricePreview:
    names = queries.kind_names(work)
    before = _in_force(work, group, currency, effective)
    rows = tuple(PriceRow(names[k], k, prices[k], before.get(k)) for k in sorted(prices, key=lambda k: names[k]))
    changed = sum(1 for row in rows if row.previous != row.price)
    return PricePreview(
        effective,
        rows,
        f"{words.count(changed, 'price changes', 'prices change')}. Bookings that are confirmed keep theirs; quotes "
        "and bookings made after the publication take the new ones for the time from then on.",
    )


def _in_force(work: Work, group: str, currency: str, at: datetime) -> dict[str, Decimal]:
    """The price of each kind at an instant, by what is published."""
    found: dict[str, Decimal] = {}
    for version in queries.versions(work, group, currency):  # the one that counts latest first
        if version.effective_at <= at:
            for kind, price in version.prices.items():
                found.setdefault(kind, price)
    return found


def _view(
    work: Work,
    actor: Actor,
    group: str,
    currency: str,
    form: PriceForm | None = None,
    preview: PricePreview | None = None,
) -> PriceBookPage:
    now = work.product_now()
    names = queries.form_names(work)
    books = queries.price_books(work) or ((group, currency),)
    versions = queries.versions(work, group, currency)
    current = next((v.id for v in versions if v.effective_at <= now), None)
    if form is None and "finance" in actor.platform_roles:
        now_valid = _in_force(work, group, currency, now)
        tomorrow = (now.astimezone(ZoneInfo(actor.zone)) + timedelta(days=1)).replace(hour=0, minute=0, second=0)
        fields = tuple((slug, name, str(now_valid.get(slug, ""))) for slug, name in names.items())
        # where nothing counts yet, nothing can be booked: the first prices count at once
        form = PriceForm(fields, f"{tomorrow:%Y-%m-%dT%H:%M}" if now_valid else "", short(new_id()))
    return PriceBookPage(
        book=f"Price book {group}",
        group=f"Price group {group}",
        currency=currency,
        books=tuple(Option(f"{g}/{c}", f"{g}, {c}", (g, c) == (group, currency)) for g, c in books),
        versions=tuple(_version(v, versions[n + 1 :], names, now, current) for n, v in enumerate(versions)),
        form=form,
        preview=preview,
        book_value=f"{group}/{currency}",
    )


def _version(
    version: queries.Version,
    earlier: tuple[queries.Version, ...],
    names: dict[str, str],
    now: datetime,
    current: int | None,
) -> PriceVersion:
    def before(kind: str) -> Decimal | None:
        return next((v.prices[kind] for v in earlier if kind in v.prices), None)

    rows = tuple(
        PriceRow(names[k], k, p, before(k)) for k, p in sorted(version.prices.items(), key=lambda i: names[i[0]])
    )
    state = "coming" if version.effective_at > now else "current" if version.id == current else "past"
    return PriceVersion(
        version.id, version.effective_at, version.published_at, version.published_by, rows, state, version.note
    )
