"""A worker: runs the protocol's effects on real state, real rows and the real store."""

from __future__ import annotations

import itertools
import json
import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from anabranch.durability.blobs import BlobStore
from anabranch.durability.changelog import decode_changelog, encode_changelog
from anabranch.durability.manifest import file_ref
from anabranch.durability.names import changelog_path, snapshot_path
from anabranch.durability.snapshot import encode_snapshot
from anabranch.errors import AnabranchError, ProcessorError, ServiceUnavailable
from anabranch.model.ids import Epoch, KeyGroup, Lane
from anabranch.processor.contract import INITIAL_ROWS, BatchTimes, RowChunk
from anabranch.protocol import worker as protocol
from anabranch.runtime.buffer import RowBuffer
from anabranch.runtime.config import WorkerConfig
from anabranch.runtime.crashes import crash_point
from anabranch.runtime.operators import OperatorSlot, Wear
from anabranch.runtime.transaction import (
    Answer,
    RunningTransaction,
    TransactionOutput,
    rows_of_groups,
)
from anabranch.transport.server import ConnectionLost
from anabranch.transport.wire import Message, decode

_log = logging.getLogger("anabranch.worker")


class Worker:
    """Handler of a worker's server (transport contract: Handler)."""

    def __init__(self, config: WorkerConfig, blobs: BlobStore) -> None:
        self._config = config
        self._blobs = blobs
        self._machine = protocol.WorkerMachine()
        self._changed = threading.Condition()
        """Guards the machine, the slots and the table of running transactions."""
        self._slots: dict[str, OperatorSlot] = {}
        self._running: dict[int, RunningTransaction] = {}
        self._tx_ids = itertools.count(1)
        self._snapshot_ids = itertools.count(1)

    # -- control --

    def action(self, name: str, body: bytes) -> Message:
        """Calls of the coordinator."""
        if name == "install":
            return self._install(body)
        message = decode(body)
        match name:
            case "ping":
                return {}
            case "grant":
                groups = tuple(KeyGroup(g) for g in message["groups"])
                self._dispatch(protocol.GroupsGranted(groups, message["version"]))
                return {}
            case "committed":
                return {"snapshots": self._snapshot(message["operator"], message["epoch"])}
            case "status":
                return self._status()
        raise AnabranchError(f"Unknown call '{name}': coordinator and worker versions differ.")

    def close(self) -> None:
        """Let user code clean up."""
        for slot in self._slots.values():
            with slot.apply_lock:
                slot.engine.close()

    def _install(self, body: bytes) -> Message:
        head, pickled = body.split(b"\n", 1)
        header = decode(head)
        name = header["operator"]
        known = self._slots.get(name)
        if known is not None and known.definition_id == header["definition"]:
            return {}
        # User code is found where the driver finds it.
        sys.path.extend(path for path in header["python_path"] if path not in sys.path)
        try:
            definition = cloudpickle.loads(pickled)
            slot = OperatorSlot.open(name, header["definition"], definition, self._config.keyspace)
        except Exception as error:
            raise ProcessorError(
                f"Operator '{name}' cannot be loaded in a worker: {type(error).__name__}: {error}. "
                "Make the module that defines it importable there: install it, or put its folder "
                "on PYTHONPATH before the service starts."
            ) from error
        with self._changed:
            self._changed.wait_for(lambda: not self._machine.is_busy(name))
            replaced = self._slots.get(name)
            self._slots[name] = slot
            self._dispatch(protocol.OperatorInstalled(name))
        if replaced is not None:
            replaced.engine.close()
        return {}

    def _status(self) -> Message:
        with self._changed:
            return {
                "operators": {
                    slot.name: {
                        "key_groups": len(slot.states),
                        "rows": sum(s.num_rows for s in list(slot.states.values())),
                        "bytes": sum(s.num_bytes for s in list(slot.states.values())),
                    }
                    for slot in self._slots.values()
                }
            }

    # -- transactions --

    def exchange(self, header: Message, rows: Iterator[pa.RecordBatch]) -> Answer:
        """A lane's rows in, its outputs out."""
        run = self._open(header)
        self._pass("opened")
        try:
            self._receive(run, rows)
            self._pass("rows-received")
            answer = self._serve(run, header)
            self._pass("answered")
            return answer
        finally:
            self._running.pop(run.opened.tx, None)
            run.rows.clear()

    def _open(self, header: Message) -> RunningTransaction:
        opened = protocol.TransactionOpened(
            tx=next(self._tx_ids),
            operator=header["operator"],
            epoch=Epoch(header["epoch"]),
            base=header["base"],
            lane=Lane(header["lane"]),
            lanes=header["lanes"],
            attempt=header["attempt"],
            groups=tuple(KeyGroup(g) for g in header["groups"]),
            version=header["version"],
        )
        limit = self._config.memory_bytes // 4
        buffer = RowBuffer(opened.groups, self._config.keyspace, limit)
        slot = self._slots.get(opened.operator)
        if slot is None or slot.definition_id != header["definition"]:
            raise ServiceUnavailable(
                f"Worker {self._config.worker} has another definition of operator "
                f"'{opened.operator}' than this task; the task asks again."
            )
        schema = slot.output_schema
        run = RunningTransaction(opened, BatchTimes(**header["times"]), buffer, schema, limit)
        self._running[opened.tx] = run
        self._dispatch(opened)
        return run

    def _receive(self, run: RunningTransaction, rows: Iterator[pa.RecordBatch]) -> None:
        try:
            for batch in rows:
                if not run.todo.empty():  # refused or replaced meanwhile
                    return
                run.rows.append(batch)
        except ConnectionLost:
            self._dispatch(protocol.LaneGone(run.opened.tx))
            raise
        if run.todo.empty():
            counts = run.rows.rows_of(run.opened.groups)
            self._dispatch(protocol.RowsComplete(run.opened.tx, counts))

    def _serve(self, run: RunningTransaction, header: Message) -> Answer:
        """Perform this transaction's effects until the protocol answers or refuses."""
        while True:
            effect = run.todo.get()
            match effect:
                case Answer():
                    return effect
                case protocol.RefuseTransaction():
                    raise effect.error
                case _:
                    self._attempt(run, header, effect)

    def _attempt(self, run: RunningTransaction, header: Message, effect: Any) -> None:
        slot = self._slots[run.opened.operator]
        try:
            match effect:
                case protocol.LoadGroups():
                    slot.load(self._blobs, effect.groups, effect.as_of)
                    self._pass("loaded")
                    done: protocol.Event = protocol.GroupsLoaded(effect.tx)
                case protocol.ApplyTransaction():
                    run.groups = effect.groups
                    run.initial_rows = self._initial_rows(header, effect.groups)
                    self._apply(slot, run)
                    self._pass("applied")
                    done = protocol.TransactionApplied(effect.tx)
                case protocol.PersistChanges():
                    self._persist(slot, run)
                    self._pass("changelog-written")
                    done = protocol.ChangesDurable(effect.tx)
        except AnabranchError as error:
            self._undo(slot, run)
            done = protocol.TransactionFailed(effect.tx, error)
        except BaseException as error:  # also sys.exit() in user code: the lane waits for an answer
            self._undo(slot, run)
            detail = "".join(traceback.format_exception(error))
            message = f"Operator '{slot.name}' failed; nothing was changed.\n{detail}"
            done = protocol.TransactionFailed(effect.tx, ProcessorError(message))
        self._dispatch(done)

    def _apply(self, slot: OperatorSlot, run: RunningTransaction) -> None:
        with slot.apply_lock:
            states = {group: slot.states[group] for group in run.groups}
            for state in states.values():
                state.begin()
            run.stats = slot.engine.apply(run, states)

    def _undo(self, slot: OperatorSlot, run: RunningTransaction) -> None:
        with slot.apply_lock:
            for group in run.groups:
                if group in slot.states:
                    slot.states[group].undo()
        run.reset()

    def _persist(self, slot: OperatorSlot, run: RunningTransaction) -> None:
        opened = run.opened
        changes = run.changes()
        changelog = None
        if changes:
            path = changelog_path(
                opened.operator,
                opened.epoch,
                opened.lane,
                self._config.worker,
                self._config.incarnation,
                opened.tx,
            )
            changelog = self._write(path, opened.epoch, run.groups, encode_changelog(changes))
            slot.note_changes(run.groups, changes)
        output = TransactionOutput(run.groups, run.output, changelog, run.stats)
        with self._changed:
            slot.outputs.update(dict.fromkeys(run.groups, output))

    def _write(self, path: str, epoch: int, groups: tuple[int, ...], buffers: list[Any]) -> str:
        self._blobs.write(path, buffers)
        return json.dumps(file_ref(path, epoch, buffers, groups).to_json())

    def _initial_rows(self, header: Message, groups: tuple[int, ...]) -> list[RowChunk]:
        if header["base"] is not None:
            return []
        chunks = []
        for path in header["initial"]:
            rows = decode_changelog(self._blobs.read(path), path).get(INITIAL_ROWS)
            if rows is not None:
                chunks.append(rows_of_groups(rows, groups, self._config.keyspace))
        rows = pa.concat_tables(chunks) if chunks else None
        return [RowChunk(groups, rows)] if rows is not None and rows.num_rows else []

    def _pass(self, point: str) -> None:
        if self._config.incarnation.endswith("-0"):  # a replacement is to survive
            crash_point(self._config.worker, point)

    # -- protocol --

    def _dispatch(self, event: protocol.Event) -> None:
        with self._changed:
            for effect in self._machine.handle(event):
                match effect:
                    case protocol.DropOperator():
                        self._slots[effect.operator].drop()
                    case protocol.DropOutputs():
                        for group in effect.groups:
                            self._slots[effect.operator].outputs.pop(group, None)
                    case protocol.AnswerTransaction():
                        run = self._running[effect.tx]
                        run.todo.put(self._answer(run))
                    case _:
                        self._running[effect.tx].todo.put(effect)
            self._changed.notify_all()

    def _answer(self, run: RunningTransaction) -> Answer:
        slot = self._slots[run.opened.operator]
        parts: dict[int, tuple[TransactionOutput, list[int]]] = {}
        for group in run.opened.groups:
            output = slot.outputs[group]
            parts.setdefault(id(output), (output, []))[1].append(group)
        report = {
            "transactions": [
                {
                    "worker": self._config.worker,
                    "groups": groups,
                    "changelog": output.changelog,
                    "stats": asdict(output.stats),
                }
                for output, groups in parts.values()
            ]
        }
        answered = tuple((output, tuple(groups)) for output, groups in parts.values())
        return Answer(slot.output_schema, report, answered)

    # -- snapshots --

    def _snapshot(self, operator: str, epoch: int) -> list[str]:
        """Save key groups with long changelogs, as of a committed epoch."""
        slot = self._slots.get(operator)
        if slot is None:
            return []
        saved = {}
        for group in slot.due_for_snapshot(epoch):
            with slot.apply_lock:
                with self._changed:
                    if not self._machine.is_settled(operator, KeyGroup(group), Epoch(epoch)):
                        continue
                saved[group] = slot.states[group].export()
            slot.wear[group] = Wear(epoch)
        if not saved:
            return []
        path = snapshot_path(
            operator,
            epoch,
            self._config.worker,
            self._config.incarnation,
            next(self._snapshot_ids),
        )
        buffers = encode_snapshot(saved, self._config.keyspace)
        return [self._write(path, epoch, tuple(saved), buffers)]
