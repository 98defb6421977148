"""What the charts draw, as plain JSON values: the server decides labels and order, the script only paints."""

from __future__ import annotations

from typing import Any

from app.web import words
from app.web.scale import zone
from app.web.views.booking import Samples
from app.web.views.project import Burn, DailySeries


def units(samples: Samples, zone_name: str, live: bool) -> dict[str, Any]:
    """Series per unit for the four charts of a booking. Gaps stay null; `live` when the newest sample is now's."""
    tz = zone(zone_name)
    stamps = [instant.astimezone(tz) for instant in samples.times]
    many_days = bool(stamps) and stamps[0].date() != stamps[-1].date()
    return {
        "times": [f"{words.short_day(t.date())} {t:%H:%M}" if many_days else f"{t:%H:%M}" for t in stamps],
        "series": [
            {
                "name": f"{s.node}, unit {s.unit}",
                "node": s.node,
                "utilisation": s.utilisation,
                "memory": s.memory_gb,
                "power": s.power_watt,
                "temperature": s.temperature_c,
            }
            for s in samples.series
        ],
        "live": live,
        "memory_gb": samples.memory_gb,
        "power_watt": samples.power_watt,
        "slows_down_c": samples.slows_down_c,
    }


def burn(chart: Burn, currency: str) -> dict[str, Any]:
    """Cumulative cost, forecast, budget and today."""
    return {
        "days": [words.short_day(day) for day in chart.days],
        "used": [None if v is None else float(v) for v in chart.used],
        "forecast": [None if v is None else float(v) for v in chart.forecast],
        "budget": None if chart.budget is None else float(chart.budget),
        "today": words.short_day(chart.today),
        "currency": currency,
    }


def daily(days: tuple[Any, ...], series: tuple[DailySeries, ...]) -> dict[str, Any]:
    """Stacked unit-hours a day."""
    return {
        "days": [words.short_day(day) for day in days],
        "series": [{"name": s.label, "hours": [round(float(h), 2) for h in s.hours]} for s in series],
    }
