"""The benchmarks of moving holds and of fragmentation run; without the published list that part is skipped visibly."""

from __future__ import annotations

import gzip
import json

from benchmarks import fragmentation
from benchmarks.__main__ import main


def test_moving_holds_is_measured(tmp_path):
    assert main(["--only", "recolour", "--size", "small", "--json", str(tmp_path / "figures.json")]) == 0
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]["recolour"]
    assert figures["asked"] == 20
    assert 0 <= figures["found_share"] + figures["gave_up_share"] <= 1
    assert 0 < figures["median_ms"] <= figures["worst_ms"]


def test_our_own_sample_is_packed_as_well_as_by_the_best_baseline(capsys):
    figures = fragmentation.run("small")
    assert "skipped" in capsys.readouterr().out
    for way in fragmentation.WAYS:
        assert 0.3 < figures[f"sample_timed_{way}_share"] <= 1
    assert figures["sample_at_once_ours_to_best_baseline_ratio"] >= 1
    assert figures["sample_timed_moving_share"] > figures["sample_timed_ours_share"], "giving way is worth it"
    assert figures["sample_timed_moving_to_best_baseline_ratio"] >= 0.98


def test_a_published_list_is_replayed_from_where_it_lies(tmp_path):
    folder = tmp_path / fragmentation.FOLDER
    folder.mkdir(parents=True)
    (folder / "openb_node_list_gpu_node.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\n" + "n,1,1,8,G2\n" * 20)
    with gzip.open(folder / "openb_pod_list_multigpu50.csv.gz", "wt") as file:
        file.write("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n" + "p,1,1,1,460\np,1,1,0,0\np,1,1,8,1000\n" * 30)
    figures = fragmentation.run("small", tmp_path)
    assert figures["trace_gpus"] == 160
    assert figures["trace_at_once_best_share"] > figures["trace_at_once_worst_share"]
