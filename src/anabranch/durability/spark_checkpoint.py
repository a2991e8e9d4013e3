"""Spark's checkpoint of a query, read as files: how far it is, and what goes on after a batch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from anabranch.durability.blobs import BlobStore
from anabranch.errors import AnabranchError, InvalidArgument

_METADATA = "metadata"
_LISTED_TRIES = 3
"""Spark removes old files of its logs while it runs."""


class SparkCheckpoint:
    """A checkpoint location of a streaming query, running or not; never written to."""

    def __init__(self, location: str) -> None:
        # Hadoop writes "file:/path".
        self._files = BlobStore(re.sub(r"\Afile:/+", "/", location))
        self.query_id = self._query_id()

    def _query_id(self) -> str:
        try:
            return str(json.loads(self._text(_METADATA))["id"])
        except (AnabranchError, ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(
                f"{self._files.location} is not the checkpoint of a streaming query: its file "
                f"'{_METADATA}' cannot be read ({error}). Give the query's checkpointLocation."
            ) from error

    def last_commit(self) -> int | None:
        """The last batch that Spark has committed."""
        return max(self._batches("commits"), default=None)

    def offsets(self, batch: int) -> list[Any]:
        """Where each source was at the end of a batch, in the source's own words."""
        _, _, *sources = self._text(f"offsets/{batch}").split("\n")
        return [_parsed(source) for source in sources if source]

    def continuing(self, batch: int) -> Mapping[str, Any]:
        """Files of a checkpoint with which a query goes on after a batch; none if Spark has state.

        State of Spark's own operators cannot be taken along: there is only its newest version.
        """
        if self._files.list("state"):
            return {}
        # Spark looks at the batch before as well.
        logs = [f"offsets/{batch}", f"commits/{batch}"]
        earlier = [f"offsets/{batch - 1}", f"commits/{batch - 1}"]
        logs += [path for path in earlier if self._files.exists(path)]
        for tries_left in reversed(range(_LISTED_TRIES)):
            paths = [_METADATA, *logs, *self._listed("sources")]
            try:
                return {path: self._files.read(path) for path in paths}
            except AnabranchError:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    def _batches(self, log: str) -> list[int]:
        names = [path.rsplit("/", 1)[1] for path in self._listed(log)]
        return [int(name) for name in names if name.isdecimal()]

    def _listed(self, folder: str) -> list[str]:
        found = self._files.list(folder)
        return [path for path in found if not path.rsplit("/", 1)[1].startswith(".")]

    def _text(self, path: str) -> str:
        return bytes(self._files.read(path)).decode()


def _parsed(source: str) -> Any:
    try:
        return json.loads(source)
    except ValueError:
        return source
