"""Exact money. Quantities are integers, prices are Decimals, sums are Fractions; rounding happens once, at a line.

A quantity is unit-seconds x 840 x share: 840 makes every share in sevenths or eighths of an accelerator whole.
`quantity x price` is money x SCALE; SCALE = 3600 x 840 is divided out only when a line is rounded (docs/decisions/0003).
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

WHOLE = 840
"""The share of a whole unit; a 3/7 slice is 360."""
SCALE = 3600 * WHOLE
"""Quantity of one unit-hour."""

_PLACES = {"JPY": 0, "KRW": 0, "CLP": 0, "ISK": 0, "VND": 0, "KWD": 3, "BHD": 3, "JOD": 3, "OMR": 3, "TND": 3}


def places(currency: str) -> int:
    """Decimal places of a currency's minor unit (ISO 4217)."""
    return _PLACES.get(currency, 2)


def quantity(units: int, seconds: int, share840: int = WHOLE) -> int:
    """Unit-seconds x 840 x share of `units` equal units over `seconds`."""
    return units * seconds * share840


def exact(quantity: int, per_hour: Decimal) -> Fraction:
    """The exact money of a quantity at a price per unit-hour, unrounded."""
    return Fraction(quantity) * Fraction(per_hour) / SCALE


def line_amount(amount: Fraction, currency: str) -> Decimal:
    """Round once, half away from zero, to the currency's minor unit. The same answer as SQL `line_amount()`."""
    digits = places(currency)
    scaled = abs(amount) * 10**digits
    whole = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    value = Decimal(whole).scaleb(-digits)
    return -value if amount < 0 and whole else value


def unit_hours(quantity: int) -> Fraction:
    """Unit-hours of a quantity, exact."""
    return Fraction(quantity, SCALE)


def hours_text(quantity: int, digits: int = 2) -> str:
    """Unit-hours as text with a fixed number of decimals, rounded half away from zero."""
    scaled = Fraction(abs(quantity) * 10**digits, SCALE)
    whole = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    text = str(Decimal(whole).scaleb(-digits))
    return f"-{text}" if quantity < 0 and whole else text
