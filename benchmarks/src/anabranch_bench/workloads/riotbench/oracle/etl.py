"""ETL, one message after the other."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import pyarrow as pa

from anabranch_bench.workloads.riotbench.bloom import open_filter
from anabranch_bench.workloads.riotbench.datasets import TIMESTAMP
from anabranch_bench.workloads.riotbench.oracle.messages import Message, plain, read
from anabranch_bench.workloads.riotbench.streams import Messages


def expected_messages(stream: Messages, events: Any, bloom: bytes, width: int) -> pa.Table:
    """What ETL publishes."""
    dataset, sensors = stream.dataset, stream.known
    contained = open_filter(bloom)
    extra = {
        name: [column[i].as_py() for column in sensors.annotations]
        for i, name in enumerate(sensors.ids.to_pylist())
    }
    history: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=width))
    texts = []
    ids = []
    for message in read(dataset, events):
        filled = {}
        for field in dataset.observed:
            value = message.number(field)
            low, high = dataset.ranges.get(field, (value, value))
            last = history[message.sensor, field]
            if low <= value <= high and message.sensor in contained:
                last.append(value)
                filled[field] = plain(value)
            else:
                filled[field] = plain(_mean(last))
        known = extra.get(message.sensor, [""] * len(dataset.annotations))
        annotated = dict(zip(dataset.annotations, known, strict=True))
        ids.append(message.id)
        texts.append(_senml(stream, message, {**message.texts, **filled, **annotated}))
    return pa.table({"id": pa.array(ids, pa.int64()), "message": pa.array(texts, pa.string())})


def _mean(values: deque[float]) -> float:
    total = 0.0
    for value in values:  # not sum(), which is more exact than adding since Python 3.12
        total += value
    return total / max(len(values), 1)


def _senml(stream: Messages, message: Message, texts: dict[str, str]) -> str:
    dataset = stream.dataset
    entries = []
    for name in (*dataset.columns, *dataset.annotations):
        if name == TIMESTAMP:
            continue
        is_number = name in dataset.columns and name not in dataset.text_columns
        unit = dataset.columns.get(name, "string")
        key = "v" if is_number else "sv"
        entries.append(f'{{"u":"{unit}","n":"{name}","{key}":"{texts[name]}"}}')
    time = f'"{message.at_ms}"' if dataset.base_time_is_text else str(message.at_ms)
    return f'{{"e":[{",".join(entries)}],"bt":{time}}}'
