"""Reconfigurations that callers ask for: once each, with a limit of time if they want one."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from anabranch.coordinator.move_handle import MoveHandle
from anabranch.coordinator.planning import Forecast
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.http.controlled import ControlledService
from anabranch.http.problems import Problem
from anabranch.migration.strategies import COMMON

KEYS_MAX = 1000
"""Idempotency keys that are remembered."""
ROLLBACK, CONTINUE = "rollback", "continue"
TIMEOUT = "timeout"
"""Who asks for the way back when the time is over."""
HOW = ("strategy", "bytes_per_second", "latency_target", "if_routing_version")


@dataclass(frozen=True, slots=True)
class MoveKind:
    """What a kind of request says besides how it is to be done."""

    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


KINDS = {
    "rescale": MoveKind(("workers",), ("hosts", "assignment")),
    "move": MoveKind(("key_groups", "to")),
    "place": MoveKind(("site",), ("on",)),
    "drain": MoveKind(takes=("worker", "host")),
    "rebalance": MoveKind(),
    "standby": MoveKind(("workers",)),
}


class MoveBook:
    """Asks the service, and remembers what was asked with which key."""

    def __init__(self, service: ControlledService) -> None:
        self._service = service
        self._answers: OrderedDict[str, tuple[str, tuple[int, dict[str, Any]]]] = OrderedDict()
        self._asking = threading.Lock()
        """One request at a time: a repeated one finds what the first has done."""

    def ask(self, wanted: Mapping[str, Any], cause: str, key: str | None) -> tuple[int, Any]:
        """Begin a reconfiguration: 202 and the move; or say what it would do: 200."""
        content = json.dumps(wanted, sort_keys=True)
        with self._asking:
            known = None if key is None else self._answers.get(key)
            if known is not None:
                if known[0] != content:
                    raise Problem(422, "This Idempotency-Key was used for another request.")
                return known[1]
            answer = self._ask(wanted, cause)
            if key is not None:
                self._answers[key] = content, answer
                while len(self._answers) > KEYS_MAX:
                    self._answers.popitem(last=False)
        return answer

    def _ask(self, wanted: Mapping[str, Any], cause: str) -> tuple[int, dict[str, Any]]:
        kind = wanted["kind"]
        given = _given(kind, wanted)
        how = {name: wanted[name] for name in HOW if name in wanted}
        options = wanted.get("options", {})
        if taken := sorted({*COMMON, *HOW, "cause"} & {*options}):
            raise InvalidArgument(f"{taken[0]!r} is no option of a strategy: say it beside them.")
        how = {**options, **how, "cause": cause}
        if wanted.get("dry_run", False):
            return 200, forecast_picture(getattr(self._service, kind)(**given, **how, dry_run=True))
        move: MoveHandle = getattr(self._service, kind)(**given, **how)
        if "timeout_s" in wanted:
            self._watch(move, wanted["timeout_s"], wanted.get("on_timeout", CONTINUE))
        return 202, picture(move)

    @staticmethod
    def _watch(move: MoveHandle, seconds: float, then: str) -> None:
        if then != ROLLBACK:
            return  # it goes on: nothing has to be done at its time

        def watch() -> None:
            try:
                if not move.wait(seconds):
                    move.cancel(cause=TIMEOUT)
            except AnabranchError:
                return  # it has failed, or the service was stopped: its outcome says so

        name = f"anabranch-timeout-{move.number}"
        threading.Thread(target=watch, name=name, daemon=True).start()

    def all(self) -> list[dict[str, Any]]:
        """Running and recent reconfigurations, whoever asked."""
        return [picture(move) for move in self._service.recent_moves()]

    def find(self, number: int) -> MoveHandle:
        """One of them."""
        for move in self._service.recent_moves():
            if move.number == number:
                return move
        raise Problem(404, f"There is no recent reconfiguration {number}. See GET /api/v1/moves.")


def _given(kind: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What the kind says; refused if it says too little or too much."""
    known = KINDS[kind]
    given = {}
    for name in {name for each in KINDS.values() for name in (*each.needs, *each.takes)}:
        if name in wanted:
            if name not in known.needs + known.takes:
                raise InvalidArgument(f"A request of kind {kind!r} does not take {name!r}.")
            given[name] = wanted[name]
        elif name in known.needs:
            raise InvalidArgument(f"A request of kind {kind!r} needs {name!r}.")
    if kind == "place":
        given.setdefault("on", None)  # anywhere
    return given


def picture(move: MoveHandle) -> dict[str, Any]:
    """A reconfiguration as plain values."""
    report = move.report().as_json()
    started = datetime.fromtimestamp(move.started, timezone.utc)
    return {
        "number": move.number,
        "cause": move.cause,
        "started": started.isoformat(timespec="milliseconds"),
        "is_done": move.is_done,
        "progress": round(move.progress, 4),
        **report,
    }


def forecast_picture(forecast: Forecast) -> dict[str, Any]:
    """What a reconfiguration would do, as plain values."""
    plain = asdict(forecast)
    moves = plain.pop("moves")
    return {"dry_run": True, **plain, "groups": len(moves), "moves": moves, "text": str(forecast)}
