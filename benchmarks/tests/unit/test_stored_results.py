"""Pictures of the documentation are of runs that the repository has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.demo import DemoRun
from anabranch.loadtest.scaled_run import ScaledRun
from anabranch_bench.experiments.evaluation import Evaluation
from anabranch_bench.experiments.evaluation_report import from_json
from anabranch_bench.experiments.many_workers import SizeCost
from anabranch_bench.experiments.rescale_findings import RescaleFindings

ROOT = Path(__file__).parents[3]
STORED = ROOT / "benchmarks" / "results"
PICTURES = sorted((ROOT / "docs" / "images").rglob("*.png"))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: str(path.name))
def test_every_picture_has_its_raw_runs(picture: Path) -> None:
    """In a file of the picture's name, or of the folder that it is in."""
    names = [picture.stem, picture.parent.name]
    files = [file for name in names if (file := STORED / f"{name}.jsonl").exists()]
    files += [file for name in names if (file := STORED / f"{name}.json").exists()]
    assert files, f"no raw runs of {picture.relative_to(ROOT)}: draw it with --from only"


@pytest.mark.parametrize("path", sorted(STORED.glob("*.json")), ids=lambda path: str(path.name))
def test_raw_runs_can_be_read(path: Path) -> None:
    told = json.loads(path.read_text(encoding="utf-8"))
    if "crowd" in told:
        crowd = ScaledRun.from_json(told["crowd"])
        assert crowd.decisions
        assert not crowd.wrong
        return
    if "demo" in told:
        demo = DemoRun.from_json(told)
        assert demo.timeline.batches
        changes = {
            "demo": ["2 -> 3 workers", "3 -> 2 workers"],
            "demo-cluster": ["2 -> 4 workers", "h1 drained", "h3 cut off"],
        }
        assert [change.name for change in demo.changes] == changes[path.stem]
        return
    readers: dict[str, Callable[[Any], RescaleFindings | Evaluation]] = {
        "rescale": RescaleFindings.from_json,
        "evaluation": from_json,
    }
    found = readers[told["benchmark"]](told)
    assert any(run.is_good for run in found.results.runs)


@pytest.mark.parametrize("path", sorted(STORED.glob("many-*.jsonl")), ids=lambda path: path.name)
def test_runs_with_many_workers_can_be_read(path: Path) -> None:
    head, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert head["benchmark"] == "many"
    assert [str(SizeCost.from_json(line).size) for line in lines]


@pytest.mark.parametrize(
    "path", sorted(STORED.glob("autoscale*.jsonl")), ids=lambda path: path.name
)
def test_runs_of_the_autoscaler_can_be_read(path: Path) -> None:
    head, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert head["benchmark"] == "autoscale"
    assert not [run for line in lines if (run := ScaledRun.from_json(line["run"])).wrong]


def test_the_documents_name_every_stored_result() -> None:
    text = (STORED / "README.md").read_text(encoding="utf-8")
    assert all(f"`{path.name}`" in text for path in STORED.glob("*.json*"))
