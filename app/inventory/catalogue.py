"""The accelerator kinds that Berth knows without being told, read from `catalogue.csv`. Knows no database.

Figures come from the vendors' public data sheets; `source` and `confidence` stand in each row. Figures are facts and
under no licence. Kinds whose source is a public trace carry the trace's model name as slug; what its publisher
anonymised (G2, G3) has neither memory nor power here, since nobody knows them.
"""

from __future__ import annotations

import csv
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from app.inventory.facts import Kind

_FILE = Path(__file__).with_name("catalogue.csv")
_NUMBERS = ("memory_gb_per_second", "bf16_tflops", "fp8_tflops", "fp4_tflops", "link_gb_per_second")
_TEXTS = (
    "form_factor",
    "memory_type",
    "link",
    "cooling",
    "partitioning",
    "node_kw_basis",
    "confidence",
    "source",
    "notes",
)


@cache
def read_catalogue() -> tuple[Kind, ...]:
    """All kinds of the file, in its order."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        return tuple(_kind(row) for row in csv.DictReader(file, strict=True))


def _kind(row: dict[str, str]) -> Kind:
    facts: dict[str, Any] = {"aliases": [a for a in row["aliases"].split("|") if a]}
    facts["partitions"] = [p for p in row["partitions"].split("|") if p]
    facts |= {name: float(row[name]) for name in _NUMBERS if row[name]}
    facts |= {name: row[name] for name in _TEXTS if row[name]}
    return Kind(
        slug=row["slug"],
        name=row["name"],
        vendor=row["vendor"],
        memory_gb=Decimal(row["memory_gb"]) if row["memory_gb"] else None,
        tdp_watts=int(row["tdp_watts"]) if row["tdp_watts"] else None,
        node_kw=Decimal(row["node_kw"]) if row["node_kw"] else None,
        units_per_node=int(row["units_per_node"]),
        facts=facts,
    )
