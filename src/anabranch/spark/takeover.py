"""Moves a query over from Spark's own operators: their state, and where its sources were."""

from __future__ import annotations

import functools
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.durability.blobs import BlobStore
from anabranch.durability.changelog import encode_changelog
from anabranch.durability.manifest import FileRef, Manifest, file_ref
from anabranch.durability.manifest_content import Content
from anabranch.durability.names import changelog_path
from anabranch.durability.pages import DueColumn
from anabranch.durability.store import StateStore
from anabranch.errors import InvalidArgument, StateMismatch
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.contract import OperatorDefinition
from anabranch.processor.rows.definition import RowOperatorDefinition
from anabranch.spark.checkpoint_folder import Checkpoint
from anabranch.spark.takeover_columns import aggregate_section, timer_section, variable_section
from anabranch.state.columnar.layout import SECTION, ColumnarLayout
from anabranch.state.contract import Sections
from anabranch.state.rows.layout import EXPIRY, TIMERS, RowLayout

_FILE_BYTES = 64 << 20
_REF_SCHEMA = "ref string, rows long"
_TIME_MODES = {"notime": "none"}
_SPARK_NAMES = {
    "rows": ("transformWithStateInPySparkExec", "transformWithStateInPandasExec"),
    "aggregate": ("stateStoreSave",),
    "sessions": ("sessionWindowStateStoreSaveExec",),
}

Definitions = Mapping[str, OperatorDefinition]


@dataclass(frozen=True)
class ImportReport:
    """What `StateService.import_checkpoint` has brought over."""

    checkpoint: str
    """The new query's checkpointLocation."""
    batch_id: int
    """The last batch of the old query; the new one goes on with the next."""
    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    """Entries by operator and state variable."""


def import_checkpoint(
    spark: SparkSession,
    store: StateStore,
    store_lock: AbstractContextManager[Any],
    definitions: Definitions,
    checkpoint: str,
    to: str,
    result: DataFrame,
    operators: Mapping[str, int] | None,
) -> ImportReport:
    """See `StateService.import_checkpoint`."""
    # 1. Look before touching anything.
    old, new = Checkpoint(spark, checkpoint), Checkpoint(spark, to)
    if new.exists():
        raise InvalidArgument(f"{to} exists. Give a new folder for the new query's checkpoint.")
    query_id = old.query_id()
    if any(query.id == query_id for query in spark.streams.active):
        raise InvalidArgument(
            f"The query of {checkpoint} is running: what it does from now on would be lost, or "
            "done twice. Stop it first, and import then."
        )
    batch = old.committed_batch()
    found = _metadata(spark, checkpoint)
    chosen = _matched(definitions, found, operators)
    with store_lock:
        taken = [name for name in chosen if store.epochs(name)]
        keyspaces = {name: store.operator(name).keyspace for name in chosen}
    if taken:
        raise StateMismatch(
            f"Operator {taken[0]!r} in {store.blobs.location} has state already. Import into a new "
            "location, or under another name."
        )
    # 2. State, into files that do not count yet.
    refs: dict[str, list[FileRef]] = {}
    report = ImportReport(to, batch)
    for name, operator_id in chosen.items():
        importer = _Takeover(spark, store.blobs, keyspaces[name], name, batch, definitions[name])
        refs[name] = importer.run(checkpoint, operator_id, found[operator_id])
        report.rows[name] = importer.rows
    # 3. Where the new query starts; 4. the files count.
    old.copy_for(result, new)
    with store_lock:
        for name, listed in refs.items():
            _commit(store, name, definitions[name], query_id, batch, listed)
    return report


def _metadata(spark: SparkSession, checkpoint: str) -> dict[int, Any]:
    rows = spark.read.format("state-metadata").load(checkpoint).collect()
    return {row.operatorId: row for row in rows}


def _matched(
    definitions: Definitions, found: Mapping[int, Any], operators: Mapping[str, int] | None
) -> dict[str, int]:
    shown = ", ".join(f"{i} ({row.operatorName})" for i, row in sorted(found.items())) or "none"
    if operators is None:
        if len(definitions) != 1 or len(found) != 1:
            raise InvalidArgument(
                f"Say which operator is which: operators={{name: operatorId}}. Operators of the "
                f"checkpoint: {shown}; of this service: {', '.join(definitions) or 'none'}."
            )
        operators = dict(zip(definitions, found, strict=True))
    unknown = [name for name in operators if name not in definitions]
    if unknown:
        raise InvalidArgument(
            f"Operator {unknown[0]!r} is not defined yet: define the query first, then import. "
            f"Defined: {', '.join(definitions) or 'none'}."
        )
    if sorted(operators.values()) != sorted(found):
        raise InvalidArgument(
            f"Every stateful operator of the checkpoint needs its counterpart. It has: {shown}; "
            f"given: {', '.join(map(str, sorted(operators.values())))}."
        )
    return dict(operators)


class _Takeover:
    """Writes the state of one operator of a checkpoint into a location."""

    def __init__(
        self,
        spark: SparkSession,
        blobs: BlobStore,
        keyspace: KeySpace,
        name: str,
        batch: int,
        definition: OperatorDefinition,
    ) -> None:
        self._spark = spark
        self._blobs = blobs
        self._keyspace = keyspace
        self._name = name
        self._batch = batch
        self._definition = definition
        self.rows: dict[str, int] = {}

    def run(self, checkpoint: str, operator_id: int, found: Any) -> list[FileRef]:
        """The files, one or more for each section and task."""

        def read(**options: str) -> DataFrame:
            reader = self._spark.read.format("statestore").option("operatorId", str(operator_id))
            return reader.option("batchId", str(self._batch)).options(**options).load(checkpoint)

        self._check_kind(found.operatorName)
        refs: list[FileRef] = []
        for section, frame, schema in self._sections(read, found):
            written = self._write(section, frame, schema, found.numPartitions)
            refs += [FileRef.from_json(json.loads(row.ref)) for row in written]
            self.rows[section] = sum(row.rows for row in written)
        return refs

    def _check_kind(self, operator: str) -> None:
        definition = self._definition
        if isinstance(definition, RowOperatorDefinition):
            kind = "rows"
        else:
            kind = str(definition.description.get("operation"))
        if kind not in _SPARK_NAMES:
            raise StateMismatch(
                f"Operator {self._name!r} is of your own making: Spark has no state for it. Only "
                "transformWithState and aggregates can be imported."
            )
        if operator not in _SPARK_NAMES[kind]:
            raise StateMismatch(
                f"The checkpoint's operator is {operator}, which keeps no state for {self._name!r} "
                f"(that would be {_SPARK_NAMES[kind][0]}). Give the operatorId of its counterpart."
            )

    def _sections(
        self, read: Callable[..., DataFrame], found: Any
    ) -> Iterator[tuple[str, DataFrame, pa.Schema]]:
        definition = self._definition
        if isinstance(definition, ColumnarDefinition):
            processor = definition.processor
            layout = ColumnarLayout(definition.key_schema, processor.state_schema)
            yield SECTION, aggregate_section(read, definition), layout.log_schema
            return
        assert isinstance(definition, RowOperatorDefinition)
        kept = self._variables(definition, json.loads(found.operatorProperties))
        rows = RowLayout(definition.key_schema, definition.variables, self._keyspace)
        for variable in rows.variables:
            if variable.spec.name in kept:
                schema = rows.schema_of(variable, changelog=True)
                yield variable.spec.name, variable_section(read, definition, variable.spec), schema
        if definition.time_mode != "none":
            schema = rows.schema_of(None, changelog=True)
            yield TIMERS, timer_section(read, definition), schema

    def _variables(self, definition: RowOperatorDefinition, properties: Any) -> set[str]:
        """Names of the state variables that both sides have, after a look at the others."""
        mode = str(properties["timeMode"]).lower()
        if _TIME_MODES.get(mode, mode) != definition.time_mode:
            raise StateMismatch(
                f"The old query has time mode {properties['timeMode']}, operator {self._name!r} "
                f"has {definition.time_mode!r}. Use the time mode of the old query."
            )
        kinds = {spec.name: f"{spec.kind}state" for spec in definition.variables}
        kept = set()
        for known in properties["stateVariables"]:
            name, kind = known["stateName"], known["stateVariableType"].lower()
            if name.startswith("$") or name in definition.deleted:
                continue  # timers, or dropped with deleteIfExists
            if kinds.get(name) != kind:
                raise StateMismatch(
                    f"The checkpoint has a {known['stateVariableType']} {name!r}, the processor of "
                    f"{self._name!r} has {kinds.get(name, 'none of that name')}. Define it as it "
                    f"was, or call handle.deleteIfExists({name!r}) in init to drop it."
                )
            kept.add(name)
        return kept

    def _write(self, section: str, frame: DataFrame, schema: pa.Schema, parts: int) -> list[Any]:
        groups = self._keyspace.groups
        parts = min(parts, groups)
        group = F.pmod(F.col(HASH), F.lit(groups))
        spread = frame.repartitionById(parts, F.pmod(group, F.lit(parts)).cast("int"))
        encode = functools.partial(
            encode_changelog, keyspace=self._keyspace, due=_due_column(self._definition)
        )
        write = _writer(
            self._blobs, encode, self._keyspace, self._name, self._batch, section, schema
        )
        # By number: mapInArrow does not find columns whose names have dots.
        numbered = spread.toDF(*(f"c{i}" for i in range(len(spread.columns))))
        return numbered.mapInArrow(write, _REF_SCHEMA).collect()


def _due_column(definition: OperatorDefinition) -> DueColumn | None:
    """What the operator's engine says, without running user code to ask it."""
    if isinstance(definition, ColumnarDefinition):
        expiry = definition.processor.expiry
        return None if expiry is None else (SECTION, expiry)
    assert isinstance(definition, RowOperatorDefinition)
    return None if definition.time_mode == "none" else (TIMERS, EXPIRY)


def _writer(
    blobs: BlobStore,
    encode: Callable[[Sections], list[Any]],
    keyspace: KeySpace,
    operator: str,
    batch: int,
    section: str,
    schema: pa.Schema,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for tasks: entries in, files written, references out."""

    def write_file(entries: pa.Table, number: int, task: str) -> pa.RecordBatch:
        context = TaskContext.get()
        assert context is not None
        # Files of one batch are replayed in the order of their names.
        writer = f"import{number:06d}"
        path = changelog_path(operator, batch, context.partitionId(), writer, task, 0)
        buffers = encode({section: entries})
        blobs.write(path, buffers)
        groups = keyspace.group_of(entries.column(HASH).to_numpy()).tolist()
        ref = file_ref(path, batch, buffers, groups).text()
        return pa.RecordBatch.from_pydict({"ref": [ref], "rows": [entries.num_rows]})

    def write_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = uuid.uuid4().hex[:12]
        pending: list[pa.Table] = []
        number = size = 0
        for rows in batches:
            columns = [c.cast(f.type) for c, f in zip(rows.columns, schema, strict=True)]
            pending.append(pa.Table.from_arrays(columns, schema=schema))
            size += rows.nbytes
            if size >= _FILE_BYTES:
                yield write_file(pa.concat_tables(pending), number, task)
                pending, size, number = [], 0, number + 1
        if sum(table.num_rows for table in pending):
            yield write_file(pa.concat_tables(pending), number, task)

    return write_files


def _commit(
    store: StateStore,
    name: str,
    definition: OperatorDefinition,
    query_id: str,
    batch: int,
    refs: list[FileRef],
) -> None:
    """The state as of the old query's last batch exists, and belongs to its successor."""
    record = store.operator(name)
    store.bind_query(name, query_id, batch + 1)
    store.commit(
        Manifest(
            operator=name,
            query_id=query_id,
            epoch=batch,
            keyspace=record.keyspace,
            description=definition.description,
            content=Content.of(sorted(refs, key=lambda ref: ref.path), ()),
            committed_at=int(time.time() * 1000),
            extra={"imported": True},
        )
    )
