"""What a service has beside its queries: its journal, and the HTTP API if it is wanted."""

from __future__ import annotations

import logging
import time
import weakref
from typing import TYPE_CHECKING, Any

from anabranch.coordinator.autoscaler import Autoscaler
from anabranch.coordinator.coordinator import Coordinator
from anabranch.coordinator.journal import Journal
from anabranch.coordinator.journal_notes import JournalNotes, about_service
from anabranch.coordinator.site_keeper import SiteKeeper
from anabranch.durability.journal import JournalContent, JournalFolder
from anabranch.durability.store import StateStore
from anabranch.errors import InvalidArgument, needs_extra
from anabranch.http.controlled import ControlledService, Listener
from anabranch.model.journal_entry import EntryKind
from anabranch.model.query_reports import BatchReport
from anabranch.spark.clock import SparkClock
from anabranch.spark.foreach_batch import forget
from anabranch.spark.query_progress import QueryProgress, last_progress

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from anabranch.http.server import HttpServer

_log = logging.getLogger("anabranch.http")

PORT_MAX = 65_535
NOTEBOOK_SECONDS = 900.0
"""How far back a notebook shows a service."""


def check_http(http: Any) -> None:
    """Refuse what is neither yes, no nor a port."""
    is_port = isinstance(http, int) and not isinstance(http, bool) and 0 < http <= PORT_MAX
    if http is not None and not isinstance(http, bool) and not is_port:
        raise InvalidArgument(f"http must be True, False or a port, got {http!r}.")


class ControlPlane:
    """Of one service, from before its coordinator until after it."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._journal = Journal(store.blobs, store.owner.to_json())
        self.notes = JournalNotes(self._journal.note)
        self._server: HttpServer | None = None

    def start(
        self,
        service: ControlledService,
        http: bool | int | None,
        workers: int,
        key_groups: int,
        checkpoint: str,
    ) -> None:
        """The service runs. `http`: a port; True: a free one; None: if the extra is there."""
        about = about_service(workers, key_groups, checkpoint)
        self._journal.note(EntryKind.SERVICE_STARTED, **about)
        self.notes.ownership()
        proxy = weakref.proxy(service)  # a thread that looks must not keep it alive
        self.notes.spark = lambda: proxy.spark_batches()
        try:
            self._listen(service, http)
        except BaseException:
            service.stop()
            raise

    def _listen(self, service: ControlledService, http: bool | int | None) -> None:
        if http is False:
            return
        try:
            from anabranch.http.server import HttpServer
        except ImportError as error:
            if http is None:
                return
            raise needs_extra(f"http={http} needs the HTTP API", "ui") from error
        port = http if http is not None and not isinstance(http, bool) else 0
        try:
            # The service may be collected while the server's thread runs.
            server = HttpServer(weakref.proxy(service), self._store.blobs, port)
            server.start()
        except Exception as error:
            if http is not None:
                raise
            _log.warning("The HTTP API does not start; queries are not concerned. %s", error)
            return
        self._server = server

    @property
    def url(self) -> str:
        """A link for a browser, which works once."""
        if self._server is None:
            raise InvalidArgument(
                "This service has no HTTP API. Install the extra: pip install 'anabranch[ui]', and "
                "do not say http=False."
            )
        return self._server.login_url

    def on_entry(self, listener: Listener) -> None:
        """Call it for each entry from now on."""
        self._journal.listeners.append(listener)

    def history(self, since: float | None, until: float | None) -> JournalContent:
        """What is written down."""
        return JournalFolder(self._store.blobs).read(since, until)

    def stop_listening(self) -> None:
        """Nobody is to ask a service that ends."""
        if self._server is not None:
            self._server.stop()

    def stop(self, is_in_order: bool = True) -> None:
        """The last thing: write down that the service has ended."""
        self.stop_listening()
        if is_in_order:
            self._journal.note(EntryKind.SERVICE_STOPPED, text="in order")
        self._journal.stop()


def end_service(
    scaler: Autoscaler,
    keeper: SiteKeeper,
    coordinator: Coordinator,
    store: StateStore,
    control: ControlPlane,
) -> None:
    """All parts of a service, in the order in which nobody misses another one."""
    control.stop_listening()
    forget(coordinator)
    scaler.stop()
    keeper.stop()
    coordinator.stop()
    control.stop()
    store.close()


class ServiceControl:
    """The part of the service with which users look back, and find its HTTP API."""

    _control: ControlPlane
    _clock: SparkClock
    _coordinator: Coordinator

    @property
    def url(self) -> str:
        """A link to the HTTP API for a browser. It works once, within ten minutes."""
        return self._control.url

    def history(self, since: float | None = None, until: float | None = None) -> JournalContent:
        """Entries of the journal of this location, between two times (Unix).

        `history().entries` is an Arrow table, `history().rows()` are plain values.
        """
        return self._control.history(since, until)

    def progress(self, query: StreamingQuery) -> QueryProgress:
        """Tell what a query and its operators of this service did in its last batch.

        `anabranch.ProgressListener` has the same after each batch.
        """
        return last_progress(query)

    def source_lag_rows(self) -> dict[str, int]:
        """Rows that sources are ahead, for operators of queries whose sources count rows."""
        found = {}
        for name in list(self._coordinator.operators):
            query_id = self._coordinator.query_of(name)
            lag = None if query_id is None else self._clock.source_lag(name, query_id)
            if lag is not None:
                found[name] = lag
        return found

    def spark_batches(self) -> dict[str, tuple[BatchReport, ...]]:
        """What Spark itself says about the last batches of each operator's query."""
        found = {}
        for name in list(self._coordinator.operators):
            query_id = self._coordinator.query_of(name)
            if query_id is not None:
                found[name] = self._clock.reports(name, query_id).batches
        return found

    def _repr_html_(self) -> str:
        """For notebooks: the last minutes, as `anabranch report` shows them."""
        from anabranch.report.page import fragment
        from anabranch.report.span import Span

        until = time.time()
        since = until - NOTEBOOK_SECONDS
        content = self.history(since, until)
        about = [f"left out: {what}" for what in content.damaged]
        return fragment(repr(self), about, Span.of(content.rows(), since, until))

    def on_entry(self, listener: Listener) -> None:
        """Call a function for each entry of the journal from now on, at once.

        It runs in the thread in which something happens, which waits for it: keep it short.
        """
        self._control.on_entry(listener)
