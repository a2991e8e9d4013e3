"""What must hold: protocol invariants after every step, the oracle at every commit and delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.protocol import invariants
from anabranch.protocol.coordinator import GrantLane, WriteManifest
from anabranch.simulation.oracle import GROUPS, Outputs

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster
    from anabranch.simulation.coordinator import CoordinatorProcess
    from anabranch.simulation.store import Manifest
    from anabranch.simulation.worker import WorkerProcess


class Failure(AssertionError):
    """The cluster's result differs from the oracle's."""


class Checks:
    """All checks of one scenario."""

    __slots__ = ("cluster", "history")

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.history = invariants.History()

    # -- after every step --

    def worker_step(self, process: WorkerProcess) -> None:
        """A worker has taken an event."""
        invariants.check_worker(process.machine)
        cluster = self.cluster
        if cluster.processes.get(process.worker) is process and cluster.coordinator.is_alive:
            invariants.check_pair(
                cluster.coordinator.machine, process.worker, process.incarnation, process.machine
            )

    def coordinator_step(self, process: CoordinatorProcess) -> None:
        """The coordinator has taken an event."""
        invariants.check_coordinator(process.machine)

    def granted(self, process: CoordinatorProcess, effect: GrantLane) -> None:
        """The coordinator answers a lane."""
        invariants.check_grant(process.machine, effect)

    # -- commits and results --

    def manifest_begun(self, effect: WriteManifest) -> None:
        """A manifest is going to be written."""
        invariants.check_manifest(effect, GROUPS)
        self.history.check(effect)

    def manifest_landed(self, manifest: Manifest) -> None:
        """An epoch exists: its state, from the store alone, is the oracle's."""
        restored = self.cluster.store.restore_all(manifest.epoch)
        expected = self.cluster.oracle.states[manifest.epoch]
        if restored != expected:
            raise Failure(f"state of batch {manifest.epoch}: {_differences(restored, expected)}")

    def delivered(self, epoch: int, outputs: dict[int, Outputs]) -> None:
        """Spark gives the outputs of a batch to the sink."""
        expected = self.cluster.oracle.outputs[epoch]
        given = [outputs.get(group) for group in range(GROUPS)]
        if given != expected:
            raise Failure(f"outputs of batch {epoch}: {_differences(given, expected)}")

    def at_end(self) -> None:
        """Nothing runs any more."""
        cluster = self.cluster
        if cluster.driver.is_refused:
            return  # an incomplete batch was found, as it must be
        last = len(cluster.oracle.batches) - 1
        if cluster.driver.committed != last:
            raise Failure(f"stuck at batch {cluster.driver.epoch}: nothing is left to happen")
        restored = cluster.store.restore_all(last)
        if restored != cluster.oracle.states[last]:
            raise Failure(f"last state: {_differences(restored, cluster.oracle.states[last])}")


def _differences(given: object, expected: object) -> str:
    assert isinstance(given, list)
    assert isinstance(expected, list)
    return "; ".join(
        f"key group {group} is {got}, must be {want}"
        for group, (got, want) in enumerate(zip(given, expected, strict=True))
        if got != want
    )
