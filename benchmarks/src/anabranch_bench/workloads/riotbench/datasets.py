"""The four data sets: columns, units, valid ranges, windows and what is trained on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.errors import InvalidArgument

TIMESTAMP = "timestamp"

Range = tuple[float, float]


@dataclass(frozen=True)
class Dataset:
    """What the tasks have to know about a stream."""

    name: str
    id_field: str
    columns: Mapping[str, str]
    """Name and unit of every column of a row, in its order; `timestamp` is the base time."""
    observed: tuple[str, ...]
    """Numbers that are processed; all other columns ("meta") only travel along."""
    ranges: Mapping[str, Range]
    """Valid values of observed columns, bounds included; columns without a range are all valid."""
    annotations: tuple[str, ...]
    """Columns that ETL adds from what is known about the sensor."""
    features: tuple[str, ...]
    """Columns that TRAIN and PRED use; the last one is the target."""
    start_ms: int
    native_rate: float
    """Messages a second of the real deployment: the pace of event time."""
    load_rate: int
    """Messages a second of a run, unless it is told: about a tenth of what the benchmark is said to
    send at its peaks (7,000, 4,000 and 10,000), for a small machine; FIT's 500 as they are."""
    peaks: int
    """Rush hours in a day of event time; 0: a constant rate."""
    sensors: int
    training_seconds: float
    """Length of a training range, in event time."""
    grain_ms: int = 1
    """Event times are multiples of it."""
    average_window: int = 10
    interpolation_window: int = 5
    """Valid values that stand in for an invalid one; 0: invalid values become 0."""
    horizon: int = 10
    """Predictions of the sliding linear regression."""
    flush_after: int = 20
    """Results that a plot collects."""
    charts_per_archive: int = 10
    text_columns: frozenset[str] = field(default_factory=frozenset)
    """Columns that are sent as SenML texts (`sv`)."""
    base_time_is_text: bool = False

    @property
    def meta(self) -> tuple[str, ...]:
        """Columns that are not processed, without the base time."""
        return tuple(c for c in self.columns if c != TIMESTAMP and c not in self.observed)

    @property
    def target(self) -> str:
        """What is predicted."""
        return self.features[-1]

    @property
    def topic(self) -> str:
        """Where ETL publishes."""
        return f"{self.name}data"


def _axes(*sensors: str) -> tuple[str, ...]:
    return tuple(f"{sensor}_{axis}" for sensor in sensors for axis in "xyz")


def _named(unit: str, names: tuple[str, ...]) -> dict[str, str]:
    return dict.fromkeys(names, unit)


CITY = Dataset(
    name="city",
    id_field="source",
    columns={
        TIMESTAMP: "ms",
        "source": "string",
        "longitude": "lon",
        "latitude": "lat",
        "temperature": "far",
        "humidity": "per",
        "light": "per",
        "dust": "per",
        "airquality_raw": "per",
    },
    observed=("temperature", "humidity", "light", "dust", "airquality_raw"),
    ranges={
        "temperature": (-12.5, 43.1),
        "humidity": (10.7, 95.2),
        "light": (1345.0, 26282.0),
        "dust": (186.61, 5188.21),
        "airquality_raw": (17.0, 363.0),
    },
    annotations=("location", "type"),
    features=("temperature", "humidity", "light", "dust", "airquality_raw"),
    start_ms=1_422_748_800_000,
    native_rate=16.7,
    load_rate=700,
    peaks=1,
    sensors=2162,
    training_seconds=120,
    average_window=5,
    charts_per_archive=100,
    text_columns=frozenset({"source"}),
)

_TAXI_TEXTS = {
    "taxi_identifier": "string",
    "hack_license": "string",
    "pickup_datetime": "time",
}
_TAXI_PLACES = {
    "pickup_longitude": "lon",
    "pickup_latitude": "lat",
    "dropoff_longitude": "lon",
    "dropoff_latitude": "lat",
    "payment_type": "string",
}

TAXI = Dataset(
    name="taxi",
    id_field="taxi_identifier",
    columns={
        **_TAXI_TEXTS,
        TIMESTAMP: "ms",
        "trip_time_in_secs": "second",
        "trip_distance": "meter",
        **_TAXI_PLACES,
        "fare_amount": "dollar",
        "surcharge": "percentage",
        "mta_tax": "percentage",
        "tip_amount": "dollar",
        "tolls_amount": "dollar",
        "total_amount": "dollar",
    },
    observed=(
        "trip_time_in_secs",
        "trip_distance",
        "fare_amount",
        "surcharge",
        "mta_tax",
        "tip_amount",
        "tolls_amount",
        "total_amount",
    ),
    ranges={
        "trip_time_in_secs": (140.0, 3155.0),
        "trip_distance": (1.37, 29.86),
        "fare_amount": (6.0, 201.0),
        "tip_amount": (0.65, 38.55),
        "tolls_amount": (2.5, 18.0),
    },
    annotations=("company", "driver", "city"),
    features=("trip_time_in_secs", "trip_distance", "fare_amount"),
    start_ms=1_358_101_800_000,
    native_rate=6.0,
    load_rate=400,
    peaks=2,
    sensors=9302,
    training_seconds=864,
    grain_ms=60_000,
    interpolation_window=0,
    flush_after=10,
    text_columns=frozenset({*_TAXI_TEXTS, *_TAXI_PLACES}),
)

_FIT_ACCELERATIONS = _axes("acc_ankle", "acc_arm", "acc_chest")

FIT = Dataset(
    name="fit",
    id_field="subjectId",
    columns={
        "subjectId": "string",
        TIMESTAMP: "ms",
        **_named("m/s2", _axes("acc_chest")),
        **_named("mV", ("ecg_lead_1", "ecg_lead_2")),
        **_named("m/s2", _axes("acc_ankle")),
        **_named("deg/s", _axes("gyro_ankle")),
        **_named("tesla", _axes("magnetometer_ankle")),
        **_named("m/s2", _axes("acc_arm")),
        **_named("deg/s", _axes("gyro_arm")),
        **_named("tesla", _axes("magnetometer_arm")),
        "label": "number",
    },
    observed=(
        *_axes("acc_chest"),
        "ecg_lead_1",
        "ecg_lead_2",
        *_axes("acc_ankle", "acc_arm"),
    ),
    ranges={
        "acc_chest_x": (-13.931, 4.123),
        "acc_chest_y": (-4.6376, 5.2361),
        "acc_chest_z": (-8.1881, 7.8786),
        "ecg_lead_1": (-4.9314, 6.1371),
        "ecg_lead_2": (-6.786, 6.6604),
        "acc_ankle_x": (-5.0006, 8.1472),
        "acc_ankle_y": (-14.303, 1.5909),
        "acc_ankle_z": (-8.6234, 8.6958),
        "acc_arm_x": (-9.824, 5.5778),
        "acc_arm_y": (-10.059, 8.506),
        "acc_arm_z": (-6.6739, 9.5725),
    },
    annotations=("age", "gender"),
    features=(*_FIT_ACCELERATIONS, "ecg_lead_1"),
    start_ms=1_417_890_600_000,
    native_rate=500.0,
    load_rate=500,
    peaks=0,
    sensors=10,
    training_seconds=10,
    grain_ms=20,
    text_columns=frozenset({"subjectId"}),
    base_time_is_text=True,
)

GRID = Dataset(
    name="grid",
    id_field="meterid",
    columns={"meterid": "string", TIMESTAMP: "ms", "energyconsumed": "kWh"},
    observed=("energyconsumed",),
    ranges={"energyconsumed": (1.828, 36.658)},
    annotations=("region", "tariff"),
    features=("second_of_day", "energyconsumed"),
    start_ms=1_356_998_400_000,
    native_rate=100.0,
    load_rate=1000,
    peaks=1,
    sensors=6000,
    training_seconds=60,
    horizon=2,
    flush_after=500,
    charts_per_archive=50,
    text_columns=frozenset({"meterid"}),
)

DATASETS = {dataset.name: dataset for dataset in (CITY, TAXI, FIT, GRID)}


def find_dataset(name: str) -> Dataset:
    """A data set by its name."""
    if name not in DATASETS:
        raise InvalidArgument(f"There is no data set '{name}'. Known: {', '.join(DATASETS)}.")
    return DATASETS[name]
