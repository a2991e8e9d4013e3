"""The handles that `init` gets: one records what a processor asks for, one gives it state."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from operator import index
from typing import Any

from pyspark.errors import PySparkTypeError
from pyspark.sql.streaming.stateful_processor import (
    ListState,
    MapState,
    StatefulProcessorHandle,
    ValueState,
)
from pyspark.sql.types import StructType

from anabranch.processor.rows.cursor import Cursor
from anabranch.processor.rows.deleted import DeletedState
from anabranch.processor.rows.expiring import (
    ExpiringListState,
    ExpiringMapState,
    ExpiringValueState,
)
from anabranch.processor.rows.misuse import misuse
from anabranch.processor.rows.variables import RowListState, RowMapState, RowValueState
from anabranch.state.rows.layout import TIMERS, TIMERS_AT, Kind, Variable, VariableSpec

TIME_MODES = {
    "none": "NoTime",
    "processingtime": "ProcessingTime",
    "eventtime": "EventTime",
}
"""Time modes, as Spark's messages name them."""

_OPERATION: dict[Kind, str] = {
    "value": "get_value_state",
    "list": "get_list_state",
    "map": "get_map_state",
}

_STATES: dict[tuple[Kind, bool], Callable[[Cursor, Variable], Any]] = {
    ("value", False): RowValueState,
    ("list", False): RowListState,
    ("map", False): RowMapState,
    ("value", True): ExpiringValueState,
    ("list", True): ExpiringListState,
    ("map", True): ExpiringMapState,
}


class _Handle(StatefulProcessorHandle):
    """What both handles check: phases, time modes, TTL and names."""

    def __init__(self, time_mode: str, cursor: Cursor) -> None:
        self._time_mode = time_mode
        self._cursor = cursor
        self._names: set[str] = set()

    def getValueState(
        self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None
    ) -> ValueState:
        state: ValueState = self._define("value", stateName, schema, None, ttlDurationMs)
        return state

    def getListState(
        self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None
    ) -> ListState:
        state: ListState = self._define("list", stateName, schema, None, ttlDurationMs)
        return state

    def getMapState(
        self,
        stateName: str,
        userKeySchema: StructType | str,
        valueSchema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> MapState:
        state: MapState = self._define("map", stateName, valueSchema, userKeySchema, ttlDurationMs)
        return state

    def deleteIfExists(self, stateName: str) -> None:
        """What `init` deletes has no state; its name stays taken if it was defined before."""
        self._check_phase("deleting state", "delete_if_exists", ("PRE_INIT", "CREATED"))
        self._delete(stateName)

    def _define(
        self,
        kind: Kind,
        name: str,
        schema: StructType | str,
        user_key_schema: StructType | str | None,
        ttl_ms: int | None,
    ) -> Any:
        action = f"initializing {kind} state"
        operation = _OPERATION[kind]
        self._check_phase(action, operation, ("PRE_INIT", "CREATED"))
        if name in self._names:
            raise misuse(
                action, "STATEFUL_PROCESSOR_DUPLICATE_STATE_VARIABLE_DEFINED", stateVarName=name
            )
        if ttl_ms is not None:
            if self._time_mode != "processingtime":
                raise misuse(
                    action,
                    "STATEFUL_PROCESSOR_INCORRECT_TIME_MODE_TO_ASSIGN_TTL",
                    stateName=name,
                    timeMode=TIME_MODES[self._time_mode],
                )
            if ttl_ms <= 0:
                raise misuse(
                    action,
                    "STATEFUL_PROCESSOR_TTL_DURATION_MUST_BE_POSITIVE",
                    operationType=operation,
                    stateName=name,
                )
        state = self._make(kind, name, schema, user_key_schema, ttl_ms)
        self._names.add(name)
        return state

    def _make(
        self,
        kind: Kind,
        name: str,
        schema: StructType | str,
        user_key_schema: StructType | str | None,
        ttl_ms: int | None,
    ) -> Any:
        raise NotImplementedError

    def _delete(self, name: str) -> None:
        raise NotImplementedError

    def _check_phase(self, action: str, operation: str, allowed: tuple[str, ...]) -> None:
        if self._cursor.phase not in allowed:
            raise misuse(
                action,
                "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_STATE",
                operationType=operation,
                handleState=self._cursor.phase,
            )

    def _check_timers(self, action: str, operation: str) -> None:
        if self._time_mode == "none":
            raise misuse(
                action,
                "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_TIME_MODE",
                operationType=operation,
                timeMode=TIME_MODES[self._time_mode],
            )
        self._check_phase(action, operation, ("INITIALIZED", "DATA_PROCESSED"))


class RecordingHandle(_Handle):
    """Driver side: finds out which state variables a processor has; there is no state yet."""

    def __init__(self, time_mode: str, parse_ddl: Callable[[str], StructType]) -> None:
        cursor = Cursor()
        cursor.phase = "PRE_INIT"
        super().__init__(time_mode, cursor)
        self._parse_ddl = parse_ddl
        self.specs: dict[str, VariableSpec] = {}
        self.deleted: set[str] = set()

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._check_timers("register timer", "register_timer")

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._check_timers("deleting timer", "delete_timer")

    def listTimers(self) -> Iterator[int]:
        self._check_timers("listing timers", "list_timers")
        return iter(())

    def _make(
        self,
        kind: Kind,
        name: str,
        schema: StructType | str,
        user_key_schema: StructType | str | None,
        ttl_ms: int | None,
    ) -> Any:
        spec = VariableSpec(
            name=name,
            kind=kind,
            value_schema=self._struct(schema),
            user_key_schema=None if user_key_schema is None else self._struct(user_key_schema),
            ttl_ms=ttl_ms,
        )
        if name == TIMERS:
            raise misuse(
                f"initializing {kind} state",
                "STATEFUL_PROCESSOR_DUPLICATE_STATE_VARIABLE_DEFINED",
                stateVarName=name,
            )
        variable = Variable(spec, 0)
        self.specs[name] = spec
        self.deleted.discard(name)
        return _STATES[kind, ttl_ms is not None](self._cursor, variable)

    def _delete(self, name: str) -> None:
        self.specs.pop(name, None)
        self.deleted.add(name)

    def _struct(self, schema: StructType | str) -> StructType:
        if isinstance(schema, str):
            schema = self._parse_ddl(schema)
        if not isinstance(schema, StructType):
            raise PySparkTypeError(
                errorClass="NOT_EXPECTED_TYPE",
                messageParameters={
                    "expected_type": "StructType or a DDL-formatted string",
                    "arg_name": "schema",
                    "arg_type": type(schema).__name__,
                },
            )
        return schema


class ProcessorHandle(_Handle):
    """Worker side: state variables and timers of the current key."""

    def __init__(self, time_mode: str, cursor: Cursor, variables: Mapping[str, Variable]) -> None:
        super().__init__(time_mode, cursor)
        self._variables = dict(variables)
        self._deleted: set[str] = set()

    def _make(
        self,
        kind: Kind,
        name: str,
        schema: StructType | str,
        user_key_schema: StructType | str | None,
        ttl_ms: int | None,
    ) -> Any:
        variable = self._variables.get(name)
        if variable is None:
            # Deleted further on in `init`, or never defined in the driver: told when it is used.
            return DeletedState(kind, name, self._deleted.__contains__)
        if variable.spec.kind != kind:
            raise misuse(
                f"initializing {kind} state", "STATE_STORE_UNSUPPORTED_VARIABLE", stateName=name
            )
        return _STATES[kind, variable.spec.ttl_ms is not None](self._cursor, variable)

    def forget_names(self) -> None:
        """Before another `init`."""
        self._names.clear()
        self._deleted.clear()

    def _delete(self, name: str) -> None:
        """The layout already leaves out what `init` deleted in the driver."""
        self._deleted.add(name)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        expiryTimestampMs = index(expiryTimestampMs)
        self._check_timers("register timer", "register_timer")
        cursor = self._cursor
        timers = cursor.record[TIMERS_AT] or ()
        at = bisect_left(timers, expiryTimestampMs)
        if at < len(timers) and timers[at] == expiryTimestampMs:
            return
        if not cursor.dirty:
            cursor.touch()
        cursor.record[TIMERS_AT] = (*timers[:at], expiryTimestampMs, *timers[at:])
        cursor.group.entries += 1
        cursor.group.timers.add(expiryTimestampMs, cursor.key)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        expiryTimestampMs = index(expiryTimestampMs)
        self._check_timers("deleting timer", "delete_timer")
        self.forget_timer(expiryTimestampMs)

    def listTimers(self) -> Iterator[int]:
        self._check_timers("listing timers", "list_timers")
        return iter(self._cursor.record[TIMERS_AT] or ())

    def forget_timer(self, expiry_ms: int) -> None:
        """Remove a timer of the current key, if there."""
        cursor = self._cursor
        timers = cursor.record[TIMERS_AT] or ()
        if expiry_ms in timers:
            if not cursor.dirty:
                cursor.touch()
            cursor.record[TIMERS_AT] = tuple(t for t in timers if t != expiry_ms) or None
            cursor.group.entries -= 1
            cursor.group.timers.drop(expiry_ms, cursor.key)
