"""A Flight server that knows nothing of state: it checks the token and hands calls to a handler."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import pyarrow as pa
import pyarrow.flight as flight

from anabranch.errors import AnabranchError
from anabranch.transport.auth import TokenCheck
from anabranch.transport.codec import decode, different_versions, encode
from anabranch.transport.messages.kinds import Call, ErrorMessage, ParcelLabel, Stream, StreamTicket
from anabranch.transport.messages.lanes import TransactionHeader, TransactionReports
from anabranch.transport.messages.names import NAMES, Request, StreamRequest, type_of
from anabranch.transport.parcel import PARCEL_SCHEMA, pack
from anabranch.transport.wire import END_MARK, error_message, flight_error

_log = logging.getLogger("anabranch.transport")

T = TypeVar("T")


class Handler(Protocol):
    """What a process does with calls."""

    def call(self, request: Request) -> object:
        """One request, one reply, of the type that the request's type says."""

    def exchange(self, header: TransactionHeader, rows: Iterator[pa.RecordBatch]) -> Reply:
        """Rows of a transaction; ends in its outputs."""


Item = tuple[object, Mapping[str, pa.Table]]
"""Head and tables of a parcel of a streamed reply."""


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

    def __init__(self, host: str, token: str, handler: Handler) -> None:
        super().__init__(f"grpc://{host}:0", middleware={"token": TokenCheck(token)})
        self.address = f"{host}:{self.port}"
        self._handler = handler

    def stop(self) -> None:
        """Stop listening and wait for the calls that run."""
        self.shutdown()

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        """Flight's entry for control calls."""

        def call() -> bytes:
            request = decode(type_of(action.type, Call), bytes(action.body))
            return encode(self._handler.call(request))

        return iter([flight.Result(pa.py_buffer(_translated(call)))])

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Flight's entry for calls with a large reply."""
        return flight.GeneratorStream(PARCEL_SCHEMA, self._parcels(ticket.ticket))

    def _parcels(self, ticket: bytes) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        """The last one says that it is the last, or what went wrong."""
        failure: ErrorMessage | None = None
        try:
            asked = decode(StreamTicket, ticket)
            request = decode(type_of(asked.name, Stream), asked.request)
            if not isinstance(self._handler, StreamHandler):
                raise different_versions(f"Unknown call '{asked.name}'")
            for head, tables in self._handler.stream(request):
                sizes, batch = pack(tables)
                yield batch, encode(ParcelLabel(NAMES[type(head)], sizes, None, encode(head)))
        except AnabranchError as error:
            failure = error_message(error)
        except Exception as error:
            failure = error_message(_unexpected(error))
        yield pack({})[1], encode(ParcelLabel(None, {}, failure, b""))

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Flight's entry for transactions."""

        def exchange() -> Reply:
            header = decode(TransactionHeader, descriptor.command)
            return self._handler.exchange(header, _rows(reader))

        reply = _translated(exchange)
        writer.begin(reply.schema)
        writer.write_metadata(pa.py_buffer(encode(reply.report)))
        for batch in reply.batches():
            writer.write_batch(batch)


class ConnectionLost(Exception):
    """The caller went away before its end mark."""


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
