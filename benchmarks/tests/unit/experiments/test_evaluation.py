"""Which runs the evaluation makes, and what it keeps when they fail or are interrupted."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from benchmarks.tests.unit.made_up_runs import SETTLE, from_plan, planned, result

from anabranch.errors import InvalidArgument
from anabranch.loadtest.loaded_query import Say
from anabranch.migration.strategies import STRATEGIES as ALL_STRATEGIES
from anabranch_bench.experiments.evaluation import Evaluation, run_settings
from anabranch_bench.experiments.evaluation_loads import WORKLOADS, Scale, find_load, key_count
from anabranch_bench.experiments.evaluation_plan import (
    PARTS,
    PLANS,
    EvaluationSettings,
    PlannedRun,
    plan,
    runs_of,
    seconds_of,
    seconds_of_all,
    warm_ups,
)
from anabranch_bench.experiments.time_left import time_left
from anabranch_bench.results.cases import CONTROL, STRATEGIES
from anabranch_bench.results.run_result import INTERRUPTED, RunResult
from anabranch_bench.runs.loaded_run import Rescale
from anabranch_bench.runs.under_load import Moment, told

TINY = EvaluationSettings(
    parts=("workloads",),
    workloads=("q3", "q8"),
    strategies=("live", "meces"),
    settle=SETTLE,
    warm_each=False,
)


class TestLoads:
    @pytest.mark.parametrize("name", [name for name in WORKLOADS if name != "etl"])
    def test_every_workload_has_state(self, name: str) -> None:
        load = find_load(name, Scale.quick())
        if name in ("stats", "train", "pred"):
            pytest.importorskip("sklearn")
        workload = load.make()
        assert workload.stateful
        assert workload.preload_rows == load.preload_rows
        assert load.name.endswith(name)

    def test_the_rate_is_the_events_own(self) -> None:
        workload = find_load("q4", Scale.quick(), 1234).make()
        assert workload.config.rate == 1234  # type: ignore[attr-defined]

    def test_an_unknown_one(self) -> None:
        with pytest.raises(InvalidArgument, match="Known: key-count, q3"):
            find_load("q1", Scale())

    def test_equal_parameters_are_the_same_measurement(self) -> None:
        scale = Scale()
        assert key_count(scale) == find_load("key-count", scale)
        assert key_count(scale) != key_count(scale, zipf=1.0)
        assert key_count(scale) != key_count(scale, payload_bytes=1)


class TestPlan:
    def test_all_strategies_are_there(self) -> None:
        assert set(STRATEGIES) == set(ALL_STRATEGIES)

    def test_each_workload_has_a_control_run_right_after_live(self) -> None:
        labels = [(s.load.name, s.case.label) for s in plan(TINY)]
        assert labels == [
            ("nexmark q3", "live"),
            ("nexmark q3", CONTROL),
            ("nexmark q3", "meces"),
            ("nexmark q8", "live"),
            ("nexmark q8", CONTROL),
            ("nexmark q8", "meces"),
        ]

    def test_no_run_is_made_twice(self) -> None:
        for settings in (EvaluationSettings(), EvaluationSettings.quick()):
            keys = [s.key for s in plan(settings)]
            assert len(keys) == len(set(keys))
            asked = [s.key for part in PARTS for s in runs_of(part, settings)]
            assert set(asked) == set(keys)
            assert len(asked) > len(keys)

    def test_the_runs_of_a_workload_are_made_together(self) -> None:
        loads = [s.load for s in plan(EvaluationSettings())]
        changes = sum(1 for a, b in itertools.pairwise(loads) if a != b)
        assert changes == len(set(loads)) - 1

    def test_repeats(self) -> None:
        once, twice = (plan(EvaluationSettings(repeat=n)) for n in (1, 2))
        assert len(twice) == 2 * len(once)

    def test_parts_leave_out_what_was_excluded(self) -> None:
        settings = EvaluationSettings(
            parts=("meces", "drrs"), compared=("live",), workloads=("q7",)
        )
        assert {s.case.label for s in plan(settings)} == {"live", CONTROL}
        assert {s.load.name for s in plan(settings)} == {"key-count", "nexmark q7"}

    def test_megaphones_plans(self) -> None:
        labels = [s.case.label for s in runs_of("megaphone", EvaluationSettings())]
        assert labels == [*PLANS, CONTROL]
        plans = [
            s.case.options.get("plan", "batched")
            for s in runs_of("megaphone", EvaluationSettings())
        ]
        assert plans[:3] == list(PLANS.values())

    def test_one_parameter_changes_at_a_time(self) -> None:
        settings = EvaluationSettings()
        usual = settings.load("key-count")
        for axis in settings.axes:
            loads = [axis.load(settings.scale, None, f) for f in axis.factors]
            assert usual in loads
            assert len(set(loads)) == len(axis.factors)
            shown = {axis.shown(settings.scale, None, f) for f in axis.factors}
            assert len(shown) == len(axis.factors)

    def test_a_quick_run_has_every_strategy_on_key_count_and_live_on_every_workload(self) -> None:
        settings = EvaluationSettings.quick()
        runs = {(s.load, s.case.strategy) for s in plan(settings)}
        assert runs >= {(settings.load("key-count"), name) for name in ALL_STRATEGIES}
        assert runs >= {(settings.load(name), "live") for name in WORKLOADS}
        assert runs >= {(settings.load(name), None) for name in WORKLOADS}

    def test_strategies_that_were_excluded_are_not_run_on_key_count(self) -> None:
        chosen = replace(EvaluationSettings.quick(), strategies=("meces",), compared=("meces",))
        assert {s.case.label for s in runs_of("workloads", chosen)} == {"meces", CONTROL}

    def test_the_guess_for_everything_quick_is_about_ten_minutes(self) -> None:
        """Only the guess; how good it is on Spark, tests/spark/test_bench_evaluation.py says."""
        settings = EvaluationSettings.quick()
        runs = plan(settings)
        assert 5 < seconds_of_all((*runs, *warm_ups(runs, settings)), settings) / 60 < 12

    def test_many_steps_take_longer(self) -> None:
        settings = EvaluationSettings()
        labels = ("megaphone:plan=fluid", "megaphone", "megaphone:plan=all-at-once")
        fluid, batched, at_once = (seconds_of(planned(label), settings) for label in labels)
        assert fluid > batched > at_once

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"parts": ("all",)}, "workloads, meces"),
            ({"workloads": ("q9",)}, "Known: key-count"),
            ({"steady": 0.0}, "--seconds"),
            ({"repeat": 0}, "--repeat"),
        ],
    )
    def test_mistakes(self, wrong: dict[str, object], said: str) -> None:
        with pytest.raises(InvalidArgument, match=said):
            EvaluationSettings(**wrong)  # type: ignore[arg-type]


class TestRunSettings:
    def test_a_strategy_in_the_middle(self) -> None:
        made = run_settings(planned("megaphone:plan=fluid"), TINY, 0.0)
        assert made.rescales == (Rescale(3, TINY.settle + TINY.steady),)
        assert (made.strategy, made.options) == ("megaphone", {"plan": "fluid"})
        assert made.verify
        assert made.after == TINY.steady
        assert not made.standby

    def test_a_control_run_is_as_long_as_asked(self) -> None:
        made = run_settings(planned(CONTROL), TINY, 99.0)
        assert made.rescales == ()
        assert made.duration == 99.0

    def test_rhino_has_replicas_before(self) -> None:
        assert run_settings(planned("rhino"), TINY, 0.0).standby

    def test_what_is_told(self) -> None:
        assert told(Moment("warming up", -1.0, 10, None, progress=0.5)) == "warming up, 50%"
        moment = Moment("load", 12.3, 10, 0.456, progress=0.25)
        assert told(moment) == "12 s under load, latency 0.46 s, moving, 25%"


class TestEvaluation:
    def test_all_runs_are_made(self) -> None:
        seen: list[RunResult] = []
        evaluation = Evaluation(TINY, from_plan, on_run=seen.append)
        assert evaluation.run().runs == seen
        assert len(seen) == 6
        assert evaluation.is_good

    def test_the_control_run_lasts_as_long_as_live(self) -> None:
        asked = {}

        def run(planned: PlannedRun, seconds: float, say: Say) -> RunResult:
            made = from_plan(planned)
            asked[made.load.name, made.label] = seconds
            return made

        evaluation = Evaluation(TINY, run)
        live = evaluation.run().runs[0]
        assert asked["nexmark q3", CONTROL] == live.end > 20
        assert asked["nexmark q3", "meces"] == 0.0

    @pytest.mark.parametrize(("each", "runs"), [(False, 1), (True, 2)])
    def test_runs_that_warm_up_do_not_count(self, each: bool, runs: int) -> None:
        made: list[PlannedRun] = []

        def run(planned: PlannedRun, seconds: float, say: Say) -> RunResult:
            made.append(planned)
            return from_plan(planned)

        evaluation = Evaluation(replace(TINY, warm_each=each), run)
        assert len(evaluation.run().runs) == 6
        assert len(made) == 6 + runs
        assert made[0].case.label == CONTROL
        assert made[1].load == made[0].load

    @pytest.mark.parametrize("how", ["at once", "politely", "too late"])
    def test_a_stop_while_it_warms_up(self, how: str) -> None:
        """No run is begun only to be stopped."""
        made: list[PlannedRun] = []

        def run(planned: PlannedRun, seconds: float, say: Say) -> RunResult:
            made.append(planned)
            if how == "at once":
                raise KeyboardInterrupt
            warm_up = from_plan(planned)
            warm_up.error = INTERRUPTED if how == "politely" else ""
            return warm_up

        stops = how == "too late"  # the run was over when somebody wanted to stop
        evaluation = Evaluation(TINY, run, should_stop=lambda: stops and bool(made))
        assert evaluation.run().runs == []
        assert len(made) == 1
        assert evaluation.interrupted

    def test_a_stop_after_the_last_run_changes_nothing(self) -> None:
        made: list[RunResult] = []
        evaluation = Evaluation(
            TINY, from_plan, on_run=made.append, should_stop=lambda: len(made) == 6
        )
        evaluation.run()
        assert len(made) == 6
        assert not evaluation.interrupted

    def test_a_failing_run_does_not_end_the_others(self) -> None:
        def run(planned: PlannedRun, seconds: float, say: Say) -> RunResult:
            made = from_plan(planned)
            if made.label == "meces":
                raise ValueError("the state is gone\nTraceback ...")
            return made

        evaluation = Evaluation(TINY, run)
        runs = evaluation.run().runs
        assert [r.error for r in runs if r.label == "meces"] == ["the state is gone"] * 2
        assert sum(r.is_good for r in runs) == 4
        assert not evaluation.interrupted
        assert not evaluation.is_good

    @pytest.mark.parametrize("how", ["at once", "politely"])
    def test_an_interruption_keeps_what_is_done(self, how: str) -> None:
        def run(planned: PlannedRun, seconds: float, say: Say) -> RunResult:
            made = from_plan(planned)
            if made.label == "meces":
                if how == "at once":
                    raise KeyboardInterrupt
                made.error = INTERRUPTED
            return made

        evaluation = Evaluation(TINY, run)
        runs = evaluation.run().runs
        assert [r.label for r in runs if r.is_good] == ["live", CONTROL]
        assert runs[-1].is_interrupted
        assert evaluation.interrupted
        assert evaluation.is_good  # nobody failed

    def test_a_stop_between_runs(self) -> None:
        done: list[RunResult] = []
        evaluation = Evaluation(
            TINY, from_plan, on_run=done.append, should_stop=lambda: len(done) == 2
        )
        assert len(evaluation.run().runs) == 2
        assert evaluation.interrupted

    @pytest.mark.parametrize("each", [False, True])
    def test_warm_ups_count_in_the_time_that_is_told_first(self, each: bool) -> None:
        settings = replace(TINY, warm_each=each)
        heads: list[str] = []
        Evaluation(settings, from_plan, on_task=heads.append, clock=lambda: 0.0).run()
        runs = plan(settings)
        whole = seconds_of_all((*runs, *warm_ups(runs, settings)), settings)
        assert heads[0].startswith(f"[1/6, about {time_left(whole)} left]")
        alone = seconds_of_all(runs, settings)
        assert whole > alone + (1 + each) * settings.steady

    def test_the_time_left_learns(self) -> None:
        """Runs take ten times as long as was guessed."""
        now = [0.0]
        said: list[str] = []
        heads: list[str] = []

        def run(planned: PlannedRun, seconds: float, say: Say) -> RunResult:
            now[0] += 10 * seconds_of(planned, TINY)
            say("running")
            return result()

        evaluation = Evaluation(TINY, run, said.append, heads.append, clock=lambda: now[0])
        evaluation.run()
        assert [head.partition(",")[0] for head in heads] == [f"[{n}/6" for n in range(1, 7)]
        minutes = [float(head.split("about ")[1].split(" min")[0]) for head in heads[1:]]
        assert minutes == sorted(minutes, reverse=True)
        assert minutes[0] == pytest.approx(10 * sum_of_guesses() / 60, rel=0.1)
        assert said[:2] == [f"{heads[0]}: warming up: running", f"{heads[0]}: running"]


def sum_of_guesses() -> float:
    return sum(seconds_of(s, TINY) for s in plan(TINY)[1:])


def test_time_left() -> None:
    assert time_left(3) == "10 s"
    assert time_left(61) == "60 s"
    assert time_left(600) == "10 min"
    assert time_left(7200) == "2.0 h"
