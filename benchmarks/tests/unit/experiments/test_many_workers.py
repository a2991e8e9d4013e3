"""The measuring program for many workers, at sizes that take no time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.main import main
from anabranch.durability.blobs import BlobStore
from anabranch.durability.store import StateStore
from anabranch.transport.codec import decode
from anabranch.transport.messages.lanes import LaneGrant
from anabranch_bench.experiments.many_workers import Size, SizeCost, measure, started
from anabranch_bench.probes.counted_objects import CountedObjects


@pytest.mark.parametrize("folder", [False, True])
def test_batches_run_and_are_counted(folder: bool) -> None:
    cost = measure(Size(4, 3, 16), 3, folder, lambda _: None)
    assert len(cost.batches) == 3
    assert cost.owners == 4
    for batch in cost.batches:
        assert len(batch.begin_us) == 3
        assert len(batch.finish_us) == 2
        if not folder:
            assert batch.requests["PUT manifests"] == 1
            assert batch.manifest_bytes > 100
    assert SizeCost.from_json(json.loads(json.dumps(cost.to_json()))) == cost
    assert "4 workers, 3 lanes, 16 key groups" in str(cost)


def test_a_lane_that_costs_too_much_misses_the_goal() -> None:
    cost = measure(Size(2, 2, 4), 1, False, lambda _: None)
    assert cost.meets_goal
    cost.batches[0] = replace(cost.batches[0], begin_us=[5001, 5001])
    assert not cost.meets_goal


def test_the_command_shows_stored_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["bench", "many", "--sizes", "2/2/4", "--batches", "1", "--json"]) == 0
    stored = tmp_path / "many.json"
    stored.write_text(capsys.readouterr().out)
    assert main(["bench", "many", "--from", str(stored)]) == 0
    assert "2 workers, 2 lanes, 4 key groups" in capsys.readouterr().out
    assert main(["bench", "many", "--sizes", "2/2"]) != 0


def test_requests_are_counted_as_a_store_bills_them() -> None:
    objects = CountedObjects()
    for number in range(1001):
        with objects.open_output_stream(f"bucket/changelog/{number}") as stream:
            stream.write(b"12")
    assert objects.requests["PUT changelog"] == 1001
    assert objects.bytes_put["changelog"] == 2002
    from pyarrow import fs

    assert len(objects.get_file_info(fs.FileSelector("bucket/changelog"))) == 1001
    assert objects.requests["LIST changelog"] == 2


def operations(call: Callable[[], object]) -> int:
    """How many instructions of Python a call takes in this thread: the same in each run."""
    counted = 0

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal counted
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counted += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return counted


def work(size: Size) -> tuple[int, int, int]:
    """For one lane: its begin, its finish, and its share of the commit of a later batch."""
    with (
        StateStore(BlobStore((CountedObjects(), "bucket"))).open() as store,
        started(store, size) as service,
    ):
        for epoch in range(3):
            service.run_batch(epoch, CountedObjects())
        requests = [service.begin(3, lane) for lane in range(size.lanes)]
        answers = [service.timed(request)[1] for request in requests[1:]]
        begin = operations(lambda: answers.insert(0, service.timed(requests[0])[1]))
        written = service.written(3, [decode(LaneGrant, answer) for answer in answers])
        finishes = [service.finish(3, lane, done) for lane, done in enumerate(written)]
        finish = operations(lambda: service.timed(finishes[0]))
        for request in finishes[1:-1]:
            service.timed(request)
        commit = operations(lambda: service.timed(finishes[-1]))
        return begin, finish, commit // size.lanes


def test_a_lane_costs_the_same_among_ten_times_as_many() -> None:
    """Counts, not times. Each lane has 32 key groups of one owner."""
    few, many = work(Size(16, 16, 512)), work(Size(160, 160, 5120))
    for cost_of_few, cost_of_many in zip(few, many, strict=True):
        assert cost_of_few > 100
        assert cost_of_many <= 1.1 * cost_of_few
