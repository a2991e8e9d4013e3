from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.cli.main import main
from anabranch.durability.changelog import encode_changelog
from anabranch.durability.manifest import file_ref, next_manifest
from anabranch.durability.names import changelog_path
from anabranch.durability.store import StateStore
from anabranch.errors import EpochGap, InvalidArgument, StateMismatch
from anabranch.model.keyspace import HASH, OP, UPSERT, KeySpace
from anabranch.spark.state_metadata import METADATA_SCHEMA, metadata_rows
from anabranch.spark.state_reader import StateReader, StateSelection
from anabranch.state.channel import CHANNEL, Waiting, added

KEYSPACE = KeySpace(4, 2)
DESCRIPTION = {
    "kind": "columnar",
    "keys": [["k", "int64"]],
    "state": [["n.count", "int64"]],
    "operation": "aggregate",
    "windowed": False,
}
ENTRIES = pa.table(
    {
        HASH: [0, 1, 5],
        OP: pa.array([UPSERT] * 3, pa.uint8()),
        "k": [10, 11, 15],
        "n.count": [1, 2, 3],
    }
)


def commit(location: Path, epoch: int, **sections: pa.Table) -> None:
    with StateStore(location, fsync=False).open() as store:
        store.open_operator("counts", DESCRIPTION, KEYSPACE)
        path = changelog_path("counts", epoch, 0, "w1", "test", 0)
        buffers = encode_changelog(sections)
        store.blobs.write(path, buffers)
        last = store.latest_epoch("counts")
        store.commit(
            next_manifest(
                None if last is None else store.manifest("counts", last),
                epoch,
                [file_ref(path, epoch, buffers, range(4))],
                operator="counts",
                query_id=None,
                keyspace=KEYSPACE,
                description=DESCRIPTION,
                committed_at=0,
            )
        )


def rows(location: Path, selection: StateSelection | None = None) -> list[tuple[int, int, int]]:
    reader = StateReader(location, selection or StateSelection())
    return [
        (row["key"]["k"], row["value"]["n"]["count"], row["key_group"])
        for groups in reader.partitions(3)
        for table in reader.read(groups)
        for row in table.to_pylist()
    ]


def test_entries_with_their_key_groups(tmp_path: Path) -> None:
    commit(tmp_path, 0, state=ENTRIES)
    assert sorted(rows(tmp_path)) == [(10, 1, 0), (11, 2, 1), (15, 3, 1)]
    (row,) = metadata_rows(tmp_path)
    assert dict(zip(METADATA_SCHEMA.names, row, strict=True))["batchIds"] == [0]


def test_rows_that_wait_are_not_passed_over(tmp_path: Path) -> None:
    commit(tmp_path, 0, state=ENTRIES)
    waiting = Waiting(1, 1, (0, 0, 0), pa.table({HASH: [5], "k": [15]}))
    commit(tmp_path, 1, **{CHANNEL: added([waiting])})
    with pytest.raises(EpochGap, match=r"batch 1 that are stored but not applied.*ignoreWaiting"):
        rows(tmp_path)
    before = rows(tmp_path, StateSelection(epoch=0))
    assert rows(tmp_path, StateSelection(ignore_waiting=True)) == before


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(StateMismatch, match="holds no state"):
        StateReader(tmp_path / "none", StateSelection())
    with StateStore(tmp_path, fsync=False).open() as store:
        with pytest.raises(InvalidArgument, match="no operators yet"):
            StateReader(tmp_path, StateSelection())
        store.open_operator("counts", DESCRIPTION, KEYSPACE)
    with pytest.raises(EpochGap, match="no committed batch yet"):
        StateReader(tmp_path, StateSelection())
    (row,) = metadata_rows(tmp_path)
    assert dict(zip(METADATA_SCHEMA.names, row, strict=True))["maxBatchId"] is None


def test_an_operator_of_a_later_release(tmp_path: Path) -> None:
    with StateStore(tmp_path, fsync=False).open() as store:
        store.open_operator("new", {"kind": "graph"}, KEYSPACE)
    with pytest.raises(StateMismatch, match="kind 'graph'"):
        metadata_rows(tmp_path)


def test_the_document_has_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["state", "--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    page = (Path(__file__).parents[3] / "docs" / "reading-state.md").read_text("utf-8")
    assert not [option for option in options if not re.search(rf"`{option}[ `]", page)]
