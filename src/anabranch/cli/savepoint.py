"""`anabranch savepoint`: named copies of a location's state, with or without a service."""

from __future__ import annotations

import argparse
import contextlib
import json
import threading
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from anabranch.cli.arguments import seconds
from anabranch.cli.asking import agrees
from anabranch.cli.main import COMMANDS

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers
    from anabranch.durability.blobs import BlobStore
    from anabranch.durability.savepoint import Savepoint


def register(subparsers: Subparsers) -> None:
    """Add the command and its own."""
    parser = subparsers.add_parser("savepoint", help=COMMANDS["savepoint"], description=__doc__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    listing = commands.add_parser("list", help="savepoints of a location, the oldest first")
    listing.add_argument("location", help="state location: a folder or a URI")
    _add_json(listing)
    listing.set_defaults(run=_list)

    create = commands.add_parser(
        "create", help="save the state of a location; if a service runs there, it does it"
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
    create.add_argument(
        "--timeout", type=seconds, default=600.0, metavar="T", help="for the running service (10m)"
    )
    create.add_argument("--dry-run", action="store_true", help="only say what would be saved")
    _add_json(create)
    create.set_defaults(run=_create)

    delete = commands.add_parser("delete", help="remove a savepoint of a location")
    delete.add_argument("location", help="state location: a folder or a URI")
    delete.add_argument("name")
    delete.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    _add_json(delete)
    delete.set_defaults(run=_delete)

    copy = commands.add_parser("copy", help="copy a savepoint to another place or store")
    copy.add_argument("savepoint", help="path of the savepoint, as `list` shows it")
    copy.add_argument("target", help="new folder or URI")
    _add_shared(copy)
    _add_json(copy)
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


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _list(args: argparse.Namespace) -> int:
    from anabranch.durability.blobs import BlobStore
    from anabranch.durability.savepoint import list_savepoints

    found = list_savepoints(BlobStore(args.location))
    if args.json:
        print(json.dumps([_plain(savepoint) for savepoint in found]))
        return 0
    for savepoint in found:
        _show(savepoint)
    if not found:
        print(f"no savepoints in {args.location}")
    return 0


def _create(args: argparse.Namespace) -> int:
    from anabranch.durability.blobs import BlobStore
    from anabranch.durability.names import FORMAT_FILE
    from anabranch.errors import InvalidArgument, NotRunning

    blobs = BlobStore(args.location, shared=args.shared)
    if not blobs.exists(FORMAT_FILE):
        raise InvalidArgument(f"{blobs.location} is not a state location.")
    if args.dry_run:
        return _would_save(args)
    with contextlib.suppress(NotRunning):  # then nobody is asked: the location is free
        return _ask_service(args)
    return _save(blobs, args)


def _would_save(args: argparse.Namespace) -> int:
    from anabranch.durability.store import StateStore

    store = StateStore(args.location).look()
    wanted = {name: store.epochs(name)[-1:] for name in store.operators() if name not in
              args.without}  # fmt: skip
    if args.json:
        print(json.dumps({"dry_run": True, "name": args.name, "operators": wanted}))
        return 0
    for name, epochs in wanted.items():
        print(f"{name}: as of batch {epochs[0]} or later" if epochs else f"{name}: no batch yet")
    return 0


def _ask_service(args: argparse.Namespace) -> int:
    from anabranch.durability.savepoint import Savepoint
    from anabranch.errors import InvalidArgument
    from anabranch.http.client import ServiceClient

    client = ServiceClient.of(args.location, args.timeout)
    if args.checkpoint or args.without:
        raise InvalidArgument(
            "A service runs here, and saves the offsets of its queries itself. For others, call "
            "service.savepoint(name, checkpoints=[...]) in its program."
        )
    made = client.post("/savepoints", {"name": args.name})
    _tell(Savepoint.open(made["path"]), args)
    return 0


def _save(blobs: BlobStore, args: argparse.Namespace) -> int:
    from anabranch.durability.savepoint import create_savepoint
    from anabranch.durability.spark_checkpoint import SparkCheckpoint
    from anabranch.durability.store import StateStore

    checkpoints = [SparkCheckpoint(location) for location in args.checkpoint]
    with StateStore(blobs).open() as store:
        lock, without = threading.Lock(), args.without
        _tell(create_savepoint(store, lock, args.name, checkpoints, without=without), args)
    return 0


def _delete(args: argparse.Namespace) -> int:
    from anabranch.durability.blobs import BlobStore
    from anabranch.durability.savepoint import delete_savepoint, list_savepoints

    blobs = BlobStore(args.location)
    found = [each for each in list_savepoints(blobs) if each.name == args.name]
    if args.dry_run or not args.yes:
        for savepoint in found:
            _tell(savepoint, args)
        if args.dry_run or (found and not agrees()):
            return 0 if args.dry_run else 2
    delete_savepoint(blobs, args.name)
    if args.json:
        print(json.dumps({"deleted": args.name}))
    return 0


def _copy(args: argparse.Namespace) -> int:
    from anabranch.durability.savepoint import Savepoint

    _tell(Savepoint.open(args.savepoint).copy(args.target, shared=args.shared), args)
    return 0


def _checkpoint(args: argparse.Namespace) -> int:
    from anabranch.durability.savepoint import Savepoint

    savepoint = Savepoint.open(args.savepoint)
    savepoint.extract_checkpoint(args.target, args.query, shared=args.shared)
    print(args.target)
    return 0


def _tell(savepoint: Savepoint, args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps(_plain(savepoint)))
    else:
        _show(savepoint)


def _plain(savepoint: Savepoint) -> dict[str, Any]:
    return {
        "name": savepoint.name,
        "path": savepoint.path,
        "created_at": savepoint.created_at,
        "bytes": savepoint.bytes,
        "epochs": dict(savepoint.epochs),
    }


def _show(savepoint: Savepoint) -> None:
    when = datetime.fromtimestamp(savepoint.created_at / 1000, timezone.utc)
    print(f"{savepoint.name}  {when:%Y-%m-%d %H:%M:%S} UTC  {savepoint.bytes:,} bytes")
    print(f"  path: {savepoint.path}")
    for query_id, query in savepoint.queries.items():
        names = ", ".join(query["operators"])
        offsets = "with" if query["offsets"] is not None else "without"
        print(f"  query {query_id}: {names} as of batch {query['epoch']}, {offsets} offsets")
