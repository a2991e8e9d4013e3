"""Runs from a file: what `RunSet.to_json` wrote, as the runs that it was written of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from anabranch.loadtest.latency import Timeline, TimeWindow
from anabranch_bench.probes.machine import CoreShares
from anabranch_bench.results.cases import Case
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.loads import RunLoad
from anabranch_bench.results.run_result import Controls, MeasuredMove, Replication, RunResult
from anabranch_bench.workloads.verify import Verification

Told = Mapping[str, Any]


def runs_from_json(stored: Iterable[Told], loads: Iterable[RunLoad] = ()) -> RunSet:
    """All runs, under these loads where they are among them."""
    known = {_load_key(load): load for load in loads}
    timelines: dict[Any, Timeline] = {}
    runs = []
    for told in stored:
        run = _run(told)
        run.load = known.get(_load_key(run.load), run.load)
        if run.timeline is not None:
            # A run that counts in two parts is one run.
            key = (run.label, run.repeat, run.controls, tuple(run.timeline.batches))
            run.timeline = timelines.setdefault(key, run.timeline)
        runs.append(run)
    return RunSet(runs)


def _load_key(load: RunLoad) -> tuple[Any, ...]:
    return load.name, load.about, load.rate, load.keys, load.payload_bytes


def _run(told: Told) -> RunResult:
    load = RunLoad(
        told["workload"], told["rate"], told["about"], told["keys"], told["payload_bytes"]
    )
    capacity, window, cores = (
        told[name] for name in ("warm_up_rows_per_second", "move_window", "cores")
    )
    return RunResult(
        load=load,
        case=Case.parse(told["strategy"]),
        repeat=told["repeat"],
        part=told["part"],
        controls=Controls[told["controls"]],
        settle=told["settle"],
        timeline=Timeline.from_json(told["timeline"]) if told["timeline"] else None,
        moves=[MeasuredMove(TimeWindow(**window), told["report"])] if window else [],
        rows=told["rows"],
        output_rows=told["output_rows"],
        capacity=math.nan if capacity is None else capacity,
        replication=Replication(**told["replication"]) if told["replication"] else None,
        verifications=[_verification(verdict) for verdict in told["verdicts"]],
        peers=told["peer_connections"],
        peer_samples=told["peer_samples"],
        cores=CoreShares(**cores) if cores else CoreShares(),
        written_a_second=told["written_per_second"],
        error=told["error"] or "",
    )


def _verification(told: Told) -> Verification:
    return Verification(
        told["output"],
        told["expected_rows"],
        told["found_rows"],
        tuple(told["differences"]),
        told["wrong_rows"],
    )
