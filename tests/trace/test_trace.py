"""The trace replayed: a small one of our own always, the public one where its files lie beside the checkout."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.trace import checks, sample
from tests.trace.checks import HoldRow, NodeRow, Promise
from tests.trace.demands import read_demands, read_installed, read_text
from tests.trace.replay import MODES, replay

PUBLIC = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces" / "alibaba_v2023"
NODES, PODS = PUBLIC / "openb_node_list_gpu_node.csv", PUBLIC / "openb_pod_list_default.csv.gz"
AT = datetime(2026, 12, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize("mode", MODES)
def test_a_small_trace_is_held_charged_and_stated_as_promised(mode, database, tmp_path, valkey_url) -> None:
    demands = read_demands(sample.pods())
    found = replay(mode, sample.nodes(), demands, database, tmp_path, valkey_url, processes=0)
    assert found["wrong"] == []
    assert found["accepted"] + found["refused"] == len(demands)
    assert found["accepted"] >= 20
    if mode == "at-once":
        assert found["refused"] >= 20
        assert found["alternatives_posted"] >= 20
        assert found["refused_by_reason"]["no_units_free"] == found["refused"]


@pytest.mark.timeout(3000)
@pytest.mark.skipif(not NODES.exists(), reason="the public trace does not lie beside the checkout")
@pytest.mark.skipif(
    os.environ.get("BERTH_TRACE") != "full",
    reason="the whole trace takes a quarter of an hour: BERTH_TRACE=full runs it",
)
@pytest.mark.parametrize("mode", MODES)
def test_the_public_trace_is_held_charged_and_stated_as_promised(mode, database, tmp_path, valkey_url) -> None:
    nodes, demands = read_text(NODES), read_demands(read_text(PODS))
    assert (sum(read_installed(nodes).values()), len(demands)) == (6212, 7063)
    found = replay(mode, nodes, demands, database, tmp_path, valkey_url)
    assert found["wrong"] == []
    assert found["accepted"] + found["refused"] == len(demands)
    if mode == "at-once":
        assert found["refused"] >= 20
        assert found["alternatives_posted"] >= 20
        assert 6100 < found["peak_units"] <= 6212


def test_demands_are_what_the_trace_says() -> None:
    demands = read_demands(
        "name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n"
        "later,2,1000,50,90,60\n"
        "part,1,250,7,19,\n"
        "none,0,0,8,19,8\n"
        "instant,1,1000,9,9,9\n"
    )
    assert [(d.name, d.units, d.within, d.arrival, d.seconds) for d in demands] == [
        ("part", 1, None, 7, 12),
        ("later", 2, "node", 50, 30),
    ]


# --- the checks themselves must be able to fail -----------------------------------------------------------------------

NODE = {1: NodeRow(0, 8, "g2"), 2: NodeRow(8, 8, "g2")}
PROMISES = {"a": Promise("pod", 2, "node", AT, AT + HOUR, "g2", "1.00")}


@pytest.mark.parametrize(
    "holds",
    [
        [],
        [HoldRow("a", 1, (0,), AT, AT + HOUR, False)],
        [HoldRow("a", 1, (0, 1), AT, AT + HOUR - timedelta(seconds=1), False)],
        [HoldRow("a", 1, (0,), AT, AT + HOUR, False), HoldRow("a", 2, (8,), AT, AT + HOUR, False)],
        [HoldRow("a", 1, (0, 8), AT, AT + HOUR, False)],
        [HoldRow("a", 1, (0, 1), AT, AT + HOUR, False), HoldRow("b", 2, (8,), AT, AT + HOUR, False)],
    ],
    ids=["nothing", "too few", "a second short", "two nodes", "not of its node", "nobody's"],
)
def test_a_wrong_hold_is_found(holds: list[HoldRow]) -> None:
    assert checks.wrong_holds(PROMISES, holds, NODE)


def test_right_holds_pass_also_when_the_node_changes_on_the_way() -> None:
    middle = AT + HOUR / 2
    holds = [HoldRow("a", 1, (0, 1), AT, middle, False), HoldRow("a", 2, (8, 9), middle, AT + HOUR, False)]
    assert checks.wrong_holds(PROMISES, holds, NODE) == []


def test_an_overlap_is_found_behind_a_short_hold() -> None:
    long, short = HoldRow("a", 1, (0, 1), AT, AT + 3 * HOUR, False), HoldRow("b", 1, (1,), AT, AT, False)
    late = HoldRow("c", 1, (1,), AT + 2 * HOUR, AT + 4 * HOUR, False)
    assert checks.overlaps([long, late])
    assert checks.overlaps([long, short, late])
    assert checks.overlaps([long, HoldRow("c", 1, (1,), AT + 3 * HOUR, AT + 4 * HOUR, False)]) == []


def test_peak_counts_what_touches_once() -> None:
    one = Promise("one", 3, None, AT, AT + HOUR, "g2", "0.00")
    two = Promise("two", 4, None, AT + HOUR, AT + 2 * HOUR, "g2", "0.00")
    three = Promise("three", 2, None, AT + HOUR / 2, AT + 2 * HOUR, "g2", "0.00")
    assert checks.peak([one, two, three]) == 6
    assert checks.unit_hours([one, two]) == 7
