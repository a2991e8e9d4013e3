"""`anabranch agent`: let this host run workers of a service."""

from __future__ import annotations

import argparse
import logging
import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.arguments import count
from anabranch.errors import InvalidArgument
from anabranch.model.host import HostFacts
from anabranch.model.ids import HostId
from anabranch.transport.auth import Credentials

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers

EXIT_REFUSED = 2
EXIT_ALONE = 3
"""The service cannot be reached any more, or another agent has the host."""

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
"""Of memory, in bytes."""

EPILOG = """\
example:
  anabranch agent --join driver.example:7077 --token-file token --label site=berlin --memory 4g

It ends when the service does, with exit code 0; with --keep-trying, it waits for the next one.
2: the service refuses this host, and says why. 3: the service cannot be reached, or another agent
has the host. Ctrl-C (130) and SIGTERM (143) end it and its workers at once; the service starts
them on other hosts.
"""


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "agent",
        help="let this host run workers of a service",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--join", required=True, metavar="HOST:PORT", help="where the service is")
    parser.add_argument(
        "--token-file", required=True, metavar="FILE", help="the service's file, as its user has it"
    )
    parser.add_argument("--host", metavar="NAME", help="of this host; default: its network name")
    parser.add_argument(
        "--address", metavar="A", help="of this host, as the others reach it; default: found out"
    )
    parser.add_argument(
        "--label", action="append", default=[], metavar="K=V", help="for placement; may be repeated"
    )
    parser.add_argument("--memory", type=memory, metavar="4g", help="for all workers together")
    parser.add_argument("--capacity", type=count, metavar="N", help="most workers; default: any")
    parser.add_argument("--local-dir", metavar="FOLDER", help="for state that is not in memory")
    parser.add_argument(
        "--plain", action="store_true", help="call a service with tls=False, without encryption"
    )
    parser.add_argument(
        "--keep-trying", action="store_true", help="wait for the next service without a limit"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Be an agent until the service needs it no more."""
    from anabranch.processes.agent_config import PATIENCE_SECONDS, AgentConfig
    from anabranch.processes.host_agent import EndingKind, be_agent

    logging.basicConfig(level="WARNING", format="%(asctime)s %(levelname)s anabranch %(message)s")
    labels = dict(label(text) for text in args.label)
    config = AgentConfig(
        checked_address(args.join),
        Credentials(token_of(args.token_file)),
        HostFacts(HostId(args.host or socket.gethostname()), args.capacity, labels, args.memory),
        address=args.address,
        local_dir=args.local_dir,
        tls=False if args.plain else None,
        patience_seconds=None if args.keep_trying else PATIENCE_SECONDS,
    )
    ending = be_agent(config, _say)
    if ending.kind is EndingKind.REFUSED:
        return EXIT_REFUSED
    return 0 if ending.kind is EndingKind.OVER else EXIT_ALONE


def _say(text: str) -> None:
    print(f"anabranch agent: {text}", file=sys.stderr, flush=True)


def memory(text: str) -> int:
    """An amount: `4g`, `512m`, or bytes."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", text.lower())
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is no amount of memory; write 4g or 512m")
    return int(found[1]) * UNITS[found[2]]


def label(text: str) -> tuple[str, str]:
    """`site=berlin` as name and value."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidArgument(f"--label {text}: write a name and a value, as in site=berlin.")
    return name, value


def checked_address(text: str) -> str:
    """`HOST:PORT`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidArgument(f"--join {text}: write an address and a port, as the service's log.")
    return text


def token_of(file: str) -> str:
    """What the service has written."""
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidArgument(f"--token-file {file} cannot be read: {error}.") from error
    if not token:
        raise InvalidArgument(f"--token-file {file} is empty. Copy the service's file again.")
    return token
