"""`anabranch state get`: one key, from the running service or from what is stored."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

EXIT_NONE = 1
"""The key has no state."""


def get_key(args: argparse.Namespace, location: str, words: Sequence[str]) -> int:
    """Look it up and print it."""
    from anabranch.errors import InvalidArgument, NotRunning

    if not words:
        raise InvalidArgument("Give the key: anabranch state get LOCATION KEY.")
    key = [_parsed(word) for word in words]
    try:
        found = _of_service(location, args, key)
    except NotRunning:
        found = _stored(location, args, key)
    if args.json:
        print(json.dumps(found, default=str))
    else:
        print(f"{found['operator']} as of batch {found['epoch']}:")
        print(json.dumps(found["value"], default=str, indent=2))
    return EXIT_NONE if found["value"] is None else 0


def _parsed(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word


def _of_service(location: str, args: argparse.Namespace, key: list[Any]) -> dict[str, Any]:
    """As of the last batch, also while key groups move."""
    from urllib.parse import quote

    from anabranch.errors import InvalidArgument
    from anabranch.http.client import ServiceClient

    client = ServiceClient.of(location)
    operator = args.operator
    if operator is None:
        known = list(client.get("/status")["operators"])
        if len(known) != 1:
            raise InvalidArgument(f"Choose an operator with --operator: {', '.join(known)}.")
        operator = known[0]
    asked = json.dumps(key if len(key) > 1 else key[0])
    path = f"/operators/{quote(operator, safe='')}/state"
    found: dict[str, Any] = client.get(path, key=asked, variable=args.variable)
    return found


def _stored(location: str, args: argparse.Namespace, key: list[Any]) -> dict[str, Any]:
    """As of the last batch that is stored; reads the whole variable."""
    from anabranch.spark.state_reader import StateReader, StateSelection

    selection = StateSelection(
        args.operator, args.variable, args.batch, args.timers, False, args.ignore_waiting
    )
    reader = StateReader(location, selection)
    values = [row["value"] for row in _rows(reader) if _is(row["key"], key)]
    value = None if not values else values[0] if len(values) == 1 else values
    return {"operator": reader.operator, "epoch": reader.epoch, "value": value}


def _rows(reader: Any) -> Iterator[dict[str, Any]]:
    for groups in reader.partitions():
        for table in reader.read(groups):
            yield from table.to_pylist()


def _is(found: dict[str, Any], key: list[Any]) -> bool:
    """Times and dates are compared as they are written."""
    values = list(found.values())
    return values == key or json.loads(json.dumps(values, default=str)) == key
