"""Extras: packages that only some commands and settings need, and whether they are here."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True, slots=True)
class Extra:
    """What `pip install '.[name]'` brings, and for what."""

    modules: tuple[str, ...]
    purpose: str
    install: str = ""
    """How it is installed where it is not an extra."""

    def missing(self) -> list[str]:
        """Modules that cannot be imported here."""
        return [name for name in self.modules if not _is_here(name)]


EXTRAS = {
    "rocksdb": Extra(("rocksdict",), 'backend="rocksdb": state larger than memory'),
    "tls": Extra(("cryptography",), "TLS, as soon as other hosts take part"),
    "plot": Extra(("matplotlib",), "pictures of demo and bench"),
    "ui": Extra(
        ("prometheus_client", "rich", "starlette", "uvicorn"),
        "the HTTP API of a service, metrics, and anabranch watch",
    ),
    "bench": Extra(
        ("anabranch_bench",), "anabranch run and anabranch bench", "pip install ./benchmarks"
    ),
}
"""Those of pyproject.toml that are for users, and the distribution anabranch-bench."""


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
