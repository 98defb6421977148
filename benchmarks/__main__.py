"""`python -m benchmarks [--only NAME] [--size small] [--data DIR] [--json FILE]`: run benchmarks, print their
figures, write them down."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import platform
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import benchmarks


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when all ran, 2 for a name that is not there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="run this one (may be repeated)")
    parser.add_argument("--size", default="full", choices=["full", "small"], help="small: a quick look, not comparable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here as well")
    parser.add_argument("--data", type=Path, metavar="DIR", help="published traces, for benchmarks that replay them")
    wanted = parser.parse_args(arguments)
    known = find()
    unknown = [name for name in wanted.only if name not in known]
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    figures = {}
    for name in wanted.only or known:
        print(f"{name} ({wanted.size})", flush=True)
        with_data = "data" in inspect.signature(known[name].run).parameters
        figures[name] = known[name].run(wanted.size, wanted.data) if with_data else known[name].run(wanted.size)
        print(table(figures[name]), flush=True)
    if wanted.json:
        machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "size": wanted.size}
        wanted.json.write_text(json.dumps({"machine": machine, "figures": figures}, indent=2) + "\n")
    return 0


def find() -> dict[str, ModuleType]:
    """The benchmarks by name."""
    modules = [import_module(f"benchmarks.{m.name}") for m in iter_modules(benchmarks.__path__) if m.name[0] != "_"]
    return {m.NAME: m for m in sorted(modules, key=lambda m: m.__name__) if hasattr(m, "NAME")}


def table(figures: dict[str, float]) -> str:
    """Two columns, the figures right-aligned with at most three digits behind the point."""
    width = max(map(len, figures), default=0)
    return "\n".join(f"  {key:<{width}}  {value:>14,.3f}" for key, value in figures.items())


if __name__ == "__main__":
    sys.exit(main())
