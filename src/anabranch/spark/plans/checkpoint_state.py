"""Which operators of a query have state in Spark's own checkpoint: there they continue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from anabranch.spark.checkpoint_folder import Checkpoint
from anabranch.spark.plans.catalog import KINDS

SETTING = "spark.sql.streaming.checkpointLocation"


def native_kinds(spark: SparkSession, path: str) -> Mapping[str, str]:
    """Kinds that the query of a checkpoint has run on Spark's own operators, each with words."""
    names = operator_names(spark, path)
    return {
        kind.name: "its state is in Spark's checkpoint, where the query began on Spark's own "
        "operator; give the query a new checkpoint to change that"
        for kind in KINDS
        if kind.checkpoint_name in names
    }


def operator_names(spark: SparkSession, path: str) -> set[str]:
    """What Spark has noted of the operators with state in a checkpoint."""
    checkpoint = Checkpoint(spark, path)
    found = set()
    for folder in checkpoint.names("state"):
        metadata = f"state/{folder}/_metadata"
        for name in checkpoint.names(metadata):
            inside = f"{metadata}/{name}"
            files = [inside, *(f"{inside}/{each}" for each in checkpoint.names(inside))]
            for file in files:
                found |= _names(checkpoint.text(file))
    return found


def _names(text: str) -> set[str]:
    """A metadata file: a line with the version, then JSON."""
    found = set()
    for line in text.splitlines():
        try:
            content: Any = json.loads(line)
        except ValueError:
            continue
        about = content.get("operatorInfo") if isinstance(content, dict) else None
        if isinstance(about, dict):
            found.add(str(about.get("operatorName")))
    return found
