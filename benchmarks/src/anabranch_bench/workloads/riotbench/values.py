"""What sensors measure: distributions, daily courses and dependences of each data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_bench.workloads.riotbench.datasets import FIT, GRID
from anabranch_bench.workloads.riotbench.draws import Draws, Floats, Ints
from anabranch_bench.workloads.riotbench.sensors import STEMS

DAY_MS = 86_400_000

# Longitude, latitude and mean temperature of the cities.
_CITIES = np.array(
    [
        (6.15, 46.20, 4.0),
        (-43.18, -22.91, 29.0),
        (121.47, 31.23, 9.0),
        (-71.06, 42.36, 1.5),
        (103.85, 1.35, 30.0),
        (77.59, 12.97, 25.0),
        (-122.42, 37.77, 14.0),
    ]
)
_DAILY_SWING = 5.0
_OUTLIERS = 0.01

_CENTRES = {
    "acc_chest": (-9.3, -0.8, 2.1),
    "acc_ankle": (-0.4, -9.8, -1.6),
    "acc_arm": (-2.1, -9.6, -0.6),
}
_LABELS = 13
_LABEL_MS = 60_000
_HEART_HZ = 1.2


def city(draws: Draws, ids: Ints, sensor: Ints, at_ms: Ints) -> dict[str, Any]:
    """Stations in seven cities, each with clones."""
    station = sensor % STEMS
    place = _CITIES[draws.below("city", station, len(_CITIES))]
    hour = 2.0 * np.pi * ((at_ms % DAY_MS) / DAY_MS + place[:, 0] / 360.0)
    warmth = place[:, 2] - _DAILY_SWING * np.cos(hour) + draws.normal("temperature", ids)
    damp = 49.0 + 0.3 * (warmth - 17.0) + 15.4 * draws.normal("humidity", ids)
    is_dark = draws.uniform("dark", ids) < 0.53
    light = np.minimum(np.floor(830.0 * draws.exponential("light", ids)), 26_000.0)
    dust = np.exp(6.68 + 1.00 * draws.normal("dust", ids))
    air = np.exp(3.19 + 0.40 * draws.normal("air", ids))
    odd = draws.uniform("odd", ids) < _OUTLIERS
    return {
        "longitude": np.round(place[:, 0] + 0.05 * draws.normal("east", station), 6),
        "latitude": np.round(place[:, 1] + 0.05 * draws.normal("north", station), 6),
        "temperature": np.round(np.clip(warmth, -10.0, 41.0), 1),
        "humidity": np.round(np.clip(damp, 10.0, 100.0), 1),
        "light": np.where(is_dark, 0.0, light),
        "dust": np.round(np.clip(dust, 0.0, 10_500.0), 2),
        "airquality_raw": np.floor(
            np.where(odd, 400.0 + 570.0 * draws.uniform("very odd", ids), np.clip(air, 4, 363))
        ),
    }


def taxi(draws: Draws, ids: Ints, sensor: Ints, at_ms: Ints) -> dict[str, Any]:
    """Trips whose fare follows from time and distance, with flat fares among them."""
    length = draws.normal("length", ids)
    seconds = np.exp(6.33 + 0.72 * length)
    seconds = np.clip(np.round(seconds / 60.0) * 60.0, 0.0, 10_800.0)
    other = draws.normal("distance", ids)
    miles = np.round(np.clip(np.exp(1.09 + 0.97 * (0.87 * length + 0.493 * other)), 0, 30), 2)
    metered = 2.57 + 0.005 * seconds + 2.14 * miles + 3.8 * draws.normal("fare", ids)
    fare = np.maximum(np.round(metered * 2.0) / 2.0, 2.5)
    fare = np.where(draws.uniform("flat", ids) < 0.035, 52.0, fare)
    by_card = draws.uniform("card", ids) < 0.49
    surcharge = np.where(draws.uniform("surcharge", ids) < 0.95, 0.5, 0.0)
    tip = np.where(by_card, np.round(0.18 * fare, 2), 0.0)
    tolls = np.where(draws.uniform("tolls", ids) < 0.08, 4.8, 0.0)
    words = zip(*(draws.bits(half, sensor).tolist() for half in ("high", "low")), strict=True)
    licenses = [f"{high:016X}{low:016X}" for high, low in words]
    pickup = (
        (at_ms - (seconds * 1000).astype(np.int64)).astype("datetime64[ms]").astype("datetime64[s]")
    )
    return {
        "hack_license": pa.array(licenses, pa.string()),
        "pickup_datetime": pc.strftime(pa.array(pickup), format="%Y-%m-%d %H:%M:%S"),
        "trip_time_in_secs": seconds,
        "trip_distance": miles,
        **_trip_ends(draws, ids),
        "payment_type": pa.array(np.where(by_card, "CRD", "CSH").tolist(), pa.string()),
        "fare_amount": fare,
        "surcharge": surcharge,
        "mta_tax": np.full(len(ids), 0.5),
        "tip_amount": tip,
        "tolls_amount": tolls,
        "total_amount": np.round(fare + surcharge + 0.5 + tip + tolls, 2),
    }


def _trip_ends(draws: Draws, ids: Ints) -> dict[str, Any]:
    """Coordinates around Manhattan; sometimes the receiver found none."""
    lost = draws.uniform("lost", ids) < 0.02
    found = {}
    for end in ("pickup", "dropoff"):
        for name, centre in (("longitude", -73.98), ("latitude", 40.75)):
            place = np.round(centre + 0.03 * draws.normal(f"{end} {name}", ids), 6)
            found[f"{end}_{name}"] = np.where(lost, 0.0, place)
    return found


def fit(draws: Draws, ids: Ints, subject: Ints, at_ms: Ints) -> dict[str, Any]:
    """Subjects who do one thing after the other; slow and fast noise around its mean."""
    seconds = at_ms / 1000.0
    spell = at_ms // _LABEL_MS + (subject << 40)
    label = draws.below("label", spell, _LABELS)
    posture = label * 64 + subject
    found: dict[str, Any] = {}
    for name in FIT.observed:
        if name in FIT.ranges and name.startswith("acc"):
            centre = _CENTRES[name[:-2]]["xyz".index(name[-1])]
            sway = 0.8 * draws.normal(f"{name} mean", posture)
            noise = 0.5 * draws.smooth(name, seconds * 2.0, subject)
            value = centre + sway + noise + 0.1 * draws.normal(f"{name} now", ids)
            low, high = FIT.ranges[name]
            value = np.clip(value, low, high)
            odd = draws.uniform(f"{name} odd", ids) < _OUTLIERS
            found[name] = np.round(np.where(odd, high + 5.0, value), 4)
    beat = (seconds * _HEART_HZ + draws.uniform("heart", subject)) % 1.0
    spike = 1.6 * np.exp(-(((beat - 0.5) / 0.03) ** 2))
    for lead, share in (("ecg_lead_1", 1.0), ("ecg_lead_2", 0.7)):
        found[lead] = np.round(0.05 + share * spike + 0.05 * draws.normal(lead, ids), 5)
    for name in FIT.meta:
        if name.startswith(("gyro", "magnetometer")):
            found[name] = np.round(0.6 * draws.normal(name, ids), 5)
    found["label"] = label
    return found


def grid(draws: Draws, ids: Ints, meter: Ints, at_ms: Ints) -> dict[str, Any]:
    """Households with a morning and an evening peak; some readings are out of range."""
    day = (at_ms % DAY_MS) / DAY_MS
    peaks = 0.5 * np.exp(-(((day - 0.33) / 0.06) ** 2)) + np.exp(-(((day - 0.81) / 0.08) ** 2))
    habit = 0.3 * draws.normal("habit", meter)
    energy = np.exp(1.9 + habit + 0.8 * peaks + 0.35 * draws.normal("energy", ids))
    low, high = GRID.ranges["energyconsumed"]
    energy = np.clip(energy, low, high)
    kind = draws.uniform("odd", ids)
    energy = _replaced(energy, kind < 0.01, 0.0)
    energy = _replaced(energy, (kind >= 0.01) & (kind < 0.02), high + 20.0)
    return {"energyconsumed": np.round(energy, 3)}


def _replaced(values: Floats, where: Any, value: float) -> Floats:
    found: Floats = np.where(where, value, values)
    return found


VALUES: dict[str, Callable[[Draws, Ints, Ints, Ints], dict[str, Any]]] = {
    "city": city,
    "taxi": taxi,
    "fit": fit,
    "grid": grid,
}
"""Columns of messages, without the sender, for (draws, message numbers, senders, times)."""
