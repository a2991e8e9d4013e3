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
from tests.integration import counting
from tests.integration.harness import Cluster, rows_of
from tests.integration.inprocess import InProcess
from tests.integration.pair import ALL, MOVED, Pair
from tests.integration.streaming import MovingCluster, Stream

from anabranch.processor.contract import BatchTimes
from anabranch.transport.server import Server

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "anabranch"
FILES_MAX = 25

NEEDS_SPARK = {"spark/lane.py", "service.py"}
"""What calls the rest, inside Spark: here a test does."""

COLUMNAR = {"processor/columnar/engine.py"}
"""Where the walk has an aggregate, the test has the counting operator."""

VALUES = {"protocol/transactions.py", "transport/messages/lanes.py"}
"""Only values and tables: nothing of them is called by itself."""

HELPERS = re.compile(
    r"__init__|errors|model/|transport/(access|auth|client|server|codec|in_flight|parcel|packing|signs_of_life|spool|watch|wire|messages/)"
    r"|durability/(storage|frame|pages|large_pages|names|snapshot|heat|documents|patient_storage|failures)"
    r"|durability/(file_refs|manifest_content|manifest_reader|list_writer|pack)"
    r"|durability/(garbage|locks|copies|operator_file|stored_operators|differences|owner|group_restore|lazy_reader)"
    r"|processes/(crash_points|environment|worker_config|zygote)"
    r"|processor/(channel|contract|evolution|tally|task_context|user_code|columnar/|rows/)|state/"
    r"|protocol/(exhaustive|epochs|gate|arrivals|move_parts|move_orders|ownership|fleet|placement|invariants"
    r"|transaction_admission|coordinator_messages|worker_messages|residency_messages|move_queue"
    r"|move_run|move_context|lane_admission|reachability|transactions|leases)"
    r"|migration/(plan|steps|strategies/__init__)"
    r"|coordinator/(batch_watch|bindings|lane_doubts|seating|service_access|watch_server|steady_clock|maintenance|query_clock|move_request|rate_controller"
    r"|copy_rate|move_runner|move_plans|move_handle|calls|call_router|installer|user_code_monitor"
    r"|service_hosts|host_registry|location_proof|journal|journal_notes)"
    r"|worker/(busy|peers|inventory|low_priority|lookup_server|user_code|moves/(rate_limiter|forwarding|deltas"
    r"|exports|order_handler)|residency/|transactions/(deferral|group_commit))"
    r"|processes/(worker_pool|launcher)|spark/lane_(owners|host)"
)
"""What a reader need not open to follow the walk: what it says is in its name, or in the walk
beside it."""


def walk(heading: str) -> list[str]:
    """The files of a walk, in its order."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition(f"## Walk: {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([\w/.]+)`: ", section, re.MULTILINE)


@contextmanager
def traced() -> Iterator[set[str]]:
    """Files of the package in which a function is called, in any thread of this process."""
    called: set[str] = set()
    prefix = f"{SOURCE}/"

    def note(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
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


def check(files: list[str], called: set[str], beside: set[str]) -> None:
    """The walk names what is on the way, once, and everything that is."""
    assert 0 < len(files) <= FILES_MAX
    assert len(set(files)) == len(files)
    assert not [name for name in files if not (SOURCE / name).exists()]
    named = sorted(set(files) - called - beside)
    assert not named, "named, but not on the way"
    passed = sorted({name for name in called if not HELPERS.match(name)} - set(files))
    assert not passed, "on the way, but not named"


def test_one_batch(tmp_path: Path) -> None:
    """In a service with real workers, for the driver's half; in a worker of this process."""
    with traced() as called:
        with Cluster(tmp_path / "driver") as cluster:
            cluster.run_batch(0, [1, 2, 3])  # workers are up after it
            called.clear()
            cluster.run_batch(1, [1, 2, 3])
            driver = set(called)
        worker = InProcess(tmp_path / "worker", counting.Counting(), -1)
        worker.batch(rows_of([1]), BatchTimes(0, 0, 0))
        called.clear()
        worker.batch(rows_of([1, 2]), BatchTimes(0, 0, 0))
        in_worker = set(called)
        worker.close()
    check(walk("one batch"), driver | in_worker, NEEDS_SPARK | COLUMNAR | VALUES)


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
    check(walk("rescale(3)"), called, NEEDS_SPARK)
