"""What the commands of benchmarks share: settings from options, results as they come."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, TypeVar

from anabranch.cli.progress import print_result

T = TypeVar("T")


def settings_of(kind: Callable[..., T], args: argparse.Namespace, **more: Any) -> T:
    """Settings whose fields are called as their options."""
    given = {f.name: getattr(args, f.name) for f in fields(kind) if hasattr(args, f.name)}  # type: ignore[arg-type]
    return kind(**given | more)


def print_each(found: Iterable[T], line: Callable[[T], object], as_json: bool) -> list[T]:
    """Each result when it is there; all of them."""
    results = []
    for result in found:
        results.append(result)
        print_result(line(result), result.to_json() if as_json else None)  # type: ignore[attr-defined]
    return results
