"""How many rows bins have had lately, as a short note that is kept with each epoch.

It is a hint: after a restart what was hot before comes back first.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from anabranch.durability.manifest import Manifest

HEAT = "heat"
"""Name of the note in manifests."""

BINS_MAX = 4096
"""So many bins are noted, the hottest ones: the note stays small with any number of key groups."""

STEPS = 12.0
"""A bin has a byte: so many steps for each doubling."""

Heat = npt.NDArray[np.float64]


def encode_heat(heat: Heat) -> str:
    """A few kilobytes at most; nothing if nothing is hot."""
    levels = np.minimum(np.rint(STEPS * np.log2(1 + heat)), 255).astype(np.uint8)
    hot = np.count_nonzero(levels)
    if not hot:
        return ""
    if hot > BINS_MAX:
        levels[np.argsort(-heat, kind="stable")[BINS_MAX:]] = 0
    return base64.b64encode(zlib.compress(levels.tobytes())).decode()


def decode_heat(note: object, bins: int) -> Heat:
    """Rows of each bin, about; none if the note is missing or of another key space."""
    if isinstance(note, str) and note:
        levels = np.frombuffer(zlib.decompress(base64.b64decode(note)), np.uint8)
        if len(levels) == bins:
            return np.exp2(levels / STEPS) - 1
    return np.zeros(bins)


def merged_heat(notes: Iterable[str], bins: int) -> str:
    """Of workers that each know their own key groups."""
    return encode_heat(sum((decode_heat(note, bins) for note in notes), np.zeros(bins)))


def kept_heat(previous: Manifest | None, heat: str | None) -> dict[str, str]:
    """The note of the next manifest: the newest one that is known."""
    note = heat or (previous.extra.get(HEAT) if previous is not None else None)
    return {HEAT: note} if note else {}
