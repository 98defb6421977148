"""A public trace as booking demands: the columns of Alibaba's GPU trace v2023, read and nothing else.

Nodes: `sn,cpu_milli,memory_mib,gpu,model`. Pods: `name,num_gpu,gpu_milli,creation_time,scheduled_time,deletion_time`
among others, times in seconds from the beginning of the trace. Files may be gzipped.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Demand:
    """One pod that wanted GPUs: how many (a fraction is one), when it was made, and for how many seconds it stayed."""

    name: str
    units: int
    arrival: int
    seconds: int

    @property
    def within(self) -> str | None:
        """More than one GPU of a pod lie in one node."""
        return "node" if self.units > 1 else None


def read_text(path: Path) -> str:
    """A text file, gzipped or not."""
    raw = path.read_bytes()
    return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()


def read_demands(text: str, limit: int | None = None) -> list[Demand]:
    """The GPU demands in the order in which they were made; pods without GPU or without length are left out.

    Length: deletion minus scheduled, and minus creation where it was never scheduled.
    """
    found = []
    for row in csv.DictReader(text.splitlines()):
        units = int(row["num_gpu"])
        began = row["scheduled_time"] or row["creation_time"]
        seconds = round(float(row["deletion_time"])) - round(float(began))
        if units > 0 and seconds > 0:
            found.append(Demand(row["name"], units, round(float(row["creation_time"])), seconds))
    found.sort(key=lambda d: d.arrival)
    return found[:limit]


def read_installed(text: str) -> dict[str, int]:
    """GPUs by kind, as the node list says (a kind is a model in lower case)."""
    kinds: dict[str, int] = {}
    for row in csv.DictReader(text.splitlines()):
        if int(row["gpu"]):
            kinds[row["model"].lower()] = kinds.get(row["model"].lower(), 0) + int(row["gpu"])
    return kinds
