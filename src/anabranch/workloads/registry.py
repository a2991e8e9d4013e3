"""The families of workloads, by the word that `anabranch run` knows them by."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from anabranch.errors import InvalidArgument
from anabranch.workloads.contract import Family

FAMILIES = {
    "nexmark": "anabranch.workloads.nexmark.family:NexmarkFamily",
    "auction": "anabranch.workloads.auction:AuctionFamily",
    "key-count": "anabranch.workloads.keycount:KeyCountFamily",
    "riotbench": "anabranch.workloads.riotbench.family:RiotbenchFamily",
}
"""Where each family is; imported when it is asked for, so that the command line stays fast."""


def family_names() -> list[str]:
    """All families that this installation has."""
    return [name for name, where in FAMILIES.items() if _is_there(where.partition(":")[0])]


def find_family(name: str) -> Family:
    """A family by its word."""
    if name not in family_names():
        raise InvalidArgument(f"There is no workload '{name}'. Known: {', '.join(family_names())}.")
    module, _, kind = FAMILIES[name].partition(":")
    made = getattr(import_module(module), kind)()
    assert isinstance(made, Family)
    return made


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
