"""Changelog files: the changed entries of one transaction, one block for each section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from anabranch.durability.frame import FrameWriter, damaged, open_frame, read_block
from anabranch.state.contract import Sections

_KIND = b"CLOG"


def encode_changelog(sections: Mapping[str, pa.Table], compression: str | None = None) -> list[Any]:
    """A changelog file as buffers; empty sections are dropped."""
    writer = FrameWriter(_KIND, compression)
    names = []
    for name, entries in sections.items():
        if entries.num_rows:
            writer.add(entries)
            names.append(name)
    return writer.finish({"sections": names})


def decode_changelog(content: Any, name: str = "changelog", crc: int | None = None) -> Sections:
    """The sections of a changelog file; tables share the memory of `content`.

    `name` is the file's full name for errors; `crc` the checksum that the manifest lists.
    """
    footer = open_frame(content, _KIND, name)
    if crc is not None and footer.crc != crc:
        raise damaged(name, "it is not the file that the manifest lists")
    names = footer.meta["sections"]
    return {
        section: read_block(content.slice(block.offset, block.length), block, name)
        for section, block in zip(names, footer.blocks, strict=True)
    }
