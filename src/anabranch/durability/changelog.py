"""Changelog files: the changed entries of one transaction, sorted by key group and hash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from anabranch.durability.pages import DueColumn, PageFile, PageWriter
from anabranch.model.keyspace import KeySpace
from anabranch.state.contract import Sections

CHANGELOG = b"CLOG"


def encode_changelog(
    sections: Mapping[str, pa.Table],
    keyspace: KeySpace | None = None,
    due: DueColumn | None = None,
) -> list[Any]:
    """A changelog file as buffers; empty sections are dropped.

    Entries get sorted, those of one key stay in their order. Without a keyspace they stay as they
    are, and cannot be found by key.
    """
    writer = PageWriter(CHANGELOG, keyspace, by_bin=False, due=due)
    for name, entries in sections.items():
        if entries.num_rows:
            writer.add(name, entries)
    return writer.finish({})


def decode_changelog(content: Any, name: str = "changelog", crc: int | None = None) -> Sections:
    """The sections of a changelog file; tables share the memory of `content`.

    `name` is the file's full name for errors; `crc` the checksum that the manifest lists.
    """
    file = PageFile(CHANGELOG, content, name=name, crc=crc)
    return {section: file.read(section) for section in file.sections}
