"""The driver's side of `anabranch demo-cluster`: functions of the driver program."""

from __future__ import annotations

import itertools
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from anabranch.cli.demo import CUSTOMERS, WARM_UP_ROWS, Sink, compare, orders_query
from anabranch.errors import AnabranchError
from anabranch.loadtest.loaded_query import LoadedQuery
from anabranch_bench.testbed.driver_program import Stage

WARM_UP_BATCHES = 8


@dataclass
class Show:
    """A query, its sink, and its load once there is one."""

    query: LoadedQuery
    sink: Any
    load: Any = None


def begin(stage: Stage) -> dict[str, int]:
    """Start the query, and warm it up."""
    sink = Sink()
    make = orders_query(stage.spark, stage.service)
    show = stage.queries["show"] = Show(LoadedQuery(make, stage.folder, 0, sink.write), sink)
    show.query.start()
    stage.closing.callback(show.query.stop)
    show.query.burst(WARM_UP_ROWS, WARM_UP_ROWS // WARM_UP_BATCHES, lambda _: None)
    return {"rows": WARM_UP_ROWS, "customers": CUSTOMERS}


def load(stage: Stage, rate: float) -> float:
    """Rows come at this rate from now on; when that began, in seconds since the epoch."""
    show = stage.queries["show"]
    show.load = show.query.open(rate)
    started: float = show.load.started
    return started


def look(stage: Stage) -> dict[str, Any]:
    """What a user sees who watches."""
    show = stage.queries["show"]
    show.query.watch(0.0)
    last, load = show.query.batches[-1], show.load
    slowest = None
    if last.end_row > load.first_row:
        slowest = last.committed - load.intended(max(last.first_row, load.first_row))
    status = stage.service.status()
    return {
        "at": time.time() - load.started,
        "rows": last.end_row,
        "latency": slowest,
        "committed": last.committed,
        "groups": {name: worker["key_groups"] for name, worker in status["workers"].items()},
        "hosts": {
            name: {"workers": list(host["workers"]), "lost": host.get("lost")}
            for name, host in status["hosts"].items()
        },
    }


def longest_gap(stage: Stage, since: float) -> float:
    """The longest time between two commits since then (seconds since the epoch)."""
    commits = [batch.committed for batch in stage.queries["show"].query.batches]
    ends = [max([c for c in commits if c <= since], default=since)]
    ends += [c for c in commits if c > since]
    return max((b - a for a, b in itertools.pairwise(ends)), default=0.0)


def progress(stage: Stage, number: int, seconds: float) -> float | None:
    """How far a move is, after so many seconds at most; None: it is over."""
    handle = stage.handles[number]
    return None if handle.wait(seconds) else handle.progress


def words(stage: Stage, number: int) -> str:
    """The report of a move, as users see it."""
    return str(stage.handles[number].report())


def finish(stage: Stage) -> dict[str, Any]:
    """Deliver nothing more, and compare; with all batches, for the picture."""
    show = stage.queries["show"]
    show.query.drain()
    customers, wrong = compare(show.sink, show.query.next_row)
    timeline = show.query.timeline(show.load).to_json()
    with suppress(AnabranchError):
        show.query.stop()
    return {
        "rows": show.query.next_row,
        "customers": customers,
        "wrong": wrong,
        "timeline": timeline,
    }
