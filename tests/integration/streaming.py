"""A stream of batches that runs beside a test; every batch is compared with the oracle's."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from types import TracebackType

from anabranch.runtime.reconfigurable import Reconfigurable
from anabranch.runtime.reconfigurer import Reconfigurer
from tests.integration.harness import Cluster, Oracle


class MovingCluster(Cluster, Reconfigurable):
    """A cluster that can be reconfigured as a service can."""

    def _reconfigurer(self) -> Reconfigurer:
        return self.coordinator.moves

    def workers(self) -> dict[str, int]:
        """Key groups of each worker."""
        status = self.coordinator.status()["workers"]
        return {name: worker["key_groups"] for name, worker in status.items()}


def keys_of(epoch: int, count: int = 400, space: int = 300) -> list[int]:
    """Keys of a batch; the same every time."""
    chance = random.Random(epoch)
    return [chance.randrange(space) for _ in range(count)]


class Stream:
    """Batch after batch in a thread, as Spark would run them."""

    def __init__(self, cluster: Cluster, lanes: int = 2, pause_seconds: float = 0.02) -> None:
        self.cluster = cluster
        self.oracle = Oracle()
        self.epoch = 0
        self._lanes = lanes
        self._pause = pause_seconds
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="test-stream", daemon=True)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(60)
        if self._error is not None:
            raise self._error
        assert error is not None or not self._thread.is_alive(), "a batch hangs"

    def batches(self, count: int, seconds_max: float = 60) -> None:
        """Wait until so many more batches have run."""
        wanted = self.epoch + count
        self.until(lambda: self.epoch >= wanted, seconds_max)

    def until(self, condition: Callable[[], bool], seconds_max: float = 60) -> None:
        """Wait for something while batches go on."""
        limit = time.monotonic() + seconds_max
        while not condition():
            if self._error is not None:
                raise self._error
            assert time.monotonic() < limit, f"no progress at batch {self.epoch}"
            time.sleep(0.01)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                keys = keys_of(self.epoch)
                found = self.cluster.run_batch(self.epoch, keys, self._lanes)
                expected = self.oracle.run_batch(keys)
                assert found == expected, f"batch {self.epoch}: {_difference(found, expected)}"
                self.epoch += 1
                self._stopping.wait(self._pause)
        except BaseException as error:
            self._error = error


def _difference(found: dict[int, int], expected: dict[int, int]) -> str:
    keys = sorted(found.keys() | expected.keys())
    wrong = [(k, found.get(k), expected.get(k)) for k in keys if found.get(k) != expected.get(k)]
    return f"{len(wrong)} of {len(keys)} keys differ (key, found, expected): {wrong[:5]}"
