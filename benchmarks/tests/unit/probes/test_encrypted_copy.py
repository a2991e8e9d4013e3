"""Copies between two processes, plain and with TLS."""

from __future__ import annotations

from anabranch_bench.experiments.encryption import (
    EncryptionSettings,
    Turn,
    run_turns,
    summary,
)


def test_copies_in_turns() -> None:
    turns = list(run_turns(EncryptionSettings(gb=0.01, repeat=2)))
    assert [turn.encryption for turn in turns] == ["plain", "tls"] * 2
    assert all(turn.copy.bytes >= 8 << 20 for turn in turns)
    assert all(turn.cpu_seconds_a_gb > 0 for turn in turns)
    assert [Turn.from_json(turn.to_json()) for turn in turns] == turns
    plain, tls, costs = summary(turns)[2:]
    assert (plain.split()[1], tls.split()[1]) == ("plain", "tls")
    assert costs.startswith("encryption costs ")
