"""Changes that a source keeps for replicas."""

from __future__ import annotations

import pyarrow as pa

from anabranch.worker.moves.deltas import Delta, joined_deltas


def delta(epoch: int, *values: int, name: str = "state", extra: bool = False) -> Delta:
    columns = {"v": pa.array(values, pa.int64())}
    if extra:
        columns["w"] = columns["v"]
    table = pa.table(columns)
    return Delta(epoch, {name: table}, table.nbytes, len(values))


def test_changes_of_one_shape_become_one_in_their_order() -> None:
    (joined,) = joined_deltas([delta(3, 1, 2), delta(4, 2), delta(6, 1)])
    assert joined.sections["state"].column("v").to_pylist() == [1, 2, 2, 1]
    assert (joined.epoch, joined.rows, joined.bytes) == (6, 4, 32)


def test_other_sections_and_other_columns_stay_apart() -> None:
    deltas = [delta(1, 1), delta(2, 2, name="channel"), delta(3, 3), delta(4, 4, extra=True)]
    assert joined_deltas(deltas) == deltas


def test_nothing_is_nothing() -> None:
    assert joined_deltas([]) == []
