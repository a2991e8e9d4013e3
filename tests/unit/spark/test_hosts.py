"""Hosts of Spark: what agents cost, and what users may write."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import InvalidArgument
from anabranch.model.ids import HostId
from anabranch.spark.executors import Executor
from anabranch.spark.hosts import SparkHosts, memory_bytes, slots_lost

H1, H2, H3 = HostId("h1"), HostId("h2"), HostId("h3")


@pytest.mark.parametrize(
    ("cores", "share", "is_static", "expected"),
    [
        ([2, 2], 0.99, True, None),
        ([1, 1], 0.99, True, None),
        ([8], 0.99, True, None),
        ([4], 1.98, True, None),
        ([2, 2], 1.0, True, "2 of Spark's 4 slots. To lose none, set spark.task.cpus=0.99 "),
        ([4], 2.0, True, "1 of Spark's 2 slots. To lose none, set spark.task.cpus=1.98 "),
        ([4, 4], 0.99, False, "2 of Spark's 8 slots. With dynamic allocation"),
        ([], 1.0, True, None),
    ],
)
def test_what_agents_cost(
    cores: list[int], share: float, is_static: bool, expected: str | None
) -> None:
    executors = [Executor(str(n), HostId(f"h{n}"), count) for n, count in enumerate(cores)]
    said = slots_lost(executors, share, is_static)
    assert said is None if expected is None else expected in (said or "")


def test_amounts_of_memory() -> None:
    assert memory_bytes(1024) == memory_bytes("1k") == memory_bytes("1KB") == 1024
    assert memory_bytes("8g") == 8 << 30
    assert memory_bytes(" 512m ") == 512 << 20
    wrong: Any
    for wrong in (0, -1, True, "", "g", "8x", "-1g", "0", 1.5, None):
        with pytest.raises(InvalidArgument, match="memory must be"):
            memory_bytes(wrong)


@pytest.mark.parametrize("name", ["workers_per_host", "hosts"])
@pytest.mark.parametrize("wrong", [0, -1, True, "2", 1.5])
def test_wrong_arguments(name: str, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} must be a whole number from 1"):
        SparkHosts(**{name: wrong})
