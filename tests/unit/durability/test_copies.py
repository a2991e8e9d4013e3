"""Copies between stores that cannot link nor copy by themselves."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timezone
from typing import Any

import pytest
from pyarrow import fs as pafs

from anabranch.durability import copies
from anabranch.durability.blobs import BlobStore
from anabranch.durability.copies import Folder, copy_files

BUDGET = 10_000


class Watched(BlobStore):
    """Counts the bytes that are read and not yet written."""

    def __init__(self) -> None:
        super().__init__((pafs._MockFileSystem(datetime(2020, 1, 1, tzinfo=timezone.utc)), "b"))
        self.held = self.most = 0
        self.lock = threading.Lock()

    def note(self, size: int) -> None:
        with self.lock:
            self.held += size
            self.most = max(self.most, self.held)

    def read(self, path: str) -> Any:
        content = super().read(path)
        self.note(content.size)
        time.sleep(0.01)  # others come meanwhile
        return content


class Target(BlobStore):
    def __init__(self, source: Watched) -> None:
        super().__init__((pafs._MockFileSystem(datetime(2020, 1, 1, tzinfo=timezone.utc)), "b"))
        self.source = source

    def write(self, path: str, buffers: Any) -> None:
        super().write(path, buffers)
        self.source.note(-buffers.size)


@pytest.mark.parametrize("large", [0, 5 * BUDGET])
def test_what_is_read_at_a_time_is_bounded(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(copies, "COPY_BYTES", BUDGET)
    source = Watched()
    target = Target(source)
    sizes = [4000] * 20 + [large] + [4000] * 5
    for number, size in enumerate(sizes):
        source.write(f"from/{number}", bytes([number]) * size)
    names = [(str(number), f"new/{number}") for number in range(len(sizes))]
    copy_files(Folder(source, "from/"), Folder(target, "to/"), names)
    for number, size in enumerate(sizes):
        assert target.read(f"to/new/{number}").to_pybytes() == bytes([number]) * size
    # Several small ones, but a large one alone.
    assert source.most == large or 4000 < source.most <= BUDGET
    assert source.held == 0
