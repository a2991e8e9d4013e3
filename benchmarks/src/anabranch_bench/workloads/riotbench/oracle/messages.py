"""Events as the oracle reads them: JSON, numbers and texts, one message at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from anabranch_bench.workloads.riotbench.datasets import Dataset


@dataclass(frozen=True)
class Message:
    """One message."""

    id: int
    at_ms: int
    sensor: str
    texts: dict[str, str]
    """All entries, as they were sent."""

    def number(self, name: str) -> float:
        """An entry as a number."""
        return float(self.texts[name])

    def features(self, dataset: Dataset) -> list[float]:
        """What models see."""
        second = self.at_ms % 86_400_000 / 1000
        return [second if n == "second_of_day" else self.number(n) for n in dataset.features]


def read(dataset: Dataset, events: Any) -> Iterator[Message]:
    """All messages in their order."""
    for number, text in zip(
        *(events.column(n).to_pylist() for n in ("id", "message")), strict=True
    ):
        document = json.loads(text)
        texts = {e["n"]: e["v"] if "v" in e else e["sv"] for e in document["e"]}
        yield Message(number, int(document["bt"]), texts[dataset.id_field], texts)


def plain(number: float) -> str:
    """A number as shortest text, without an exponent or an empty fraction."""
    text = format(Decimal(repr(number)), "f")
    return text.removesuffix(".0")
