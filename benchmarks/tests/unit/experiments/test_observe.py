"""What observing costs: notes, and how turns are put together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch_bench.experiments import observe
from anabranch_bench.experiments.observe import BARE, OBSERVED, ObservedTurn, note_cost, summary


def test_a_note_costs_a_batch_less_than_a_millisecond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CPU seconds count, so a busy machine changes little."""
    monkeypatch.setattr(observe, "NOTES", 3000)
    cost = note_cost(tmp_path)
    assert 0 < cost.note_us < 1000
    assert 0 < cost.written_us < 1000


def test_turns_are_compared_by_their_medians() -> None:
    turns = [
        ObservedTurn(BARE, 10, 20, 70),
        ObservedTurn(OBSERVED, 11, 20, 70),
        ObservedTurn(BARE, 10, 20, 170),
    ]
    turns.append(ObservedTurn(BARE, 10, 20, 70))
    said = "\n".join(summary(turns))
    assert "costs +1.0%" in said
    assert "+1.00 ms a batch, +1.0% of it" in said
    assert "[100.0 to 200.0]" in said
    assert ObservedTurn.from_json(json.loads(json.dumps(turns[0].to_json()))) == turns[0]
