"""Open-loop load: every row has an intended time, fixed by a schedule, however fast the query is.

The source is told what to deliver by a small file, so that one running query can be filled, warmed
up, put under load and held without a restart. It sends ranges of row numbers only; the JVM makes
rows of them, so its cost does not grow with the rate.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from anabranch.loadtest.quiet_source import be_quiet_at_the_end

_numbers = itertools.count(1)

RANGES = 2
"""Rows that the source sends for a batch, each a range of row numbers."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Closed loop: rows up to `until_row`, `batch_rows` in each batch, as fast as the query is."""

    until_row: int
    batch_rows: int

    def end_of_batch(self, start: int, now: float) -> int:
        """One past the last row to deliver in a batch that begins now."""
        return max(start, min(start + self.batch_rows, self.until_row))


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Row i is due at `started + (i - first_row) / rate`, in seconds since the epoch."""

    first_row: int
    started: float
    rate: float

    def intended(self, row: int) -> float:
        """When a row should have been sent."""
        return self.started + (row - self.first_row) / self.rate

    def later(self, at: float) -> OpenLoop:
        """The same load, counted from its first row that is due then (seconds since the epoch)."""
        passed = max(0, math.ceil((at - self.started) * self.rate))
        return OpenLoop(self.first_row + passed, self.started + passed / self.rate, self.rate)

    def end_of_batch(self, start: int, now: float) -> int:
        """One past the last row whose time has come."""
        due = math.floor((now - self.started) * self.rate) + 1 if now >= self.started else 0
        return max(start, self.first_row + due)


@dataclass(frozen=True, slots=True)
class RateCurve:
    """An open loop whose rate changes: pieces of so many seconds at so many rows a second."""

    first_row: int
    started: float
    pieces: tuple[tuple[float, float], ...]
    """(seconds, rate); the last one goes on."""

    @property
    def seconds(self) -> float:
        """Of all pieces."""
        return sum(seconds for seconds, _ in self.pieces)

    def rate_at(self, passed: float) -> float:
        """Rows a second, so long after its beginning."""
        for seconds, rate in self.pieces:
            if passed < seconds:
                return rate
            passed -= seconds
        return self.pieces[-1][1]

    def intended(self, row: int) -> float:
        """When a row should have been sent."""
        left, passed = float(row - self.first_row), 0.0
        for seconds, rate in self.pieces:
            if left <= seconds * rate:
                return self.started + passed + (left / rate if rate else 0.0)
            left, passed = left - seconds * rate, passed + seconds
        return self.started + passed + left / max(self.pieces[-1][1], 1e-9)

    def rows_until(self, passed: float) -> float:
        """Rows that are due so long after its beginning."""
        total = 0.0
        for seconds, rate in self.pieces:
            total += min(max(0.0, passed), seconds) * rate
            passed -= seconds
        return total + max(0.0, passed) * self.pieces[-1][1]

    def end_of_batch(self, start: int, now: float) -> int:
        """One past the last row whose time has come."""
        passed = now - self.started
        due = math.floor(self.rows_until(passed)) + 1 if passed >= 0 else 0
        return max(start, self.first_row + due)


Schedule = Burst | RateCurve | OpenLoop
HOLD = Burst(0, 0)
"""Deliver nothing. Open-loop rows go on becoming due; they are late when the load goes on."""


def write_schedule(path: Path, schedule: Schedule) -> None:
    """Tell the source what to deliver from its next batch on."""
    document = {"kind": type(schedule).__name__, **asdict(schedule)}
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(document), encoding="utf-8")
    os.replace(scratch, path)


def read_schedule(path: Path) -> Schedule:
    """What `write_schedule` wrote."""
    document = json.loads(path.read_text(encoding="utf-8"))
    kind = document.pop("kind")
    if kind == "RateCurve":
        pieces = tuple((seconds, rate) for seconds, rate in document.pop("pieces"))
        return RateCurve(**document, pieces=pieces)
    return Burst(**document) if kind == "Burst" else OpenLoop(**document)


class LoadReader(SimpleDataSourceStreamReader):
    """Ranges of row numbers, as the schedule in a file has them. Offsets are row numbers."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def initialOffset(self) -> dict[str, int]:
        """Before the first row."""
        return {"row": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        """All rows that are due."""
        be_quiet_at_the_end()
        end = {"row": read_schedule(self._path).end_of_batch(start["row"], time.time())}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a batch that Spark runs again."""
        return iter(ranges(start["row"], end["row"]))


def ranges(first: int, end: int) -> list[tuple[int, int]]:
    """At most RANGES ranges (first, last) that cover [first, end)."""
    size = max(1, -(-(end - first) // RANGES))
    return [(a, min(a + size, end) - 1) for a in range(first, end, size)]


def row_numbers(spark: SparkSession, schedule: Path) -> DataFrame:
    """A stream of row numbers (`row`) that follows a schedule file."""
    # Spark looks a source up again when a query starts: each needs a name of its own.
    source = f"anabranch_load_{next(_numbers)}"
    path = str(schedule)

    class Load(DataSource):
        """Carries the path of the schedule in its closure."""

        @classmethod
        def name(cls) -> str:
            return source

        def schema(self) -> str:
            return "first long, last long"

        def simpleStreamReader(self, schema: Any) -> LoadReader:
            return LoadReader(path)

    spark.dataSource.register(Load)
    numbers = spark.readStream.format(source).load()
    return numbers.select(F.explode(F.sequence("first", "last")).alias("row"))


def load_frame(spark: SparkSession, schedule: Path, keys: int, payload_bytes: int) -> DataFrame:
    """A stream of (k, payload) that follows a schedule file.

    The first `keys` rows bring each key once with its payload; all others have no payload and keys
    drawn evenly by hash.
    """
    rows = row_numbers(spark, schedule)
    is_new = F.col("row") < keys
    drawn = F.pmod(F.xxhash64("row"), F.lit(keys))
    key = F.when(is_new, F.col("row")).otherwise(drawn).alias("k")
    if not payload_bytes:
        return rows.select(key)
    return rows.select(key, F.when(is_new, _noise(payload_bytes)).alias("payload"))


def _noise(size: int) -> Column:
    """Bytes that nothing can compress, other ones for each row: a cipher of nothing."""
    secret = F.unhex(F.md5(F.col("row").cast("string").cast("binary")))
    nothing = F.repeat(F.lit("0"), F.lit(size))
    cipher = F.aes_encrypt(nothing, secret, F.lit("CBC"), F.lit("PKCS"), F.lit(b"anabranch-bench-"))
    # It begins with the initialisation vector, which is the same in all rows.
    return F.substring(cipher, F.lit(17), F.lit(size))
