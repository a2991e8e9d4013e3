"""The remote store: changelog files, a manifest per epoch, restore as of an epoch from these."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.model.ids import Epoch
from anabranch.protocol.coordinator import WriteManifest
from anabranch.protocol.epochs import TransactionReport
from anabranch.simulation.oracle import GROUPS, Changes, KeyStates, merge


class NotRestorable(Exception):
    """A manifest or a file that a restore needs is not there."""


@dataclass(frozen=True, slots=True)
class SimulatedManifest:
    """Lists every file that counts for the state as of an epoch, oldest layer first."""

    epoch: int
    base: int | None
    layers: tuple[tuple[TransactionReport, ...], ...]


class Store:
    """What outlives every process."""

    __slots__ = ("files", "first", "manifests", "query_id")

    def __init__(self) -> None:
        self.files: dict[str, dict[int, Changes]] = {}
        self.manifests: dict[int, SimulatedManifest] = {}
        self.query_id: str | None = None
        self.first: Epoch | None = None

    def prepare(self, effect: WriteManifest) -> SimulatedManifest:
        """The manifest to write: the base's files and the epoch's own."""
        layers: tuple[tuple[TransactionReport, ...], ...] = ()
        if effect.base is not None:
            layers = self._manifest(effect.base).layers
        return SimulatedManifest(effect.epoch, effect.base, (*layers, effect.transactions))

    def restore(self, group: int, as_of: int | None) -> KeyStates:
        """A key group as of an epoch: the fold of the files that the manifest lists for it."""
        state: KeyStates = {}
        if as_of is None:
            return state
        for layer in self._manifest(as_of).layers:
            for report in layer:
                if report.changelog is not None and group in report.groups:
                    changes = self.files.get(report.changelog)
                    if changes is None:
                        raise NotRestorable(f"file {report.changelog} is missing")
                    state = merge(state, changes.get(group, {}))
        return state

    def restore_all(self, as_of: int | None) -> list[KeyStates]:
        """Every key group as of an epoch."""
        return [self.restore(group, as_of) for group in range(GROUPS)]

    def latest(self) -> tuple[int | None, int | None]:
        """The last epoch that exists and the one it was built on."""
        if not self.manifests:
            return None, None
        last = max(self.manifests)
        return last, self.manifests[last].base

    def _manifest(self, epoch: int) -> SimulatedManifest:
        manifest = self.manifests.get(epoch)
        if manifest is None:
            raise NotRestorable(f"epoch {epoch} has no manifest")
        return manifest
