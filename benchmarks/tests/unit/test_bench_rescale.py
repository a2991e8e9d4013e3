"""The pure parts of `anabranch bench rescale`: schedules, latency, peers, verdicts, tables."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anabranch.errors import InvalidArgument
from anabranch.loadtest.latency import Batch, Timeline, TimeWindow, median
from anabranch.loadtest.schedule import (
    HOLD,
    Burst,
    LoadReader,
    OpenLoop,
    ranges,
    read_schedule,
    write_schedule,
)
from anabranch.loadtest.timeline_plot import check_matplotlib
from anabranch_bench.bench import connections
from anabranch_bench.bench.comparison import controls_of, ratios
from anabranch_bench.bench.connections import between
from anabranch_bench.bench.flight_copy import copy_rates, payload_batches
from anabranch_bench.bench.machine import CoreShares, CoreTimes
from anabranch_bench.bench.plots import plot_runs, shown_runs
from anabranch_bench.bench.rescale import RescaleBench, RescaleSettings
from anabranch_bench.bench.rescale_report import summary_line, table
from anabranch_bench.bench.rescale_runs import Case, Run, brief
from anabranch_bench.bench.verdicts import (
    MoveRate,
    Spread,
    SteadyCost,
    Verdict,
    judge_absolute,
    judge_live,
    judge_move,
    judge_others,
    judge_series,
    judge_steady,
)

START = 1000.0
RATE = 100.0
LOAD = OpenLoop(500, START, RATE)


def back_to_back(
    seconds: float, until: float, stall: tuple[float, float] | None = None
) -> Timeline:
    """Batches one after the other; a batch that begins in `stall` is done only after its end."""
    batches, row, now = [], LOAD.first_row, START
    while now < START + until:
        end_row = LOAD.end_of_batch(row, now)
        done = now + seconds
        if stall and stall[0] <= now - START < stall[1]:
            done = START + stall[1] + seconds
        if end_row > row:
            batches.append(Batch(row, end_row, now, done))
        row, now = end_row, done
    return Timeline(LOAD, batches)


LATER = Timeline(LOAD, [])


def make_run(
    label: str,
    timeline: Timeline,
    move: TimeWindow | None = None,
    part: str = "strategies",
    keys: int = 2_000_000,
    repeat: int = 0,
    peers: int | None = 0,
) -> Run:
    run = Run(part, Case.parse(label), repeat, RATE, keys, 1024)
    run.timeline, run.move, run.peers = timeline, move, peers
    run.steady = TimeWindow(2, move.start) if move else None
    run.report = {"bytes": 5_000_000, "groups": 85}
    return run


class TestSchedules:
    def test_rows_are_due_by_the_clock_alone(self) -> None:
        assert LOAD.end_of_batch(500, START - 1) == 500
        assert LOAD.end_of_batch(500, START) == 501  # the first row is due at once
        assert LOAD.end_of_batch(500, START + 0.25) == 526
        assert LOAD.intended(525) == START + 0.25

    def test_rows_that_were_delivered_stay_delivered(self) -> None:
        assert LOAD.end_of_batch(900, START + 1) == 900

    def test_a_late_query_gets_everything_that_is_due(self) -> None:
        assert LOAD.end_of_batch(510, START + 100) == 500 + 100 * 100 + 1

    def test_bursts_come_in_batches_and_end(self) -> None:
        burst = Burst(until_row=25, batch_rows=10)
        assert [burst.end_of_batch(start, 0.0) for start in (0, 10, 20, 25, 30)] == [
            10,
            20,
            25,
            25,
            30,
        ]
        assert HOLD.end_of_batch(7, 1e9) == 7

    @pytest.mark.parametrize("schedule", [HOLD, Burst(9, 3), LOAD])
    def test_schedules_go_through_a_file(self, tmp_path: Path, schedule: Burst | OpenLoop) -> None:
        path = tmp_path / "schedule.json"
        write_schedule(path, schedule)
        assert read_schedule(path) == schedule

    def test_the_reader_follows_its_file(self, tmp_path: Path) -> None:
        path = tmp_path / "schedule.json"
        reader = LoadReader(str(path))
        write_schedule(path, Burst(25, 20))
        rows, end = reader.read(reader.initialOffset())
        assert (list(rows), end) == ([(0, 9), (10, 19)], {"row": 20})
        rows, end = reader.read(end)
        assert (list(rows), end) == ([(20, 22), (23, 24)], {"row": 25})
        rows, end = reader.read(end)
        assert (list(rows), end) == ([], {"row": 25})

    @pytest.mark.parametrize(("first", "end"), [(0, 0), (5, 6), (5, 7), (0, 101)])
    def test_ranges_cover_all_rows_once(self, first: int, end: int) -> None:
        rows = [row for a, b in ranges(first, end) for row in range(a, b + 1)]
        assert rows == list(range(first, end))


class TestLatency:
    def test_every_row_counts_from_its_intended_time(self) -> None:
        # Rows 500..509 were due from 0.00 s to 0.09 s and committed at 0.5 s.
        timeline = Timeline(LOAD, [Batch(500, 510, START + 0.1, START + 0.5)])
        latency = timeline.during(TimeWindow(0, 1))
        expected = 0.5 - np.arange(10) / RATE
        assert latency.rows == 10
        assert latency.peak == pytest.approx(0.5)
        assert latency.mean == pytest.approx(expected.mean())
        assert latency.p50 == pytest.approx(np.percentile(expected, 50))
        assert latency.p99 == pytest.approx(np.percentile(expected, 99))

    def test_percentiles_weigh_rows_not_batches(self) -> None:
        many = Batch(500, 1500, START + 10, START + 10.1)
        one = Batch(1500, 1501, START + 10.1, START + 60)
        latency = Timeline(LOAD, [many, one]).during(TimeWindow(0, 100))
        assert latency.peak == pytest.approx(50)
        assert latency.p99 < 11

    def test_a_steady_query_takes_one_to_two_batches(self) -> None:
        latency = back_to_back(0.5, until=20).during(TimeWindow(5, 15))
        assert latency.peak == pytest.approx(1.0, abs=0.03)
        assert latency.mean == pytest.approx(0.75, abs=0.03)
        assert latency.throughput == pytest.approx(RATE, rel=0.02)

    def test_rows_that_waited_for_the_move_count_to_it_though_done_after_it(self) -> None:
        timeline = back_to_back(0.5, until=30, stall=(10, 18))
        move = TimeWindow(10, 18)
        assert timeline.during(move).peak >= 8.5
        assert timeline.before(TimeWindow(2, 10)).peak < 1.1
        assert timeline.after(TimeWindow(20, 30)).peak < 1.1

    def test_before_has_only_rows_that_were_done(self) -> None:
        timeline = back_to_back(0.5, until=30, stall=(10, 18))
        before, during = timeline.before(TimeWindow(0, 10)), timeline.during(TimeWindow(10, 18))
        after = timeline.after(TimeWindow(18, 30))
        assert before.rows < 1000
        assert during.rows > 800
        assert after.rows == pytest.approx(1150, abs=60)

    def test_throughput_is_not_rounded_to_batches(self) -> None:
        timeline = back_to_back(0.7, until=30)
        for width in (0.1, 0.8, 2.3):
            assert timeline.throughput(TimeWindow(10, 10 + width)) == pytest.approx(RATE, rel=0.02)

    def test_rows_before_the_load_do_not_count(self) -> None:
        timeline = Timeline(LOAD, [Batch(400, 510, START, START + 1)])
        assert timeline.during(TimeWindow(0, 1)).rows == 10

    def test_nothing_measured(self) -> None:
        latency = Timeline(LOAD, []).during(TimeWindow(0, 1))
        assert latency.rows == 0
        assert json.dumps(latency.to_json(), allow_nan=False)
        assert math.isnan(median([math.nan]))
        assert median([3, 1, 2, math.nan]) == 2
        assert median([1, 2]) == 1.5


class TestPeers:
    TABLE = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid tmo inode",
        "   0: 0100007F:1000 0100007F:2000 01 00000000:00000000 00:00000000 00000000 0 0 11 1",
        "   1: 0100007F:2000 0100007F:1000 01 00000000:00000000 00:00000000 00000000 0 0 22 1",
        "   2: 0100007F:1000 0100007F:3000 01 00000000:00000000 00:00000000 00000000 0 0 12 1",
        "   3: 0100007F:1000 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 13 1",
    )

    def test_connections_between_workers(self) -> None:
        assert between(self.TABLE, {"11": 1, "12": 1, "13": 1, "22": 2}) == 1

    def test_connections_to_others_and_to_itself(self) -> None:
        assert between(self.TABLE, {"11": 1, "12": 1}) == 0
        assert between(self.TABLE, {"11": 1, "22": 1}) == 0

    @pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="Linux tells, others do not")
    def test_a_connection_that_comes_and_goes_is_remembered(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connections, "SAMPLE_SECONDS", 0.0)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            code = f"import socket; s = socket.create_connection(('127.0.0.1', {port})); input()"
            with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as other:
                samples = connections.PeerSamples([os.getpid(), other.pid])
                accepted, _ = server.accept()
                samples.look()
                assert (samples.most, samples.count) == (1, 1)
                accepted.close()
                samples.look()
                assert (samples.most, samples.count) == (1, 2)
                other.communicate(b"\n")
        samples.look()
        assert samples.count == 2, "a process that is gone tells nothing"


def by_name(verdicts: list[Verdict], words: str) -> Verdict:
    (found,) = [v for v in verdicts if words in v.name]
    return found


class TestVerdicts:
    MOVE = TimeWindow(10, 14)

    def runs(self, live_stall: float) -> list[Run]:
        stall = (10, 10 + live_stall) if live_stall else None
        return [
            make_run("live", back_to_back(0.5, 30, stall), self.MOVE),
            make_run("control", back_to_back(0.5, 30)),
            make_run("stop-restart", back_to_back(0.5, 50, (10, 25)), TimeWindow(10, 25)),
            make_run("spark", back_to_back(0.5, 90, (10, 60)), TimeWindow(10, 60)),
        ]

    def test_a_move_that_nobody_sees(self) -> None:
        verdicts = judge_live(self.runs(0))
        assert [v.passed for v in verdicts] == [True] * 5

    def test_a_move_that_stalls(self) -> None:
        verdicts = judge_live(self.runs(4))
        assert by_name(verdicts, "peak latency to control").passed is False
        assert by_name(verdicts, "stop-restart").passed is False
        assert "FAIL" in str(by_name(verdicts, "stop-restart"))

    def test_one_bad_control_run_does_not_matter(self) -> None:
        runs = self.runs(0)[:2]
        runs += [
            make_run("control", back_to_back(0.5, 30), repeat=1),
            make_run("control", back_to_back(2.0, 40), repeat=2),
        ]
        assert ratios(runs, "live", lambda f: f.peak) == pytest.approx([1.0])
        assert ratios(runs, "live", lambda f: f.mean, "before") == pytest.approx([1.0])

    def test_a_control_run_that_ended_before_the_move_does_not_count(self) -> None:
        runs = [
            make_run("live", back_to_back(0.5, 40), TimeWindow(10, 35)),
            make_run("control", back_to_back(0.5, 30)),
        ]
        assert ratios(runs, "live", lambda f: f.peak) == []
        assert judge_live(runs)[0].passed is None
        assert "not measured" in str(judge_live(runs)[0])

    def test_a_move_in_turns_has_its_own_control(self) -> None:
        slow, usual, fast = (back_to_back(seconds, 30) for seconds in (1.0, 0.5, 0.25))
        move = self.MOVE
        runs = [
            make_run("control", slow, repeat=0),
            make_run("live", usual, move, repeat=0),
            make_run("control", usual, repeat=1),
            make_run("live", usual, move, repeat=1),
            make_run("control", usual, repeat=2),
            make_run("live", fast, move, repeat=2),
        ]
        runs = [replace(run, is_turn=True) for run in runs]
        runs.append(make_run("control", slow, repeat=2))  # of other strategies
        runs.append(make_run("lazy", slow, move))
        assert ratios(runs, "live", lambda f: f.mean) == pytest.approx([2 / 3, 1.0, 0.5], rel=0.05)
        assert ratios(runs, "lazy", lambda f: f.mean) == pytest.approx([1.0])
        shown = table(runs)
        assert shown.count("\ncontrol ") == 2
        assert "in the windows of live" in shown
        assert "in the windows of others" in shown

    def test_what_became_of_the_cores(self, tmp_path: Path) -> None:
        stat = tmp_path / "stat"
        stat.write_text("cpu  50 0 20 100 5 0 5 20 0 0\ncpu0 1 2 3 4 5 6 7 8\n")
        times = CoreTimes(stat)
        assert not str(times.since()), "no time has passed"
        stat.write_text("cpu  110 0 20 115 10 0 5 40 0 0\n")
        assert times.since() == CoreShares(busy=0.6, stolen=0.2)
        assert not str(CoreTimes(tmp_path / "none").since())
        run = make_run("live", back_to_back(0.5, 30), self.MOVE)
        assert "cores" not in summary_line(run)
        run.cores = CoreShares(0.6, 0.123)
        assert "cores 60% busy, 12.3% stolen" in summary_line(run)

    def test_a_time_beside_a_move_counts_though_it_is_shorter(self) -> None:
        move = TimeWindow(10, 35)
        runs = [
            make_run("control", back_to_back(1.0, 30), repeat=0),
            make_run("live", back_to_back(0.5, 50), move, repeat=0),
            make_run("control", back_to_back(0.5, 50), repeat=1),
        ]
        runs = [replace(run, is_turn=True) for run in runs]
        assert controls_of(runs[1], runs) == [runs[0], runs[2]]
        assert ratios(runs, "live", lambda f: f.mean) == pytest.approx([2 / 3], rel=0.05)

    def test_a_part_of_a_load(self) -> None:
        whole = back_to_back(0.5, 30)
        cut = Timeline(whole.load.later(START + 10), whole.batches)
        assert cut.end == pytest.approx(whole.end - 10, abs=0.02)
        assert cut.during(TimeWindow(2, 6)).mean == pytest.approx(
            whole.during(TimeWindow(12, 16)).mean
        )
        assert whole.load.later(START - 5) == whole.load

    def test_a_control_run_at_another_rate_does_not_count(self) -> None:
        runs = self.runs(0)
        runs[3].rate = RATE / 2
        assert ratios(runs[:2] + runs[3:], "spark", lambda f: f.peak) == []

    def test_what_was_there_before_the_move_is_shown(self) -> None:
        runs = self.runs(0)
        runs[0].timeline = back_to_back(1.0, 30)
        verdict = by_name(judge_live(runs), "mean latency to control")
        assert verdict.passed is False
        assert "before the move 2.0" in str(verdict)
        assert "growth from then on 1.0" in str(verdict), "it was slow all the time"
        assert "after the move 2.0" in str(verdict)

    def test_small_states_say_nothing_about_ways_that_stop(self) -> None:
        runs = self.runs(0)
        for run in runs:
            run.keys = 1000
        verdict = by_name(judge_live(runs), "stop-restart")
        assert verdict.passed is None
        assert "not judged: 0." in str(verdict)

    def test_failed_runs_are_not_measured(self) -> None:
        runs = self.runs(0)
        runs[0].error = "broken"
        runs.append(make_run("control", back_to_back(0.5, 30), repeat=1))
        assert all(v.passed is None for v in judge_live(runs))
        assert "not measured" in str(judge_live(runs)[0])
        assert "FAILED: broken" in table(runs)
        assert "FAILED: broken" in summary_line(runs[0])

    def test_fetching_on_demand_against_blocking(self) -> None:
        blocked = back_to_back(0.5, 40, (10, 20))
        runs = [make_run(name, blocked, TimeWindow(10, 20)) for name in ("pause", "order-unaware")]
        runs += [
            make_run(name, back_to_back(0.5, 40), TimeWindow(10, 20)) for name in ("meces", "lazy")
        ]
        runs.append(make_run("drrs", back_to_back(0.5, 40, (10, 19)), TimeWindow(10, 20)))
        found = {v.name.partition(":")[0]: v.passed for v in judge_others(runs)}
        assert found == {"meces": True, "lazy": True, "drrs": False}

    def test_series(self) -> None:
        def size(keys: int, stall: tuple[float, float] | None) -> list[Run]:
            live = make_run("live", back_to_back(0.5, 30, stall), self.MOVE, "series", keys)
            return [live, make_run("control", back_to_back(0.5, 30), None, "series", keys)]

        flat = size(1_000_000, None) + size(4_000_000, None)
        assert judge_series(flat)[0].passed is True
        assert judge_series(size(1_000_000, None) + size(4_000_000, (10, 13)))[0].passed is False
        assert judge_series(size(1_000_000, None))[0].passed is None
        spoiled = [replace(r, is_turn=True) for r in size(4_000_000, (10, 13))]
        spoiled[0].cores = CoreShares(0.5, 0.4)
        spoiled[1].cores = CoreShares(0.5, 0.1)
        (verdict,) = judge_series(size(1_000_000, None) + spoiled)
        assert verdict.passed is None
        assert "not judged: 1 of 2 moves left out (cores 50% busy, 40.0% stolen)" in str(verdict)
        assert "1 of 1 moves left out" in table(spoiled)
        assert "\nlive               before" not in table(spoiled)
        assert "\nlive               before" in table(flat)
        assert shown_runs(spoiled) == []

    def test_move(self) -> None:
        assert judge_move(None)[0].passed is None
        copies = (1e9, 1.2e9, 0.9e9)
        assert judge_move(MoveRate("lazy", ((10**9, 1.9),), copies))[0].passed is True
        assert judge_move(MoveRate("lazy", ((10**9, 2.1), (10**9, 2.2)), copies))[0].passed is False

    def test_steady(self) -> None:
        coarse = tuple(1 + 0.01 * (n % 7) for n in range(30))
        same = SteadyCost(coarse[::-1], coarse)
        slower = SteadyCost(tuple(1.05 * c for c in coarse), coarse)
        assert judge_steady(same, [])[0].passed is True
        assert judge_steady(slower, [])[0].passed is False
        noisy = SteadyCost(
            tuple(c * (1.02 + 0.1 * (n % 3 - 1)) for n, c in enumerate(coarse)), coarse
        )
        assert judge_steady(noisy, [])[0].passed is None, "neither met nor missed"
        low, high = same.interval()
        assert low <= median(same.ratios) <= high
        assert judge_steady(None, [])[0].passed is None

    def test_background_traffic(self) -> None:
        runs = [make_run("live", back_to_back(0.5, 9), peers=0)]
        runs.append(make_run("rhino", back_to_back(0.5, 9), peers=2))
        runs[0].peer_samples = 7
        verdict = by_name(judge_steady(None, runs), "background")
        assert verdict.passed is True
        assert "in 1 runs, 7 looks" in verdict.figures
        assert "rhino: 2" in verdict.figures
        runs.append(make_run("lazy", back_to_back(0.5, 9), peers=1))
        assert by_name(judge_steady(None, runs), "background").passed is False

    def test_absolute(self) -> None:
        fast = make_run("live", back_to_back(0.5, 30), self.MOVE, "absolute", 5_000_000)
        slow = make_run("live", back_to_back(1.5, 30), self.MOVE, "absolute", 5_000_000)
        few = make_run("live", back_to_back(0.5, 30), self.MOVE, "absolute", 200_000)
        assert judge_absolute([few])[0].passed is None
        assert judge_absolute([fast])[0].passed is True
        assert judge_absolute([slow])[0].passed is False
        assert judge_absolute([])[0].passed is None

    def test_spread(self) -> None:
        assert Spread.of([2.0]).text(1, " s") == "2.0 s"
        assert Spread.of([1.0, 3.0, 2.0, math.nan]).text(1) == "2.0 [1.0 to 3.0]"
        assert Spread.of([]).n == 0


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
        turn = replace(make_run("live", back_to_back(0.5, 90), TimeWindow(10, 74)), is_turn=True)
        bench.runs = [lazy, turn]
        assert lazy.timeline
        assert bench._length_of_others(lazy) == 0
        assert bench._length_of_others(make_run("control", LATER)) == lazy.timeline.end


class TestCases:
    def test_options(self) -> None:
        case = Case.parse("megaphone:plan=fluid,batch=4")
        assert (case.strategy, case.options) == ("megaphone", {"plan": "fluid", "batch": 4})
        assert Case.parse("live:latency_target=0.5").options == {"latency_target": 0.5}
        assert Case.parse("control").strategy is None
        assert Case.parse("spark").strategy is None

    def test_mistakes(self) -> None:
        with pytest.raises(InvalidArgument, match="name=value"):
            Case.parse("meces:10")


class TestReports:
    def test_errors_are_told_in_a_line(self) -> None:
        text = "It failed.\nTraceback:\n  File x\nTypeError: a\n\tat java\nValueError: b\n\tat java"
        assert brief(ValueError(text)) == "It failed. ... ValueError: b"
        assert brief(ValueError("")) == "ValueError('')"

    def test_the_table_has_all_windows(self) -> None:
        runs = [
            make_run("live", back_to_back(0.5, 30), TimeWindow(10, 14)),
            make_run("control", back_to_back(0.5, 30)),
        ]
        text = table(runs)
        assert text.count("before") == text.count("during") == text.count("after") == 2
        assert "1.00 / 1.00" in text
        assert "85" in text

    def test_no_throughput_is_known_before_the_first_batch_has_ended(self) -> None:
        runs = [make_run("live", back_to_back(4, 30), TimeWindow(10, 14))]
        text = table(runs)
        (before,) = [line for line in text.splitlines() if "before" in line]
        # It is looked at from 2 s on; the first batch takes 4.
        assert before.split()[6:] == ["-", "-"]  # rows a second, and to control's
        assert "nan" not in text

    def test_a_plot(self, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        path = tmp_path / "plot.png"
        assert not plot_runs([], path)
        runs = [
            make_run("live", back_to_back(0.5, 30), TimeWindow(10, 14)),
            make_run("control", back_to_back(0.5, 30)),
        ]
        assert plot_runs(runs, path)
        assert path.read_bytes().startswith(b"\x89PNG")

    def test_a_plot_shows_each_size_once(self) -> None:
        timeline, move = back_to_back(0.5, 30), TimeWindow(10, 14)
        runs = [
            make_run(label, timeline, move, part, keys)
            for part, keys in (("strategies", 200), ("series", 200), ("series", 400))
            for label in ("live", "live")
        ]
        shown = [(run.part, run.keys) for run in shown_runs(runs)]
        assert shown == [("strategies", 200), ("series", 400)]

    def test_no_plot_without_matplotlib(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(InvalidArgument, match=r"'\.\[plot\]'"):
            check_matplotlib()


class TestFlightCopy:
    def test_size(self) -> None:
        size = sum(batch.nbytes for batch in payload_batches(10 << 20))
        assert size == pytest.approx(10 << 20, rel=0.02)

    def test_copies(self) -> None:
        rates = copy_rates(1 << 20, 2)
        assert len(rates) == 2
        assert min(rates) > 0
