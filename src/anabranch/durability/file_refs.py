"""References to state files, as manifests and workers' reports have them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any

from anabranch.durability.frame import size_and_crc

_SETS_KEPT = 1 << 16
_RUN = re.compile(r"(\d+)(?:-(\d+)(?:/(\d+))?)?\Z")


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file, or part of one, with entries of some key groups; others in it do not count.

    Nor do those of a changelog for key groups with a snapshot of its epoch or a later one.
    """

    path: str
    epoch: int
    """Changelog: the epoch of its changes. Snapshot: the epoch whose state it holds."""
    bytes: int
    crc: int
    groups: tuple[int, ...]
    """Ascending."""
    offset: int | None = None
    """Where it begins in a pack (`pack.py`); None: it is a file of its own."""

    @property
    def key(self) -> tuple[str, int | None]:
        """No other file or part has it."""
        return self.path, self.offset

    @property
    def start(self) -> int:
        """Its first byte in the file."""
        return self.offset or 0

    def fits(self, size: int) -> bool:
        """Whether the file has as many bytes as it must."""
        return size == self.bytes if self.offset is None else size >= self.offset + self.bytes

    def text(self, path: str | None = None) -> str:
        """As JSON: path (or another text in its place), numbers, the key groups as one text."""
        path = encode_basestring_ascii(self.path) if path is None else path
        rest = "" if self.offset is None else f",{self.offset}"
        groups = groups_text(self.groups)  # thousands of these are written in a commit
        return f'[{path},{self.epoch},{self.bytes},{self.crc},"{groups}"{rest}]'

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> FileRef:
        """The reverse, of what JSON makes of it."""
        path, epoch, size, crc, groups, *rest = value
        offset = int(*rest) if rest else None
        return cls(str(path), int(epoch), int(size), int(crc), parse_groups(groups), offset)

    def only(self, groups: Iterable[int]) -> FileRef:
        """The same file, counting for these groups."""
        wanted = _shared(tuple(sorted(groups)))
        if wanted == self.groups:
            return self
        return replace(self, groups=wanted)


def order_of(ref: FileRef) -> tuple[int, str, int]:
    """In which order manifests list files."""
    return ref.epoch, ref.path, ref.start


SAME = "0"
"""In the place of a path: that of the file before. Parts of a pack are next to each other."""


def refs_text(refs: Iterable[FileRef]) -> str:
    """References as JSON, without brackets."""
    texts, before = [], ""
    for ref in refs:
        texts.append(ref.text(SAME if ref.path == before else None))
        before = ref.path
    return ",".join(texts)


def refs_from_json(rows: Iterable[Sequence[Any]]) -> Iterator[FileRef]:
    """The inverse."""
    before = ""
    for path, *rest in rows:
        before = path or before
        yield FileRef.from_json([before, *rest])


def joined_refs(texts: Sequence[str]) -> str:
    """The references to several files as one text."""
    return texts[0] if len(texts) == 1 else f"[{','.join(texts)}]"


def parse_refs(text: str) -> list[FileRef]:
    """The inverse."""
    found = json.loads(text)
    return [FileRef.from_json(ref) for ref in (found if isinstance(found[0], list) else [found])]


def file_ref(path: str, epoch: int, buffers: Sequence[Any], groups: Iterable[int]) -> FileRef:
    """The reference to a file made by `encode_changelog` or `encode_snapshot`."""
    size, crc = size_and_crc(buffers)
    return FileRef(path, epoch, size, crc, tuple(sorted(set(groups))))


# A lane has the same key groups in every epoch: few distinct sets occur in many references.
@lru_cache(maxsize=_SETS_KEPT)
def groups_text(groups: tuple[int, ...]) -> str:
    """Key groups as runs such as ":3-993/10,1000", or as a bitmap if that is shorter.

    Those of a lane are one run, however many key groups there are.
    """
    if not groups:
        return "0"
    runs = ":" + ",".join(_runs(groups))
    if 4 * len(runs) <= groups[-1]:
        return runs
    bits = 0
    for group in groups:
        bits |= 1 << group
    bitmap = f"{bits:x}"
    return bitmap if len(bitmap) < len(runs) else runs


@lru_cache(maxsize=_SETS_KEPT)
def parse_groups(text: str) -> tuple[int, ...]:
    """The inverse; manifests of formats up to 2 have bitmaps only."""
    if not text.startswith(":"):
        bits = int(text, 16)
        return _shared(tuple(group for group in range(bits.bit_length()) if bits >> group & 1))
    found: list[int] = []
    for run in text[1:].split(","):
        match = _RUN.match(run)
        if match is None:
            raise ValueError(f"not key groups: {text!r}")
        first, last, step = match.groups()
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return _shared(tuple(found))


def _runs(groups: tuple[int, ...]) -> Iterable[str]:
    at = 0
    while at < len(groups):
        first, end = groups[at], at + 1
        if end < len(groups):
            step = groups[end] - first
            while end < len(groups) and groups[end] - groups[end - 1] == step:
                end += 1
        if end - at < 3:
            yield str(first)
            at += 1
        else:
            yield f"{first}-{groups[end - 1]}" + ("" if step == 1 else f"/{step}")
            at = end


@lru_cache(maxsize=_SETS_KEPT)
def _shared(groups: tuple[int, ...]) -> tuple[int, ...]:
    """The one tuple that stands for equal ones."""
    return groups
