"""What fine key groups and bins cost while nothing moves: two services, batches in turns."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from anabranch.loadtest.loaded_query import LoadedQuery, Say
from anabranch.loadtest.schedule import load_frame
from anabranch.service import StateService
from anabranch_bench.experiments.rescale_goals import SteadyCost
from anabranch_bench.runs.key_counts import counts

WARM_UP_ROUNDS = 5


@dataclass
class SteadyBench:
    """Key-count on both settings at the same time, a batch here, a batch there."""

    spark: SparkSession
    folder: Path
    workers: int
    say: Say
    keys: int = 500_000
    rows: int = 200_000
    rounds: int = 30

    def run(self) -> SteadyCost:
        """Durations of the batches of both; each first as often as the other."""
        coarsest = {"key_groups": self.workers, "bins": 1}
        with ExitStack() as stack:
            pair = [self._query(stack, "fine", {}), self._query(stack, "coarse", coarsest)]
            for query in pair:
                stack.enter_context(query)
            for query in pair:
                query.burst(self.keys, self.keys, lambda _: None)
            seconds: tuple[list[float], list[float]] = ([], [])
            for number in range(WARM_UP_ROUNDS + self.rounds):
                self.say(f"batches in turns, {number} of {WARM_UP_ROUNDS + self.rounds}")
                for side in (0, 1) if number % 2 else (1, 0):
                    (batch,) = pair[side].burst(self.rows, self.rows, lambda _: None)
                    seconds[side].append(batch.committed - batch.started)
        fine, coarse = (tuple(some[WARM_UP_ROUNDS:]) for some in seconds)
        return SteadyCost(fine, coarse)

    def _query(self, stack: ExitStack, name: str, options: dict[str, int]) -> LoadedQuery:
        folder = self.folder / f"steady-{name}"
        folder.mkdir()
        state = str(folder / "state")
        made = StateService(self.spark, state, workers=self.workers, **options)  # type: ignore[arg-type]
        service = stack.enter_context(made)

        def make(schedule: Path) -> DataFrame:
            return counts(service, load_frame(self.spark, schedule, self.keys, 0), 0)

        return LoadedQuery(make, folder, 0)
