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

_SPARSE = "~"
"""Begins a note that names the hot bins; base64 does not have it."""
_PLACE_BYTES = 5

BinHeat = npt.NDArray[np.float64]


def encode_heat(heat: BinHeat) -> str:
    """A few kilobytes at most; nothing if nothing is hot.

    A byte for each bin, or, of many bins, only those that are hot: bins, places, levels.
    """
    places = np.flatnonzero(heat)
    levels = np.minimum(np.rint(STEPS * np.log2(1 + heat[places])), 255).astype(np.uint8)
    places, levels = places[levels > 0], levels[levels > 0]
    if not len(places):
        return ""
    if len(places) > BINS_MAX:
        hottest = np.sort(np.argsort(-heat[places], kind="stable")[:BINS_MAX])
        places, levels = places[hottest], levels[hottest]
    if _PLACE_BYTES * len(places) < len(heat):
        head = np.array([len(heat), *places], np.uint32).tobytes()
        return _SPARSE + _packed(head + levels.tobytes())
    dense = np.zeros(len(heat), np.uint8)
    dense[places] = levels
    return _packed(dense.tobytes())


def decode_heat(note: object, bins: int) -> BinHeat:
    """Rows of each bin, about; none if the note is missing or of another key space."""
    return _added(np.zeros(bins), note)


def merged_heat(notes: Iterable[str], bins: int) -> str:
    """Of workers that each know their own key groups; the work is that of what is hot."""
    heat = np.zeros(bins)
    for note in notes:
        heat = _added(heat, note)
    return encode_heat(heat)


def _packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


def _added(heat: BinHeat, note: object) -> BinHeat:
    """Adds what a note says, in place."""
    if not isinstance(note, str) or not note:
        return heat
    content = zlib.decompress(base64.b64decode(note.removeprefix(_SPARSE)))
    if not note.startswith(_SPARSE):
        levels = np.frombuffer(content, np.uint8)
        if len(levels) == len(heat):
            heat += np.exp2(levels / STEPS) - 1
        return heat
    count = (len(content) - 4) // _PLACE_BYTES
    bins, *_ = places = np.frombuffer(content, np.uint32, count + 1)
    if bins == len(heat):
        levels = np.frombuffer(content, np.uint8, count, len(content) - count)
        heat[places[1:]] += np.exp2(levels / STEPS) - 1
    return heat


def kept_heat(previous: Manifest | None, heat: str | None) -> dict[str, str]:
    """The note of the next manifest: the newest one that is known."""
    note = heat or (previous.extra.get(HEAT) if previous is not None else None)
    return {HEAT: note} if note else {}
