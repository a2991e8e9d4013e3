"""Calls to a coordinator or worker: one cached connection per address, errors translated once.

No call is without an end: a unary call has a deadline, everything else is noted as in flight.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from anabranch.errors import AccessRefused, ServiceUnavailable
from anabranch.transport.auth import Credentials, call_options
from anabranch.transport.certificate_errors import why_refused
from anabranch.transport.codec import decode, encode
from anabranch.transport.in_flight import IN_FLIGHT, MUTE_SECONDS, Underway
from anabranch.transport.messages.kinds import (
    AliveHead,
    AnswerHead,
    Call,
    ParcelLabel,
    Stream,
    StreamTicket,
    reply_type,
)
from anabranch.transport.messages.lanes import TransactionHeader, TransactionReports
from anabranch.transport.messages.names import NAMES, type_of
from anabranch.transport.parcel import Parcel, unpack
from anabranch.transport.tls import SERVICE_NAME
from anabranch.transport.wire import (
    END_MARK,
    SIGN_OF_LIFE,
    STREAM_MARK,
    error_from_message,
    from_flight,
)

R = TypeVar("R")
H = TypeVar("H")

STATE_MUTE_SECONDS = 300.0
"""Streams of state have no signs of life: their source waits for transactions at times."""

CONNECT_MILLISECONDS_MAX = 5_000

_CONNECTION_OPTIONS = [
    # Less than gRPC's 20 s: a host that is cut off costs a caller as much.
    ("grpc.min_reconnect_backoff_ms", CONNECT_MILLISECONDS_MAX),
    # No keepalive: its pings would come after 23 days. With a time for them, gRPC sets
    # TCP_USER_TIMEOUT to the other number: the kernel ends what is not acknowledged for so long.
    ("grpc.keepalive_time_ms", 2_000_000_000),
    ("grpc.keepalive_timeout_ms", 15_000),
    # A connection that is forgotten is not used again because some other call still has it.
    ("grpc.use_local_subchannel_pool", 1),
]

_TRANSPORT_ERRORS = (pa.ArrowException, flight.FlightError, OSError)

_connections: dict[str, dict[bytes | None, flight.FlightClient]] = {}
"""By address, and by whom the caller trusts: a process may work for more than one service."""
_connections_lock = threading.Lock()


def _connection(address: str, credentials: Credentials) -> flight.FlightClient:
    trusted = credentials.certificates
    with _connections_lock:
        clients = _connections.setdefault(address, {})
        if trusted not in clients:
            clients[trusted] = _connect(address, trusted)
        return clients[trusted]


def _connect(address: str, trusted: bytes | None) -> flight.FlightClient:
    if trusted is None:
        # no limit: it connects at the first call (_CONNECTION_OPTIONS)
        return flight.FlightClient(f"grpc://{address}", generic_options=_CONNECTION_OPTIONS)
    # no limit: it connects at the first call
    return flight.FlightClient(
        f"grpc+tls://{address}",
        tls_root_certs=trusted,
        override_hostname=SERVICE_NAME,
        generic_options=_CONNECTION_OPTIONS,
    )


def forget(address: str) -> None:
    """Close the connection to a process that is gone, as soon as no call uses it.

    Closing it under a call that runs in another thread would be a use of freed memory in Arrow: it
    goes with its last reference, which every call holds.
    """
    with _connections_lock:
        _connections.pop(address, None)


IN_FLIGHT.on_cut.append(forget)


def _forget_failed(address: str, client: flight.FlightClient) -> None:
    """It would wait before it tries again, while a new process may be there already."""
    with _connections_lock:
        if client in _connections.get(address, {}).values():
            del _connections[address]


class Peer:
    """A process of the service that can be called."""

    def __init__(self, address: str, credentials: Credentials, name: str) -> None:
        self.address = address
        self.name = name
        self._credentials = credentials

    def call(self, request: Call[R], timeout_seconds: float) -> R:
        """One request, one reply, within a time: it cannot be cancelled."""
        kind = type(request)
        IN_FLIGHT.check(self.address, self.name, self._credentials.token)
        options = call_options(self._credentials, timeout_seconds)
        client = _connection(self.address, self._credentials)
        try:
            action = flight.Action(NAMES[kind], encode(request))
            # no limit: its options have the deadline
            (result,) = client.do_action(action, options)
        except _TRANSPORT_ERRORS as error:
            raise self.failed(error, client) from None
        return decode(reply_type(kind), result.body)

    def call_patiently(self, request: Call[R], timeout_seconds: float | None = None) -> R:
        """One request, one reply, for which the other end may take its time.

        It shows signs of life meanwhile. The call ends early if nobody is there any more.
        """
        heads = [each.head for each in self._parcels(request, MUTE_SECONDS, timeout_seconds)]
        (answer,) = (head for head in heads if isinstance(head, AnswerHead))
        return decode(reply_type(type(request)), answer.reply)

    def stream(
        self,
        request: Stream[H],
        timeout_seconds: float | None = None,
        mute_seconds: float = STATE_MUTE_SECONDS,
        shows_signs: bool = False,
    ) -> Iterator[Parcel[H]]:
        """One request, a reply in many parcels, as they come; signs of life too, if asked for.

        Closing the iterator early ends the call at the other end too.
        """
        return self._parcels(request, mute_seconds, timeout_seconds, shows_signs)

    def _parcels(
        self,
        request: Call[Any] | Stream[Any],
        mute_seconds: float,
        timeout_seconds: float | None,
        shows_signs: bool = False,
    ) -> Iterator[Parcel[Any]]:
        ticket = encode(StreamTicket(NAMES[type(request)], encode(request)))
        # Not do_get: that reads the schema before it can be cancelled.
        underway, client, writer, reader = self._open(
            STREAM_MARK + ticket, mute_seconds, timeout_seconds
        )
        try:
            with underway.waiting(mute_seconds):
                writer.begin(pa.schema([]))
            while True:
                with underway.waiting(mute_seconds):
                    chunk = reader.read_chunk()
                label = decode(ParcelLabel, chunk.app_metadata)
                if label.error is not None:
                    raise error_from_message(label.error)
                if label.name is None:
                    return
                head = decode(type_of(label.name), label.head)
                if shows_signs or not isinstance(head, AliveHead):
                    yield unpack(head, label.sizes, chunk.data)
        except StopIteration:
            raise ServiceUnavailable(f"{self.name} ended its answer too early.") from None
        except _TRANSPORT_ERRORS as error:
            raise self.failed(error, client, underway) from None
        finally:
            underway.end()
            # Also if it is whole: close() waits for the other end, in vain through a cut link.
            reader.cancel()
            with contextlib.suppress(*_TRANSPORT_ERRORS):
                writer.close()

    def exchange(self, header: TransactionHeader) -> Exchange:
        """Open a stream of rows in both directions."""
        return Exchange(self, *self._open(encode(header), None))

    def _open(
        self, command: bytes, mute_seconds: float | None, timeout_seconds: float | None = None
    ) -> tuple[Underway, flight.FlightClient, Any, Any]:
        """A call in both directions, which can be cancelled from now on."""
        descriptor = flight.FlightDescriptor.for_command(command)
        options = call_options(self._credentials, timeout_seconds)
        underway = IN_FLIGHT.begin(self.address, self.name, self._credentials.token)
        client = _connection(self.address, self._credentials)  # the caller keeps it
        try:
            with underway.waiting(mute_seconds):
                # no limit: it is in flight from here on
                writer, reader = client.do_exchange(descriptor, options)
            underway.opened(reader.cancel)
        except _TRANSPORT_ERRORS as error:
            underway.end()
            raise self.failed(error, client, underway) from None
        except BaseException:
            underway.end()
            raise
        return underway, client, writer, reader

    def failed(
        self, error: Exception, client: flight.FlightClient, underway: Underway | None = None
    ) -> Exception:
        """What to raise for a failed call; the next one does not use a connection that is lost."""
        if underway is not None and underway.reason:
            return underway.not_reachable()
        if isinstance(error, flight.FlightUnavailableError):
            _forget_failed(self.address, client)
            is_encrypted = self._credentials.certificates is not None
            why = why_refused(str(error), self.address, is_encrypted)
            if why is not None:
                return AccessRefused(f"{self.name} at {self.address} was not called: {why}")
        return from_flight(error, self.name, self.address)


class Exchange:
    """Rows to a worker, then its report and outputs back."""

    def __init__(
        self, peer: Peer, underway: Underway, client: Any, writer: Any, reader: Any
    ) -> None:
        self._peer = peer
        self._client = client  # not closed before the exchange is over
        self._underway = underway
        self._writer = writer
        self._reader = reader
        self._begun = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Send rows."""
        try:
            with self._underway.waiting(None):
                if not self._begun:
                    self._writer.begin(batch.schema)
                    self._begun = True
                self._writer.write_batch(batch)
        except _TRANSPORT_ERRORS as error:
            raise self._cause(error) from None

    def done_writing(self, schema: pa.Schema) -> None:
        """Send the end mark; without it the worker takes the stream for a broken one."""
        try:
            with self._underway.waiting(None):
                if not self._begun:
                    self._writer.begin(schema)
                    self._begun = True
                self._writer.write_metadata(pa.py_buffer(END_MARK))
                self._writer.done_writing()
        except _TRANSPORT_ERRORS as error:
            raise self._cause(error) from None

    def read(self) -> tuple[pa.RecordBatch | None, TransactionReports | None] | None:
        """Next batch or report; None at the end."""
        with self._underway.waiting():
            while True:
                try:
                    chunk = self._reader.read_chunk()
                except StopIteration:
                    return None
                except _TRANSPORT_ERRORS as error:
                    raise self._peer.failed(error, self._client, self._underway) from None
                told = chunk.app_metadata
                if told is None or bytes(told) != SIGN_OF_LIFE:
                    return chunk.data, None if told is None else decode(TransactionReports, told)
                self._underway.heard()

    def close(self) -> None:
        """Give up the exchange; the worker drops what it has of it."""
        self._underway.end()
        try:
            self._reader.cancel()
            self._writer.close()
        except _TRANSPORT_ERRORS:
            pass  # already gone

    def _cause(self, error: Exception) -> Exception:
        """A failed write only says that the stream ended; the reader knows why."""
        try:
            with self._underway.waiting():
                self._reader.read_chunk()
        except _TRANSPORT_ERRORS as cause:
            return self._peer.failed(cause, self._client, self._underway)
        except StopIteration:
            pass
        return self._peer.failed(error, self._client, self._underway)
