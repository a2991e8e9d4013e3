"""The synthesised streams: pure, with the shapes, values and rates that are described."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pyarrow as pa
import pytest

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.riotbench.datasets import DATASETS, find_dataset
from anabranch_bench.workloads.riotbench.senml import parse_senml
from anabranch_bench.workloads.riotbench.streams import Messages, find_messages

ALL = sorted(DATASETS)

# Share of values inside the valid range: of the real data where it is known.
PASS_SHARES = {
    ("city", "temperature"): 1.0,
    ("city", "humidity"): 0.995,
    ("city", "light"): 0.08,
    ("city", "dust"): 0.88,
    ("city", "airquality_raw"): 0.84,
    ("taxi", "trip_time_in_secs"): 0.95,
    ("taxi", "trip_distance"): 0.77,
    ("taxi", "fare_amount"): 0.85,
    ("taxi", "tip_amount"): 0.46,
    ("taxi", "tolls_amount"): 0.08,
    ("fit", "acc_chest_x"): 0.99,
    ("grid", "energyconsumed"): 0.98,
}


@pytest.mark.parametrize("name", ALL)
def test_a_message_depends_on_its_number_only(name: str) -> None:
    whole = find_messages(name).between(0, 500)
    other: Messages = pickle.loads(pickle.dumps(find_messages(name)))
    pieces = [other.between(a, b) for a, b in ((0, 1), (1, 1), (1, 77), (77, 500))]
    assert pa.Table.from_batches(pieces).to_pylist() == pa.Table.from_batches([whole]).to_pylist()


@pytest.mark.parametrize("name", ALL)
def test_another_seed_is_another_stream(name: str) -> None:
    first, second = (Messages(DATASETS[name], seed=seed).between(0, 20) for seed in (1, 2))
    assert first.column("message") != second.column("message")


@pytest.mark.parametrize("name", ALL)
def test_messages_have_all_columns(name: str) -> None:
    dataset = DATASETS[name]
    message = json.loads(find_messages(name).between(3, 4).column("message")[0].as_py())
    entries = {e["n"]: e for e in message["e"]}
    assert set(entries) == set(dataset.columns) - {"timestamp"}
    assert isinstance(message["bt"], str if name == "fit" else int)
    for column, entry in entries.items():
        assert ("sv" in entry) == (column in dataset.text_columns)
        assert entry["u"] == dataset.columns[column]


@pytest.mark.parametrize(("name", "field"), sorted(PASS_SHARES))
def test_pass_shares(name: str, field: str) -> None:
    dataset = DATASETS[name]
    texts = find_messages(name).between(0, 20_000).column("message")
    values = parse_senml(dataset, texts).values[:, dataset.observed.index(field)]
    low, high = dataset.ranges[field]
    share = ((values >= low) & (values <= high)).mean()
    assert share == pytest.approx(PASS_SHARES[name, field], abs=0.035)


def test_fares_follow_time_and_distance() -> None:
    dataset = DATASETS["taxi"]
    values = parse_senml(dataset, find_messages("taxi").between(0, 20_000).column("message")).values
    seconds, miles, fare = (
        values[:, dataset.observed.index(n)]
        for n in ("trip_time_in_secs", "trip_distance", "fare_amount")
    )
    inputs = np.column_stack([np.ones(len(fare)), seconds, miles])
    weights, *_ = np.linalg.lstsq(inputs, fare, rcond=None)
    assert weights[1] == pytest.approx(0.005, abs=0.002)
    assert weights[2] == pytest.approx(2.14, abs=0.15)
    assert np.corrcoef(np.log(seconds), np.log(miles))[0, 1] == pytest.approx(0.85, abs=0.06)


@pytest.mark.parametrize("name", ALL)
def test_senders(name: str) -> None:
    stream = find_messages(name, sensors=50)
    senders = parse_senml(stream.dataset, stream.between(0, 10_000).column("message")).sensor
    known = set(stream.known.ids.to_pylist())
    assert len(known) == 50
    assert not known & set(stream.known.foreign.to_pylist())
    strangers = sum(sender not in known for sender in senders.to_pylist())
    assert strangers == pytest.approx(100, abs=40)
    assert set(senders.to_pylist()) >= known


def test_the_real_number_of_senders() -> None:
    assert {n: len(find_messages(n).known.ids) for n in ALL} == {
        "city": 2162,
        "taxi": 9302,
        "fit": 10,
        "grid": 6000,
    }
    ids = find_messages("city").known.ids.to_pylist()
    assert len({i[:25] for i in ids}) == 88, "cloned stations"
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", ALL)
def test_event_times(name: str) -> None:
    """They never go back, follow the native rate over a day, and are multiples of the grain."""
    stream, dataset = find_messages(name), DATASETS[name]
    a_day = int(dataset.native_rate * 86_400)
    times = stream.at_ms(np.arange(0, 2 * a_day, max(1, a_day // 5000)))
    assert (np.diff(times) >= 0).all()
    assert ((times - dataset.start_ms) % dataset.grain_ms == 0).all()
    assert times[-1] - times[0] == pytest.approx(2 * 86_400_000, rel=0.001)


def rush_hours(name: str) -> int:
    """Hours of a day with more messages than the hours beside them."""
    stream, dataset = find_messages(name), DATASETS[name]
    ids = np.linspace(0, dataset.native_rate * 86_400, 50_000, endpoint=False).astype(np.int64)
    hours = (stream.at_ms(ids) - dataset.start_ms) // 3_600_000
    counts = np.bincount(hours, minlength=24)[:24]
    wanted = counts > 1.3 * counts.mean()
    return int((wanted & ~np.roll(wanted, 1)).sum())


def test_rates_have_their_peaks() -> None:
    assert {name: rush_hours(name) for name in ALL} == {"city": 1, "taxi": 2, "fit": 0, "grid": 1}


def test_mistakes() -> None:
    with pytest.raises(InvalidArgument, match="at least one sensor"):
        find_messages("city", sensors=0)
    with pytest.raises(InvalidArgument, match="Known: city, taxi, fit, grid"):
        find_dataset("sys")
