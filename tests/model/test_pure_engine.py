"""Any history of the pure engine against the plain model: no promise breaks, every verb is accepted, all is reached.

Longer: `python -m tests.model --pure --steps 5000000 --seed 7`, or BERTH_MODEL_STEPS and BERTH_MODEL_SEED for pytest.
"""

from __future__ import annotations

import os

import pytest

from tests.model.engine import REACHED, SHARES, run
from tests.model.vocabulary import steps

RUNS = 4
STEPS = steps(40_000, 20_000) // RUNS
"""To become 200,000 where every suite is required, once a run of that length has been seen to hold."""
SEED = int(os.environ.get("BERTH_MODEL_SEED", "20261130"))


@pytest.mark.timeout(3600)  # quiet and whole: about three minutes on two cores
@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
def test_no_history_breaks_a_promise(seed: int) -> None:
    print(f"seed {seed}, {STEPS} steps")
    tally = run(STEPS, seed)
    print(tally.report())
    lacks = tally.lacks(SHARES, REACHED) if STEPS >= 5_000 else []
    assert not lacks, "\n".join([f"seed {seed}:", *lacks, tally.report()])
