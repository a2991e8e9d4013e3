"""`anabranch bench encryption`: what TLS costs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.arguments import count, positive
from anabranch_bench.cli.experiment import (
    FROM,
    print_each,
    print_head,
    settings_of,
    stored_results,
)

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers


def register(kinds: Subparsers) -> None:
    """Add the benchmark's parser."""
    parser = kinds.add_parser(
        "encryption",
        help="CPU time of copies between two processes, plain and with TLS",
        description=(
            "Two processes copy bytes as workers copy state, plain and with TLS in turns: CPU "
            "seconds of both ends a GB, and the time to connect and call. Needs the extra tls."
        ),
        epilog="example: anabranch bench encryption --gb 0.5 --repeat 3",
    )
    add = parser.add_argument
    add("--gb", type=positive, default=1.0, help="size of each copy (1)")
    add("--repeat", type=count, default=5, help="copies of each kind (5)")
    add("--json", action="store_true", help="print JSON, one line for each")
    parser.add_argument("--from", dest="stored", type=Path, metavar="FILE", help=FROM)
    parser.set_defaults(run=run_encryption)


def run_encryption(args: argparse.Namespace) -> int:
    """Run and print."""
    from anabranch_bench.experiments.encryption import (
        EncryptionSettings,
        Turn,
        run_turns,
        summary,
    )

    if args.stored:
        found = stored_results(args, "encryption", "encryption", Turn.from_json)
        print_each(found, Turn.line, False)
    else:
        settings = settings_of(EncryptionSettings, args)
        print_head("encryption", settings, args.json)
        found = print_each(run_turns(settings), Turn.line, args.json)
    if not args.json:
        print(*summary(found), sep="\n")
    return 0
