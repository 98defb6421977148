"""What a suite needs of its machine: there, or a visible skip with its reason; in CI a failure instead of a skip.

BERTH_REQUIRE names the suites that must run (`all`, or names with commas): .ci/run sets it. A suite asks at its
beginning, in a fixture or at module level:

    need("browser", found=chromium is not None, reason="no chromium on this machine (apt-get install chromium)")
"""

from __future__ import annotations

import os

import pytest

SUITES = ("browser", "keycloak", "trace", "faults", "slurm", "kubernetes")


def need(suite: str, *, found: bool, reason: str) -> None:
    """Go on when `found`; else skip with the reason, or fail where the suite is required."""
    if suite not in SUITES:
        raise ValueError(f"there is no suite {suite!r}; tests/requirements.py lists them")
    if found:
        return
    if required(suite):
        pytest.fail(f"the suite {suite!r} is required here and cannot start: {reason}", pytrace=False)
    pytest.skip(f"{suite}: {reason}", allow_module_level=True)


def required(suite: str) -> bool:
    """Whether this machine must run the suite."""
    names = [name.strip() for name in os.environ.get("BERTH_REQUIRE", "").split(",")]
    return "all" in names or suite in names
