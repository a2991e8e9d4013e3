"""Retraining: models from history, for a start and then again and again in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from anabranch.errors import AnabranchError
from anabranch_bench.workloads.riotbench.models import KINDS, Trained, parse_name, train
from anabranch_bench.workloads.riotbench.modelstore import ModelStore
from anabranch_bench.workloads.riotbench.mqtt import Address, Subscription
from anabranch_bench.workloads.riotbench.observations import ParseFeatures, as_matrix
from anabranch_bench.workloads.riotbench.streams import Messages
from anabranch_bench.workloads.riotbench.training import MODEL_TOPIC, announce

_log = logging.getLogger("anabranch.riotbench")

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
        self._dataset = stream.dataset
        self._store = store
        self._broker = broker
        self._seconds = seconds

    def upload(self, piece: int) -> Sequence[Trained]:
        """Models of the n-th piece of history, newer than all in the store; nobody knows them."""
        events = self._history.between(piece * ROWS, (piece + 1) * ROWS)
        rows = ParseFeatures(self._dataset)(pa.Table.from_batches([events]))
        features = as_matrix(rows.column("features"), len(self._dataset.features))
        made = partial(train, self._dataset, features=np.asarray(features))
        return self._store.upload_next(self._dataset.name, made)

    def start(self, is_needed: Callable[[], bool]) -> None:
        """Have current models, and go on for as long as `is_needed` says so."""
        if set(self._store.current(self._dataset.name)) != set(KINDS):
            for trained in self.upload(0):
                self._store.activate(trained.name)
        if self._broker or self._seconds:
            threading.Thread(target=self._run, args=(is_needed,), daemon=True).start()

    def _run(self, is_needed: Callable[[], bool]) -> None:
        with ExitStack() as stack:
            if self._broker:
                stack.enter_context(Subscription(self._broker, MODEL_TOPIC, self._hear))
            wait = threading.Event()
            piece, waited = 1, 0.0
            while is_needed():
                wait.wait(_POLL_SECONDS)
                waited += _POLL_SECONDS
                if self._seconds and waited >= self._seconds:
                    self._retrain(piece, is_needed)
                    piece, waited = piece + 1, 0.0

    def _retrain(self, piece: int, is_needed: Callable[[], bool]) -> None:
        """A broker that is lost does not end retraining; at the end of a run, it goes first."""
        for trained in self.upload(piece):
            try:
                announce(self._store, self._broker, trained)
            except AnabranchError as error:
                if is_needed():
                    _log.warning("Model %s was not announced: %s", trained.name, error)

    def _hear(self, name: str) -> None:
        """A model was announced; the topic has those of all data sets."""
        if parse_name(name)[0] == self._dataset.name:
            self._store.activate(name)
