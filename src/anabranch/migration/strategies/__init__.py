"""Every strategy by the name that users type; a file each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

from anabranch.errors import InvalidArgument
from anabranch.migration.plan import GroupMove
from anabranch.migration.steps import Steps
from anabranch.migration.strategies.at_once import at_once
from anabranch.migration.strategies.drrs import drrs
from anabranch.migration.strategies.lazy import lazy
from anabranch.migration.strategies.live import live
from anabranch.migration.strategies.meces import meces
from anabranch.migration.strategies.megaphone import PLANS, megaphone
from anabranch.migration.strategies.order_unaware import order_unaware
from anabranch.migration.strategies.pause import pause
from anabranch.migration.strategies.replicate import replicate
from anabranch.migration.strategies.rhino import rhino, standby
from anabranch.migration.strategies.stop_restart import stop_restart
from anabranch.model.ids import KeyGroup

STRATEGIES: dict[str, Callable[..., Steps]] = {
    "live": live,
    "stop-restart": stop_restart,
    "pause": pause,
    "replicate": replicate,
    "megaphone": megaphone,
    "rhino": rhino,
    "order-unaware": order_unaware,
    "meces": meces,
    "drrs": drrs,
    "lazy": lazy,
}

COMMON = (
    *("wait", "dry_run", "bytes_per_second", "latency_target", "assignment"),
    *("if_routing_version", "cause"),
)
"""Options beside those of a strategy, for messages: others look at them before they come here."""

STANDBY = "standby"
"""Not a strategy for users: what `service.standby()` runs."""

ALWAYS_AS_ASKED = ("stop-restart", STANDBY)
"""They do more than change owners: new processes, replicas. So they do it without batches too."""


def check(name: Any, options: Mapping[str, Any]) -> None:
    """Refuse unknown strategies and options, early."""
    if not isinstance(name, str) or name not in STRATEGIES:
        raise InvalidArgument(f"strategy must be one of {', '.join(STRATEGIES)}, not {name!r}.")
    known = inspect.signature(STRATEGIES[name]).parameters
    allowed = [p for p in known if p != "moves"]
    for option, value in options.items():
        if option not in allowed:
            has = f"has the options {', '.join(allowed)}" if allowed else "has no options"
            raise InvalidArgument(
                f"Strategy '{name}' {has} of its own; {option!r} is not one of them, nor of those "
                f"of all strategies: {', '.join(COMMON)} (assignment: rescale only)."
            )
        if option == "plan":
            if value not in PLANS:
                raise InvalidArgument(f"plan must be one of {', '.join(PLANS)}, not {value!r}.")
        elif not _is_positive(value):
            raise InvalidArgument(f"{option} must be a positive number, not {value!r}.")


def _is_positive(value: Any) -> bool:
    """A whole number above 0, also one of NumPy's."""
    return isinstance(value, Integral) and int(value) > 0 and not isinstance(value, bool)


def steps_of(name: str, moves: tuple[GroupMove, ...], options: Mapping[str, Any]) -> Steps:
    """Start a strategy."""
    if name == STANDBY:
        return standby(moves)
    return STRATEGIES[name](moves, **options)


def idle_steps_of(
    name: str, moves: tuple[GroupMove, ...], bytes_of: Mapping[KeyGroup, int]
) -> Steps | None:
    """Start what takes the place of a strategy while no batch runs; None: nothing does."""
    return None if name in ALWAYS_AS_ASKED else at_once(moves, bytes_of)
