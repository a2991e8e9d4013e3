"""`anabranch moves`: running and recent reconfigurations."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from anabranch.cli.asking import command, line, reaching

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "moves", "list running and recent reconfigurations")
    parser.set_defaults(run=run)


@reaching
def run(args: argparse.Namespace) -> int:
    """Print them, the newest last."""
    from anabranch.http.client import ServiceClient

    found = ServiceClient.of(args.location).get("/moves")
    if args.json:
        print(json.dumps(found))
    else:
        print("\n".join(map(line, found)) or "none since the service started")
    return 0
