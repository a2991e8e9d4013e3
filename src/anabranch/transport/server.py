"""A Flight server that knows nothing of state: it checks who calls and hands calls to a handler."""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, Protocol, TypeVar, runtime_checkable

import pyarrow as pa
import pyarrow.flight as flight

from anabranch.errors import AnabranchError
from anabranch.transport.access import Access, Caller, caller_of
from anabranch.transport.codec import decode, different_versions, encode
from anabranch.transport.messages.kinds import Call, ErrorMessage, ParcelLabel, Stream, StreamTicket
from anabranch.transport.messages.lanes import TransactionHeader, TransactionReports
from anabranch.transport.messages.names import NAMES, Request, StreamRequest, type_of
from anabranch.transport.parcel import PARCEL_SCHEMA, pack
from anabranch.transport.signs_of_life import Item, SignsOfLife, in_unary_call, patiently
from anabranch.transport.tls import Certificate
from anabranch.transport.wire import END_MARK, STREAM_MARK, error_message, flight_error

_log = logging.getLogger("anabranch.transport")

STOP_SECONDS_MAX = 30.0
"""For calls that run to end."""

T = TypeVar("T")

Parcels = Generator[tuple[pa.RecordBatch, bytes], None, None]
"""A reply piece by piece, each with its label."""


class Handler(Protocol):
    """What a process does with calls."""

    def call(self, request: Request) -> object:
        """One request, one reply, of the type that the request's type says."""

    def exchange(self, header: TransactionHeader, rows: Iterator[pa.RecordBatch]) -> Reply:
        """Rows of a transaction; ends in its outputs."""


@runtime_checkable
class StreamHandler(Protocol):
    """What a process does with calls whose reply is large."""

    def stream(self, request: StreamRequest) -> Iterator[Item]:
        """One request, many parcels; they are made one by one as the caller takes them."""


class Reply(Protocol):
    """Report first, then output batches."""

    @property
    def report(self) -> TransactionReports:
        """What was done."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the batches."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The outputs."""


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """Listens on one port until stopped, on threads of its own.

    Nobody calls `serve`: it would take SIGINT and SIGTERM away from Python.
    """

    def __init__(
        self,
        host: str,
        access: Access,
        handler: Handler,
        certificate: Certificate | None = None,
        port: int = 0,
    ) -> None:
        """With a certificate, all calls are encrypted. Port 0: any that is free."""
        scheme, shown = "grpc", []
        if certificate is not None:
            scheme, shown = "grpc+tls", [(certificate.pem, certificate.key)]
        super().__init__(
            f"{scheme}://{host}:{port}", middleware=access.middleware(), tls_certificates=shown
        )
        self.address = f"{host}:{self.port}"
        self._handler = handler
        self._signs = SignsOfLife()

    def stop(self) -> None:
        """Stop listening and wait for the calls that run, for so long at most."""
        stop = threading.Thread(target=self.shutdown, name="anabranch-server-stop", daemon=True)
        stop.start()
        stop.join(STOP_SECONDS_MAX)
        if stop.is_alive():
            _log.warning("Calls at %s do not end. They end with this process.", self.address)
        self._signs.close()

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        """Flight's entry for control calls."""

        def call() -> bytes:
            kind = type_of(action.type, Call)
            caller_of(context).require(kind)
            request = decode(kind, bytes(action.body))
            with in_unary_call():
                return encode(self._handler.call(request))

        return iter([flight.Result(pa.py_buffer(_translated(call)))])

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Flight's entry for transactions, and for calls whose reply comes in parcels."""
        command = bytes(descriptor.command)
        if command.startswith(STREAM_MARK):
            ticket = command.removeprefix(STREAM_MARK)
            self._stream(self._parcels(ticket, caller_of(context)), reader, writer)
        else:
            self._transact(command, IncomingRows(context, reader), writer, caller_of(context))

    def _stream(self, parcels: Parcels, reader: Any, writer: Any) -> None:
        writer.begin(PARCEL_SCHEMA)
        with closing(parcels):
            for batch, label in parcels:
                writer.write_with_metadata(batch, pa.py_buffer(label))
        # The caller says that it has all. Ended before, the call would make its question fail,
        # which is perhaps still being written, and the answer would be lost.
        with contextlib.suppress(ConnectionLost):
            deque(_rows(reader), maxlen=0)

    def _parcels(self, ticket: bytes, caller: Caller) -> Parcels:
        """The last one says that it is the last, or what went wrong."""
        failure: ErrorMessage | None = None
        try:
            asked = decode(StreamTicket, ticket)
            kind = type_of(asked.name)
            caller.require(kind)
            for head, tables in self._items(kind, asked):
                caller.require(kind)  # its token may have been revoked
                sizes, batch = pack(tables)
                yield batch, encode(ParcelLabel(NAMES[type(head)], sizes, None, encode(head)))
        except AnabranchError as error:
            failure = error_message(error)
        except Exception as error:
            failure = error_message(_unexpected(error))
        yield pack({})[1], encode(ParcelLabel(None, {}, failure, b""))

    def _items(self, kind: type[Any], asked: StreamTicket) -> Iterator[Item]:
        request = decode(kind, asked.request)
        if issubclass(kind, Call):
            return patiently(lambda: encode(self._handler.call(request)))
        if not issubclass(kind, Stream) or not isinstance(self._handler, StreamHandler):
            raise different_versions(f"Unknown call '{asked.name}'")
        return self._handler.stream(request)

    def _transact(self, command: bytes, rows: IncomingRows, writer: Any, caller: Caller) -> None:
        def exchange() -> Reply:
            caller.require(TransactionHeader)
            return self._handler.exchange(decode(TransactionHeader, command), rows)

        signs = self._signs.begin(writer)
        try:
            reply = _translated(exchange)
            signs.end()
            writer.begin(reply.schema)
            writer.write_metadata(pa.py_buffer(encode(reply.report)))
            for batch in reply.batches():
                writer.write_batch(batch)
        finally:
            signs.end()
            rows.end()


class ConnectionLost(Exception):
    """The caller went away before its end mark."""


class IncomingRows:
    """Rows of an exchange as they come, and whether their sender is still there."""

    def __init__(self, context: Any, reader: Any) -> None:
        self._context = context
        self._rows = _rows(reader)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._rows

    def __next__(self) -> pa.RecordBatch:
        return next(self._rows)

    def is_abandoned(self) -> bool:
        """Whether the sender has gone away before it had its answer; any thread may ask."""
        with self._lock:
            return self._context is not None and bool(self._context.is_cancelled())

    def end(self) -> None:
        """The call is over, and Flight's memory of it too."""
        with self._lock:
            self._context = None


def _rows(reader: Any) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            raise ConnectionLost("The stream ended without its end mark.") from None
        except (pa.ArrowException, flight.FlightError, OSError) as error:
            raise ConnectionLost(str(error)) from None
        if chunk.data is not None:
            yield chunk.data
        if chunk.app_metadata is not None and bytes(chunk.app_metadata) == END_MARK:
            return


def _translated(call: Callable[[], T]) -> T:
    try:
        return call()
    except AnabranchError as error:
        raise flight_error(error) from None
    except ConnectionLost as error:
        raise flight.FlightCancelledError(str(error)) from None
    except Exception as error:
        raise flight_error(_unexpected(error)) from None


def _unexpected(error: Exception) -> AnabranchError:
    _log.exception("Unexpected error in a call")
    detail = "".join(traceback.format_exception(error))
    return AnabranchError(f"Unexpected error, please report it: {detail}")
