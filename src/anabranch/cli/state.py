"""`anabranch state`: what a state location holds, shown or exported; no Spark session is needed."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from anabranch.cli.state_get import get_key
from anabranch.state.access import PRIVATE

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.spark.state_reader import StateReader

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

DESCRIPTION = """\
List the operators and state variables of a state location, or show or export the state of one.
Works beside a running service: it reads what is committed and holds nothing (except --remove).

`anabranch state get LOCATION KEY` looks one key up: in the running service, or in the location.
A key is JSON, or a text as it is; several columns are several words.
"""
EXAMPLES = """\
examples:
  anabranch state state/orders --operator totals --rows 5
  anabranch state get state/orders berlin 42 --operator totals
exit codes of get: 0 it has state, 1 it has none, 2 refused
"""
GET = "get"


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "state",
        help="look into a state location, or export from it",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="LOCATION",
        help="folder or URI of the state; or: get LOCATION KEY",
    )
    parser.add_argument("--operator", metavar="NAME", help="show the state of this operator")
    parser.add_argument("--variable", metavar="NAME", help="one of its state variables")
    parser.add_argument("--timers", action="store_true", help="its timers instead")
    parser.add_argument("--batch", type=int, metavar="N", help="as of this batch (default: last)")
    parser.add_argument("--nested", action="store_true", help="lists and maps as one row a key")
    parser.add_argument(
        "--ignore-waiting", action="store_true", help="leave out rows that are not applied yet"
    )
    parser.add_argument("--rows", type=int, default=20, metavar="N", help="rows to show")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write all rows as Parquet")
    parser.add_argument("--json", action="store_true", help="list as JSON")
    parser.add_argument(
        "--remove", metavar="NAME", help="delete the state of this operator; stop its service first"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List, show, export, remove, or look a key up."""
    if args.words[0] == GET and len(args.words) > 1:
        return get_key(args, args.words[1], args.words[2:])
    args.location, *more = args.words
    if more:
        from anabranch.errors import InvalidArgument

        raise InvalidArgument(
            f"{more[0]!r} is too much. Give a location only, or `get LOCATION KEY`."
        )
    if args.remove is not None:
        return _remove(args.location, args.remove)
    chosen = (args.operator, args.variable, args.export, args.batch)
    if not args.timers and all(choice is None for choice in chosen):
        return _list(args.location, args.json)
    from anabranch.spark.state_reader import StateReader, StateSelection

    selection = StateSelection(
        args.operator, args.variable, args.batch, args.timers, not args.nested, args.ignore_waiting
    )
    reader = StateReader(args.location, selection)
    if args.export is not None:
        rows = _export(reader, args.export)
        print(f"{rows} rows of {reader.operator!r} as of batch {reader.epoch}: {args.export}")
        return 0
    print(f"{reader.operator} as of batch {reader.epoch}: {reader.schema.simpleString()}")
    shown = 0
    for row in islice(_rows(reader), args.rows):
        print(json.dumps(row, default=str))
        shown += 1
    if shown == args.rows:
        print("... (--rows N shows more, --export FILE writes all)")
    return 0


def _remove(location: str, name: str) -> int:
    from anabranch.durability.store import StateStore
    from anabranch.durability.stored_operators import remove

    StateStore(location).look()  # nothing is made where nothing is
    with StateStore(location) as store:
        remove(store, name)
    print(f"Removed the state of {name!r}. Savepoints keep what they have.")
    return 0


def _list(location: str, as_json: bool) -> int:
    from anabranch.spark.state_metadata import METADATA_SCHEMA, metadata_rows

    rows = [dict(zip(METADATA_SCHEMA.names, row, strict=True)) for row in metadata_rows(location)]
    if as_json:
        print(json.dumps(rows, default=str))
        return 0
    for row in rows:
        size = row["snapshotBytes"] + row["changelogBytes"]
        batches = "no batch yet"
        if row["batchIds"]:
            batches = f"batches {row['minBatchId']} to {row['maxBatchId']}"
        print(f"{row['operatorName']}  {row['stateVarName'] or 'timers'} ({row['stateVarType']})")
        print(f"  query {row['queryId'] or 'none yet'}")
        print(f"  {batches}, {row['files']} files, {size} bytes of all its variables")
        print(f"  {row['schema']}")
    if not rows:
        print("no operators yet")
    return 0


def _tables(reader: StateReader) -> Iterator[pa.Table]:
    for groups in reader.partitions():
        yield from reader.read(groups)


def _rows(reader: StateReader) -> Iterator[dict[str, Any]]:
    for table in _tables(reader):
        yield from table.to_pylist()


def _private(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE.file), "wb")


def _export(reader: StateReader, target: Path) -> int:
    """One Parquet file, complete or not there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from anabranch.errors import InvalidArgument
    from anabranch.state.arrow_types import arrow_type

    if target.exists():
        raise InvalidArgument(f"{target} exists. Give another name, or delete it first.")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    rows = 0
    try:
        schema = pa.schema(list(arrow_type(reader.schema)))
        # State is for its owner's eyes: who wants others to see it opens the file.
        with _private(temporary) as file, pq.ParquetWriter(file, schema) as writer:
            for table in _tables(reader):
                writer.write_table(table)
                rows += table.num_rows
        temporary.rename(target)
    except OSError as error:
        raise InvalidArgument(f"Cannot write {target}: {error}. Choose another place.") from error
    finally:
        temporary.unlink(missing_ok=True)
    return rows
