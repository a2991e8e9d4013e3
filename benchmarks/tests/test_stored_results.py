"""Pictures of the documentation are of runs that the repository has."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.demo import DemoRun
from anabranch.loadtest.picture_source import sha256_of, source_of
from anabranch.loadtest.scaled_run import ScaledRun
from anabranch_bench.experiments import observe
from anabranch_bench.experiments.autoscale import best_static
from anabranch_bench.experiments.encryption import Turn, cells
from anabranch_bench.experiments.evaluation import Evaluation
from anabranch_bench.experiments.evaluation_report import from_json
from anabranch_bench.experiments.many_workers import SizeCost
from anabranch_bench.experiments.rescale_findings import RescaleFindings
from anabranch_bench.probes.state_memory import KINDS, an_entry

ROOT = Path(__file__).parents[2]
STORED = ROOT / "benchmarks" / "results"
IMAGES = sorted((ROOT / "docs" / "images").rglob("*.png"))
PICTURES = [path for path in IMAGES if not path.name.startswith("page-")]
"""Those of measurements; the others are screenshots of the page."""
MANY = {"many-before.jsonl": "before", "many-after.jsonl": "after"}
MORE_OF_MANY = [
    f"many-{way}.jsonl" for way in ("read-early", "read-late", "told-after", "told-before")
]


def row_of(cells: Sequence[str], page: str = "results.md") -> list[str]:
    """The rows of a page's tables that have these cells next to each other."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    wanted = f"| {' | '.join(cells)} |"
    return [line for line in lines if wanted in line]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: str(path.name))
def test_every_picture_is_drawn_from_its_raw_runs(picture: Path) -> None:
    """From a file of the picture's name, or of the folder that it is in, as it is stored now."""
    names = [picture.stem, picture.parent.name]
    stored = [STORED / f"{name}.{kind}" for name in names for kind in ("json", "jsonl")]
    files = [file for file in stored if file.exists()]
    shown = picture.relative_to(ROOT)
    assert files, f"no raw runs of {shown}: draw it with --from only"
    sources = [sha256_of(file) for file in files]
    assert source_of(picture) in sources, f"{shown} was drawn from other runs: draw it with --from"


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


def lines_of(name: str, benchmark: str) -> list[dict[str, Any]]:
    """Results of a file of lines; the first line says of what, on what and when they were made."""
    text = (STORED / name).read_text(encoding="utf-8")
    head, *lines = map(json.loads, text.splitlines())
    assert head["benchmark"] == benchmark
    assert {"made", "load_average", "cores"} <= head["machine"].keys()
    assert lines
    return lines


def test_there_is_a_test_of_each_file_of_lines() -> None:
    known = [*MANY, *MORE_OF_MANY, "many-40.jsonl", "encryption.jsonl", "observe.jsonl"]
    known += ["autoscale.jsonl", "cluster.jsonl", "hosts.jsonl", "state-memory.jsonl"]
    assert sorted(path.name for path in STORED.glob("*.jsonl")) == sorted(known)


@pytest.mark.parametrize("name", MORE_OF_MANY)
def test_more_runs_with_many_workers_can_be_read(name: str) -> None:
    assert all(SizeCost.from_json(line).batches for line in lines_of(name, "many"))


def test_runs_of_the_autoscaler_can_be_read() -> None:
    lines = lines_of("autoscale.jsonl", "autoscale")
    assert not [run for line in lines if (run := ScaledRun.from_json(line["run"])).wrong]


@pytest.mark.parametrize("name", sorted(MANY))
def test_the_table_of_many_workers_is_of_these_runs(name: str) -> None:
    found = [SizeCost.from_json(line) for line in lines_of(name, "many")]
    rows = [one.cells() for one in found]
    assert [cells for cells in rows if not row_of([MANY[name], *cells[2:]])] == []
    assert all(row_of([size, owners, "before"]) for size, owners, *_ in rows)


def test_forty_batches_with_many_workers() -> None:
    (one,) = (SizeCost.from_json(line) for line in lines_of("many-40.jsonl", "many"))
    assert len(one.batches) == 40
    full = [round(b.commit_ms) for b in one.batches if b.commit_ms > 2 * median_commit(one)]
    assert full == [24, 35, 59], "the text has these"


def median_commit(cost: SizeCost) -> float:
    return statistics.median(batch.commit_ms for batch in cost.batches)


def test_the_table_of_encryption_is_of_these_runs() -> None:
    found = [Turn.from_json(line) for line in lines_of("encryption.jsonl", "encryption")]
    for kind, name in (("plain", "plain"), ("tls", "TLS")):
        assert row_of([name, *cells(found, kind)])


def test_the_table_of_observing_is_of_these_runs() -> None:
    cost, *lines = lines_of("observe.jsonl", "observe")
    assert cost["note_us"] < 1000, "a note of a batch costs less than a millisecond"
    turns = [observe.ObservedTurn.from_json(line) for line in lines]
    assert all(row_of([kind, *observe.cells(turns, kind)]) for kind in observe.KINDS)


def test_the_table_of_the_autoscaler_is_of_these_runs() -> None:
    runs = [ScaledRun.from_json(line["run"]) for line in lines_of("autoscale.jsonl", "autoscale")]
    assert not any(run.wrong for run in runs)
    shown = {run.name: run for run in runs}
    for name, told in (("autoscaler", "autoscaler"), ("threshold", "threshold rule")):
        run = shown[name]
        cells = [told, f"{100 * run.late_share:.1f}%", f"{run.worker_seconds:,.0f}"]
        assert row_of([*cells, str(run.actions)], "autoscaling.md")
    best = best_static(runs)
    assert best is not None
    late = f"{100 * best.late_share:.1f}%"
    assert row_of(
        [f"{best.name}, the best one", late, f"{best.worker_seconds:,.0f}"], "autoscaling.md"
    )


def test_the_table_of_memory_is_of_these_runs() -> None:
    lines = lines_of("state-memory.jsonl", "state_memory")
    assert [line["kind"] for line in lines] == list(KINDS)
    for line in lines:
        size = an_entry(line)
        assert row_of([f"`{line['kind']}`", size["counted"], size["resident"]], "operations.md")


def test_the_documents_name_every_stored_result() -> None:
    text = (STORED / "README.md").read_text(encoding="utf-8")
    assert all(f"`{path.name}`" in text for path in STORED.glob("*.json*"))
