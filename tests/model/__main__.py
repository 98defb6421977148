"""`python -m tests.model --steps 10000 --seed 7`: a longer history on the real database; `--pure` on the pure engine."""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--pure", action="store_true", help="the pure engine, without a database")
    words = parser.parse_args()
    seed = words.seed if words.seed is not None else random.SystemRandom().randrange(10**9)
    print(f"seed {seed}, {words.steps} steps", flush=True)
    logging.disable(logging.WARNING)  # a cluster that breaks down is what is wanted here
    begun = time.monotonic()
    tally = _pure(words.steps, seed) if words.pure else _real(words.steps, seed)
    print(tally.report())
    print(f"{time.monotonic() - begun:.0f} s")
    return 0


def _pure(steps: int, seed: int):
    from tests.model.engine import run

    return run(steps, seed)


def _real(steps: int, seed: int):
    from tests.model.company import Company
    from tests.model.history import History
    from tests.servers import Servers, drop_database, new_database

    servers = Servers()
    addresses = servers.start()
    try:
        database = new_database(addresses.superuser_url)
        with tempfile.TemporaryDirectory() as folder:
            company = Company(database, Path(folder))
            try:
                return History(company, seed).run(steps, _progress)
            finally:
                company.close()
                drop_database(addresses.superuser_url, database.name)
    finally:
        servers.stop()


def _progress(step: int) -> None:
    if step % 100 == 0:
        print(f"{step} steps", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
