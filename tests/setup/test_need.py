"""A suite that cannot start is skipped with its reason, and fails where it is required."""

import pytest

from tests.requirements import need

GONE = {"found": False, "reason": "no chromium here"}


def test_what_is_there_goes_on(monkeypatch):
    monkeypatch.setenv("BERTH_REQUIRE", "all")
    need("browser", found=True, reason="no chromium here")


@pytest.mark.parametrize("required", ["", "keycloak", "trace,keycloak"])
def test_what_is_missing_is_a_visible_skip(monkeypatch, required):
    monkeypatch.setenv("BERTH_REQUIRE", required)
    with pytest.raises(pytest.skip.Exception, match="browser: no chromium here"):
        need("browser", **GONE)


@pytest.mark.parametrize("required", ["all", "browser", "trace, browser"])
def test_what_is_missing_and_required_fails(monkeypatch, required):
    monkeypatch.setenv("BERTH_REQUIRE", required)
    with pytest.raises(pytest.fail.Exception, match="required here"):
        need("browser", **GONE)


def test_a_suite_nobody_knows_is_a_mistake():
    with pytest.raises(ValueError, match="no suite"):
        need("browsers", **GONE)
