"""Retraining: models from history, for a start and then again and again in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from anabranch.workloads.riotbench.models import KINDS, Trained, train
from anabranch.workloads.riotbench.modelstore import ModelStore
from anabranch.workloads.riotbench.mqtt import Address, Subscription
from anabranch.workloads.riotbench.observations import ParseFeatures, as_matrix
from anabranch.workloads.riotbench.streams import Messages
from anabranch.workloads.riotbench.training import MODEL_TOPIC, announce

ROWS = 2000
_POLL_SECONDS = 0.2


class Retraining:
    """Keeps a model store up to date while a query runs."""

    def __init__(
        self,
        stream: Messages,
        store: ModelStore,
        broker: Address | None = None,
        seconds: float | None = None,
    ) -> None:
        """Every so many `seconds`, or, without them, only for the models to start from."""
        # What was sent before: the same sensors on another day.
        self._history = replace(stream, seed=stream.seed + 1)
        self._store = store
        self._broker = broker
        self._seconds = seconds

    def train(self, number: int) -> list[Trained]:
        """Models of the n-th piece of history; not yet in the store."""
        dataset = self._history.dataset
        events = self._history.between(number * ROWS, (number + 1) * ROWS)
        rows = ParseFeatures(dataset)(pa.Table.from_batches([events]))
        features = as_matrix(rows.column("features"), len(dataset.features))
        return train(dataset, number, np.asarray(features))

    def start(self, is_needed: Callable[[], bool]) -> None:
        """Have current models, and go on for as long as `is_needed` says so."""
        if set(self._store.current()) != set(KINDS):
            for trained in self.train(0):
                self._store.upload(trained)
                self._store.activate(trained.name)
        if self._broker or self._seconds:
            threading.Thread(target=self._run, args=(is_needed,), daemon=True).start()

    def _run(self, is_needed: Callable[[], bool]) -> None:
        subscription = None
        if self._broker:
            subscription = Subscription(self._broker, MODEL_TOPIC, self._store.activate)
        wait = threading.Event()
        number, waited = 1, 0.0
        while is_needed():
            wait.wait(_POLL_SECONDS)
            waited += _POLL_SECONDS
            if self._seconds and waited >= self._seconds:
                for trained in self.train(number):
                    announce(self._store, self._broker, trained)
                number, waited = number + 1, 0.0
        if subscription:
            subscription.close()
