"""The note about hot bins: small, in order, harmless if it is missing."""

from __future__ import annotations

import numpy as np

from anabranch.durability.heat import BINS_MAX, decode_heat, encode_heat, merged_heat


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
