"""`anabranch bench evaluation` finds mistakes before anything heavy starts."""

from __future__ import annotations

import argparse

import pytest

from anabranch.cli.main import main
from anabranch_bench.cli.evaluation import settings_from
from anabranch_bench.experiments.evaluation_plan import EvaluationSettings


class TestCommand:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--workloads", "q9"], "Known: key-count"),
            (["--strategies", "magic"], "strategy must be one of live"),
            (["--strategies", "megaphone:plan=odd"], "all-at-once, fluid, batched"),
            (["--strategies", "spark"], "bench rescale"),
            (["--json", "/no/such/folder/x.json"], "Create it first"),
            (["--repeat", "0"], "--repeat"),
        ],
    )
    def test_mistakes_are_found_early(
        self, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["bench", "evaluation", *words]) == 2
        assert said in capsys.readouterr().err

    def test_settings(self) -> None:
        args = argparse.Namespace(
            quick=True,
            parts=["drrs"],
            strategies=["live", "control", "live"],
            workloads=["q4"],
            seconds=3.0,
            rate=700.0,
            repeat=2,
        )
        settings = settings_from(args)
        assert settings.strategies == settings.compared == ("live",)
        assert (settings.steady, settings.rate, settings.repeat) == (3.0, 700.0, 2)
        assert settings.load("q4").rate == 700.0
        assert settings.scale == EvaluationSettings.quick().scale
