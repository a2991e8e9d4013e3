"""Calls to a coordinator or worker: one cached connection per address, errors translated once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from anabranch.errors import ServiceUnavailable
from anabranch.transport.auth import call_options
from anabranch.transport.codec import decode, encode
from anabranch.transport.messages.kinds import (
    Call,
    ParcelLabel,
    Stream,
    StreamTicket,
    reply_type,
)
from anabranch.transport.messages.lanes import TransactionHeader, TransactionReports
from anabranch.transport.messages.names import NAMES, type_of
from anabranch.transport.parcel import Parcel, unpack
from anabranch.transport.wire import END_MARK, error_from_message, from_flight

R = TypeVar("R")
H = TypeVar("H")

_TRANSPORT_ERRORS = (pa.ArrowException, flight.FlightError, OSError)

_connections: dict[str, flight.FlightClient] = {}
_connections_lock = threading.Lock()


def _connection(address: str) -> flight.FlightClient:
    with _connections_lock:
        if address not in _connections:
            _connections[address] = flight.FlightClient(f"grpc://{address}")
        return _connections[address]


def forget(address: str) -> None:
    """Close the connection to a process that is gone, as soon as no call uses it.

    Closing it under a call that runs in another thread would be a use of freed memory in Arrow: it
    goes with its last reference, which every call holds.
    """
    with _connections_lock:
        _connections.pop(address, None)


def _forget_failed(address: str, client: flight.FlightClient) -> None:
    """It would wait before it tries again, while a new process may be there already."""
    with _connections_lock:
        if _connections.get(address) is client:
            del _connections[address]


class Peer:
    """A process of the service that can be called."""

    def __init__(self, address: str, token: str, name: str) -> None:
        self.address = address
        self.name = name
        self._token = token

    def call(self, request: Call[R], timeout_seconds: float | None = None) -> R:
        """One request, one reply."""
        kind = type(request)
        options = call_options(self._token, timeout_seconds)
        client = _connection(self.address)
        try:
            action = flight.Action(NAMES[kind], encode(request))
            (result,) = client.do_action(action, options)
        except _TRANSPORT_ERRORS as error:
            raise self.failed(error, client) from None
        return decode(reply_type(kind), result.body)

    def stream(
        self, request: Stream[H], timeout_seconds: float | None = None
    ) -> Iterator[Parcel[H]]:
        """One request, a reply in many parcels, as they come.

        Closing the iterator early ends the call at the other end too.
        """
        ticket = flight.Ticket(encode(StreamTicket(NAMES[type(request)], encode(request))))
        client = _connection(self.address)  # this frame keeps it until the end
        try:
            reader = client.do_get(ticket, call_options(self._token, timeout_seconds))
        except _TRANSPORT_ERRORS as error:
            raise self.failed(error, client) from None
        is_whole = False
        try:
            while not is_whole:
                chunk = reader.read_chunk()
                label = decode(ParcelLabel, chunk.app_metadata)
                if label.error is not None:
                    raise error_from_message(label.error)
                is_whole = label.name is None
                if label.name is not None:
                    head = decode(type_of(label.name), label.head)
                    yield unpack(head, label.sizes, chunk.data)
        except StopIteration:
            raise ServiceUnavailable(f"{self.name} ended its answer too early.") from None
        except _TRANSPORT_ERRORS as error:
            raise self.failed(error, client) from None
        finally:
            if not is_whole:
                reader.cancel()

    def exchange(self, header: TransactionHeader) -> Exchange:
        """Open a stream of rows in both directions."""
        descriptor = flight.FlightDescriptor.for_command(encode(header))
        client = _connection(self.address)
        try:
            writer, reader = client.do_exchange(descriptor, call_options(self._token))
        except _TRANSPORT_ERRORS as error:
            raise self.failed(error, client) from None
        return Exchange(self, client, writer, reader)

    def failed(self, error: Exception, client: flight.FlightClient) -> Exception:
        """What to raise for a failed call; the next one does not use a connection that is lost."""
        if isinstance(error, flight.FlightUnavailableError):
            _forget_failed(self.address, client)
        return from_flight(error, self.name)


class Exchange:
    """Rows to a worker, then its report and outputs back."""

    def __init__(self, peer: Peer, client: Any, writer: Any, reader: Any) -> None:
        self._peer = peer
        self._client = client  # not closed before the exchange is over
        self._writer = writer
        self._reader = reader
        self._begun = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Send rows."""
        try:
            if not self._begun:
                self._writer.begin(batch.schema)
                self._begun = True
            self._writer.write_batch(batch)
        except _TRANSPORT_ERRORS as error:
            raise self._cause(error) from None

    def done_writing(self, schema: pa.Schema) -> None:
        """Send the end mark; without it the worker takes the stream for a broken one."""
        try:
            if not self._begun:
                self._writer.begin(schema)
                self._begun = True
            self._writer.write_metadata(pa.py_buffer(END_MARK))
            self._writer.done_writing()
        except _TRANSPORT_ERRORS as error:
            raise self._cause(error) from None

    def read(self) -> tuple[pa.RecordBatch | None, TransactionReports | None] | None:
        """Next batch or report; None at the end."""
        try:
            chunk = self._reader.read_chunk()
        except StopIteration:
            return None
        except _TRANSPORT_ERRORS as error:
            raise self._peer.failed(error, self._client) from None
        told = chunk.app_metadata
        return chunk.data, None if told is None else decode(TransactionReports, told)

    def close(self) -> None:
        """Give up the exchange; the worker drops what it has of it."""
        try:
            self._reader.cancel()
            self._writer.close()
        except _TRANSPORT_ERRORS:
            pass  # already gone

    def _cause(self, error: Exception) -> Exception:
        """A failed write only says that the stream ended; the reader knows why."""
        try:
            self._reader.read_chunk()
        except _TRANSPORT_ERRORS as cause:
            return self._peer.failed(cause, self._client)
        except StopIteration:
            pass
        return self._peer.failed(error, self._client)
