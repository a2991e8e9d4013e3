"""Small JSON files with a checksum over their exact bytes; still plain JSON for a reader."""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

from anabranch.errors import CorruptState

_SEALED = re.compile(rb'\{"crc32":"([0-9a-f]{8})","body":(.*)\}\n\Z', re.DOTALL)


def seal(body: Any) -> bytes:
    """The file's bytes for a JSON-able value."""
    return seal_text(to_text(body))


def seal_text(text: str) -> bytes:
    """The file's bytes for a value that is JSON already, as `to_text` makes it."""
    content = text.encode()
    return b'{"crc32":"%08x","body":%b}\n' % (zlib.crc32(content), content)


def to_text(body: Any) -> str:
    """As short as JSON can be."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def unseal(content: bytes, name: str) -> Any:
    """The value of a sealed file; `name` is its full name, for the error."""
    match = _SEALED.match(content)
    if match is None:
        raise CorruptState(
            f"{name} is truncated, damaged or not written by Anabranch ({len(content)} bytes). "
            "Restore this file from a backup of the state location."
        )
    if zlib.crc32(match.group(2)) != int(match.group(1), 16):
        raise CorruptState(
            f"{name} does not match its checksum: it was damaged or edited. "
            "Restore this file from a backup of the state location."
        )
    return json.loads(match.group(2))
