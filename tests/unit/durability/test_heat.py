"""The note about hot bins: small, in order, harmless if it is missing."""

from __future__ import annotations

import base64
import zlib

import numpy as np

from anabranch.durability.heat import BINS_MAX, STEPS, decode_heat, encode_heat, merged_heat


def test_the_order_of_bins_survives() -> None:
    heat = np.array([0.0, 3.0, 100_000.0, 1.0, 40.0, 41_000.0])
    found = decode_heat(encode_heat(heat), len(heat))
    assert np.argsort(found).tolist() == np.argsort(heat).tolist()
    assert np.allclose(found, heat, rtol=0.07)


def test_a_note_is_small_whatever_there_is() -> None:
    chance = np.random.default_rng(1)
    heat = chance.exponential(50.0, 1 << 19)
    note = encode_heat(heat)
    assert len(note) < 32 << 10
    kept = np.flatnonzero(decode_heat(note, len(heat)))
    assert set(kept) == set(np.argsort(-heat)[:BINS_MAX])


def test_workers_know_their_own() -> None:
    ours, theirs = np.array([8.0, 0.0, 0.0]), np.array([0.0, 0.0, 2.0])
    merged = decode_heat(merged_heat([encode_heat(ours), encode_heat(theirs)], 3), 3)
    assert np.allclose(merged, ours + theirs, rtol=0.07)


def test_no_note_is_no_heat() -> None:
    assert encode_heat(np.zeros(4)) == ""
    assert not decode_heat(None, 4).any()
    assert not decode_heat("", 4).any()
    assert not decode_heat(encode_heat(np.ones(8)), 4).any(), "of another key space"


def test_few_hot_bins_of_many_are_named() -> None:
    heat = np.zeros(1 << 19)
    heat[[3, 70_000, 500_000]] = 5.0, 1000.0, 7.0
    note = encode_heat(heat)
    assert len(note) < 60
    assert np.allclose(decode_heat(note, len(heat)), heat, rtol=0.07)
    assert not decode_heat(note, 1 << 18).any(), "of another key space"
    assert np.allclose(decode_heat(merged_heat([note, note], 1 << 19), 1 << 19), 2 * heat, rtol=0.1)


def test_notes_with_a_byte_for_each_bin_are_read() -> None:
    """Manifests of earlier releases have them, however many bins there are."""
    heat = np.zeros(256)
    heat[7] = 100.0
    levels = np.rint(STEPS * np.log2(1 + heat)).astype(np.uint8)
    old = base64.b64encode(zlib.compress(levels.tobytes())).decode()
    assert np.array_equal(decode_heat(old, 256), decode_heat(encode_heat(heat), 256))
