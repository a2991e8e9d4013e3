"""What the evaluation puts under load: stateful workloads, in sizes for a small machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from anabranch.errors import InvalidArgument
from anabranch_bench.results.loads import KEY_BYTES, RunLoad
from anabranch_bench.workloads.contract import Workload

KEY_COUNT = "key-count"
QUERIES = ("q3", "q4", "q5", "q6", "q7", "q8")
APPS = ("stats", "train", "pred", "etl")
WORKLOADS = (KEY_COUNT, *QUERIES, "auction", *APPS)
"""All that have state."""

DATASET = "city"
"""Of RIoTBench's streams."""
APPS_PRELOAD_ROWS_A_SECOND = 5_000
"""Messages have several values each, and the oracle is a loop over all of them."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes and rates; rates are modest: about half of what two cores can do, or less."""

    keys: int = 200_000
    payload_bytes: int = 512
    key_count_rate: float = 8_000
    nexmark_rate: float = 3_000
    nexmark_preload: int = 300_000
    """Events that fill the state before the load."""
    in_flight_auctions: int = 10_000
    riotbench_rate: float = 250
    riotbench_sensors: int = 2162
    """Senders, in turns; as many as the real ones."""
    riotbench_preload: int = 26_000
    """Twelve messages of each sender: STATS has no trend before the eleventh, PRED no error before
    the first average."""
    key_groups: int = 256

    @classmethod
    def quick(cls) -> Scale:
        """Small states, and fewer key groups for strategies that move them one by one."""
        return cls(
            keys=50_000,
            payload_bytes=256,
            nexmark_preload=50_000,
            in_flight_auctions=2_000,
            riotbench_sensors=200,
            riotbench_preload=0,  # with so few senders the warm-up brings twenty of each
            key_groups=64,
        )


@dataclass(frozen=True)
class WorkloadLoad(RunLoad):
    """A workload with its parameters at a rate."""

    preload_rows: int = 0
    make: Callable[[], Workload] = field(compare=False, repr=False, kw_only=True)
    """A new one for each run: some keep files of their own."""
    preload_rate: float = 40_000
    """Rows a second before the load; a guess."""


def find_load(name: str, scale: Scale, rate: float | None = None) -> WorkloadLoad:
    """A workload by its name."""
    if name == KEY_COUNT:
        return key_count(scale, rate=rate)
    if name in QUERIES or name == "auction":
        return _nexmark(name, scale, rate or scale.nexmark_rate)
    if name in APPS:
        return _riotbench(name, scale, rate or scale.riotbench_rate)
    raise InvalidArgument(f"There is no workload '{name}'. Known: {', '.join(WORKLOADS)}.")


def key_count(
    scale: Scale, *, rate: float | None = None, payload_bytes: int | None = None, zipf: float = 0.0
) -> WorkloadLoad:
    """Key-count whose state is loaded first."""
    payload = scale.payload_bytes if payload_bytes is None else payload_bytes
    size = scale.keys * (payload + KEY_BYTES) / 1e6

    def make() -> Workload:
        from anabranch_bench.workloads.keycount import KeyCountConfig, KeyCountWorkload

        return KeyCountWorkload(KeyCountConfig(scale.keys, zipf, payload, preload=True))

    law = f"Zipf {zipf:g}" if zipf else "even"
    about = f"{scale.keys:,} keys ({law}) with {payload:,} bytes, {size:,.0f} MB"
    rate = rate or scale.key_count_rate
    return WorkloadLoad(KEY_COUNT, rate, about, scale.keys, payload, scale.keys, make=make)


def _nexmark(name: str, scale: Scale, rate: float) -> WorkloadLoad:
    def make() -> Workload:
        from anabranch_bench.workloads.auction import AuctionWorkload
        from anabranch_bench.workloads.nexmark.config import NexmarkConfig
        from anabranch_bench.workloads.nexmark.workload import NexmarkWorkload

        config = NexmarkConfig(rate=rate, in_flight_auctions=scale.in_flight_auctions)
        workload: Workload = (
            AuctionWorkload(config) if name == "auction" else NexmarkWorkload(name, config)
        )
        workload.preload_rows = scale.nexmark_preload
        return workload

    about = f"{scale.in_flight_auctions:,} open auctions, {scale.nexmark_preload:,} events before"
    title = name if name == "auction" else f"nexmark {name}"
    return WorkloadLoad(title, rate, about, preload_rows=scale.nexmark_preload, make=make)


def _riotbench(app: str, scale: Scale, rate: float) -> WorkloadLoad:
    def make() -> Workload:
        from anabranch_bench.workloads.riotbench.family import RETRAIN_SECONDS, check_libraries
        from anabranch_bench.workloads.riotbench.family import make as make_app
        from anabranch_bench.workloads.riotbench.streams import find_messages

        check_libraries()
        stream = find_messages(DATASET, scale.riotbench_sensors)
        workload = make_app(app, stream, retrain_seconds=RETRAIN_SECONDS)
        workload.preload_rows = preload
        return workload

    preload = scale.riotbench_preload
    about = f"{DATASET}, {scale.riotbench_sensors:,} sensors, {preload:,} messages before"
    return WorkloadLoad(
        f"riotbench {app}",
        rate,
        about,
        preload_rows=preload,
        make=make,
        preload_rate=APPS_PRELOAD_ROWS_A_SECOND,
    )
