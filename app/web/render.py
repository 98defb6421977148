"""From a view and its frame to HTML. Knows templates and wording, no room, no request.

`render(view, frame)` picks the template from the view's class. Templates see `frame`, `page` (the view) and
`csrf_token`; an undefined name is an error, never an empty place. Filters format raw values in the frame's zone.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from app.web import charts, scale, words
from app.web.views.parts import Frame, Meter, Money

_ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = _ROOT / "templates"
STATIC = _ROOT / "static"
_MONEY = re.compile(
    r"\b([A-Z]{3}) (\N{MINUS SIGN}?\d[\d,]*\.\d{2,3})(?!\d)|\b(JPY|KRW|CLP|ISK|VND) (\N{MINUS SIGN}?\d[\d,]*)"
)


_SET = Markup('<span class="b-money num"><span class="c">{} </span>{}</span>')


class View(Protocol):
    """Anything with a template of its own."""

    template: ClassVar[str]


def render(view: View, frame: Frame) -> str:
    """The HTML of a page or fragment."""
    template = environment().get_template(view.template)
    return template.render(page=view, frame=frame, csrf_token=frame.csrf_token)


@cache
def environment() -> Environment:
    """The one Jinja environment: everything escaped, undefined names are errors."""
    env = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"],
    )
    env.filters.update(
        amount=words.amount,
        clock=_clock,
        countdown=words.countdown,
        day=_day,
        first_upper=words.first_upper,
        fit=scale.fit,
        full_day=_full_day,
        hours=words.hours,
        initials=_initials,
        length=words.length,
        money=_money,
        month=words.month,
        number=words.number,
        percent=words.percent,
        price=words.price,
        rich=_rich,
        size=len,
        span=_span,
        span_text=_span_text,
        time=_time,
        time_text=_time_text,
    )
    env.tests.update(whole=scale.whole)
    env.globals.update(
        asset=asset,
        burn_chart=charts.burn,
        daily_chart=charts.daily,
        heat_step=scale.heat_step,
        fine=_fine,
        meter_bar=scale.meter_bar,
        meter_value=_meter_value,
        place=scale.place,
        share=scale.share,
        ticks=scale.ticks,
        unit_charts=charts.units,
    )
    return env


@cache
def asset(path: str) -> str:
    """The address of a static file, with a digest of its content so that browsers may keep it for ever."""
    file = STATIC / path
    if not file.is_file():
        return f"/static/{path}"
    return f"/static/{path}?v={hashlib.sha256(file.read_bytes()).hexdigest()[:12]}"


def _money(value: Money | Decimal | Fraction, currency: str = "CHF") -> Markup:
    """Money in its own type: small grey currency, tabular figures."""
    if isinstance(value, Money):
        value, currency = value.amount, value.currency
    shown = words.amount(value, currency)
    return _SET.format(currency, shown)


def _rich(text: str) -> Markup:
    """A sentence, escaped, with the money in it set as money."""
    parts, at = [], 0
    for found in _MONEY.finditer(text):
        parts.append(escape(text[at : found.start()]))
        parts.append(_SET.format(found[1] or found[3], found[2] or found[4]))
        at = found.end()
    return Markup("").join([*parts, escape(text[at:])])


def _element(instant: datetime, shown: str) -> Markup:
    utc = instant.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        f"{utc:%Y-%m-%dT%H:%M:%SZ}", f"{utc:%Y-%m-%d %H:%M:%S}" if utc.second else f"{utc:%Y-%m-%d %H:%M}", shown
    )


@pass_context
def _time(context: Context, instant: datetime, capital: bool = False) -> Markup:
    """`<time>` with the instant in the person's zone and UTC in its title."""
    frame: Frame = context["frame"]
    shown = words.moment(instant, frame.zone, frame.now)
    return _element(instant, words.first_upper(shown) if capital else shown)


@pass_context
def _clock(context: Context, instant: datetime, seconds: bool = False) -> Markup:
    """`<time>` with only the time of day."""
    return _element(instant, words.clock(instant, context["frame"].zone, seconds))


@pass_context
def _day(context: Context, instant: datetime | date, year: bool = False) -> Markup:
    """The day of an instant or a date."""
    frame: Frame = context["frame"]
    local = instant.astimezone(scale.zone(frame.zone)).date() if isinstance(instant, datetime) else instant
    shown = words.day(local, None if year else frame.now.astimezone(scale.zone(frame.zone)).year)
    return (
        _element(instant, shown)
        if isinstance(instant, datetime)
        else Markup('<time datetime="{}">{}</time>').format(local.isoformat(), shown)
    )


@pass_context
def _full_day(context: Context, instant: datetime) -> Markup:
    """The day of an instant with its year, as on a bill."""
    return _element(instant, words.full_day(instant.astimezone(scale.zone(context["frame"].zone)).date()))


@pass_context
def _span(
    context: Context,
    start: datetime,
    end: datetime,
    capital: bool = False,
    with_length: bool = True,
    seconds: bool = False,
) -> Markup:
    """A window as two `<time>` elements and its length."""
    frame: Frame = context["frame"]
    whole = words.span(start, end, frame.zone, frame.now, with_length=False, seconds=seconds)
    first = words.moment(start, frame.zone, frame.now, seconds)
    rest = whole[len(first) :]
    dash, last = (" – ", rest[3:]) if rest.startswith(" – ") else ("–", rest[1:])
    shown = _element(start, words.first_upper(first) if capital else first) + dash + _element(end, last)
    return shown + (f" ({words.length(end - start)})" if with_length else "")


@pass_context
def _time_text(context: Context, instant: datetime) -> str:
    """An instant as plain text, for titles and labels."""
    return words.moment(instant, context["frame"].zone, context["frame"].now)


@pass_context
def _span_text(context: Context, start: datetime, end: datetime) -> str:
    """A window as plain text, without its length, for titles and labels."""
    return words.span(start, end, context["frame"].zone, context["frame"].now, with_length=False)


def _fine(unit_seconds: int) -> int:
    """Decimals for GPU-hours of one booking: two below ten hours, where one would hide what was used."""
    return 2 if unit_seconds < 36_000 else 1


def _initials(name: str) -> str:
    """Up to two initials of a name."""
    letters = [part[0] for part in name.replace("-", " ").split() if part[0].isalnum()]
    return "".join(letters[:1] + letters[-1:] if len(letters) > 1 else letters).upper()


def _meter_value(meter: Meter, value: Any) -> str:
    """A meter's number in its measure, without currency or unit."""
    if meter.measure == "money":
        return words.amount(value, meter.currency)
    return words.hours(value, 0) if meter.measure == "hours" else words.number(value)
