"""`anabranch autoscale`: settings and decisions of a running service's autoscaler."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from anabranch.autoscale.settings import MODES
from anabranch.cli.arguments import count, positive, seconds
from anabranch.cli.asking import EXIT_NOT_RUNNING, command

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

DECISIONS = 20
SETTINGS = (
    "mode",
    "min",
    "max",
    "latency_target",
    "target_utilization",
    "catch_up_duration",
    "stabilization_interval",
    "scale_down_interval",
)
INPUT_WIDTH = 24


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    text = "let a running service find its number of workers, or see why it has so many"
    parser = command(subparsers, "autoscale", text)
    add = parser.add_argument
    add("--mode", choices=MODES, help="recommend only says what it would do, act does it")
    add("--min", type=count, metavar="N", help="at least so many workers")
    add("--max", type=count, metavar="N", help="at most so many workers")
    add("--latency-target", type=seconds, metavar="T", help="that a batch may take: 1s, 500ms")
    add("--target-utilization", type=positive, metavar="U", help="without it: 0.7 is 70%% busy")
    add("--catch-up-duration", type=seconds, metavar="T", help="to get rid of a backlog")
    add("--stabilization-interval", type=seconds, metavar="T", help="to look after a step")
    add("--scale-down-interval", type=seconds, metavar="T", help="before workers leave")
    add("--explain", action="store_true", help="with what each decision rests on")
    add("-n", type=count, default=DECISIONS, metavar="N", help=f"decisions ({DECISIONS})")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Change what is asked for, then show."""
    from anabranch.errors import NotRunning
    from anabranch.http.client import ServiceClient

    wanted = {name: getattr(args, name) for name in SETTINGS if getattr(args, name) is not None}
    try:
        client = ServiceClient.of(args.location)
        if wanted:
            client.post("/autoscale", wanted)
        told = client.get("/autoscale", limit=args.n)
    except NotRunning as error:
        print(f"anabranch: {error}", file=sys.stderr)
        return EXIT_NOT_RUNNING
    if args.json:
        print(json.dumps(told))
        return 0
    print(settings_line(told["settings"]))
    for decision in told["decisions"]:
        print(decision_line(decision))
        if args.explain:
            print(*explained(decision), sep="\n")
    if not told["decisions"]:
        print("no decision yet")
    return 0


def settings_line(settings: Mapping[str, Any]) -> str:
    """For people."""
    if settings["mode"] == "off":
        return "off: --mode recommend begins to look, --mode act acts"
    target = settings["latency_target"]
    goal = (
        f"batches of at most {target:g} s"
        if target
        else f"workers busy {settings['target_utilization']:.0%} of the time"
    )
    return (
        f"{settings['mode']}: {settings['min']} to {settings['max']} workers for {goal}; a step "
        f"down after {settings['scale_down_interval']:g} s, a look of "
        f"{settings['stabilization_interval']:g} s after each step"
    )


def decision_line(decision: Mapping[str, Any]) -> str:
    """What was decided, and why."""
    at = datetime.fromtimestamp(decision["time"], timezone.utc).astimezone()
    what = decision["action"]
    if decision["to"] is not None:
        verb = "goes to" if decision["mode"] == "act" else "would go to"
        what = f"{verb} {decision['to']}"
    elif decision["action"] == "rebalance" and decision["mode"] != "act":
        what = "would rebalance"
    lasted = decision["until"] - decision["time"]
    lasting = f" (for {lasted:.0f} s)" if lasted >= 1 else ""
    return (
        f"{at:%Y-%m-%d %H:%M:%S}  {decision['workers']} workers, {what} "
        f"[{decision['rule']}]{lasting}: {decision['reason']}"
    )


def explained(decision: Mapping[str, Any]) -> list[str]:
    """What it rests on."""
    shown = {"query": decision["query"], **decision["inputs"]}
    return [f"    {name:<{INPUT_WIDTH}} {value}" for name, value in shown.items() if value != ""]
