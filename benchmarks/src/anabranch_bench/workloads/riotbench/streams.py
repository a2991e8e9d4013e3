"""The four streams, synthesised: message i is a pure function of seed and i."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.riotbench.datasets import DATASETS, Dataset
from anabranch_bench.workloads.riotbench.draws import Draws, Floats, Ints
from anabranch_bench.workloads.riotbench.senml import build_senml
from anabranch_bench.workloads.riotbench.sensors import FOREIGN_IDS, Sensors
from anabranch_bench.workloads.riotbench.values import VALUES

MESSAGES = pa.schema([pa.field("id", pa.int64()), pa.field("message", pa.string())])

DAY_MS = 86_400_000
FOREIGN_SHARE = 0.01
"""Messages with an id that nobody knows, for the Bloom filter to find."""
_SWING = 0.6
"""How much the rate rises and falls around its mean."""
_TAXI_FAVOUR = 1.3


@dataclass(frozen=True)
class Messages:
    """A stream of SenML messages (the `events` of a workload)."""

    dataset: Dataset
    seed: int = 7
    sensors: int | None = None
    """Number of known ids; None: as many as the real deployment."""

    def __post_init__(self) -> None:
        if self.sensors is not None and self.sensors < 1:
            raise InvalidArgument(f"A stream needs at least one sensor, not {self.sensors}.")

    @property
    def schema(self) -> Any:
        """Message number and text."""
        return MESSAGES

    @property
    def count(self) -> int:
        """Known ids."""
        return self.sensors or self.dataset.sensors

    @property
    def known(self) -> Sensors:
        """Who sends, and what is known about each."""
        return Sensors.of(self.dataset.name, self.count, self.seed)

    def between(self, first: int, end: int) -> Any:
        """Messages [first, end)."""
        ids = np.arange(first, end, dtype=np.int64)
        columns = self.columns(ids)
        at_ms = self.at_ms(ids)
        texts = build_senml(self.dataset, at_ms, columns)
        return pa.record_batch([pa.array(ids), texts], schema=MESSAGES)

    def columns(self, ids: Ints) -> dict[str, Any]:
        """Every column but the base time, as texts, in the order of the data set."""
        draws = Draws(self.seed)
        sender = self._sender(ids, draws)
        foreign = draws.uniform("foreign", ids) < FOREIGN_SHARE
        stranger = draws.below("stranger", ids, FOREIGN_IDS)
        names = self.known.ids.take(pa.array(sender))
        others = self.known.foreign.take(pa.array(stranger))
        made = VALUES[self.dataset.name](draws, ids, sender, self.at_ms(ids))
        made[self.dataset.id_field] = pc.if_else(pa.array(foreign), others, names)
        return {name: _text(made[name]) for name in self.dataset.columns if name in made}

    def at_ms(self, ids: Ints) -> Ints:
        """Event times; they never go back."""
        days = ids / (self.dataset.native_rate * DAY_MS / 1000)
        ms = (_time_of_share(self.dataset.peaks, days) * DAY_MS).astype(np.int64)
        grain = self.dataset.grain_ms
        return self.dataset.start_ms + ms // grain * grain

    def _sender(self, ids: Ints, draws: Draws) -> Ints:
        """Taxis: some drive more. Everybody else reports once in each round."""
        if self.dataset.name == "taxi":
            return (draws.uniform("taxi", ids) ** _TAXI_FAVOUR * self.count).astype(np.int64)
        turn, place = np.divmod(ids, self.count)
        return (place + draws.below("turn", turn, self.count)) % self.count


@functools.cache
def _calendar(peaks: int) -> tuple[Floats, Floats]:
    """Share of a day's messages that are sent up to a time of the day (both in [0, 1])."""
    time = np.linspace(0.0, 1.0, 4097)
    turns = 2.0 * np.pi * max(peaks, 1)
    swing = _SWING if peaks else 0.0
    return time - swing * np.sin(turns * time) / turns, time


def _time_of_share(peaks: int, days: Floats) -> Floats:
    sent, time = _calendar(peaks)
    whole = np.floor(days)
    found: Floats = whole + np.interp(days - whole, sent, time)
    return found


def _text(column: Any) -> Any:
    return column if isinstance(column, pa.Array) else pa.array(column).cast(pa.string())


def find_messages(name: str, sensors: int | None = None) -> Messages:
    """The usual stream of a data set."""
    return Messages(DATASETS[name], sensors=sensors)
