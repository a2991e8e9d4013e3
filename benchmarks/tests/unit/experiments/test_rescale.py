"""Which runs `anabranch bench rescale` makes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.tests.unit.made_up_runs import LATER, make_run
from tests.unit.loadtest.timelines import back_to_back

from anabranch.loadtest.latency import TimeWindow
from anabranch_bench.experiments.rescale import RescaleBench, RescaleSettings
from anabranch_bench.results.run_result import Controls


class TestPlan:
    def names(self, *strategies: str, parts: tuple[str, ...] = ("strategies",)) -> list[str]:
        """What would be run, in this order; plans need no Spark."""
        settings = RescaleSettings(strategies=strategies, live_repeat=2, series_gb=(0.5, 2.0))
        bench = RescaleBench(None, Path(), settings, lambda _: None, _parts=parts)  # type: ignore[arg-type]
        tasks = [task for part in parts for task in bench._plan(part)]
        return [task.name.removeprefix("strategies: ") for task in tasks]

    def test_live_and_control_take_turns(self) -> None:
        assert self.names("live")[:-1] == ["loading 2 GB", "live and control in turns"]

    def test_others_have_control_runs_between_them(self) -> None:
        others = ("meces", "drrs", "pause", "lazy")
        assert self.names(*others)[1:-1] == [
            "warming up",
            "meces, run 1",
            "control, run 1",
            "drrs, run 1",
            "pause, run 1",
            "lazy, run 1",
            "control, run 2",
            "control, if it is needed",
        ]
        assert self.names("live", *others)[2:4] == ["meces, run 1", "control, run 1"]

    def test_a_size_is_measured_once(self) -> None:
        names = self.names("live", parts=("strategies", "series"))
        assert [n for n in names if "loading" in n] == ["loading 2 GB", "0.5 GB: loading 0.5 GB"]

    def test_control_runs_are_as_long_as_what_they_are_compared_with(self) -> None:
        bench = RescaleBench(None, Path(), RescaleSettings(live_repeat=2), lambda _: None)  # type: ignore[arg-type]
        lazy = make_run("lazy", back_to_back(0.5, 30), TimeWindow(10, 14))
        turn = make_run("live", back_to_back(0.5, 90), TimeWindow(10, 74))
        turn.controls = Controls.BESIDE
        bench.found.results.runs = [lazy, turn]
        assert lazy.timeline
        assert bench._length_of_others(lazy) == 0
        assert bench._length_of_others(make_run("control", LATER)) == lazy.timeline.end
