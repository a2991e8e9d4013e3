"""Exactly-once with real Spark: the driver is killed with -9 at awkward moments."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_killed import DIRECTIONS, reached

from anabranch.migration.strategies import STRATEGIES
from anabranch.processes.crash_points import COORDINATOR_POINTS, WORKER_POINTS

DRIVER = Path(__file__).with_name("recovery_driver.py")
BATCHES = 6


def write_input(folder: Path, seed: int = 1) -> list[list[dict[str, int]]]:
    chance = random.Random(seed)
    (folder / "input").mkdir()
    batches = []
    for epoch in range(BATCHES):
        batch = [
            {"k": chance.randrange(12), "v": v, "t": 100 + 3 * epoch + chance.randrange(4)}
            for v in range(epoch * 100, epoch * 100 + 40)
        ]
        path = folder / "input" / f"{epoch}.json"
        path.write_text("\n".join(map(json.dumps, batch)))
        os.utime(path, (1_700_000_000 + epoch, 1_700_000_000 + epoch))
        batches.append(batch)
    return batches


def drive(
    folder: Path,
    workers: int,
    lanes: int,
    crash_at: str = "",
    strategy: str = "",
    deaths: list[str] | None = None,
) -> dict[str, Any] | None:
    """Run the driver; None if it was killed. `deaths` gets the names of all that were."""
    environment = {**os.environ, "ANABRANCH_CRASH_AT": crash_at, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(folder), str(workers), str(lanes), *strategy.split()],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if deaths is not None:
        deaths += re.findall(r"Worker (w\d+)\b.*killed by signal 9", done.stderr)
        deaths += ["driver"] * (done.returncode == -9)
    if done.returncode == -9:
        return None
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout.split("RESULT ", 1)[1])
    return result


def expected(batches: Sequence[Sequence[dict[str, int]]]) -> dict[str, list[tuple[Any, ...]]]:
    """The sequential oracle, with Spark's rules for watermarks: each applies one batch later."""
    counts: dict[int, int] = {}
    values: dict[int, list[int]] = {}
    timers: dict[int, int] = {}
    windows: dict[int, list[int]] = {}
    seen: list[tuple[Any, ...]] = []
    closed: list[tuple[Any, ...]] = []
    newest = 0
    watermark = late = 0
    # After each batch that moves the watermark Spark runs one without rows, unless rows are there.
    for batch in [*batches, []]:
        rows = [row for row in batch if row["t"] * 1000 > late]
        for key in sorted({row["k"] for row in rows}):
            mine = sorted((r for r in rows if r["k"] == key), key=lambda r: r["v"])
            counts[key] = counts.get(key, 0) + len(mine)
            values.setdefault(key, []).extend(r["v"] for r in mine)
            timers[key] = max(r["t"] for r in mine) * 1000 + 5000
            seen.append((key, counts[key], ",".join(map(str, values[key])), "rows"))
        for key, due in sorted(timers.items()):
            if due <= watermark:
                seen.append((key, counts[key], ",".join(map(str, values.get(key, []))), "quiet"))
                values[key] = []
                del timers[key]
        for row in batch:
            start = row["t"] // 4 * 4
            if (start + 4) * 1000 > late:
                total = windows.setdefault(start, [0, 0])
                total[0] += 1
                total[1] += row["v"]
        done = [start for start in windows if (start + 4) * 1000 <= watermark]
        closed += [(start, *windows.pop(start)) for start in done]
        late = watermark
        newest = max([newest, *(row["t"] * 1000 for row in batch)])
        watermark = max(watermark, newest - 1000)
    return {"seen": sorted(seen), "w": sorted(closed)}


def check(folder: Path, batches: Sequence[Sequence[dict[str, int]]], result: Any) -> None:
    for name, rows in result.items():
        ran = as_spark_made_them(folder / f"{name}-checkpoint", batches)
        assert sorted(tuple(row) for row in rows) == expected(ran)[name]


def as_spark_made_them(
    checkpoint: Path, batches: Sequence[Sequence[dict[str, int]]]
) -> list[list[dict[str, int]]]:
    """The rows of each batch of a query.

    The file source logs the file of the next batch before Spark logs the batch. A driver that dies
    in between leaves a file without a batch: after the restart, it comes with the next file.
    """
    batch_of_file: dict[int, int] = {}
    for log in checkpoint.glob("sources/*/[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            if isinstance(entry, dict) and "path" in entry:
                batch_of_file[int(Path(entry["path"]).stem)] = int(entry["batchId"])
    assert sorted(batch_of_file) == list(range(len(batches))), "files that Spark has read"
    found: list[list[dict[str, int]]] = []
    before = -1
    for log in sorted(checkpoint.glob("offsets/[0-9]*"), key=lambda path: int(path.name)):
        offsets = [json.loads(line) for line in log.read_text().splitlines()[1:] if line != "-"]
        known = [o["logOffset"] for o in offsets if isinstance(o, dict) and "logOffset" in o]
        end = int(known[0]) if known else before
        files = sorted(file for file, at in batch_of_file.items() if before < at <= end)
        if files:
            found.append([row for file in files for row in batches[file]])
        before = end
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_driver_killed_after_a_manifest_and_during_a_move(tmp_path: Path) -> None:
    batches = write_input(tmp_path)
    # Where the epoch exists for us, not for Spark; key groups move meanwhile.
    assert drive(tmp_path, 3, 4, "coordinator:after-manifest:3", "live") is None
    # Other parallelism after the restart. Workers die too: before and after their changelog, as
    # the new owner of state on its way.
    result = drive(tmp_path, 2, 3, "w3:after-grant:1,w1:changelog-written:2,w2:applied:4", "lazy")
    check(tmp_path, batches, result)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_driver_killed_before_and_after_a_manifest(tmp_path: Path) -> None:
    batches = write_input(tmp_path)
    assert drive(tmp_path, 2, 2, "coordinator:before-manifest:3") is None
    assert drive(tmp_path, 3, 4, "coordinator:after-manifest:3") is None
    # Between two steps of a move.
    assert drive(tmp_path, 3, 2, "coordinator:order-release:2", "live") is None
    result = drive(tmp_path, 2, 3, "w1:changelog-written:2,w2:applied:4")
    check(tmp_path, batches, result)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_everything_killed_during_moves(tmp_path: Path, strategy: str) -> None:
    chance = random.Random(strategy)
    batches = write_input(tmp_path)
    # Where this strategy comes by; w3 only gets key groups, then gives them back.
    spots = sorted({spot.split()[1] for way in DIRECTIONS for spot in reached(strategy, way)})
    sent = [spot.removeprefix("before-") for spot in spots if spot.startswith("before-")]
    orders = [f"order-{kind}" for kind in sent] + list(COORDINATOR_POINTS)
    deaths: list[str] = []
    for _ in range(3):
        points = [f"coordinator:{chance.choice(orders)}:{chance.randrange(1, 4)}"]
        points += [f"w{n}:{spot}:1" for n in (1, 2, 3) for spot in chance.sample(spots, 2)]
        result = drive(tmp_path, 2, 2, ",".join(points), strategy, deaths)
        if result is not None:
            break
    else:
        # The driver may have died first each time: now the new worker does.
        points = [f"w3:{spot}:1" for spot in spots]
        result = drive(tmp_path, 2, 2, ",".join(points), strategy, deaths)
    check(tmp_path, batches, result)
    assert any(name != "driver" for name in deaths), deaths


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(6))
def test_everything_killed_at_random_points(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    batches = write_input(tmp_path, seed)
    result = None
    for _ in range(4):
        points = [f"coordinator:{chance.choice(COORDINATOR_POINTS)}:{chance.randrange(1, 8)}"]
        points += [
            f"w{worker}:{chance.choice(WORKER_POINTS)}:{chance.randrange(1, 12)}"
            for worker in (1, 2)
        ]
        result = drive(tmp_path, chance.randrange(1, 4), chance.randrange(1, 5), ",".join(points))
        if result is not None:
            break
    if result is None:
        result = drive(tmp_path, 2, 2)
    check(tmp_path, batches, result)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_driver_killed_between_spark_s_logs(tmp_path: Path) -> None:
    """The file source has logged the first file, and Spark no batch: two files come as one."""
    batches = write_input(tmp_path)
    assert drive(tmp_path, 2, 2, "coordinator:before-manifest:1") is None
    checkpoint = tmp_path / "seen-checkpoint"
    for log in (checkpoint / "offsets").iterdir():
        log.unlink()
    result = drive(tmp_path, 2, 2)
    assert len(as_spark_made_them(checkpoint, batches)) == BATCHES - 1
    check(tmp_path, batches, result)
