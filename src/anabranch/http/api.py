"""The API: each operation with what it takes and gives, from which its document is made too."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from anabranch.durability.blobs import BlobStore
from anabranch.errors import InvalidArgument
from anabranch.http.autoscale_api import AutoscaleApi
from anabranch.http.controlled import ControlledService
from anabranch.http.move_book import CONTINUE, KINDS, ROLLBACK, MoveBook, picture
from anabranch.http.operation import LIMIT, LIST, MOMENT, OBJECT, TEXT, Answer, ApiCall, Operation
from anabranch.http.page_api import PageApi
from anabranch.http.schema import Schema
from anabranch.migration.strategies import STRATEGIES
from anabranch.model.journal_entry import EntryKind

T = TypeVar("T")

_log = logging.getLogger("anabranch.http")

FRESH_SECONDS = 1.0
"""A picture of all workers is shown for so long: many who look cost as much as one."""
HISTORY_SECONDS = 3600.0
"""How far back history goes if nobody says."""
WORKERS_MAX = 10_000

COUNT: Schema = {"type": "integer", "minimum": 1, "maximum": WORKERS_MAX}
MOVE_REQUEST: Schema = {
    "type": "object",
    "required": ["kind"],
    "additionalProperties": False,
    "properties": {
        "kind": {"type": "string", "enum": list(KINDS)},
        "workers": COUNT,
        "key_groups": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        "to": TEXT,
        "worker": TEXT,
        "host": TEXT,
        "hosts": {"type": "array", "items": TEXT, "minItems": 1},
        "assignment": {"type": "string", "enum": ["minimal", "range"]},
        "site": TEXT,
        "on": TEXT,
        "strategy": {"type": "string", "enum": list(STRATEGIES)},
        "options": OBJECT,
        "bytes_per_second": {"type": "integer", "minimum": 1},
        "latency_target": {"type": "number", "exclusiveMinimum": 0},
        "dry_run": {"type": "boolean"},
        "if_routing_version": {"type": "integer", "minimum": 0},
        "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 1e7},
        "on_timeout": {"type": "string", "enum": [ROLLBACK, CONTINUE]},
    },
}


class Fresh:
    """Pictures that are made at most once a second, by one caller at a time."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._made: dict[str, tuple[float, Any]] = {}
        self._lock = threading.Lock()

    def get(self, name: str, make: Callable[[], T]) -> T:
        """The last one, or a new one."""
        with self._lock:
            at, value = self._made.get(name, (-FRESH_SECONDS, None))
            if self._now() - at >= FRESH_SECONDS:
                value = make()
                self._made[name] = self._now(), value
            return value  # type: ignore[no-any-return]


class Api:
    """Answers for a service."""

    def __init__(self, service: ControlledService, blobs: BlobStore) -> None:
        self._service = service
        self._fresh = Fresh()
        self._moves = MoveBook(service)
        self.page = PageApi(service, blobs, self.status, self._all_groups)

    def status(self) -> dict[str, Any]:
        """Of all workers, at most a second old."""
        return self._fresh.get("status", self._service.status)

    def source_lag(self) -> dict[str, int]:
        """Of operators; at most a second old, and empty if Spark does not say."""

        def ask() -> dict[str, int]:
            try:
                return self._service.source_lag_rows()
            except Exception as error:  # the JVM may be busy or gone: other metrics are not
                _log.info("How far sources are ahead is not known: %s", error)
                return {}

        return self._fresh.get("source-lag", ask)

    def _all_groups(self) -> list[dict[str, Any]]:
        return self._fresh.get("key-groups", self._service.key_groups)

    def is_ready(self) -> bool:
        """Whether all workers are up."""
        return all(shown["status"] == "up" for shown in self.status()["workers"].values())

    def operations(self) -> list[Operation]:
        """All of them."""
        return [
            Operation(
                *("GET", "/status", "status", "Workers, operators, the running move"),
                lambda _: (200, self.status()),
            ),
            Operation(
                *("GET", "/workers", "workers", "Each worker"),
                lambda _: (200, _named("worker", self.status()["workers"])),
                answers={200: LIST},
            ),
            Operation(
                *("GET", "/key-groups", "key_groups", "Owner, rows and bytes of each key group"),
                self._key_groups,
                query={
                    "sort": {"type": "string", "enum": ["group", "rows", "bytes"]},
                    "limit": LIMIT,
                },
                answers={200: LIST},
            ),
            Operation(
                *("GET", "/batches", "batches", "The last batches, newest last"),
                self._batches,
                query={"operator": TEXT, "limit": LIMIT},
                answers={200: LIST},
            ),
            Operation(
                *("GET", "/history", "history", "Entries of the journal, newest last"),
                self._history,
                query={
                    "since": MOMENT,
                    "until": MOMENT,
                    "kind": {"type": "string", "enum": [kind.value for kind in EntryKind]},
                    "limit": LIMIT,
                },
                answers={200: LIST},
            ),
            *self._move_operations(),
            *AutoscaleApi(self._service).operations(),
            Operation(
                *("GET", "/savepoints", "savepoints", "All savepoints of the location"),
                lambda _: (200, [_savepoint(each) for each in self._service.savepoints()]),
                answers={200: LIST},
            ),
            Operation(
                *("POST", "/savepoints", "make_savepoint", "Save all state under a name"),
                lambda call: (201, _savepoint(self._service.savepoint(call.body["name"]))),
                body={
                    "type": "object",
                    "required": ["name"],
                    "additionalProperties": False,
                    "properties": {"name": TEXT},
                },
                answers={201: OBJECT},
            ),
            Operation(
                *("GET", "/operators/{operator}/state", "state", "A key as of the last batch"),
                self._state,
                query={"key": {"type": "string"}, "variable": TEXT},
                required=("key",),
            ),
            *self.page.operations(),
        ]

    def _move_operations(self) -> list[Operation]:
        return [
            Operation(
                *("GET", "/moves", "moves", "Running and recent reconfigurations"),
                lambda _: (200, self._moves.all()),
                answers={200: LIST},
            ),
            Operation(
                *("POST", "/moves", "ask", "Begin a reconfiguration, or say what it would do"),
                lambda call: self._moves.ask(call.body, call.cause, call.key),
                body=MOVE_REQUEST,
                answers={200: OBJECT, 202: OBJECT},
                errors=(409, 422),
            ),
            Operation(
                *("GET", "/moves/{number}", "move", "One reconfiguration"),
                lambda call: (200, picture(self._moves.find(_number(call)))),
                errors=(404,),
            ),
            Operation(
                *("POST", "/moves/{number}/cancel", "cancel", "Go back to where it began"),
                self._cancel,
                answers={202: OBJECT},
                errors=(404, 409),
            ),
            Operation(
                *("POST", "/moves/{number}/retarget", "retarget", "Go on to another number"),
                self._retarget,
                body={
                    "type": "object",
                    "required": ["workers"],
                    "additionalProperties": False,
                    "properties": {"workers": COUNT},
                },
                answers={202: OBJECT},
                errors=(404, 409),
            ),
        ]

    def _cancel(self, call: ApiCall) -> Answer:
        move = self._moves.find(_number(call))
        return 202, picture(move.cancel(cause=call.cause))

    def _retarget(self, call: ApiCall) -> Answer:
        move = self._moves.find(_number(call))
        return 202, picture(move.retarget(int(call.body["workers"]), cause=call.cause))

    def _key_groups(self, call: ApiCall) -> Answer:
        groups = self._all_groups()
        by = call.query.get("sort", "group")
        ordered = sorted(groups, key=lambda each: each[by], reverse=by != "group")
        return 200, ordered[: call.query.get("limit", len(ordered))]

    def _batches(self, call: ApiCall) -> Answer:
        operators = self.status()["operators"]
        wanted = call.query.get("operator")
        if wanted is not None and wanted not in operators:
            raise InvalidArgument(f"There is no operator {wanted!r}, only: {', '.join(operators)}.")
        rows = [
            {"operator": name, **batch}
            for name, shown in operators.items()
            if wanted in (None, name)
            for batch in shown["batches"]
        ]
        rows.sort(key=lambda row: row["started"])
        return 200, rows[-call.query.get("limit", len(rows) or 1) :]

    def _history(self, call: ApiCall) -> Answer:
        since = call.query.get("since", time.time() - HISTORY_SECONDS)
        content = self._service.history(since, call.query.get("until"))
        kind = call.query.get("kind")
        rows = [row for row in content.rows() if kind in (None, row["kind"])]
        return 200, rows[-call.query.get("limit", 10_000) :]

    def _state(self, call: ApiCall) -> Answer:
        try:
            key = json.loads(call.query["key"])
        except ValueError:
            raise InvalidArgument(
                f"The key must be JSON, got {call.query['key']!r}. A text has quotes: "
                'key="berlin". Several columns are a list: key=[42,"berlin"].'
            ) from None
        live = self._service.state(call.path["operator"], call.query.get("variable"))
        key = tuple(key) if isinstance(key, list) else key
        epoch, (value,) = live.read([key])
        group, owner = live.locate(key)
        return 200, {
            "operator": call.path["operator"],
            "epoch": epoch,
            "value": _plain(value),
            "key_group": group,
            "owner": owner,
        }


def _named(what: str, found: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{what: name, **shown} for name, shown in found.items()]


def _number(call: ApiCall) -> int:
    text = call.path["number"]
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidArgument(f"A reconfiguration has a number, got {text!r}.")
    return int(text)


def _savepoint(savepoint: Any) -> dict[str, Any]:
    return {
        "name": savepoint.name,
        "path": savepoint.path,
        "created_at": savepoint.created_at,
        "epochs": dict(savepoint.epochs),
        "bytes": savepoint.bytes,
    }


def _plain(value: Any) -> Any:
    """A Row of a lookup as JSON can say it."""
    if hasattr(value, "asDict"):
        return value.asDict(recursive=True)
    if isinstance(value, Mapping):
        return [{"key": _plain(key), "value": _plain(each)} for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
