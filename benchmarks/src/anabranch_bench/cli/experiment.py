"""What the commands of benchmarks share: settings from options, results as they come."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from anabranch.cli.progress import print_result
from anabranch.errors import InvalidArgument
from anabranch_bench.probes.machine import machine

T = TypeVar("T")

FROM = "measure nothing: show what --json told before, from that file"


def settings_of(kind: Callable[..., T], args: argparse.Namespace, **more: Any) -> T:
    """Settings whose fields are called as their options."""
    given = {f.name: getattr(args, f.name) for f in fields(kind) if hasattr(args, f.name)}  # type: ignore[arg-type]
    return kind(**given | more)


def print_head(benchmark: str, settings: Any, as_json: bool) -> None:
    """In front of results as JSON: of what they are, on what and when they were made."""
    if as_json:
        head = {"benchmark": benchmark, "machine": machine(), "settings": asdict(settings)}
        print_result("", head)


def stored_results(
    args: argparse.Namespace, benchmark: str, key: str, make: Callable[[Mapping[str, Any]], T]
) -> list[T]:
    """Those of a file that has what `--json` printed; lines with the key are results."""
    check_alone(args, "json")
    head, *lines = read_stored(args.stored, benchmark)
    print(f"From {args.stored}, made {head['machine']['made']}.")
    return [make(line) for line in lines if key in line]


def read_stored(path: Path, benchmark: str) -> list[dict[str, Any]]:
    """What `--json` wrote: one document, or lines of which the first says of what they are."""
    try:
        text = path.read_text(encoding="utf-8")
        try:
            found = [json.loads(text)]
        except ValueError:
            found = [json.loads(line) for line in text.splitlines()]
        name = found[0]["benchmark"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidArgument(
            f"--from: {path} has no stored benchmark. Give a file that `anabranch bench "
            f"{benchmark}` made with --json."
        ) from error
    if name != benchmark:
        raise InvalidArgument(
            f"--from: {path} is of another benchmark. Use `anabranch bench {name} --from {path}`."
        )
    return found


def print_each(found: Iterable[T], line: Callable[[T], object], as_json: bool) -> list[T]:
    """Each result when it is there; all of them."""
    results = []
    for result in found:
        results.append(result)
        print_result(line(result), result.to_json() if as_json else None)  # type: ignore[attr-defined]
    return results


def check_alone(args: argparse.Namespace, *options: str) -> None:
    """What `--from` shows is not measured now."""
    for option in options:
        if getattr(args, option):
            raise InvalidArgument(f"--from measures nothing. Leave --{option} out.")
