"""The family behind `anabranch run riotbench`: four applications on four data sets."""

from __future__ import annotations

from anabranch.workloads.contract import Workload
from anabranch.workloads.riotbench.etl import Etl
from anabranch.workloads.riotbench.stats import Stats
from anabranch.workloads.riotbench.streams import Messages


def make(app: str, stream: Messages) -> Workload:
    """An application on a stream."""
    return {"etl": Etl, "stats": Stats}[app](stream)
