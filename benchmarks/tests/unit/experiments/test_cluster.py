"""What `anabranch bench cluster` has found, from a file: nothing is measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.loadtest.timelines import back_to_back

from anabranch.cli.main import main
from anabranch.loadtest.latency import TimeWindow
from anabranch_bench.experiments.cluster import ClusterMove, HostLoss

REPORT = {"outcome": "done", "bytes": 3_000_000, "counters": {"bytes_across_hosts": 2_500_000}}
MOVE = ClusterMove(
    "100mbit", "live", 0, TimeWindow(10, 14), 2, 20, 9_000_000, REPORT, back_to_back(0.5, 30), 1.5
)
LOSS = HostLoss("anabranch", "host cut off", 0, 12.25, [], 2.5)
HEAD = {
    "benchmark": "cluster",
    "machine": {"made": "2026-11-19"},
    "settings": {"keys": 20_000, "rate": 4_000.0},
}


def shown(path: Path, *results: ClusterMove | HostLoss) -> int:
    lines = [HEAD, *(result.to_json() for result in results)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return main(["bench", "cluster", "--from", str(path)])


def test_results_survive_a_file() -> None:
    found = ClusterMove.from_json(json.loads(json.dumps(MOVE.to_json())))
    assert found.line() == MOVE.line()
    assert found.during == MOVE.during
    assert HostLoss.from_json(json.loads(json.dumps(LOSS.to_json()))) == LOSS


def test_a_file_is_shown_with_its_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(tmp_path / "cluster.jsonl", MOVE, LOSS) == 0
    said = capsys.readouterr().out
    assert "20,000 keys, 4,000 rows a second" in said
    assert "2.5 MB of state across hosts (3.0 MB moved, 9 MB through network cards)" in said
    assert "goes on after 12.2 s (results equal), load 2.5" in said


@pytest.mark.parametrize(
    "wrong",
    [
        replace(MOVE, report={**REPORT, "outcome": "failed: a worker is gone."}),
        replace(LOSS, wrong=["totals: customer 3 has ..."]),
    ],
    ids=["a move that failed", "wrong results"],
)
def test_what_is_wrong_is_the_exit_code(tmp_path: Path, wrong: ClusterMove | HostLoss) -> None:
    assert shown(tmp_path / "cluster.jsonl", MOVE, wrong) == 1
