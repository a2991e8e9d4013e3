"""docs/protocol.md says what the code says: events, effects, transitions, invariants."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from anabranch.protocol import coordinator, epochs, invariants, worker

TEXT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """Cells of the first table after a heading, without its head."""
    section = TEXT[TEXT.index(f"{heading}\n") :]
    lines = section[section.index("\n|") :].strip().splitlines()
    rows = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


@pytest.mark.parametrize(
    ("heading", "union"),
    [
        ("### The coordinator hears", coordinator.Event),
        ("### The coordinator orders", coordinator.Effect),
        ("### A worker hears", worker.Event),
        ("### A worker orders", worker.Effect),
    ],
)
def test_messages(heading: str, union: object) -> None:
    documented = [row[0] for row in table(heading)]
    assert sorted(documented) == sorted(kind.__name__ for kind in get_args(union))


def test_transitions() -> None:
    documented = {
        (phase, event): tuple(None if to == "end" else to for to in targets.split(", "))
        for phase, event, targets in table("## 3. A transaction")
    }
    coded = {
        (phase.name, event.__name__): tuple(to and to.name for to in targets)
        for (phase, event), targets in worker.TRANSITIONS.items()
    }
    assert documented == coded


def test_diagram_of_a_transaction_has_every_way_of_the_table() -> None:
    diagram = TEXT[TEXT.index("[*] --> RECEIVING") :]
    drawn = set(re.findall(r"(\w+) --> (\w+|\[\*\])", diagram[: diagram.index("```")]))
    for (phase, _), targets in worker.TRANSITIONS.items():
        for target in targets:
            end = "[*]" if target is None else target.name
            assert target is phase or (phase.name, end) in drawn


def test_diagram_of_an_epoch_has_every_phase() -> None:
    diagram = TEXT[TEXT.index("[*] --> RUNNING") :]
    drawn = set(re.findall(r"[A-Z]{5,}", diagram[: diagram.index("```")]))
    assert drawn >= {phase.name for phase in epochs.EpochPhase}


def test_invariants() -> None:
    documented = [row[0] for row in table("## 5. Invariants")]
    source = inspect.getsource(invariants)
    coded = set(re.findall(r'_require\([^"]*"(\w+)"', source))
    coded |= set(re.findall(r'InvariantBroken\(f"(\w+): \{\w+\} ', source))
    assert sorted(documented) == sorted(coded)
