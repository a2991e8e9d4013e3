"""Names inside a location."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.durability import names
from anabranch.errors import InvalidArgument


@given(st.text(min_size=1), st.text(min_size=1))
def test_escaped_names_are_one_plain_component_and_distinct(left: str, right: str) -> None:
    for name in (left, right):
        escaped = names.escape(name)
        assert escaped.isascii()
        assert "/" not in escaped
        assert not escaped.startswith(".")
        assert len(escaped) <= 120
    assert (names.escape(left) == names.escape(right)) == (left == right)


def test_plain_names_stay_readable() -> None:
    assert names.escape("clicks_per-user.v2") == "clicks_per-user.v2"
    assert names.escape("..") == "%2E."
    assert names.escape("a b/ü") == "a%20b%2F%C3%BC"
    with pytest.raises(InvalidArgument, match="An operator needs a name"):
        names.escape("")
    with pytest.raises(InvalidArgument, match="A savepoint needs a name"):
        names.savepoint_folder("")


def test_long_names_stay_distinct() -> None:
    left, right = names.escape("x" * 300 + "1"), names.escape("x" * 300 + "2")
    assert left != right
    assert len(left) == 120


@given(st.integers(0, 10**18))
def test_epochs_are_read_back_from_names(epoch: int) -> None:
    changelog = names.changelog_path("op 1", epoch, 3, "worker/1", "a-b", 2)
    snapshot = names.snapshot_path("op 1", epoch, "worker/1", 7, 2)
    manifest = names.manifest_path("op 1", epoch)
    assert {names.epoch_of(path) for path in (changelog, snapshot, manifest)} == {epoch}
    assert names.epoch_of(changelog + ".abc.tmp") == epoch
    assert names.manifest_epoch_of(manifest) == epoch
    assert names.manifest_epoch_of(changelog) is None
    assert names.manifest_epoch_of(manifest + ".abc.tmp") is None


def test_foreign_names_have_no_epoch() -> None:
    for name in ("x", "123.json", "a/b/" + "0" * 21 + ".json", "0" * 19 + "-x", ""):
        assert names.epoch_of(name) is None
        assert names.manifest_epoch_of(name) is None


def test_manifests_sort_by_epoch() -> None:
    paths = [names.manifest_path("op", epoch) for epoch in (0, 9, 10, 99, 12345)]
    assert paths == sorted(paths)
