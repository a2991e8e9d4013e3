"""The walks of docs/ARCHITECTURE.md: every file that they name is on the way, and no other."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.integration import operators
from tests.integration.harness import Cluster
from tests.integration.inprocess import InProcess
from tests.integration.pair import ALL, MOVED, Pair
from tests.integration.streaming import MovingCluster, Stream

from anabranch.transport.server import Server

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "anabranch"
FILES_MAX = 25

NEEDS_SPARK = {"service.py"}
"""What users hold: here a test calls what it calls."""

# What a reader need not open to follow a walk: what it says is in its name, or in a step beside it.

ON_EVERY_WAY = {
    # of calls and rows between processes
    "coordinator/call_router.py",
    "processes/crash_points.py",
    "processes/worker_config.py",
    "spark/lane_owners.py",
    "transport/access.py",
    "transport/auth.py",
    "transport/codec.py",
    "transport/in_flight.py",
    "transport/messages/control.py",
    "transport/messages/kinds.py",
    "transport/messages/names.py",
    "transport/signs_of_life.py",
    "transport/spool.py",
    "transport/watch.py",
    # of files
    "durability/differences.py",
    "durability/documents.py",
    "durability/file_refs.py",
    "durability/frame.py",
    "durability/heat.py",
    "durability/large_pages.py",
    "durability/list_writer.py",
    "durability/manifest_content.py",
    "durability/names.py",
    "durability/operator_file.py",
    "durability/owner.py",
    "durability/pack.py",
    "durability/pages.py",
    "durability/storage.py",
    # values
    "model/batch_times.py",
    "model/keyspace.py",
    "model/routing.py",
    "model/stats.py",
    "processor/contract.py",
    "protocol/arrivals.py",
    "protocol/coordinator_messages.py",
    "protocol/worker_messages.py",
    # of the coordinator, and of its decisions
    "coordinator/bindings.py",
    "coordinator/journal_notes.py",
    "coordinator/lane_doubts.py",
    "coordinator/maintenance.py",
    "coordinator/service_hosts.py",
    "coordinator/steady_clock.py",
    "coordinator/useful_time.py",
    "protocol/epochs.py",
    "protocol/ownership.py",
    "protocol/reachability.py",
    "protocol/transaction_admission.py",
    # of the worker, around the operator
    "processor/channel.py",
    "processor/tally.py",
    "processor/task_context.py",
    "processor/user_code.py",
    "state/channel.py",
    "worker/busy.py",
    "worker/transactions/group_commit.py",
    "worker/user_code.py",
}

BESIDE_A_BATCH = {
    # moves ask whether a batch runs
    "coordinator/move_handle.py",
    "coordinator/move_runner.py",
    "processes/worker_pool.py",
    "protocol/move_queue.py",
    "worker/moves/deltas.py",
    # of the aggregate: its functions, and its state as arrays
    "processor/columnar/aggregates.py",
    "processor/columnar/api.py",
    "processor/columnar/kernels.py",
    "processor/columnar/late.py",
    "processor/columnar/returned.py",
    "state/backend.py",
    "state/columnar/compare.py",
    "state/columnar/grouping.py",
    "state/columnar/index.py",
    "state/columnar/keyed.py",
    "state/columnar/layout.py",
    "state/columnar/table.py",
    "state/columnar/values.py",
}

BESIDE_A_RESCALE = {
    # of the request and its plan
    "coordinator/move_plans.py",
    "coordinator/move_request.py",
    "coordinator/seating.py",
    "migration/plan.py",
    "migration/steps.py",
    "migration/strategies/__init__.py",
    "protocol/move_context.py",
    "protocol/move_orders.py",
    "protocol/move_parts.py",
    "protocol/placement.py",
    # of orders and copies
    "coordinator/batch_watch.py",
    "coordinator/calls.py",
    "coordinator/copy_rate.py",
    "coordinator/rate_controller.py",
    "transport/messages/orders.py",
    "transport/messages/state.py",
    "transport/parcel.py",
    "worker/moves/rate_limiter.py",
    "worker/peers.py",
    # of the new process
    "coordinator/installer.py",
    "coordinator/service_access.py",
    "durability/stored_operators.py",
    "processes/zygote_client.py",
    "state/access.py",
    "transport/messages/deaths.py",
    # of what is here and what is not
    "durability/group_restore.py",
    "protocol/residency_messages.py",
    "worker/residency/snapshot_policy.py",
    "worker/residency/store_loader.py",
}

NOW_AND_THEN = {
    # a call that fails is made again
    "errors.py",
    "model/ids.py",
    "spark/lane_host.py",
    "transport/certificate_errors.py",
    "transport/parcel.py",
    "transport/wire.py",
    # by the clock, or after so many batches
    "coordinator/few_threads.py",
    "model/ownership.py",
    "coordinator/user_code_monitor.py",
    "coordinator/watch_server.py",
    "durability/garbage.py",
    "durability/snapshot.py",
    "worker/low_priority.py",
    "worker/residency/settling.py",
    "worker/residency/snapshots.py",
    # rows that reach the old owner, or come before their state
    "worker/moves/forwarding.py",
    "worker/transactions/deferral.py",
    "worker/transactions/relay.py",
}
"""On the way by chance, on a busy machine more often."""


def walk(heading: str) -> list[str]:
    """The files of a walk, in its order."""
    return re.findall(r"^\d+\. `([\w/.]+)`: ", section(heading), re.MULTILINE)


def section(heading: str) -> str:
    """A walk as the document has it."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return text.partition(f"## Walk: {heading}\n")[2].partition("\n## ")[0]


@contextmanager
def traced() -> Iterator[set[str]]:
    """Files of the package in which a function is called, in any thread of this process."""
    called: set[str] = set()
    prefix = f"{SOURCE}/"

    def note(frame: FrameType, event: str, _: Any) -> None:
        # Of the module, not of the code: a dataclass's __init__ comes from no file.
        name = frame.f_globals.get("__file__") or ""
        if event == "call" and name.startswith(prefix):
            called.add(name.removeprefix(prefix))

    def in_server(name: str) -> Callable[..., Any]:
        serve = getattr(Server, name)

        def watched(self: Server, *arguments: Any) -> Any:
            sys.setprofile(note)  # Arrow's threads, which Python has not started
            return serve(self, *arguments)

        return watched

    threading.setprofile(note)
    sys.setprofile(note)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("do_action", "do_exchange"):
            patch.setattr(Server, name, in_server(name))
        try:
            yield called
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def check(heading: str, called: set[str], helpers: set[str]) -> None:
    """The walk and its helpers are what is on the way: nothing is missing, nothing too much."""
    files = walk(heading)
    assert 0 < len(files) <= FILES_MAX
    assert len(set(files)) == len(files)
    known = set(files) | helpers | NOW_AND_THEN
    assert not [name for name in sorted(known) if not (SOURCE / name).exists()]
    assert not set(files) & (helpers | NOW_AND_THEN), "in the walk, and passed over"
    assert sorted(set(files) - called - NEEDS_SPARK) == [], "named, but not on the way"
    assert not NEEDS_SPARK & called, "a test calls it: it need not be excepted"
    assert sorted(helpers - called) == [], "passed over, but not on the way"
    assert sorted(called - known) == [], "on the way, but not named"
    mentioned = set(re.findall(r"`(?!tests/)([\w/]+\.py)`", section(heading)))
    assert sorted(mentioned - set(files) - helpers) == [], "mentioned, but not on the way"


def test_one_batch(tmp_path: Path) -> None:
    """In a service with real workers, for the driver's half; in a worker of this process."""
    with traced() as called:
        with Cluster(tmp_path / "driver") as cluster:
            cluster.run_batch(0, [1, 2, 3])  # workers are up after it
            called.clear()
            cluster.run_batch(1, [1, 2, 3])
            driver = set(called)
        case = operators.make_case("windows")
        worker = InProcess(tmp_path / "worker", case.definition, -1)
        worker.batch(case.rows(0).to_batches()[0], case.times(0))
        called.clear()
        worker.batch(case.rows(1).to_batches()[0], case.times(1))
        in_worker = set(called)
        worker.close()
    check("one batch", driver | in_worker, ON_EVERY_WAY | BESIDE_A_BATCH)


@pytest.mark.slow
def test_a_rescale(tmp_path: Path) -> None:
    with traced() as called:
        with MovingCluster(tmp_path / "driver") as cluster, Stream(cluster):
            called.clear()
            assert cluster.rescale(3).wait(60)
            driver = set(called)
        with Pair(tmp_path / "workers") as pair:
            called.clear()
            pair.w1.exchange(0, ALL, 1)
            pair.order(pair.w2, "copy", 2)
            pair.w1.exchange(1, ALL, 1)
            pair.flip()
            pair.w2.exchange(2, [MOVED], 6)
            pair.flip()
            pair.order(pair.w2, "import", 6)
            workers = set(called)
    # Batches run beside the move.
    called = (driver | workers) - (set(walk("one batch")) - set(walk("rescale(3)")))
    check("rescale(3)", called, ON_EVERY_WAY | BESIDE_A_RESCALE)
