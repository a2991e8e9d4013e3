"""Which settings of Spark make a lost host cost more than it must."""

from __future__ import annotations

import pytest

from anabranch.spark.slow_after_loss import GET_BY, LOCALITY, NETWORK, RETRIES, slow_after_loss

GOOD = {GET_BY: "15s", LOCALITY: "0", RETRIES: "0"}


def said(settings: dict[str, str]) -> str:
    return slow_after_loss(settings.get) or ""


@pytest.mark.parametrize(
    "settings",
    [
        GOOD,
        {GET_BY: "10", LOCALITY: "500ms", RETRIES: "0"},
        {NETWORK: "15s", LOCALITY: "1s", RETRIES: "0"},
    ],
)
def test_nothing_is_said_where_all_is_set(settings: dict[str, str]) -> None:
    assert slow_after_loss(settings.get) is None


def test_what_is_missing_is_said_with_its_value() -> None:
    assert "spark.shuffle.io.connectionTimeout=8s (now 120s: " in said({})
    assert "spark.shuffle.io.maxRetries=0 (now 3: " in said({})
    assert "spark.locality.wait=0 (now 3s: " in said({})
    assert "when you make the Spark session" in said({})


@pytest.mark.parametrize(
    ("name", "value"),
    [(GET_BY, "2m"), (GET_BY, "16"), (LOCALITY, "1500"), (LOCALITY, "3s"), (RETRIES, "1")],
)
def test_each_counts_by_itself(name: str, value: str) -> None:
    told = said({**GOOD, name: value})
    assert f"{name}=" in told
    assert f"(now {value}: " in told
    assert all(other not in told for other in GOOD if other != name)


def test_what_cannot_be_read_is_left_to_spark() -> None:
    assert said({**GOOD, GET_BY: "soon"}) == ""
