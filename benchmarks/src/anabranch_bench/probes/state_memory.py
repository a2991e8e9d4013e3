"""What state of row operators takes in memory, by kind.

Run it as `python -m anabranch_bench.probes.state_memory`; `--json` prints lines for a file.

Each kind is measured in a process of its own, with the settings that workers have: how much of it
is resident after the transaction that made the state was written, what state is counted to hold,
and how much more was resident at the worst moment.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from anabranch.cli.progress import print_result
from anabranch.durability.changelog import encode_changelog
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.model.spark_task import NO_TASK
from anabranch.processes.environment import worker_environment
from anabranch.processor.contract import BatchTimes, RowChunk
from anabranch.processor.rows.definition import RowInput, RowOperatorDefinition
from anabranch.processor.rows.handle import RecordingHandle
from anabranch.processor.tally import Tally
from anabranch.worker.resident import resident_bytes
from anabranch_bench.probes.machine import machine

KIND_SECONDS_MAX = 600
KEYSPACE = KeySpace(256, 16)
LONG = StructType([StructField("n", LongType())])
TEXT = StructType([StructField("s", StringType())])
BYTES = StructType([StructField("b", BinaryType())])
LARGE = 100_000_000

KINDS = {
    "value: a long": (500_000, 1),
    "value: text of 20 letters": (500_000, 1),
    "list: ten longs": (100_000, 10),
    "map: ten entries, long to long": (100_000, 10),
    "map: one key, a million entries": (1, 1_000_000),
    "value: 100 MB of bytes": (4, 1),
}
"""Keys, and entries of each."""

BATCH_KEYS = 10_000
"""In one transaction, so that what it takes for a moment is small beside what stays."""


class Kept(StatefulProcessor):
    """Makes the state of a kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def init(self, handle: Any) -> None:
        """One variable."""
        if self.kind.startswith("map"):
            self.state = handle.getMapState("state", LONG, LONG)
        elif self.kind.startswith("list"):
            self.state = handle.getListState("state", LONG)
        else:
            kinds = {"a long": LONG, "text of 20 letters": TEXT, "100 MB of bytes": BYTES}
            self.state = handle.getValueState("state", kinds[self.kind.partition(": ")[2]])

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """As PySpark names it."""
        count, number = KINDS[self.kind][1], 1000 * key[0]
        if self.kind.startswith("map"):
            for at in range(count):
                self.state.updateValue((number + at,), (number + at,))
        elif self.kind.startswith("list"):
            self.state.put([(number + at,) for at in range(count)])
        elif self.kind.endswith("long"):
            self.state.update((number,))
        elif self.kind.endswith("letters"):
            self.state.update((f"{number:020}",))
        else:
            self.state.update((bytes([number % 256]) * LARGE,))
        return iter(())

    def close(self) -> None:
        """Nothing to do."""


class KeyRows:
    """One transaction with a row for each key (contract: Transaction)."""

    epoch = 0
    times = BatchTimes(0, 0, 0)
    groups = tuple(range(KEYSPACE.groups))
    task = NO_TASK

    def __init__(self, first: int, end: int) -> None:
        numbers = np.arange(first, end, dtype=np.int64)
        hashes = numbers * np.int64(0x5851F42D4C957F2D)
        self._rows = pa.table({HASH: hashes, "k": numbers})
        self.changes: dict[str, pa.Table] = {}
        self.tally = Tally()

    def chunks(self) -> Iterator[RowChunk]:
        """All at once."""
        yield RowChunk(self.groups, self._rows)

    def initial(self) -> Iterator[RowChunk]:
        """None."""
        return iter(())

    def emit(self, rows: pa.Table) -> None:
        """Outputs are not measured."""

    def log(self, section: str, entries: pa.Table) -> None:
        """One section."""
        self.changes[section] = entries


def measure(kind: str) -> dict[str, int]:
    """Bytes: counted, resident, and most resident."""
    processor = Kept(kind)
    handle = RecordingHandle("none", lambda ddl: LONG)
    processor.init(handle)
    key = StructType([StructField("k", LongType())])
    definition = RowOperatorDefinition(
        processor=cloudpickle.dumps(Kept(kind)),
        processor_name="Kept",
        key_schema=key,
        rows=RowInput(("k",), (0,)),
        initial=None,
        output=LONG,
        time_mode="none",
        variables=tuple(handle.specs.values()),
        deleted=frozenset(),
    )
    engine = definition.open(KEYSPACE)
    states = {group: engine.create_group() for group in range(KEYSPACE.groups)}
    base = resident_bytes()[0] or 0
    keys = KINDS[kind][0]
    for first in range(0, keys, BATCH_KEYS):
        rows = KeyRows(first, min(keys, first + BATCH_KEYS))
        engine.apply(rows, states)
        encode_changelog(rows.changes, KEYSPACE)
        del rows
        for state in states.values():
            state.begin()
    now, most = resident_bytes()
    counted = sum(state.num_bytes for state in states.values())
    return {"counted": counted, "resident": (now or 0) - base, "most": (most or 0) - base}


def measured() -> Iterator[dict[str, Any]]:
    """Each kind in a process of its own."""
    for kind in KINDS:
        command = [sys.executable, "-m", "anabranch_bench.probes.state_memory", "--kind", kind]
        environment = {**worker_environment(), "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, check=True, timeout=KIND_SECONDS_MAX
        )
        keys, entries = KINDS[kind]
        yield {"kind": kind, "keys": keys, "entries": entries, **json.loads(done.stdout)}


def an_entry(found: Mapping[str, Any]) -> dict[str, str]:
    """Bytes, as the documentation has them."""
    count = found["keys"] * found["entries"]
    return {what: f"{found[what] / count:,.0f}" for what in ("counted", "resident", "most")}


def main() -> None:
    """A line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print JSON, one line for each kind")
    args = parser.parse_args()
    if args.kind:
        sys.stdout.write(json.dumps(measure(args.kind)))
        return
    if args.json:
        print_result("", {"benchmark": "state_memory", "machine": machine()})
    for one in measured():
        per = ", ".join(f"{what} {size}" for what, size in an_entry(one).items())
        text = f"{one['kind']}: bytes an entry: {per}; {one['resident'] >> 20} MiB"
        print_result(text, one if args.json else None)


if __name__ == "__main__":
    main()
