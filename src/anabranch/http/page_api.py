"""What the page asks for beside the rest of the API."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from anabranch.durability.blobs import BlobStore
from anabranch.errors import AnabranchError
from anabranch.http.controlled import ControlledService
from anabranch.http.findings import Finding, Picture, findings
from anabranch.http.operation import LIST, MOMENT, OBJECT, TEXT, Answer, ApiCall, Operation
from anabranch.http.recovery import recovery
from anabranch.http.tape import BACK_SECONDS, tape
from anabranch.http.top_rows import top_rows
from anabranch.http.utilisation import Utilisation
from anabranch.model.journal_entry import FREQUENT, JournalEntry

TAPE_SECONDS = 3600.0
TOP_MAX = 200
ENTRIES_KEPT = 500
"""Of the journal, for findings; batches come with the status."""
PRICE_SECONDS = 10.0
"""A dry run is asked for at most so often: it asks all workers for their loads."""


class PageApi:
    """Answers for the page."""

    def __init__(
        self,
        service: ControlledService,
        blobs: BlobStore,
        status: Callable[[], dict[str, Any]],
        key_groups: Callable[[], list[dict[str, Any]]],
    ) -> None:
        """`status` and `key_groups` may be a second old."""
        self._service, self._blobs = service, blobs
        self._status, self._key_groups = status, key_groups
        self._utilisation = Utilisation()
        self._entries: deque[dict[str, Any]] = deque(maxlen=ENTRIES_KEPT)
        self._prices: dict[str, tuple[float, dict[str, Any] | None]] = {}
        self._pricing = threading.Lock()

    def note(self, entry: JournalEntry) -> None:
        """Something has happened; it must be quick."""
        if entry.kind not in FREQUENT:
            plain = {name: getattr(entry, name) for name in JournalEntry.__dataclass_fields__}
            self._entries.append({**plain, "kind": entry.kind.value})

    def operations(self) -> list[Operation]:
        """All of them."""
        return [
            Operation(
                *("GET", "/ownership", "ownership", "Owners of key groups, and those that move"),
                lambda _: (200, self._service.ownership()),
            ),
            Operation(
                *("GET", "/group-loads", "group_loads", "Recent rows and bytes of key groups"),
                self._group_loads,
            ),
            Operation(
                *("GET", "/utilisation", "utilisation", "How busy each worker is, by activity"),
                self._shares,
            ),
            Operation(
                *("GET", "/findings", "findings", "What to know, and what to do about it"),
                self._findings,
                answers={200: LIST},
            ),
            Operation(
                *("GET", "/tape", "tape", "Batches, owners, loads and moves over time"),
                self._tape,
                query={"since": MOMENT, "until": MOMENT},
            ),
            Operation(
                *("GET", "/recovery", "recovery", "What each operator can be restored to"),
                lambda _: (200, recovery(self._blobs, self._status())),
                answers={200: LIST},
            ),
            Operation(
                *("GET", "/operators/{operator}/top", "top", "The largest rows by a column"),
                self._top,
                query={
                    "by": TEXT,
                    "variable": TEXT,
                    "limit": {"type": "integer", "minimum": 1, "maximum": TOP_MAX},
                },
                answers={200: OBJECT},
            ),
        ]

    def _group_loads(self, _: ApiCall) -> Answer:
        groups = self._key_groups()
        return 200, {name: [each[name] for each in groups] for name in ("rows", "bytes")}

    def _shares(self, _: ApiCall) -> Answer:
        self._utilisation.look(self._status()["workers"])
        return 200, self._utilisation.shares()

    def _findings(self, _: ApiCall) -> Answer:
        status = self._status()
        self._utilisation.look(status["workers"])
        picture = Picture(
            time.time(),
            status,
            self._utilisation.shares(),
            self._key_groups(),
            [
                {name: value for name, value in entry.items() if value is not None}
                for entry in list(self._entries)
            ],
        )
        found = findings(picture)
        return 200, [shown for each in found if (shown := self._priced(each)) is not None]

    def _priced(self, finding: Finding) -> dict[str, Any] | None:
        """With what the action would move and take; None: it would change nothing."""
        shown = asdict(finding)
        if finding.action is None or finding.command is None:
            return {**shown, "price": None}
        with self._pricing:
            at, price = self._prices.get(finding.command, (0.0, None))
            if time.monotonic() - at > PRICE_SECONDS:
                price = self._price(finding.action)
                self._prices = {finding.command: (time.monotonic(), price)}
        if price is None:  # nothing that could be done: the fact is still worth knowing
            return {**shown, "action": None, "command": None, "price": None}
        return {**shown, "price": price}

    def _price(self, action: Mapping[str, Any]) -> dict[str, Any] | None:
        given = dict(action)
        kind = given.pop("kind")
        try:
            forecast = getattr(self._service, kind)(**given, dry_run=True)
        except AnabranchError:
            return None
        if not forecast.moves or forecast.lack:
            return None
        return {
            "groups": len(forecast.moves),
            "bytes": forecast.bytes,
            "seconds": forecast.seconds,
        }

    def _tape(self, call: ApiCall) -> Answer:
        since = call.query.get("since", time.time() - TAPE_SECONDS)
        content = self._service.history(since - BACK_SECONDS, call.query.get("until"))
        return 200, tape(content, since)

    def _top(self, call: ApiCall) -> Answer:
        query = call.query
        found = top_rows(
            self._blobs,
            call.path["operator"],
            query.get("variable"),
            query.get("by"),
            query.get("limit", 20),
        )
        return 200, found
