"""Any history on the real database with a simulated cluster: after every step the promises hold.

Longer: `python -m tests.model --steps 100000 --seed 7`, or BERTH_MODEL_STEPS and BERTH_MODEL_SEED for pytest.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.model.company import Company
from tests.model.history import REACHED, SHARES, History
from tests.model.vocabulary import steps

RUNS = 2
"""Side by side, a company each."""
STEPS = steps(600, 600) // RUNS
"""To become 10,000 where every suite is required, once a run of that length has been seen to hold."""
WHOLE = 4_000
"""From so many steps of one run on everything must have been reached; a shorter one shows that nothing breaks."""
SEED = int(os.environ.get("BERTH_MODEL_SEED", "20261130"))


@pytest.mark.timeout(3600)  # quiet and whole: some minutes of two cores
@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
def test_no_history_breaks_a_promise(seed: int, database, tmp_path: Path) -> None:
    print(f"seed {seed}, {STEPS} steps")
    company = Company(database, tmp_path)
    try:
        tally = History(company, seed).run(STEPS)
    finally:
        company.close()
    print(tally.report())
    if STEPS >= WHOLE:
        lacks = tally.lacks(SHARES, REACHED)
        assert not lacks, "\n".join([f"seed {seed}:", *lacks, tally.report()])
