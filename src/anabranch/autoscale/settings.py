"""What a user wants of the autoscaler."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from anabranch.errors import InvalidArgument

OFF, RECOMMEND, ACT = "off", "recommend", "act"
MODES = (OFF, RECOMMEND, ACT)
WORKERS_MAX = 10_000
SECONDS = ("catch_up_duration", "stabilization_interval", "scale_down_interval")


@dataclass(frozen=True, slots=True)
class AutoscaleSettings:
    """Limits, targets and times; seconds are seconds."""

    mode: str = RECOMMEND
    """"recommend" only says what it would do, "act" does it, "off" does neither."""
    min: int = 1
    max: int = 8
    latency_target: float | None = None
    """That a batch may take, as the query sees it."""
    target_utilization: float = 0.7
    """Without a latency target: how busy workers may be."""
    catch_up_duration: float = 30.0
    """How long a backlog may take to disappear."""
    stabilization_interval: float = 10.0
    """After a step, how long to look before the next one."""
    scale_down_interval: float = 300.0
    """How long less must have been enough before workers leave."""

    def changed(self, given: Mapping[str, Any]) -> AutoscaleSettings:
        """With these other values; a sentence for what is wrong with them."""
        names = [field.name for field in fields(self)]
        for name in given:
            if name not in names:
                raise InvalidArgument(
                    f"The autoscaler has no setting {name!r}, only: {', '.join(names)}."
                )
        return checked(replace(self, **given))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def checked(settings: AutoscaleSettings) -> AutoscaleSettings:
    """The same; a sentence for what makes no sense."""
    if settings.mode not in MODES:
        raise InvalidArgument(
            f'mode must be "recommend", "act" or "off", got {settings.mode!r}. "recommend" only '
            "says what it would do."
        )
    for name in ("min", "max"):
        value: Any = getattr(settings, name)
        if not _is_whole(value) or not 1 <= value <= WORKERS_MAX:
            raise InvalidArgument(f"{name} must be a number of workers from 1, got {value!r}.")
    if settings.min > settings.max:
        raise InvalidArgument(f"min is {settings.min} and max is {settings.max}: swap them?")
    target: Any = settings.latency_target
    if target is not None and not _is_seconds(target):
        raise InvalidArgument(
            f"latency_target must be the seconds that a batch may take, got {target!r}."
        )
    share: Any = settings.target_utilization
    if not _is_seconds(share) or not 0.1 <= share <= 0.9:
        raise InvalidArgument(
            f"target_utilization must be from 0.1 to 0.9 (0.7: workers are busy 70% of the time), "
            f"got {share!r}."
        )
    for name in SECONDS:
        value = getattr(settings, name)
        if not _is_seconds(value):
            raise InvalidArgument(f"{name} must be seconds above 0, got {value!r}.")
    return settings


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_seconds(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < math.inf
