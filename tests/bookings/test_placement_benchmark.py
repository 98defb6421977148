"""The benchmark of the earliest start runs, and its four ways of answering agree (it raises when they do not)."""

from __future__ import annotations

import json

from benchmarks.__main__ import find, main


def test_the_benchmark_runs_small_and_writes_its_figures(tmp_path, capsys):
    assert main(["--only", "earliest", "--size", "small", "--json", str(tmp_path / "figures.json")]) == 0
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]["earliest"]
    assert figures["gpus"] == 300
    assert 0.6 < figures["occupancy"] < 0.8
    assert all(value > 0 for key, value in figures.items() if key.endswith(("_ms", "_ratio")))
    assert "grid_to_prepared_ratio" in capsys.readouterr().out


def test_a_benchmark_that_is_not_there_is_told(capsys):
    assert main(["--only", "nothing"]) == 2
    assert "earliest" in capsys.readouterr().err


def test_every_benchmark_can_be_run():
    assert all(callable(module.run) and name == module.NAME for name, module in find().items())
