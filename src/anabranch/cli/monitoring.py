"""`anabranch monitoring`: alert rules for Prometheus and a dashboard for Grafana."""

from __future__ import annotations

import argparse
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

FILES = {"alerts": "alerts.yaml", "dashboard": "dashboard.json"}
DESCRIPTION = """\
Print what belongs to the metrics of a service: alert rules for Prometheus, a dashboard for Grafana.
"""
EXAMPLE = "example: anabranch monitoring alerts > /etc/prometheus/anabranch.yaml\n"


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "monitoring",
        help="alert rules for Prometheus and a dashboard for Grafana",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=list(FILES))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print one of them."""
    print(text_of(args.what), end="")
    return 0


def text_of(what: str) -> str:
    """The content of a file."""
    folder = files("anabranch.http").joinpath("monitoring")
    return folder.joinpath(FILES[what]).read_text(encoding="utf-8")
