"""Strategies as generators: their steps in order; plans in rounds."""

from __future__ import annotations

import inspect
import re
from ast import literal_eval
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidArgument
from anabranch.migration import steps as step
from anabranch.migration.plan import (
    GroupMove,
    by_pair,
    in_rounds,
    moves_between,
    without_clashes,
)
from anabranch.migration.steps import Arrival, Outcome
from anabranch.migration.strategies import (
    ALWAYS_AS_ASKED,
    STANDBY,
    STRATEGIES,
    check,
    idle_steps_of,
    steps_of,
)
from anabranch.migration.strategies.at_once import at_once
from anabranch.migration.strategies.live import CATCH_UPS_MAX
from anabranch.model.ids import KeyGroup, WorkerId

W1, W2, W3 = WorkerId("w1"), WorkerId("w2"), WorkerId("w3")
MOVES = tuple(GroupMove(KeyGroup(g), W1, W2 if g % 2 else W3) for g in range(6))


def run(
    name: str,
    outcomes: dict[type, Outcome] | None = None,
    moves: tuple[GroupMove, ...] = MOVES,
    **options: Any,
) -> list[Any]:
    """All steps of a strategy; parts that run together come one after the other."""
    found: list[Any] = []
    running = steps_of(name, moves, options)
    outcome = None
    while True:
        try:
            wanted = running.send(outcome)
        except StopIteration:
            return found
        found.append(wanted)
        if isinstance(wanted, step.Together):
            for part in wanted.parts:
                found.extend(part)
        outcome = (outcomes or {}).get(type(wanted), Outcome())


def kinds(found: list[Any]) -> list[str]:
    return [type(wanted).__name__ for wanted in found if not isinstance(wanted, step.AddCount)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pause", "CloseGate Flip Import OpenGate"),
        ("order-unaware", "Flip Import"),
        ("stop-restart", "CloseGate Quiet SaveAll Restart LoadAll OpenGate"),
        ("rhino", "Copy NextEpoch CatchUp Flip Import"),
        ("replicate", "Copy Shadow CatchUp NextEpoch Lag Flip Shadow Import"),
        ("lazy", "Connect Flip Import Clean"),
        ("meces", "Connect NextEpoch Flip Import Clean"),
        ("live", "Copy CatchUp NextEpoch CatchUp Flip Import Clean"),
        ("drrs", "Together NextEpoch Flip Import NextEpoch NextEpoch Flip Import"),
        ("megaphone", "NextEpoch Flip Import NextEpoch Flip Import"),
    ],
)
def test_steps(name: str, expected: str) -> None:
    assert kinds(run(name)) == expected.split()


@pytest.mark.parametrize("name", [n for n in STRATEGIES if n != "stop-restart"])
def test_every_key_group_is_flipped_once_and_imported(name: str) -> None:
    found = run(name)
    for kind in (step.Flip, step.Import):
        moved = [m for wanted in found if isinstance(wanted, kind) for m in wanted.moves]
        assert sorted(moved, key=lambda m: m.group) == list(MOVES)


@pytest.mark.parametrize(
    ("name", "arrival"),
    [
        ("pause", Arrival.BLOCK),
        ("megaphone", Arrival.BLOCK),
        ("order-unaware", Arrival.BLOCK),
        ("rhino", Arrival.GROUP),
        ("live", Arrival.GROUP),
        ("drrs", Arrival.GROUP),
        ("meces", Arrival.BIN),
        ("lazy", Arrival.KEY),
    ],
)
def test_arrivals(name: str, arrival: Arrival) -> None:
    flips = [wanted for wanted in run(name) if isinstance(wanted, step.Flip)]
    assert {flip.arrival for flip in flips} == {arrival}
    assert all(flip.ready_first == (name == "drrs") for flip in flips)


def test_live_goes_over_to_post_copy_when_the_delta_does_not_shrink() -> None:
    found = run("live", {step.CatchUp: Outcome({"delta_rows": 99})}, delta=10)
    assert kinds(found) == ["Copy", "CatchUp", "CatchUp", "Flip", "Import", "Clean"]
    assert step.AddCount("post_copies") in found
    assert next(w for w in found if isinstance(w, step.Flip)).arrival is Arrival.KEY


def test_live_gives_up_catching_up_with_a_delta_that_shrinks_too_slowly() -> None:
    """Each round finds less than the one before, but there is an end to rounds."""
    steps, lag, outcome = steps_of("live", MOVES, {"delta": 10}), 1000, None
    found: list[Any] = []
    while not found or not isinstance(found[-1], step.Flip):
        found.append(steps.send(outcome))
        lag -= 1
        outcome = Outcome({"delta_rows": lag})
    assert kinds(found) == ["Copy", *["CatchUp"] * CATCH_UPS_MAX, "Flip"]
    assert found[-1].arrival is Arrival.KEY


def test_subscales_of_drrs_take_pairs_in_turn() -> None:
    flips = [wanted for wanted in run("drrs", subscale=1) if isinstance(wanted, step.Flip)]
    assert [flip.moves[0].target for flip in flips] == [W3, W2] * 3
    assert [flip.moves[0].group for flip in flips] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("group_mib", "waves"),
    [
        (2, [4, 4, 4]),
        (8, [4, 4, 4]),
        (10, [4, 3, 3, 2]),
        (16, [4, 2, 2, 2, 2]),
        (40, [4, *[1] * 8]),
    ],
)
def test_waves_of_live_are_smaller_where_key_groups_are_large(
    group_mib: int, waves: list[int]
) -> None:
    running = steps_of(
        "live", tuple(GroupMove(KeyGroup(g), W1, W2) for g in range(12)), {"wave": 4}
    )
    found: list[int] = []
    wanted: Any = next(running)
    while wanted is not None:
        if isinstance(wanted, step.Copy):
            found.append(len(wanted.moves))
            outcome = Outcome({"bytes": group_mib * len(wanted.moves) << 20})
        else:
            outcome = Outcome()
        try:
            wanted = running.send(outcome)
        except StopIteration:
            wanted = None
    assert found == waves


def test_waves_of_live_take_one_source_after_the_other() -> None:
    moves = tuple(GroupMove(KeyGroup(g), (W1, W2)[g % 2], W3) for g in range(16))
    copies = [
        wanted for wanted in run("live", moves=moves, wave=4) if isinstance(wanted, step.Copy)
    ]
    sources = [{move.source for move in copy.moves} for copy in copies]
    assert sources == [{W1}, {W1}, {W2}, {W2}]


def test_small_waves_of_live_are_not_copied_ahead() -> None:
    """Once it is known that key groups are small, and until they are not."""
    running = steps_of(
        "live", tuple(GroupMove(KeyGroup(g), W1, W2) for g in range(10)), {"wave": 2}
    )
    group_bytes = iter([1 << 20, 1 << 20, 3 << 20, 0, 0])
    found: list[str] = []
    wanted: Any = next(running)
    while wanted is not None:
        name, outcome = type(wanted).__name__, Outcome()
        if name == "Copy" or (name == "Import" and found[-2] != "CatchUp"):
            outcome = Outcome({"bytes": 2 * next(group_bytes)})
        if not isinstance(wanted, step.AddCount):
            found.append(name)
        try:
            wanted = running.send(outcome)
        except StopIteration:
            wanted = None
    ahead = ["Copy", "CatchUp", "NextEpoch", "CatchUp", "Flip", "Import", "Clean"]
    small = ["NextEpoch", "Flip", "Import"]
    assert found == ahead + small + small + ahead + ahead  # nothing copied tells nothing


def test_replicate_gives_up_waiting() -> None:
    found = run("replicate", {step.Lag: Outcome({"behind": 1})})
    assert kinds(found).count("Lag") == 20
    assert kinds(found)[-3:] == ["Flip", "Shadow", "Import"]


def test_replicate_does_not_run_after_a_source_that_is_faster() -> None:
    outcomes: dict[type, Outcome] = {
        step.Copy: Outcome({"rows": 5}),
        step.CatchUp: Outcome({"delta_rows": 6}),
        step.Lag: Outcome({"behind": 1}),
    }
    found = run("replicate", outcomes)
    assert kinds(found).count("CatchUp") == 3
    assert kinds(found)[-3:] == ["Flip", "Shadow", "Import"]


# --- while no batch runs --------------------------------------------------------------------------

MB = 1 << 20


def rounds_of(sizes: list[int], asleep: int = 99, targets: int = 1) -> list[Any]:
    """Steps of an idle move of key groups of so many megabytes; a batch begins after some."""
    moves = tuple(GroupMove(KeyGroup(g), W1, (W2, W3)[g % targets]) for g in range(len(sizes)))
    running = at_once(moves, {KeyGroup(g): size * MB for g, size in enumerate(sizes)})
    found: list[Any] = []
    outcome = None
    while True:
        try:
            found.append(running.send(outcome))
        except StopIteration:
            return found
        outcome = Outcome()
        if isinstance(found[-1], step.AskIdle):
            outcome, asleep = Outcome({"idle": int(asleep > 0)}), asleep - 1


def flips_of(found: list[Any]) -> list[list[int]]:
    return [[m.group for m in w.moves] for w in found if isinstance(w, step.Flip)]


def test_small_key_groups_are_one_round() -> None:
    found = rounds_of([0] * 200 + [1, 2])
    assert kinds(found) == ["AskIdle", "Flip", "Import"]
    assert sorted(flips_of(found)[0]) == list(range(202))
    assert step.AddCount("idle_groups", 202) in found


def test_unknown_sizes_are_small() -> None:
    moves = (GroupMove(KeyGroup(0), W1, W2), GroupMove(KeyGroup(1), W1, W2))
    (flip,) = (w for w in _answered(at_once(moves, {})) if isinstance(w, step.Flip))
    assert flip.moves == moves


def _answered(steps: step.Steps) -> list[Any]:
    found = [next(steps)]
    while True:
        try:
            found.append(steps.send(Outcome({"idle": 1})))
        except StopIteration:
            return found


def test_large_key_groups_are_copied_round_by_round() -> None:
    """Never more than a round at both ends, and the small ones first."""
    found = rounds_of([20, 0, 20, 10, 100, 1])
    assert flips_of(found) == [[1, 5, 3, 0], [2], [4]]
    assert kinds(found) == ["Copy", "AskIdle", "Flip", "Import", "Clean"] * 3


def test_each_target_gets_its_share_of_a_round() -> None:
    assert flips_of(rounds_of([30, 30, 30, 30], targets=2)) == [[0, 1], [2, 3]]


def test_no_round_begins_when_a_batch_has() -> None:
    """It may have been copied; the strategy takes it from there."""
    found = rounds_of([20, 20, 20], asleep=1)
    assert kinds(found) == ["Copy", "AskIdle", "Flip", "Import", "Clean", "Copy", "AskIdle"]
    assert kinds(rounds_of([0, 0], asleep=0)) == ["AskIdle"]


def test_what_an_idle_move_takes_the_place_of() -> None:
    idle = {name: idle_steps_of(name, MOVES, {}) is not None for name in (*STRATEGIES, STANDBY)}
    assert [name for name, is_at_once in idle.items() if not is_at_once] == [*ALWAYS_AS_ASKED]


def test_standby_never_ends() -> None:
    running = steps_of(STANDBY, MOVES, {})
    seen = [type(next(running)).__name__ for _ in range(7)]
    assert seen == ["Copy", "NextEpoch", "CatchUp", "AddCount", "NextEpoch", "CatchUp", "AddCount"]


@pytest.mark.parametrize(("plan", "rounds"), [("all-at-once", 1), ("fluid", 6), ("batched", 6)])
def test_plans_of_megaphone(plan: str, rounds: int) -> None:
    flips = [w for w in run("megaphone", plan=plan, batch=1) if isinstance(w, step.Flip)]
    assert len(flips) == rounds


def test_options() -> None:
    check("live", {"wave": 4, "delta": np.int64(10)})
    check("megaphone", {"plan": "fluid"})
    for name, options in (
        ("teleport", {}),
        ("live", {"speed": 1}),
        ("pause", {"wave": 1}),
        ("meces", {"batch": 0}),
        ("meces", {"batch": True}),
        ("megaphone", {"plan": "random"}),
    ):
        with pytest.raises(InvalidArgument):
            check(name, options)
    with pytest.raises(InvalidArgument, match=r"nor of those of all strategies: .*assignment"):
        check("live", {"asignment": "range"})
    with pytest.raises(InvalidArgument):
        run("megaphone", plan="random")


@st.composite
def plans(draw: st.DrawFn) -> tuple[GroupMove, ...]:
    workers = st.sampled_from([W1, W2, W3, WorkerId("w4")])
    before = draw(st.lists(workers, min_size=1, max_size=40))
    after = draw(st.lists(workers, min_size=len(before), max_size=len(before)))
    return moves_between(before, after)


@given(plans(), st.integers(1, 5))
def test_rounds_have_every_move_once(moves: tuple[GroupMove, ...], size: int) -> None:
    for rounds in (in_rounds(moves, size), without_clashes(moves, size)):
        flat = [move for some in rounds for move in some]
        assert sorted(flat, key=lambda m: m.group) == list(moves)
        assert all(rounds)


@given(plans(), st.integers(1, 5))
def test_rounds_are_bounded(moves: tuple[GroupMove, ...], size: int) -> None:
    for some in in_rounds(moves, size):
        assert max(Counter(m.target for m in some).values()) <= size
    for some in without_clashes(moves, size):
        part = Counter(w for m in some for w in (m.source, m.target))
        assert max(part.values()) <= size


@given(plans())
def test_pairs(moves: tuple[GroupMove, ...]) -> None:
    pairs = by_pair(moves)
    assert sum(len(some) for some in pairs.values()) == len(moves)
    for (source, target), some in pairs.items():
        assert {(m.source, m.target) for m in some} == {(source, target)}


def test_the_document_has_every_option_with_its_default() -> None:
    page = Path(__file__).parents[3] / "docs" / "reconfiguration.md"
    row = r"^\| `([\w-]+)` \| `(\w+)` \| .* \| `?(\S+?)`? \|$"
    found = {
        (strategy, option): literal_eval(default)
        for strategy, option, default in re.findall(row, page.read_text("utf-8"), re.MULTILINE)
    }
    assert found == {
        (name, option): parameter.default
        for name, strategy in STRATEGIES.items()
        for option, parameter in inspect.signature(strategy).parameters.items()
        if option != "moves"
    }
