"""docs/protocol.md says what the code says: events, effects, transitions, invariants, moves."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from anabranch.model.ids import KeyGroup
from anabranch.protocol import coordinator, epochs, host_invariants, invariants, worker
from anabranch.protocol.fleet import WorkerPhase
from anabranch.protocol.move_orders import OrderKind
from anabranch.protocol.move_parts import MovePhase
from anabranch.protocol.move_run import MoveRun
from anabranch.protocol.residency_table import RESIDENCY
from anabranch.simulation.scenario import run_seed

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "protocol.md").read_text(encoding="utf-8")
SEEDS = 300


def table(heading: str, text: str = TEXT) -> list[list[str]]:
    """Cells of the first table after a line that begins so, without its head."""
    section = text[text.index(f"\n{heading}") + 1 :]
    lines = section[section.index("\n|") :].strip().splitlines()
    rows = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line[1:-1].split("|")])
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


def test_diagram_of_a_worker_has_every_phase() -> None:
    drawn = {name for edge in edges("[*] --> STARTING: StartWorker") for name in edge}
    assert drawn == {"[*]", "GRANTING", *(phase.name for phase in WorkerPhase)}


def test_invariants() -> None:
    documented = [row[0] for row in table("## 5. Invariants")]
    source = inspect.getsource(invariants) + inspect.getsource(host_invariants)
    coded = set(re.findall(r'require\([^"]*"(\w+)"', source))
    coded |= set(re.findall(r'InvariantBroken\(f"(\w+): ', source))
    assert sorted(documented) == sorted(coded)


def edges(first: str) -> set[tuple[str, str]]:
    """The ways of the diagram that begins with a line."""
    diagram = TEXT[TEXT.index(first) :]
    return set(re.findall(r"(\S+) --> ([^\s:]+)", diagram[: diagram.index("```")]))


class Watcher:
    """Notes what becomes of key groups in simulated moves, and after which order."""

    def __init__(self) -> None:
        self.edges: set[tuple[str, str]] = set()
        self.after: dict[str, set[str]] = {}

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        handle = coordinator.CoordinatorMachine.handle

        def watched(
            machine: coordinator.CoordinatorMachine, event: coordinator.Event
        ) -> list[coordinator.Effect]:
            before = machine.moves.current
            phases = {} if before is None else dict(before.phases)
            order = self._order(before, event)
            effects = handle(machine, event)
            current = machine.moves.current
            if before is not None:
                self._compare(phases, before, order)
            if current is not None and current is not before:
                self._compare({}, current, None)
            return effects

        monkeypatch.setattr(coordinator.CoordinatorMachine, "handle", watched)

    def _order(self, running: MoveRun | None, event: coordinator.Event) -> str | None:
        if running is None or not isinstance(event, coordinator.OrderDone):
            return None
        found = running.orders.get(event.order)
        return None if found is None else found[1].order.kind.value

    def _compare(
        self, before: dict[KeyGroup, MovePhase], running: MoveRun, order: str | None
    ) -> None:
        for group, phase in running.phases.items():
            former = before.get(group)
            if former is None:
                self.edges.add(("[*]", MovePhase.PLANNED.name))
                former = MovePhase.PLANNED
            if former is not phase:
                self.edges.add((former.name, phase.name))
                if order is not None:
                    self.after.setdefault(order, set()).add(phase.name)
            if running.is_ended:
                self.edges.add((phase.name, "[*]"))


@pytest.fixture(scope="module")
def watcher() -> Watcher:
    """Simulated moves of all strategies, with faults."""
    seen = Watcher()
    with pytest.MonkeyPatch.context() as monkeypatch:
        seen.watch(monkeypatch)
        for seed in range(SEEDS):
            run_seed(seed)
    return seen


def test_diagram_of_a_key_group_on_its_way_has_exactly_the_ways_that_are_taken(
    watcher: Watcher,
) -> None:
    drawn = edges("[*] --> PLANNED")
    assert drawn == watcher.edges
    assert {name for edge in drawn for name in edge} == {"[*]", *(p.name for p in MovePhase)}


def test_orders(watcher: Watcher) -> None:
    rows = table("The orders of a move")
    assert sorted(row[0] for row in rows) == sorted(kind.value for kind in OrderKind)
    assert {row[0]: {row[3]} for row in rows if row[3]} == watcher.after


def test_orders_of_the_other_page() -> None:
    text = (DOCS / "reconfiguration.md").read_text(encoding="utf-8")
    documented = [row[0] for row in table("## What workers can do for a move", text)]
    assert sorted(documented) == sorted(kind.value for kind in OrderKind)


def test_residency() -> None:
    documented = {(row[0], row[1]): row[2] for row in table("The table is `RESIDENCY`")}
    coded = {
        (phase.name, event.__name__): ", ".join(after.name for after in targets)
        for (phase, event), targets in RESIDENCY.items()
    }
    assert documented == coded
    assert [row[0] for row in table("## 7. What is resident")] == [p.name for p in worker.Residency]
