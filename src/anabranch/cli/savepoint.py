"""`anabranch savepoint`: named copies of a location's state, without a running service."""

from __future__ import annotations

import argparse
import threading
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from anabranch.cli.main import COMMANDS

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers
    from anabranch.durability.savepoint import Savepoint


def register(subparsers: Subparsers) -> None:
    """Add the command and its own."""
    parser = subparsers.add_parser("savepoint", help=COMMANDS["savepoint"], description=__doc__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    listing = commands.add_parser("list", help="savepoints of a location, the oldest first")
    listing.add_argument("location", help="state location: a folder or a URI")
    listing.set_defaults(run=_list)

    create = commands.add_parser(
        "create", help="save a location that no service holds (else: service.savepoint(name))"
    )
    create.add_argument("location", help="state location: a folder or a URI")
    create.add_argument("name")
    create.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        metavar="FOLDER",
        help="a query's checkpointLocation, to save Spark's offsets too (may be repeated)",
    )
    create.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="OPERATOR",
        help="leave out an operator that is not part of its query any more (may be repeated)",
    )
    _add_shared(create)
    create.set_defaults(run=_create)

    delete = commands.add_parser("delete", help="remove a savepoint of a location")
    delete.add_argument("location", help="state location: a folder or a URI")
    delete.add_argument("name")
    delete.set_defaults(run=_delete)

    copy = commands.add_parser("copy", help="copy a savepoint to another place or store")
    copy.add_argument("savepoint", help="path of the savepoint, as `list` shows it")
    copy.add_argument("target", help="new folder or URI")
    _add_shared(copy)
    copy.set_defaults(run=_copy)

    checkpoint = commands.add_parser(
        "checkpoint", help="write a Spark checkpoint from which a restored query continues"
    )
    checkpoint.add_argument("savepoint", help="path of the savepoint, as `list` shows it")
    checkpoint.add_argument("target", help="new folder or URI: the query's checkpointLocation")
    checkpoint.add_argument(
        "--query",
        metavar="ID",
        help="which query's, if the savepoint has several; `list` shows them",
    )
    _add_shared(checkpoint)
    checkpoint.set_defaults(run=_checkpoint)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shared",
        action="store_true",
        help="let other users of this machine read it, as far as the umask does (else nobody)",
    )


def _list(args: argparse.Namespace) -> int:
    from anabranch.durability.blobs import BlobStore
    from anabranch.durability.savepoint import list_savepoints

    found = list_savepoints(BlobStore(args.location))
    for savepoint in found:
        _show(savepoint)
    if not found:
        print(f"no savepoints in {args.location}")
    return 0


def _create(args: argparse.Namespace) -> int:
    from anabranch.durability.blobs import BlobStore
    from anabranch.durability.names import FORMAT_FILE
    from anabranch.durability.savepoint import create_savepoint
    from anabranch.durability.spark_checkpoint import SparkCheckpoint
    from anabranch.durability.store import StateStore
    from anabranch.errors import InvalidArgument

    blobs = BlobStore(args.location, shared=args.shared)
    if not blobs.exists(FORMAT_FILE):
        raise InvalidArgument(f"{blobs.location} is not a state location.")
    checkpoints = [SparkCheckpoint(location) for location in args.checkpoint]
    with StateStore(blobs).open() as store:
        lock, without = threading.Lock(), args.without
        _show(create_savepoint(store, lock, args.name, checkpoints, without=without))
    return 0


def _delete(args: argparse.Namespace) -> int:
    from anabranch.durability.blobs import BlobStore
    from anabranch.durability.savepoint import delete_savepoint

    delete_savepoint(BlobStore(args.location), args.name)
    return 0


def _copy(args: argparse.Namespace) -> int:
    from anabranch.durability.savepoint import Savepoint

    _show(Savepoint.open(args.savepoint).copy(args.target, shared=args.shared))
    return 0


def _checkpoint(args: argparse.Namespace) -> int:
    from anabranch.durability.savepoint import Savepoint

    savepoint = Savepoint.open(args.savepoint)
    savepoint.extract_checkpoint(args.target, args.query, shared=args.shared)
    print(args.target)
    return 0


def _show(savepoint: Savepoint) -> None:
    when = datetime.fromtimestamp(savepoint.created_at / 1000, timezone.utc)
    print(f"{savepoint.name}  {when:%Y-%m-%d %H:%M:%S} UTC  {savepoint.bytes:,} bytes")
    print(f"  path: {savepoint.path}")
    for query_id, query in savepoint.queries.items():
        names = ", ".join(query["operators"])
        offsets = "with" if query["offsets"] is not None else "without"
        print(f"  query {query_id}: {names} as of batch {query['epoch']}, {offsets} offsets")
