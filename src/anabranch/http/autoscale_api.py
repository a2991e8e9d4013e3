"""The part of the API that is about the autoscaler."""

from __future__ import annotations

from anabranch.autoscale.settings import MODES
from anabranch.http.controlled import ControlledService
from anabranch.http.operation import ApiCall, Operation
from anabranch.http.schema import Schema

DECISIONS_MAX = 500
SECONDS: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": 1e7}
WORKERS: Schema = {"type": "integer", "minimum": 1, "maximum": 10_000}
SETTINGS: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "mode": {"type": "string", "enum": list(MODES)},
        "min": WORKERS,
        "max": WORKERS,
        "latency_target": SECONDS,
        "target_utilization": {"type": "number", "minimum": 0.1, "maximum": 0.9},
        "catch_up_duration": SECONDS,
        "stabilization_interval": SECONDS,
        "scale_down_interval": SECONDS,
    },
}
WHOLE = ("min", "max")


class AutoscaleApi:
    """Answers for a service."""

    def __init__(self, service: ControlledService) -> None:
        self._service = service

    def operations(self) -> list[Operation]:
        """All of them."""
        return [
            Operation(
                *("GET", "/autoscale", "autoscaler", "The autoscaler: settings, last decisions"),
                lambda call: (200, self._service.autoscaler(call.query.get("limit", 50))),
                query={"limit": {"type": "integer", "minimum": 1, "maximum": DECISIONS_MAX}},
            ),
            Operation(
                *("POST", "/autoscale", "autoscale", "Change its settings, all at once"),
                self._change,
                body=SETTINGS,
            ),
        ]

    def _change(self, call: ApiCall) -> tuple[int, object]:
        # 3.0 is an integer in JSON Schema.
        given = {n: int(v) if n in WHOLE else v for n, v in call.body.items()}
        return 200, {"settings": self._service.autoscale(**given)}
