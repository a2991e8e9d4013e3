"""A service that does what a test says, behind the real HTTP server, and a client for it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from anabranch.coordinator.move_handle import MoveHandle, Progress
from anabranch.coordinator.planning import Forecast
from anabranch.durability.blobs import BlobStore
from anabranch.durability.journal import JournalContent, table_of
from anabranch.durability.store import StateStore
from anabranch.errors import InvalidArgument, StaleRouting
from anabranch.http.controlled import Listener
from anabranch.http.server import HttpServer
from anabranch.model.ids import WorkerId
from anabranch.model.journal_entry import EntryKind, JournalEntry

W1, W2 = WorkerId("w1"), WorkerId("w2")


class ScriptedService:
    """Fits `ControlledService`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.moves: list[MoveHandle] = []
        self.listeners: list[Listener] = []
        self.looks = 0
        self.seconds = 0.0
        """That a picture takes."""
        self.routing_version = 4

    def status(self) -> dict[str, Any]:
        self.looks += 1
        time.sleep(self.seconds)
        busy = {"totals": {"applying": 3.0, "fetching": 0.0, "writing": 1.0, "sending": 0.5}}
        idle = {"totals": {"applying": 1.0, "fetching": 0.0, "writing": 0.0, "sending": 0.0}}
        worker = {"status": "up", "restarts": 1, "resident_bytes": 1 << 20, "key_groups": 2}
        stuck = [{"operator": "totals", "seconds": seconds} for seconds in (12.0, 31.5)]
        batch = {"epoch": 7, "started": 1000.0, "seconds": 0.25, "stats": {}}
        return {
            "routing_version": self.routing_version,
            "workers": {
                "w1": {**worker, "busy_seconds": busy, "stuck": []},
                "w2": {**worker, "busy_seconds": idle, "stuck": stuck},
            },
            "operators": {
                "totals": {"rows": 10, "bytes": 100, "last_epoch": 7, "batches": [batch]}
            },
        }

    def source_lag_rows(self) -> dict[str, int]:
        return {"totals": 12}

    def autoscale(self, **settings: Any) -> dict[str, Any]:
        self.asked.append(("autoscale", settings))
        return {"mode": "recommend", **settings}

    def autoscaler(self, limit: int = 50) -> dict[str, Any]:
        decision = {"rule": "enough", "workers": 2, "limit": limit}
        return {"settings": {"mode": "recommend"}, "decisions": [decision]}

    def key_groups(self) -> list[dict[str, Any]]:
        return [
            {"group": group, "owner": "w1", "rows": group % 3, "bytes": 10 * group}
            for group in range(8)
        ]

    def ownership(self) -> dict[str, Any]:
        return {"version": 4, "workers": ["w1"], "owners": [0] * 8, "moving": []}

    def _ask(self, kind: str, **how: Any) -> Any:
        self.asked.append((kind, how))
        if how.get("if_routing_version", self.routing_version) != self.routing_version:
            raise StaleRouting("Look again.")
        if how.get("dry_run"):
            return Forecast("live", (), (W1,), (W1, W2), 100, 0.5)
        move = MoveHandle(
            len(self.moves) + 1,
            how.get("strategy", "live"),
            (W1,),
            (W1, W2),
            lambda _: (Progress(4, 1, 0, 0), {}),
            lambda *_: (),
            self._cancel,
            lambda workers, cause: self._ask("retarget", workers=workers, cause=cause),
            how.get("cause", "program"),
        )
        self.moves.append(move)
        return move

    def _cancel(self, move: MoveHandle, cause: str) -> MoveHandle:
        self.asked.append(("cancel", {"number": move.number, "cause": cause}))
        move.ended("It was cancelled.", {}, Progress(4, 1, 0, 0))
        return move

    def rescale(self, workers: int, **how: Any) -> Any:
        if workers > 64:
            raise InvalidArgument("This machine has room for 64.")
        return self._ask("rescale", workers=workers, **how)

    def move(self, key_groups: Any, to: str, **how: Any) -> Any:
        return self._ask("move", key_groups=key_groups, to=to, **how)

    def place(self, site: str, on: str | None, **how: Any) -> Any:
        return self._ask("place", site=site, on=on, **how)

    def drain(self, worker: str | None = None, *, host: str | None = None, **how: Any) -> Any:
        if (worker is None) == (host is None):
            raise InvalidArgument("drain() takes a worker or a host.")
        named = {"worker": worker} if host is None else {"host": host}
        return self._ask("drain", **named, **how)

    def rebalance(self, **how: Any) -> Any:
        return self._ask("rebalance", **how)

    def standby(self, workers: int, **how: Any) -> Any:
        return self._ask("standby", workers=workers, **how)

    def recent_moves(self) -> list[MoveHandle]:
        return list(self.moves)

    def savepoint(self, name: str) -> Any:
        return SimpleNamespace(name=name, path=f"/{name}", created_at=1, epochs={"a": 1}, bytes=2)

    def savepoints(self) -> list[Any]:
        return [self.savepoint("before")]

    def state(self, operator: str, variable: str | None = None) -> Any:
        if operator != "totals":
            raise InvalidArgument(f"There is no operator {operator!r}.")
        return SimpleNamespace(
            read=lambda keys: (7, [{"n": 1} if keys[0] == 42 else None]),
            locate=lambda key: (3, "w1"),
        )

    def history(self, since: float | None = None, until: float | None = None) -> JournalContent:
        entries = [
            JournalEntry(EntryKind.BATCH, 1000.0, "totals", epoch=7),
            JournalEntry(EntryKind.SERVICE_STARTED, 999.0),
        ]
        return JournalContent(table_of([each for each in entries if each.time >= (since or 0)]))

    def spark_batches(self) -> dict[str, Any]:
        return {}

    def stop(self) -> None:
        self.asked.append(("stop", {}))

    def on_entry(self, listener: Listener) -> None:
        self.listeners.append(listener)

    def happens(self, kind: EntryKind, **fields: Any) -> None:
        """Something is written into the journal."""
        for listener in self.listeners:
            listener(JournalEntry(kind, 1.0, **fields))


class Client(httpx.Client):
    """Calls with a token."""

    def __init__(self, server: HttpServer, token: str | None) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        super().__init__(base_url=server.endpoint.url, headers=headers, timeout=30, trust_env=False)

    def api(self, method: str, path: str, **how: Any) -> httpx.Response:
        return self.request(method, f"/api/v1{path}", **how)


@contextmanager
def serving(service: ScriptedService, folder: Path) -> Iterator[HttpServer]:
    """The server, with its files in a folder, which is a location without operators."""
    with StateStore(str(folder)):
        pass
    server = HttpServer(service, BlobStore(str(folder)))
    server.start()
    try:
        yield server
    finally:
        server.stop()


def tokens_of(server: HttpServer) -> dict[str, str]:
    """The content of its token file."""
    found: dict[str, str] = json.loads(server.token_file.path.read_text())
    return found
