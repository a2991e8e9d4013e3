"""How far sources are ahead of a query, as far as its progress says so in rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def lag_of(progress: str) -> int | None:
    """Rows that all sources have and the query has not read; None: no source counts rows.

    `progress` is the JSON of a query's progress. Kafka's offsets count rows, by topic and
    partition; so does a single number that a source calls "offset". Times and files do not.
    """
    found = [_lag(source) for source in json.loads(progress).get("sources", ())]
    known = [lag for lag in found if lag is not None]
    return sum(known) if known else None


def _lag(source: Mapping[str, Any]) -> int | None:
    latest, ended = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
    if latest is None or ended is None:
        return None
    return sum(max(0, offset - ended.get(where, 0)) for where, offset in latest.items())


def _offsets(told: Any) -> dict[tuple[str, str], int] | None:
    if isinstance(told, str):  # offsets of some sources are JSON in a text
        try:
            told = json.loads(told)
        except ValueError:
            return None
    if not isinstance(told, Mapping) or not told:
        return None
    if set(told) == {"offset"}:
        told = {"": told}
    found = {}
    for topic, partitions in told.items():
        if not isinstance(partitions, Mapping):
            return None
        for partition, offset in partitions.items():
            if not isinstance(offset, int) or isinstance(offset, bool):
                return None
            found[str(topic), str(partition)] = offset
    return found
