"""The first page: what must I do now, what runs and comes next, what is free, how my projects stand against limits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from app.accounts import queries as accounts
from app.accounts.queries import TenantSeen
from app.bookings import offers
from app.bookings import queries as bookings
from app.bookings.earliest import Prepared, free_profile
from app.bookings.facts import Booking
from app.dashboards import queries
from app.dashboards.booking_money import figures
from app.dashboards.cards import booking_card, booking_href, limit_meters, scopes_of_project, whole_nodes
from app.dashboards.queries import Around
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.kernel.actor import Actor
from app.kernel.window import Window, local_midnight, month_of
from app.notices import queries as notices
from app.notices.shown import notice_row
from app.plumbing.db import Work
from app.pricing import queries as pricing
from app.pricing.rules import schedule
from app.quotas import queries as quotas
from app.quotas.rules import Month
from app.web import words
from app.web.views.booking import FreeStep, HomePage, KindFree, Notice, ProjectLimits
from app.web.views.parts import Link, Money, Note

NOW_STATES = ("STARTING", "ACTIVE", "ENDING")
NEXT_STATES = ("WAITING", "REQUESTED", "BOOKED")
_SHOWN = 8
_STRIP_HOURS = 36


def home(work: Work, actor: Actor, zone: ZoneInfo, project_slug: str | None) -> HomePage:
    """Fill the page for somebody acting for a tenant; with a project, for that project alone."""
    now = work.product_now()
    tenant = accounts.tenant(work, work.tenant_id) if work.tenant_id else None
    seen = [p for p in accounts.projects(work) if actor.sees_project(p.id)]
    seen = [p for p in seen if p.slug == project_slug] or seen
    ids = [p.id for p in seen]
    running = _mine_first(bookings.list_bookings(work, projects=ids, states=NOW_STATES, oldest_first=True), actor)
    coming = _mine_first(bookings.list_bookings(work, projects=ids, states=NEXT_STATES, oldest_first=True), actor)
    shown = [*running[:_SHOWN], *coming[:_SHOWN]]
    around = queries.around(work, [b.id for b in shown])
    cards = {b.id: booking_card(b, around[b.id], _so_far(work, b, now), actor, now) for b in shown}
    free_at = local_midnight(now.astimezone(zone).date() + timedelta(days=1), zone) + timedelta(hours=9)
    may_book = any(actor.books_in(p.id) for p in seen)
    kinds = {slug: kind.name for slug, kind in inventory.kinds(work).items()}
    scopes = quotas.all_scopes(work)
    month = Month(*month_of(now, ZoneInfo(tenant.zone) if tenant else zone), 1)
    return HomePage(
        sentence=_sentence(running, coming, now, actor.zone),
        notes=tuple(n for b in shown for n in _notes(b, around[b.id], actor, now)),
        now=tuple(cards[b.id] for b in running[:_SHOWN]),
        next=tuple(cards[b.id] for b in coming[:_SHOWN]),
        free=_free(work, tenant, kinds, now, free_at, actor.zone) if tenant else (),
        free_at=free_at,
        projects=tuple(
            ProjectLimits(
                p.name,
                f"/projects/{p.slug}",
                limit_meters(work, scopes_of_project(scopes, p.id, actor), month, now, kinds),
            )
            for p in seen[:4]
        ),
        notices=_notices(work, actor, now),
        may_book=may_book,
    )


def _so_far(work: Work, booking: Booking, now: datetime) -> Decimal | None:
    """What a running booking costs up to now: the ledger has only what is over."""
    return figures(work, booking, now).charged if booking.state in NOW_STATES else None


def _mine_first(found: list[Booking], actor: Actor) -> list[Booking]:
    return sorted(found, key=lambda b: b.account_id != actor.account_id)


def _sentence(running: Sequence[Booking], coming: Sequence[Booking], now: datetime, zone: str) -> str:
    parts = []
    if running:
        parts.append(f"{words.count(len(running), 'booking')} {'is' if len(running) == 1 else 'are'} active")
    waits = sum(b.state in ("REQUESTED", "WAITING") for b in coming)
    booked = [b for b in coming if b.state == "BOOKED"]
    if booked:
        first = min(b.starts_at for b in booked)
        verb = "is" if len(booked) == 1 else "are"
        parts.append(f"{words.number(len(booked))} {verb} booked, the next for {words.moment(first, zone, now)}")
    if waits:
        parts.append(f"{words.number(waits)} {'waits' if waits == 1 else 'wait'} for approval")
    return f"{', '.join(parts)}." if parts else "Nothing is booked."


def _notes(booking: Booking, around: Around, actor: Actor, now: datetime) -> list[Note]:
    """What somebody should look at now: trouble of bookings that this person can do something about."""
    if not actor.books_in(booking.project_id):
        return []
    notes = []
    for type_, since, why in around.conditions:
        lasts = words.countdown(now - since)
        title = {
            "idle": f"“{booking.name}” has been idle for {lasts}",
            "degraded": f"“{booking.name}” has lost units",
            "late": f"“{booking.name}” is late",
            "blocked": f"“{booking.name}” cannot start",
            "at_risk": f"“{booking.name}” is at risk",
        }[type_]
        lead = {
            "idle": "Release it if it is not needed: the time from then on is not charged.",
            "degraded": "Time of the units that were lost is credited.",
            "late": "Time before it is in place is not charged.",
            "blocked": "Time before it is in place is not charged.",
            "at_risk": "",
        }[type_]
        text = " ".join(part for part in (_sentence_of(why), lead) if part)
        tone = "warn" if type_ in ("idle", "at_risk", "late") else "bad"
        notes.append(Note(tone, title, text, links=(Link(f"Open {booking.label}", booking_href(booking)),)))  # type: ignore[arg-type]
    return notes


def _sentence_of(why: str) -> str:
    return why if not why or why.endswith((".", "!", "?")) else f"{why}."


# --- what is free -----------------------------------------------------------------------------------------------------


def _free(
    work: Work, tenant: TenantSeen, kinds: dict[str, str], now: datetime, free_at: datetime, zone: str
) -> tuple[KindFree, ...]:
    """Kinds that this tenant can book: those with a price, on clusters that take bookings."""
    by_kind: dict[str, list[Pool]] = {}
    for pool in inventory.pools_for(work):
        if pool.writes:
            by_kind.setdefault(pool.kind, []).append(pool)
    prices = pricing.price_list(work, tenant.price_group, tenant.currency, sorted(by_kind), now)
    capacities = inventory.capacity_of(work, [p for pools in by_kind.values() for p in pools])
    found = []
    for kind, pools in sorted(by_kind.items()):
        segments = schedule(prices, kind, Window(now, now + timedelta(seconds=1)), now)
        if segments is None:
            continue
        free = [offers.prepared(work, capacities[p.id], now) for p in pools]
        found.append(
            _kind_free(kind, kinds[kind], pools, free, segments[0].per_hour, tenant.currency, now, free_at, zone)
        )
    return tuple(found)


def _kind_free(
    slug: str,
    name: str,
    pools: list[Pool],
    free: list[Prepared],
    price: Decimal,
    currency: str,
    now: datetime,
    free_at: datetime,
    zone: str,
) -> KindFree:
    hour = timedelta(hours=1)
    strip = sum(free_profile(p, now, _STRIP_HOURS, hour) for p in free)
    free_now = int(sum(free_profile(p, now, 1, timedelta(seconds=1))[0] for p in free))
    units = int(sum(p.pool.installed.sum() for p in free))
    steps = tuple(FreeStep(now + i * hour, now + (i + 1) * hour, int(n)) for i, n in enumerate(strip))
    most = max(steps, key=lambda s: s.free)
    hint = ""
    if most.free > free_now:
        hint = f"{words.number(most.free)} from {words.moment(most.start, zone, now)}"
    return KindFree(
        name=name,
        detail=", ".join(sorted({p.cluster for p in pools})),
        units=units,
        free_now=free_now,
        free_tomorrow=int(sum(free_profile(p, free_at, 1, hour)[0] for p in free)),
        price=Money(price, currency),
        book_href=f"/book?kind={slug}",
        largest=_largest(free, now),
        hint=hint,
        steps=steps,
    )


def _largest(free: list[Prepared], now: datetime) -> str:
    """Whole nodes that are free at this instant: `3 × 8`."""
    whole = whole_nodes(free, now)
    if not whole:
        return ""
    size = max(whole)
    return f"whole nodes: {whole[size]} × {size}"


# --- notices ----------------------------------------------------------------------------------------------------------


def _notices(work: Work, actor: Actor, now: datetime) -> tuple[Notice, ...]:
    """The newest things that were told to this person."""
    return tuple(notice_row(one, actor.zone, now) for one in notices.notices(work, actor, limit=5))
