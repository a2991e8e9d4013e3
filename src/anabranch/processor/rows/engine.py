"""Runs a processor over a transaction: initial state, rows, due timers, expired state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, repeat
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    TimerValues,
)

from anabranch.errors import AnabranchError, ProcessorError
from anabranch.model.keyspace import Int64s, KeySpace
from anabranch.model.spark_task import NO_TASK
from anabranch.processor.contract import BatchTimes, CodePlace, OperatorStats, Transaction, View
from anabranch.processor.rows.collector import paused_collector
from anabranch.processor.rows.cursor import Cursor
from anabranch.processor.rows.definition import RowInput, RowOperatorDefinition
from anabranch.processor.rows.due_timers import due_timers
from anabranch.processor.rows.expiring import remove_expired
from anabranch.processor.rows.frame_limits import rows_max, rows_per_frame
from anabranch.processor.rows.frames import FrameReader, FrameWriter
from anabranch.processor.rows.grouping import KeyedRows, group_rows, in_parts
from anabranch.processor.rows.handle import ProcessorHandle
from anabranch.processor.rows.input import make_rows
from anabranch.processor.rows.late import timely
from anabranch.processor.rows.looking import look_up
from anabranch.processor.rows.nullable import check_nullable
from anabranch.processor.rows.output import OutputWriter, RowWriter, output_table
from anabranch.processor.tally import Tally, counting
from anabranch.processor.user_code import loads
from anabranch.processor.user_error import user_failure
from anabranch.state.backend import MEMORY, Backend
from anabranch.state.contract import GroupState
from anabranch.state.rows.group import RowGroupState
from anabranch.state.rows.layout import EXPIRY, HASH_AT, TIMERS, RowLayout
from anabranch.state.rows.sections import changelog_of


class RowEngine:
    """`OperatorEngine` of a `StatefulProcessor`.

    Each transaction has a fresh processor, from `init` to `close`, as each task has in Spark.
    """

    logs_since_begin = True
    is_by_key = True

    def __init__(
        self, definition: RowOperatorDefinition, keyspace: KeySpace, backend: Backend = MEMORY
    ) -> None:
        self._definition = definition
        self._backend = backend
        self._layout = RowLayout(
            definition.key_schema,
            definition.variables,
            keyspace,
            definition.deleted,
            has_timers=definition.time_mode != "none",
        )
        self._keyspace = keyspace
        self._cursor = Cursor()
        self._handle = ProcessorHandle(
            definition.time_mode,
            self._cursor,
            {variable.spec.name: variable for variable in self._layout.variables},
        )
        self._writer: OutputWriter = (
            FrameWriter(definition) if definition.use_pandas else RowWriter(definition.output)
        )
        self._frames = FrameReader(definition)
        self._outputs: list[Any] = []
        self._output_groups: list[tuple[int, int]] = []
        self._tally = Tally()
        self._task = NO_TASK
        self._limits = dict(definition.limits)
        # Now, so that a bad `init` is found before rows come.
        with counting(Tally()) as self._early:
            self._processor = self._fresh_processor()
        self._is_fresh = True

    def create_group(self) -> GroupState:
        return self._backend.new_rows(self._layout)

    def apply(self, tx: Transaction, states: Mapping[int, GroupState]) -> OperatorStats:
        check_nullable(tx, self._definition.variables)
        groups = {group: cast(RowGroupState, states[group]) for group in tx.groups}
        stats = OperatorStats()
        cursor = self._cursor
        self._tally, self._task = tx.tally, tx.task
        if self._is_fresh:
            tx.tally.take(self._early)
        else:
            self._processor = self._fresh_processor()
        self._is_fresh = False
        cursor.now_ms = tx.times.processing_time_ms
        cursor.watermark_ms = tx.times.watermark_ms
        clock = self._clock(tx)
        self._outputs = []
        self._output_groups = []
        try:
            with paused_collector():
                # 1. Initial state, 2. rows, 3. timers, 4. TTL
                cursor.phase = "INITIALIZED"
                self._run_initial(tx, groups, clock)
                self._run_rows(tx, groups, clock, stats)
                cursor.phase = "DATA_PROCESSED"
                self._run_timers(groups, clock, stats)
                if self._layout.expiring:
                    for state in groups.values():
                        remove_expired(state, cursor.now_ms)
                self._close_processor()
                # 5. Outputs and changes
                self._emit(tx)
                self._log(tx, groups, stats)
        finally:
            cursor.leave()
            cursor.phase, cursor.method = "INITIALIZED", None
            self._outputs = []
            self._output_groups = []
        return stats

    def place(self) -> CodePlace | None:
        method, key = self._cursor.method, self._cursor.key
        if method is None:
            return None
        name = f"{self._definition.processor_name}.{method}"
        mark = self._cursor.call or key
        return CodePlace(name, mark, None if key is None else lambda: self._shown(key))

    def due_hashes(self, state: GroupState, times: BatchTimes) -> Int64s:
        if self.due_column is None:
            return np.empty(0, np.int64)
        return cast(RowGroupState, state).due_timers(self.due_limit(times))

    @property
    def due_column(self) -> tuple[str, str] | None:
        return None if self._definition.time_mode == "none" else (TIMERS, EXPIRY)

    @property
    def is_due_once(self) -> bool:
        return True  # a timer that has fired is gone

    @property
    def expiring(self) -> Mapping[str, str]:
        return {variable.spec.name: EXPIRY for variable in self._layout.expiring}

    def due_limit(self, times: BatchTimes) -> int:
        is_processing = self._definition.time_mode == "processingtime"
        return times.processing_time_ms if is_processing else times.watermark_ms

    def look_up(
        self, views: Mapping[int, View], keys: pa.Table, section: str
    ) -> Iterator[pa.Table]:
        return look_up(self._layout, self._backend, views, keys, section)

    def close(self) -> None:
        if self._is_fresh:
            self._is_fresh = False
            self._close_processor()

    def _fresh_processor(self) -> StatefulProcessor:
        self._cursor.phase, self._cursor.method = "CREATED", "init"
        self._handle.forget_names()
        processor: StatefulProcessor = loads(self._definition.processor)
        try:
            processor.init(self._handle)
        except Exception as error:
            raise self._failure("init", error) from error
        finally:
            self._cursor.method = None
        self._cursor.phase = "INITIALIZED"
        return processor

    def _close_processor(self) -> None:
        self._cursor.leave()
        self._cursor.phase, self._cursor.method = "TIMER_PROCESSED", "close"
        try:
            self._processor.close()
        except Exception as error:
            raise self._failure("close", error) from error
        finally:
            self._cursor.phase, self._cursor.method = "CLOSED", None

    def _clock(self, tx: Transaction) -> TimerValues:
        if self._definition.time_mode == "none":
            return TimerValues(-1, -1)
        return TimerValues(tx.times.processing_time_ms, tx.times.watermark_ms)

    def _keyed(self, table: Any, source: RowInput) -> KeyedRows:
        keyed = group_rows(table, source.key_at, self._layout.key, self._keyspace)
        if self._definition.use_pandas:
            keyed.keys = self._frames.keys(keyed, source)
        return keyed

    def _run_initial(
        self, tx: Transaction, groups: Mapping[int, RowGroupState], clock: TimerValues
    ) -> None:
        source = self._definition.initial
        if source is None:
            return
        handle_initial = self._processor.handleInitialState
        for chunk in tx.initial():
            if chunk.rows.num_rows == 0:
                continue
            keyed = self._keyed(chunk.rows, source)
            self._bring(keyed, groups)
            per_key = self._inputs(keyed, source)
            self._cursor.method = "handleInitialState"
            for key in self._visit(keyed, groups):
                try:
                    for given in next(per_key):
                        self._cursor.call = object()
                        handle_initial(key, given, clock)
                except Exception as error:
                    raise self._failure("handleInitialState", error) from error
            self._cursor.method = None

    def _run_rows(
        self,
        tx: Transaction,
        groups: Mapping[int, RowGroupState],
        clock: TimerValues,
        stats: OperatorStats,
    ) -> None:
        source = self._definition.rows
        # As Spark: with initial state, the first batch gives the rows of a key in several calls.
        is_first = tx.epoch == 0 and self._definition.initial is not None
        is_in_parts = is_first and not self._definition.use_pandas
        for chunk in tx.chunks():
            rows = timely(chunk.rows, source.event_time_at, tx.times.late_watermark_ms)
            stats.rows_dropped_late += chunk.rows.num_rows - rows.num_rows
            if rows.num_rows:
                keyed = self._keyed(rows, source)
                if is_in_parts:
                    keyed = in_parts(keyed, rows_max(tx.task, self._limits))
                self._run_chunk(keyed, source, groups, clock)
            self._emit(tx)

    def _run_chunk(
        self,
        keyed: KeyedRows,
        source: RowInput,
        groups: Mapping[int, RowGroupState],
        clock: TimerValues,
    ) -> None:
        """The hot loop: everything per key happens here, with as few calls as possible."""
        self._bring(keyed, groups)
        cursor = self._cursor
        blank = self._layout.blank
        handle_rows = self._processor.handleInputRows
        extend = self._outputs.extend
        tally = self._tally
        inputs = self._inputs(keyed, source)
        entries = zip(keyed.keys, keyed.canonical, keyed.hashes, inputs, strict=True)
        cursor.method, cursor.call = "handleInputRows", None
        try:
            for group, size in zip(keyed.groups, keyed.keys_per_group, strict=True):
                state = groups[group]
                find = state.records.get
                touched = state.undo_log
                cursor.group = state
                before = len(self._outputs)
                for key, canonical, hashed, rows in islice(entries, size):
                    record = find(canonical)
                    if record is None:
                        record = blank.copy()
                        record[HASH_AT] = hashed
                        cursor.fresh = True
                        cursor.dirty = False
                    elif canonical in touched:
                        cursor.before = touched[canonical]
                        cursor.dirty = True
                    else:
                        cursor.fresh = False
                        cursor.dirty = False
                    cursor.key = canonical
                    cursor.record = record
                    result = handle_rows(key, rows, clock)
                    if result is not None:
                        extend(result)
                    for _ in rows:
                        pass
                self._output_groups.append((group, len(self._outputs) - before))
                if tally.counts:
                    tally.settle(group)
        except Exception as error:
            raise self._failure("handleInputRows", error) from error
        cursor.method = None

    def _bring(self, keyed: KeyedRows, groups: Mapping[int, RowGroupState]) -> None:
        states = [groups[group] for group in keyed.groups]
        self._backend.bring_rows(states, keyed.keys_per_group, keyed.hashes)

    def _visit(self, keyed: KeyedRows, groups: Mapping[int, RowGroupState]) -> Iterator[Any]:
        """Make each key the current one in turn."""
        entries = zip(keyed.keys, keyed.canonical, keyed.hashes, strict=True)
        for group, size in zip(keyed.groups, keyed.keys_per_group, strict=True):
            for key, canonical, hashed in islice(entries, size):
                self._enter(groups[group], canonical, hashed)
                yield key
            self._tally.settle(group)

    def _enter(self, state: RowGroupState, canonical: Any, hashed: int) -> None:
        cursor = self._cursor
        record = state.records.get(canonical)
        cursor.fresh = record is None
        if record is None:
            record = self._layout.blank.copy()
            record[HASH_AT] = hashed
        cursor.group = state
        cursor.key = canonical
        cursor.record = record
        cursor.dirty = canonical in state.undo_log
        cursor.before = state.undo_log.get(canonical)

    def _inputs(self, keyed: KeyedRows, source: RowInput) -> Iterator[Iterator[Any]]:
        """Per key, an iterator over its Rows, or over DataFrames with some of them."""
        if self._definition.use_pandas:
            at_once = rows_per_frame(self._task, self._limits, keyed.columns, sum(keyed.counts))
            return self._frames.per_key(keyed, source, at_once)
        rows = make_rows(keyed.columns[: len(source.names)], source.names, sum(keyed.counts))
        return map(islice, repeat(rows), keyed.counts)

    def _run_timers(
        self, groups: Mapping[int, RowGroupState], clock: TimerValues, stats: OperatorStats
    ) -> None:
        mode = self._definition.time_mode
        if mode == "none":
            return
        until_ms = self._cursor.now_ms if mode == "processingtime" else self._cursor.watermark_ms
        for group in sorted(groups):
            before = len(self._outputs)
            due = due_timers(groups[group], until_ms)
            self._cursor.method = "handleExpiredTimer"
            try:
                for expiry_ms, key in due:
                    self._fire(groups[group], key, expiry_ms, clock)
            except AnabranchError:
                raise
            except Exception as error:
                raise self._failure("handleExpiredTimer", error) from error
            self._tally.settle(group)
            self._cursor.method = None
            stats.timers_fired += len(due)
            self._output_groups.append((group, len(self._outputs) - before))

    def _fire(self, state: RowGroupState, key: Any, expiry_ms: int, clock: TimerValues) -> None:
        hashed = state.records[key][HASH_AT] if key in state.records else 0
        self._enter(state, key, hashed)
        self._cursor.call = object()
        result = self._processor.handleExpiredTimer(
            key=self._layout.key.external(key),
            timerValues=clock,
            expiredTimerInfo=ExpiredTimerInfo(expiry_ms),
        )
        if result is not None:
            self._outputs.extend(result)
        # After the call, as in Spark: the same time registered again inside it is gone too.
        self._handle.forget_timer(expiry_ms)

    def _emit(self, tx: Transaction) -> None:
        if self._outputs:
            schema = self._definition.output_schema
            tx.emit(output_table(self._writer, self._outputs, self._output_groups, schema))
        self._outputs = []
        self._output_groups = []

    def _log(
        self, tx: Transaction, groups: Mapping[int, RowGroupState], stats: OperatorStats
    ) -> None:
        try:
            sections, updated, removed = changelog_of(self._layout, groups.values())
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ProcessorError(
                f"A state value of {self._definition.processor_name} does not fit its declared "
                f"type: {error}. Declare a wider type for the state variable."
            ) from error
        for name, entries in sections.items():
            tx.log(name, entries)
        stats.rows_updated += updated
        stats.rows_removed += removed

    def _failure(self, method: str, error: Exception) -> AnabranchError:
        if isinstance(error, ProcessorError):
            return error
        where = "" if self._cursor.key is None else f" for key {self._shown(self._cursor.key)}"
        what = f"{self._definition.processor_name}.{method} failed{where}"
        advice = "Fix the processor and restart the query; the batch was not applied."
        return ProcessorError(user_failure(what, error, advice))

    def _shown(self, key: Any) -> str:
        return repr(tuple(self._layout.key.external(key)))
