"""Workers that do nothing but answer the coordinator, all in this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.errors import InvalidArgument
from anabranch.model.host import DRIVER
from anabranch.model.ids import HostId
from anabranch.processes.worker_config import WorkerConfig
from anabranch.processor.contract import BatchTimes
from anabranch.transport.access import Access
from anabranch.transport.messages import control, lanes, orders
from anabranch.transport.messages.kinds import Nothing
from anabranch.transport.server import Reply, Server


class ScriptedWorkers:
    """A launcher: every worker that it starts is the same server."""

    def __init__(self) -> None:
        self.committed = 0
        """How many workers have heard of commits, all in all."""
        self._awaited = 0
        self._changed = threading.Condition()
        self._server: Server | None = None

    def start(
        self, config: WorkerConfig, host: HostId, on_exit: Callable[[str], None]
    ) -> ScriptedWorker:
        """A worker that is up at once, and never ends by itself."""
        with self._changed:
            if self._server is None:
                access = Access(config.credentials.token)
                self._server = Server(config.host, access, self, config.certificate)
            return ScriptedWorker(self._server.address)

    def close(self) -> None:
        """Nobody is asked any more."""
        if self._server is not None:
            self._server.stop()

    def wait_committed(self, count: int, seconds_max: float) -> None:
        """Wait until workers have heard so often of commits."""
        with self._changed:
            self._awaited = count
            self._changed.wait_for(lambda: self.committed >= count, seconds_max)

    def call(self, request: Any) -> object:
        """What a worker that holds nothing would say."""
        match request:
            case control.SlowCalls():
                return control.UserCalls()
            case control.Committed():
                with self._changed:
                    self.committed += 1
                    if self.committed >= self._awaited:  # not each time: that costs too
                        self._changed.notify_all()
                return control.CommitNotes((), "")
            case control.Install() | control.Ping():
                return Nothing()
            case orders.GrantOrder():
                return orders.OrderReply({})
            case _:
                raise InvalidArgument(f"{request} is not in the script.")

    def exchange(self, header: lanes.TransactionHeader, rows: Iterator[pa.RecordBatch]) -> Reply:
        """Rows are not in the script."""
        raise InvalidArgument("Rows are not in the script.")


@dataclass(frozen=True)
class ScriptedWorker:
    """One of them (contract: StartedWorker)."""

    address: str
    pid: int = os.getpid()
    host: HostId = DRIVER

    def stop(self) -> None:
        """It has nothing to end."""

    kill = dump = stop


class ScriptedClock:
    """A query that runs (contract: QueryClock)."""

    def times(self, operator: str, query_id: str, epoch: int) -> BatchTimes:
        """A batch each second."""
        return BatchTimes(1000 * epoch, 0, 0)

    def note_batch(
        self, operator: str, query_id: str, epoch: int, lanes: int, stats: Mapping[str, int]
    ) -> None:
        """Nobody asks."""

    def is_running(self, operator: str, query_id: str) -> bool | None:
        """It does."""
        return True


class ScriptedDefinition:
    """An operator of which only the name counts (contract: OperatorDefinition)."""

    description: Mapping[str, Any] = {"kind": "scripted"}
    placed_by = None
    output_schema = pa.schema([])

    def unreadable(self, stored: Mapping[str, Any]) -> list[str]:
        """All of it can be read."""
        return []

    def after(self, stored: Mapping[str, Any]) -> ScriptedDefinition:
        """Nothing is to be remembered."""
        return self

    open: Callable[..., Any]
    """Nobody opens it."""
