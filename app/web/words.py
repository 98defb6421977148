"""How Berth writes amounts, lengths and times in sentences: the one wording for pages, notices and answers.

Pure: standard library only. Times come aware and are shown in the zone given; nothing here reads a clock.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

MINUS = "\N{MINUS SIGN}"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH_NAMES = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_PLACES = {"JPY": 0, "KRW": 0, "CLP": 0, "ISK": 0, "VND": 0, "KWD": 3, "BHD": 3, "JOD": 3, "OMR": 3, "TND": 3}
_DAY = timedelta(days=1)


def number(value: Decimal | Fraction | int | float, digits: int = 0) -> str:
    """A number with thousands separators and exactly so many decimals, rounded half away from zero: `1,234.5`."""
    exact = Fraction(value)
    scaled = abs(exact) * 10**digits
    whole = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    text = f"{whole // 10**digits:,}" + (f".{whole % 10**digits:0{digits}d}" if digits else "")
    return MINUS + text if exact < 0 and whole else text


def amount(value: Decimal | Fraction, currency: str = "CHF") -> str:
    """An amount without its currency: `1,234.50`."""
    return number(value, _PLACES.get(currency, 2))


def price(value: Decimal) -> str:
    """A price per unit-hour: at least two decimals, more when the price has them: `2.40`, `0.0125`."""
    decimals = -int(value.normalize().as_tuple().exponent)
    return number(value, max(2, decimals))


def money(value: Decimal | Fraction, currency: str = "CHF") -> str:
    """An amount with its currency: `CHF 1,234.50`, `CHF −79.20`."""
    return f"{currency} {amount(value, currency)}"


def hours(unit_seconds: int | Fraction, digits: int = 1) -> str:
    """Unit-seconds as GPU-hours: `384.0`. One decimal in general, two on a bill."""
    return number(Fraction(unit_seconds) / 3600, digits)


def percent(share: Fraction | Decimal | float, digits: int = 0) -> str:
    """A share of one as per cent: `93 %`."""
    return f"{number(Fraction(share) * 100, digits)} %"


def count(how_many: int, one: str, many: str | None = None) -> str:
    """`1 booking`, `3 bookings`."""
    return f"{number(how_many)} {one if how_many == 1 else many or one + 's'}"


def length(span: timedelta) -> str:
    """How long something is: `6 h`, `2 h 30 min`, `48 h`, `2.9 s`, `38 ms`. Hours are not folded into days."""
    seconds = int(abs(span.total_seconds()))
    whole_hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    if whole_hours:
        parts = [f"{number(whole_hours)} h", f"{minutes} min" if minutes else "", f"{left} s" if left else ""]
    elif minutes:
        parts = [f"{minutes} min", f"{left} s" if left else ""]
    elif abs(span) < timedelta(seconds=1):
        return f"{number(abs(span).total_seconds() * 1000)} ms" if span else "0 s"
    else:
        return f"{number(abs(span).total_seconds(), 1 if span.microseconds else 0)} s"
    return " ".join(p for p in parts if p)


def countdown(span: timedelta) -> str:
    """How long until, in its two largest units: `4 d 4 h`, `18 h 18 min`, `12 min`, `40 s`. Never below zero."""
    seconds = max(0, int(span.total_seconds()))
    days, rest = divmod(seconds, 86400)
    whole_hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days >= 2:
        return f"{days} d {whole_hours} h" if whole_hours else f"{days} d"
    if days or whole_hours:
        whole_hours += 24 * days
        return f"{whole_hours} h {minutes} min" if minutes else f"{whole_hours} h"
    return f"{minutes} min" if minutes else f"{left} s"


def clock(instant: datetime, zone: str, seconds: bool = False) -> str:
    """The time of day: `09:00`, with seconds only when asked. One that exists twice carries its zone: `02:30 CEST`."""
    local = instant.astimezone(ZoneInfo(zone))
    text = f"{local:%H:%M:%S}" if seconds else f"{local:%H:%M}"
    other = local.replace(fold=1 - local.fold)
    twice = other.utcoffset() != local.utcoffset() and other.astimezone(UTC).astimezone(ZoneInfo(zone)) == other
    return f"{text} {local.tzname()}" if twice else text


def day(of: date, year: int | None = None) -> str:
    """A day: `Tue 1 Dec`, with its year when that is not `year`."""
    text = f"{_DAYS[of.weekday()]} {of.day} {_MONTHS[of.month - 1]}"
    return text if year == of.year else f"{text} {of.year}"


def short_day(of: date) -> str:
    """A day on an axis: `1 Dec`."""
    return f"{of.day} {_MONTHS[of.month - 1]}"


def full_day(of: date) -> str:
    """A day on a bill: `6 Nov 2026`."""
    return f"{of.day} {_MONTHS[of.month - 1]} {of.year}"


def month(of: date) -> str:
    """`November 2026`."""
    return f"{_MONTH_NAMES[of.month - 1]} {of.year}"


def moment(instant: datetime, zone: str, now: datetime, seconds: bool = False) -> str:
    """An instant: `Tue 1 Dec, 08:00`, or `today, 17:30` when it is today and nearer than a day."""
    tz = ZoneInfo(zone)
    local, today = instant.astimezone(tz), now.astimezone(tz).date()
    if local.date() == today and abs(instant - now) < _DAY:
        return f"today, {clock(instant, zone, seconds)}"
    return f"{day(local.date(), today.year)}, {clock(instant, zone, seconds)}"


def span(
    start: datetime, end: datetime, zone: str, now: datetime, with_length: bool = True, seconds: bool = False
) -> str:
    """A window: `Tue 1 Dec, 09:00–15:00 (6 h)`; across days both ends in full."""
    tz = ZoneInfo(zone)
    same_day = start.astimezone(tz).date() == end.astimezone(tz).date()
    until = f"–{clock(end, zone, seconds)}" if same_day else f" – {moment(end, zone, now, seconds)}"
    text = moment(start, zone, now, seconds) + until
    return f"{text} ({length(end - start)})" if with_length else text


def first_upper(text: str) -> str:
    """The text with its first letter as a capital."""
    return text[:1].upper() + text[1:]
