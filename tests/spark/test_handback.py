"""State on its way back to Spark, from locations that are made by hand."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from tests.unit.processor.rows.processors import Fading
from tests.unit.processor.rows.support import Service, define

from anabranch import initial_state
from anabranch.durability.changelog import encode_changelog
from anabranch.durability.manifest import file_ref, next_manifest
from anabranch.durability.names import changelog_path
from anabranch.durability.store import StateStore

SCHEMA = "k long, v long"


def write(location: Path, service: Service, times_ms: list[int]) -> None:
    """Commit the changes of the batches that ran; later ones have none."""
    described = service.definition.description
    with StateStore(location, fsync=False).open() as store:
        store.open_operator("fading", described, service.keyspace)
        manifest = None
        for epoch, now_ms in enumerate(times_ms):
            refs = []
            if epoch < len(service.changes):
                path = changelog_path("fading", epoch, 0, "w1", "test", 0)
                buffers = encode_changelog(service.changes[epoch])
                store.blobs.write(path, buffers)
                refs = [file_ref(path, epoch, buffers, range(service.keyspace.groups))]
            times = {"processing_time_ms": now_ms, "watermark_ms": 0, "late_watermark_ms": 0}
            manifest = next_manifest(
                manifest,
                epoch,
                refs,
                operator="fading",
                query_id=None,
                keyspace=service.keyspace,
                description=described,
                committed_at=0,
                extra={"times": times},
            )
            store.commit(manifest)


def test_what_has_expired_in_the_store_does_not_come_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    definition = define(Fading(), SCHEMA, ["k"], "k long, c long", "processingtime")
    service = Service(definition).with_types(SCHEMA)
    service.batch([(k, k) for k in range(4)], now_ms=100)
    service.batch([(k, 9) for k in range(2, 5)], now_ms=120)
    write(tmp_path, service, [100, 120, 150])

    rows = initial_state(spark, str(tmp_path)).collect()
    found = {
        row.k: (
            row.state.last.v,
            [element.v for element in row.state["values"]],
            [entry.key.v for entry in row.state.seen],
        )
        for row in rows
    }
    assert found == dict.fromkeys((2, 3, 4), (9, [9], [9]))
