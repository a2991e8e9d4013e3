"""Settings: what is refused, and with which sentence."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.autoscale.settings import AutoscaleSettings, checked
from anabranch.errors import InvalidArgument


def test_recommending_is_the_default() -> None:
    assert AutoscaleSettings().mode == "recommend"
    assert checked(AutoscaleSettings()) == AutoscaleSettings()


def test_what_is_not_named_stays() -> None:
    settings = AutoscaleSettings(max=4).changed({"min": 2, "latency_target": 1})
    assert settings.to_json() == {
        **AutoscaleSettings(max=4).to_json(),
        "min": 2,
        "latency_target": 1,
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workers": 3}, "no setting 'workers', only: mode, min"),
        ({"mode": "on"}, 'must be "recommend", "act" or "off"'),
        ({"min": 0}, "min must be a number of workers from 1, got 0"),
        ({"max": True}, "max must be a number of workers"),
        ({"max": 2.5}, "max must be a number of workers"),
        ({"min": 5, "max": 2}, "min is 5 and max is 2: swap them?"),
        ({"latency_target": "1s"}, "seconds that a batch may take, got '1s'"),
        ({"latency_target": float("inf")}, "seconds that a batch may take"),
        ({"target_utilization": 1.2}, "from 0.1 to 0.9"),
        ({"target_utilization": None}, "from 0.1 to 0.9"),
        ({"catch_up_duration": 0}, "catch_up_duration must be seconds above 0"),
        ({"stabilization_interval": -1}, "stabilization_interval must be seconds above 0"),
        ({"scale_down_interval": True}, "scale_down_interval must be seconds above 0"),
    ],
)
def test_bad_ones_are_refused_with_a_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        AutoscaleSettings().changed(given)
    assert said in str(caught.value)
