"""Extras: packages that only some commands and settings need, and whether they are here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from anabranch.errors import needs_extra


@dataclass(frozen=True, slots=True)
class Extra:
    """What `pip install '.[name]'` brings, and for what."""

    modules: tuple[str, ...]
    purpose: str

    def missing(self) -> list[str]:
        """Modules that cannot be imported here."""
        return [name for name in self.modules if not _is_here(name)]


EXTRAS = {
    "rocksdb": Extra(("rocksdict",), 'backend="rocksdb": state larger than memory'),
    "plot": Extra(("matplotlib",), "pictures of demo and bench"),
    "riotbench": Extra(
        ("datasketches", "paho", "rbloom", "sklearn"),
        "run riotbench; RIoTBench in bench evaluation",
    ),
    "bench": Extra(
        ("google.protobuf",),
        "Spark's own Python transformWithState, for comparison: part rows of bench throughput and "
        "bench backends",
    ),
}
"""Those of pyproject.toml that are for users."""

ROWS = "rows"
"""The part of a benchmark that measures Spark's Python operator."""


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def check_parts(parts: Sequence[str]) -> None:
    """Say at once, not after minutes, that Spark's Python operator cannot run."""
    missing = EXTRAS["bench"].missing()
    if ROWS in parts and missing:
        raise needs_extra(
            f"The part '{ROWS}' measures Spark's own transformWithState, which needs "
            f"{', '.join(missing)}",
            "bench",
            ", or leave the part out with --parts",
        )
