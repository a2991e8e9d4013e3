"""Keys of a site are in the site's key groups, and what needs their place finds them there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from tests.spark.moving import Sink
from tests.spark.sites import DEVICES, Running, site_of, source, value_of
from tests.spark.tallies import TALLY, Tally

from anabranch import StateService, agg
from anabranch.errors import InvalidArgument, StateMismatch
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processor.readers import Keys
from anabranch.processor.sites import PlacedBy, Sites
from anabranch.spark.plan import hash_of


@pytest.mark.parametrize("groups", [256, 100])
@pytest.mark.parametrize(
    "declared", [(), ("berlin", "paris", "日本", ""), tuple(f"other-{n}" for n in range(60))]
)
def test_the_jvm_places_as_the_driver_does(
    spark: SparkSession, groups: int, declared: tuple[str, ...]
) -> None:
    chance = random.Random(groups)
    names = ["berlin", "paris", "日本", "", None, *(f"other-{n}" for n in range(20))]
    rows = [(chance.choice(names), chance.randrange(-(2**63), 2**63)) for _ in range(3000)]
    placed_by = PlacedBy("site", Sites.first(declared, groups))
    frame = spark.createDataFrame(rows, "site string, k long")
    site = F.col("site")
    found = frame.select(
        hash_of([site, F.col("k")], placed_by, site).alias(HASH), "site", "k"
    ).toArrow()
    schema: StructType = frame.schema
    sites_of_rows, devices = (found.column(name).to_pylist() for name in ("site", "k"))
    keys = list(zip(sites_of_rows, devices, strict=True))
    _, table = Keys("totals", schema, "", placed_by).table(keys)
    assert table.column(HASH).equals(found.column(HASH))
    of_key = KeySpace(groups).group_of(found.column(HASH).to_numpy()).tolist()
    for group, (name, _) in zip(of_key, keys, strict=True):
        assert group in placed_by.sites.groups_of(name)


class ByPlace(Tally):
    """Its key is (site, device)."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        return super().handleInputRows(key[1:], rows, timerValues)


def groups_with_keys(service: StateService, operator: str) -> dict[Any, set[int]]:
    """Key groups in which lookups find keys of each site."""
    state = service.state(operator, "total" if operator == "tally" else None)
    places: dict[Any, set[int]] = {}
    for device in range(DEVICES):
        site = site_of(device)
        key = (device, site) if operator == "tally" else (site, device)
        found = state.get(key)
        assert found is not None, (operator, key)
        _, table = state._reader.keys.table([key])
        group = service._keyspace.group_of(table.column(HASH).to_numpy())
        places.setdefault(site, set()).update(np.unique(group).tolist())
    return places


def test_state_is_in_the_key_groups_of_its_site(spark: SparkSession, tmp_path: Path) -> None:
    """Also after a restart with other workers, lanes and one site more."""
    folder, sites = str(tmp_path / "state"), ["berlin", "paris"]
    sinks = []
    for workers, lanes in ((2, 4), (3, 3)):
        with StateService(
            spark, folder, workers=workers, lanes=lanes, key_groups=64, sites=sites
        ) as service:
            running = Running(spark, tmp_path, service)
            try:
                running.batches(3)
            finally:
                running.stop()
            running.check()
            sinks.append(running)
            for operator in ("sums", "tally"):
                places = groups_with_keys(service, operator)
                for site, groups in places.items():
                    assert groups <= set(service._sites.groups_of(site)), (operator, site)
                others = {group for site in ("oslo", "rome", None) for group in places[site]}
                assert not others & (places["berlin"] | places["paris"])
            sites = ["lyon"]
        assert service._sites.names[:2] == ("berlin", "paris")


def test_what_does_not_fit_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "state")
    rows = source(spark)
    with StateService(spark, folder, key_groups=64, sites=["berlin"], workers=1) as service:
        with pytest.raises(InvalidArgument, match="must name one of the columns of group_by"):
            service.group_by(rows, "k", placed_by="site").aggregate(n=agg.count(), name="sums")
        with pytest.raises(InvalidArgument, match="must be a plain string column, and it is bigin"):
            service.group_by(rows, "k", placed_by="k").aggregate(n=agg.count(), name="sums")
        running = Running(spark, tmp_path, service)
        running.batches(2)
        running.stop()
    with StateService(spark, folder, key_groups=64, workers=1) as service:
        hashed = service.group_by(rows, "site", "k")
        with pytest.raises(StateMismatch, match="now keys would be looked for by the hash"):
            hashed.aggregate(n=agg.count(), total=agg.sum("v"), name="sums")
    with (
        StateService(spark, folder, key_groups=64, workers=1, sites=["oslo"]) as service,
        pytest.raises(StateMismatch, match="has state of 'oslo' already"),
    ):
        service.group_by(rows, "site", "k", placed_by="site").aggregate(
            n=agg.count(), total=agg.sum("v"), name="sums"
        )
    with pytest.raises(StateMismatch, match="has 16 key groups for each site"):
        StateService(spark, folder, key_groups=64, workers=1, site_groups=2)


def test_pyspark_s_own_methods_and_a_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    """`enable(placed_by=)` places what is grouped by the site; a savepoint brings the sites."""
    rows = source(spark)
    with StateService(
        spark, str(tmp_path / "state"), key_groups=64, sites=["berlin", "paris"], workers=2
    ) as service:
        service.enable(placed_by="site")
        tally = rows.groupBy("site", "k").transformWithState(ByPlace(), TALLY, "Update", "None")
        sink = Sink()
        query = (
            tally.writeStream.foreachBatch(sink.write)
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        sink.wait_for(query, 2)
        query.stop()
        savepoint = service.savepoint("moved", checkpoints=[str(tmp_path / "checkpoint")])
        batches = savepoint.epochs["ByPlace"] + 1
    with StateService(
        spark, str(tmp_path / "other"), key_groups=64, restore=savepoint.path, workers=1
    ) as service:
        assert service._sites.names == ("berlin", "paris")
        service.enable(placed_by="site")
        rows.groupBy("site", "k").transformWithState(ByPlace(), TALLY, "Update", "None")
        state = service.state("ByPlace", "total")
        for device in range(DEVICES):
            found, expected = state.get((site_of(device), device)), value_of(device, batches)
            assert (found and found[0]) == (expected and expected[1]), device
