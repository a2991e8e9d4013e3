"""`anabranch report`: a span of time as one self-contained page with pictures."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.arguments import check_folders, moment
from anabranch.state.access import PRIVATE

if TYPE_CHECKING:
    from anabranch.report.span import Span

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

DESCRIPTION = """\
Write what happened to the services of a state location as one HTML page with pictures: batches,
reconfigurations, deaths of workers, errors. It reads the journal in the location, whether a service
runs or not. The page needs no network, and no other file: send it to whoever asks.
"""
EXAMPLE = "example: anabranch report state/orders --since 2h -o incident.html\n"
HOUR = 3600.0


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "report",
        help="a span of time as one page with pictures",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("location", help="folder or URI of the state")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the page")
    parser.add_argument(
        "--since", type=moment, metavar="T", help="1h (ago), or 2026-05-01T03:00 (default: the "
        "hour before the end)"
    )  # fmt: skip
    parser.add_argument("--until", type=moment, metavar="T", help="the same (default: now)")
    parser.add_argument("--json", action="store_true", help="print the numbers of the span as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read and write."""
    from anabranch.cli.status import look
    from anabranch.durability.journal import JournalFolder
    from anabranch.durability.store import StateStore
    from anabranch.errors import InvalidArgument
    from anabranch.report.page import page
    from anabranch.report.span import Span

    check_folders(args, "output")
    store = StateStore(args.location).look()
    now = time.time()
    picture = look(store, now)
    until = now if args.until is None else args.until
    ended = picture.ended_at if args.until is None and picture.ended_at is not None else until
    since = ended - HOUR if args.since is None else args.since
    if since >= until:
        raise InvalidArgument("--since is not before --until. Give an earlier --since.")
    content = JournalFolder(store.blobs).read(since, until)
    span = Span.of(content.rows(), since, max(ended, since + 1.0))
    about = [f"{picture.location}: {picture.how}"]
    about += [f"left out: {what}" for what in content.damaged]
    _write(Path(args.output), page("Anabranch: what happened", about, span))
    print(json.dumps(_numbers(span, args.output)) if args.json else _said(span, args.output))
    return 0


def _numbers(span: Span, output: str) -> dict[str, object]:
    return {"file": output, "since": span.since, "until": span.until, **span.facts()}


def _said(span: Span, output: str) -> str:
    events = len(span.events)
    return f"{output}: {len(span.batches):,} batches, {len(span.moves)} moves, {events} events"


def _write(path: Path, text: str) -> None:
    """Complete or not there; for its owner's eyes, as errors may quote data."""
    from anabranch.errors import InvalidArgument

    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        with os.fdopen(os.open(temporary, flags, PRIVATE.file), "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        raise InvalidArgument(f"Cannot write {path}: {error}. Choose another place.") from error
    finally:
        temporary.unlink(missing_ok=True)
