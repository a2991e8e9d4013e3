"""One suite for every place that state can live in."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs as pafs
from tests.faults import s3 as s3_server

from anabranch.durability.blobs import BlobStore, MemoryBlobStore
from anabranch.errors import CorruptState


def local(folder: Path) -> BlobStore:
    return BlobStore(folder / "with space" / "ünï%20code")


def local_without_fsync(folder: Path) -> BlobStore:
    return BlobStore(str(folder / "fast"), fsync=False)


def file_uri(folder: Path) -> BlobStore:
    return BlobStore(f"file://{folder}/by-uri")


def local_filesystem(folder: Path) -> BlobStore:
    return BlobStore((pafs.LocalFileSystem(), str(folder / "given")))


def subtree_of_local(folder: Path) -> BlobStore:
    return BlobStore((pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem()), "inner/deep"))


def memory(folder: Path) -> BlobStore:
    return MemoryBlobStore()


def mock(folder: Path) -> BlobStore:
    return BlobStore((pafs._MockFileSystem(datetime(2020, 1, 1, tzinfo=timezone.utc)), "bucket"))


def subtree_of_mock(folder: Path) -> BlobStore:
    filesystem = pafs._MockFileSystem(datetime(2020, 1, 1, tzinfo=timezone.utc))
    filesystem.create_dir("bucket")
    return BlobStore((pafs.SubTreeFileSystem("bucket", filesystem), ""))


def generic(folder: Path) -> BlobStore:
    store = BlobStore((pafs.PyFileSystem(GenericHandler(folder / "generic")), ""))
    assert not store.is_local
    return store


def s3(folder: Path) -> BlobStore:
    store = BlobStore(s3_server.server().location())
    assert not store.is_local
    return store


class GenericHandler(pafs.FSSpecHandler):  # type: ignore[misc]
    """A file system of unknown kind over a folder, which like HDFS does not rename onto a file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._inner = pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem())

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def get_type_name(self) -> str:
        return "generic"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        return self._inner.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        return self._inner.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._inner.create_dir(path, recursive=recursive)

    def delete_file(self, path: str) -> None:
        self._inner.delete_file(path)

    def move(self, source: str, target: str) -> None:
        if self._inner.get_file_info(target).type != pafs.FileType.NotFound:
            raise OSError("target exists")
        self._inner.move(source, target)

    def open_input_file(self, path: str) -> Any:
        return self._inner.open_input_file(path)

    def open_output_stream(self, path: str, metadata: object) -> Any:
        return self._inner.open_output_stream(path)


MAKERS: list[Callable[[Path], BlobStore]] = [
    local,
    local_without_fsync,
    file_uri,
    local_filesystem,
    subtree_of_local,
    memory,
    mock,
    subtree_of_mock,
    generic,
    s3,
]


@pytest.fixture(params=MAKERS, ids=lambda make: make.__name__)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    made = request.param(tmp_path)
    assert isinstance(made, BlobStore)
    return made


def read(store: BlobStore, path: str) -> bytes:
    return bytes(store.read(path).to_pybytes())


def test_written_is_read_back(store: BlobStore) -> None:
    store.write("a/b/c", b"content")
    assert read(store, "a/b/c") == b"content"
    assert isinstance(store.read("a/b/c"), pa.Buffer)
    assert store.size("a/b/c") == 7


def test_buffers_are_joined_in_order(store: BlobStore) -> None:
    many = [b"1", pa.py_buffer(b"23"), memoryview(b""), bytearray(b"4")] * 700
    store.write("many", many)
    assert read(store, "many") == b"1234" * 700


def test_one_arrow_buffer_and_nothing_at_all(store: BlobStore) -> None:
    store.write("one", pa.py_buffer(b"abc"))
    store.write("empty", b"")
    store.write("no-buffers", [])
    assert read(store, "one") == b"abc"
    assert read(store, "empty") == b""
    assert read(store, "no-buffers") == b""


def test_a_write_replaces_the_whole_file(store: BlobStore) -> None:
    store.write("f", b"long content")
    store.write("f", b"short")
    assert read(store, "f") == b"short"
    assert store.list() == ["f"]
    assert store.list(temporary=True) == []


def test_ranges(store: BlobStore) -> None:
    store.write("f", bytes(range(100)))
    assert store.read_range("f", 10, 5).to_pybytes() == bytes(range(10, 15))
    assert store.read_range("f", 98, 5).to_pybytes() == bytes([98, 99])
    assert store.read_range("f", 200, 5).to_pybytes() == b""
    assert store.read_range("f", 0, 0).to_pybytes() == b""


def test_missing_files_are_named(store: BlobStore) -> None:
    for call in (store.read, store.size, lambda path: store.read_range(path, 0, 1)):
        with pytest.raises(CorruptState) as caught:
            call("no/such")
        assert store.full_name("no/such") in str(caught.value)
        assert "missing" in str(caught.value)


def test_exists(store: BlobStore) -> None:
    assert not store.exists("a/b")
    store.write("a/b", b"")
    assert store.exists("a/b")
    assert not store.exists("a/b/c")
    assert not store.exists("a/bb")


def test_delete_is_idempotent(store: BlobStore) -> None:
    store.write("a/b", b"1")
    store.write("a/c", b"1")
    store.delete("a/b")
    store.delete("a/b")
    store.delete("nothing/there")
    assert store.list() == ["a/c"]


def test_delete_all(store: BlobStore) -> None:
    names = [f"d/{number:03d}" for number in range(50)]
    for name in names:
        store.write(name, b"1")
    store.delete_all([*names[:40], "d/gone"])
    assert store.list("d") == names[40:]


def test_list_is_sorted_recursive_and_of_folders_only(store: BlobStore) -> None:
    for name in ("b/2", "b/1", "bb/1", "a", "b/x/y"):
        store.write(name, b"1")
    assert store.list() == ["a", "b/1", "b/2", "b/x/y", "bb/1"]
    assert store.list("b") == store.list("b/") == ["b/1", "b/2", "b/x/y"]
    assert store.list("none") == []
    assert store.entries() == ["a", "b", "bb"]
    assert store.entries("b") == ["b/1", "b/2", "b/x"]


def test_create_exclusive(store: BlobStore) -> None:
    assert store.create_exclusive("x/lock", [b"fir", b"st"])
    assert not store.create_exclusive("x/lock", b"second")
    assert read(store, "x/lock") == b"first"
    assert store.list(temporary=True) == []


def test_unusual_names(store: BlobStore) -> None:
    names = ["with space", "per%20cent", "ünïcode", "semi;colon", "hash#tag", "plus+question?"]
    for name in names:
        store.write(f"dir %2F/{name}", name.encode())
    assert store.list("dir %2F") == sorted(f"dir %2F/{name}" for name in names)
    for name in names:
        assert read(store, f"dir %2F/{name}") == name.encode()


def test_copies_without_reading(store: BlobStore) -> None:
    is_able = store.is_local or store.location.startswith("s3:")
    for name in ("plain", "with space", "per%20cent", "ünïcode", "plus+question?"):
        store.write(f"from/{name}", name.encode())
        store.write(f"to/{name}", b"older")
        assert store.copy_from(store, f"from/{name}", f"to/{name}") == is_able
        assert read(store, f"to/{name}") == (name.encode() if is_able else b"older")
    assert store.list(temporary=True) == []
    assert not store.copy_from(store, "from/nothing", "to/plain")
    assert not store.copy_from(MemoryBlobStore(), "from/plain", "to/plain")


def test_paths_outside_are_refused(store: BlobStore) -> None:
    for path in ("../x", "/etc/passwd", "a//b", "a/./b", ""):
        with pytest.raises(AssertionError):
            store.write(path, b"1")


def test_what_was_read_does_not_change(store: BlobStore) -> None:
    store.write("f", b"before")
    before = store.read("f")
    store.write("f", b"after!")
    store.delete("f")
    assert before.to_pybytes() == b"before"


def test_map_ahead_keeps_the_order_and_raises(store: BlobStore) -> None:
    for number in range(40):
        store.write(f"n/{number:02d}", str(number).encode())
    contents = store.map_ahead(lambda path: read(store, path), store.list("n"))
    assert list(contents) == [str(number).encode() for number in range(40)]
    assert list(store.map_ahead(str, [])) == []
    failing = store.map_ahead(lambda path: read(store, path), ["n/00", "n/01", "gone", "n/02"])
    assert next(failing) == b"0"
    assert next(failing) == b"1"
    with pytest.raises(CorruptState):
        next(failing)


def test_a_pickled_store_is_the_same_place(store: BlobStore) -> None:
    if not store.is_local and not store.location.startswith("s3:"):
        pytest.skip("the test's file system lives in this process")
    store.write("f", b"1")
    assert read(pickle.loads(pickle.dumps(store)), "f") == b"1"


def test_hold_is_exclusive_where_there_are_locks(store: BlobStore) -> None:
    first = store.hold("lock", b"me")
    assert first is not None
    if store.is_local or isinstance(store, MemoryBlobStore):
        assert store.hold("lock", b"you") is None
        assert read(store, "lock") == b"me"
    first.release()
    first.release()
    again = store.hold("lock", b"you")
    assert again is not None
    again.release()
