"""Checkpoint folders of Spark's queries: the last committed batch, and a copy for a new query.

A copy has the offsets, the watermark and the batch number of the old query, so that the new one
goes on where it stopped; only the state of its operators stays behind.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.errors import InvalidArgument
from anabranch.spark.ticks import TICKS, TICKS_MARK

_FIRST_TICK = '{"tick": 0}'
_FORMAT = "v1"


class Checkpoint:
    """A query's checkpoint folder, wherever Spark can read it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        jvm: Any = spark._jvm
        self._conf = spark._jsc.hadoopConfiguration()
        self._copy_all = jvm.org.apache.hadoop.fs.FileUtil.copy
        self._path_of = jvm.org.apache.hadoop.fs.Path
        self._files = self._path_of(path).getFileSystem(self._conf)

    def exists(self) -> bool:
        """Whether there is anything."""
        return bool(self._files.exists(self._at()))

    def names(self, folder: str) -> list[str]:
        """What a folder of it has, without hidden files; nothing if it is none."""
        place = self._at(folder)
        if not self._files.exists(place) or self._files.getFileStatus(place).isFile():
            return []
        found = [status.getPath().getName() for status in self._files.listStatus(place)]
        return sorted(name for name in found if not name.startswith("."))

    def text(self, name: str) -> str:
        """A file's content; empty if it is none."""
        place = self._at(name)
        is_file = self._files.exists(place) and self._files.getFileStatus(place).isFile()
        return self._read(name) if is_file else ""

    def query_id(self) -> str:
        """The query that the checkpoint belongs to."""
        if not self._files.exists(self._at("metadata")):
            raise InvalidArgument(
                f"{self.path} is not the checkpoint of a streaming query: it has no file "
                "'metadata'. Give the checkpointLocation of the old query."
            )
        return str(json.loads(self._read("metadata"))["id"])

    def committed_batch(self) -> int:
        """The last batch that Spark has committed."""
        batches = self._batches("commits")
        if not batches:
            raise InvalidArgument(
                f"The query of {self.path} has no committed batch, so it has no state. Start the "
                "new query without it."
            )
        return batches[-1]

    def offsets(self, batch: int) -> list[str | None]:
        """Where each source was after a batch; the first source first."""
        lines = self._read(f"offsets/{batch}").splitlines()
        if not lines or lines[0] != _FORMAT:
            raise InvalidArgument(
                f"The offsets in {self.path} have format {lines[0] if lines else None!r}; only "
                f"{_FORMAT!r} is known. Switch "
                "spark.sql.streaming.queryEvolution.enableSourceEvolution off in the old query."
            )
        return [None if line == "-" else line for line in lines[2:]]

    def user_offsets(self, batch: int) -> list[str | None]:
        """The same without our ticks."""
        offsets = enumerate(self.offsets(batch))
        return [offset for number, offset in offsets if not self._is_ticks(number, offset)]

    def copy_for(self, result: DataFrame, target: Checkpoint) -> None:
        """Make a checkpoint from which a query of `result` goes on where this one stopped."""
        batch = self.committed_batch()
        is_tick = _sources(result)
        count = len(self.offsets(batch))
        if is_tick.count(False) != count:
            raise InvalidArgument(
                f"The query of {self.path} had {count} sources, the new one has "
                f"{is_tick.count(False)}. Read the same sources in the same order."
            )
        try:
            # 1. Where its sources were; a batch that had begun begins again.
            for number in self._batches("offsets"):
                if number >= batch - 1:
                    target._write(f"offsets/{number}", self._with_ticks(number, is_tick))
            # 2. What the sources have noted, under their new numbers.
            for old, new in enumerate(i for i, tick in enumerate(is_tick) if not tick):
                self._copy(f"sources/{old}", target, f"sources/{new}")
            self._copy(f"commits/{batch}", target, f"commits/{batch}")
            # 3. Last: without it Spark takes the folder for a new one.
            self._copy("metadata", target, "metadata")
        except BaseException:
            target._files.delete(target._at(), True)
            raise

    def _with_ticks(self, batch: int, is_tick: list[bool]) -> str:
        old = iter(self.offsets(batch))
        lines = self._read(f"offsets/{batch}").splitlines()[:2]
        return "\n".join([*lines, *(_FIRST_TICK if tick else next(old) or "-" for tick in is_tick)])

    def _is_ticks(self, source: int, offset: str | None) -> bool:
        """Before the first tick only the mark tells; earlier releases made none."""
        if offset is not None:
            return offset.startswith('{"tick":')
        return bool(self._files.exists(self._at(f"sources/{source}/{TICKS_MARK}")))

    def _at(self, name: str = "") -> Any:
        return self._path_of(f"{self.path.rstrip('/')}/{name}" if name else self.path)

    def _batches(self, folder: str) -> list[int]:
        if not self._files.exists(self._at(folder)):
            return []
        names = [status.getPath().getName() for status in self._files.listStatus(self._at(folder))]
        return sorted(int(name) for name in names if name.isdigit())

    def _read(self, name: str) -> str:
        stream = self._files.open(self._at(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def _write(self, name: str, content: str) -> None:
        stream = self._files.create(self._at(name), False)
        try:
            stream.write(bytearray(content.encode()))
        finally:
            stream.close()

    def _copy(self, name: str, target: Checkpoint, new_name: str) -> None:
        if self._files.exists(self._at(name)):
            place = target._at(new_name)
            target._files.mkdirs(place.getParent())
            self._copy_all(self._files, self._at(name), target._files, place, False, self._conf)


def _sources(result: DataFrame) -> list[bool]:
    """The sources of a streaming plan as Spark will number them: which are ticks of ours?"""
    leaves = result._jdf.queryExecution().analyzed().collectLeaves()
    found: list[Any] = []
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        if leaf.isStreaming() and not any(leaf.equals(known) for known in found):
            found.append(leaf)
    return [TICKS in leaf.toString() for leaf in found]
