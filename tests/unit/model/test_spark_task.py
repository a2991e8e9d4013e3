"""Settings that travel with a lane's Spark task."""

from __future__ import annotations

from dataclasses import replace

from anabranch.model.spark_task import NO_TASK, setting

NAME = "spark.sql.execution.arrow.maxRecordsPerBatch"


def test_a_setting_of_the_query_counts_before_the_default() -> None:
    task = replace(NO_TASK, properties={NAME: "7"})
    assert setting(task, {NAME: "10000"}, NAME) == "7"
    assert setting(NO_TASK, {NAME: "10000"}, NAME) == "10000"
    assert setting(NO_TASK, {}, NAME) is None
