"""A Flight server that knows nothing of state: it checks the token and hands calls to a handler."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.flight as flight

from anabranch.errors import AnabranchError
from anabranch.transport.auth import TokenCheck
from anabranch.transport.parcel import PARCEL_SCHEMA, pack
from anabranch.transport.wire import END_MARK, Message, decode, encode, error_message, flight_error

_log = logging.getLogger("anabranch.transport")


class Handler(Protocol):
    """What a process does with calls."""

    def action(self, name: str, body: bytes) -> Message:
        """One request, one reply."""

    def exchange(self, header: Message, rows: Iterator[pa.RecordBatch]) -> Reply:
        """Rows of a transaction; ends in its outputs."""


Item = tuple[Message, Mapping[str, pa.Table]]
"""One piece of a streamed reply: a small head and some tables."""


@runtime_checkable
class StreamHandler(Protocol):
    """What a process does with calls whose reply is large."""

    def stream(self, name: str, message: Message) -> Iterator[Item]:
        """One request, many pieces; they are made one by one as the caller takes them."""


class Reply(Protocol):
    """Report first, then output batches."""

    @property
    def report(self) -> Message:
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
        reply = _translated(lambda: self._handler.action(action.type, bytes(action.body)))
        return iter([flight.Result(pa.py_buffer(encode(reply)))])

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Flight's entry for calls with a large reply."""
        request = decode(ticket.ticket)
        items = self._pieces(request["call"], request["message"])
        return flight.GeneratorStream(PARCEL_SCHEMA, items)

    def _pieces(self, name: str, message: Message) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        """The last piece says that it is the last, or what went wrong."""
        try:
            if not isinstance(self._handler, StreamHandler):
                raise AnabranchError(f"Unknown call '{name}': versions differ.")
            for head, tables in self._handler.stream(name, message):
                sent, batch = pack(head, tables)
                yield batch, encode(sent)
            last: Message = {"end": True}
        except AnabranchError as error:
            last = {"end": True, "error": error_message(error)}
        except Exception as error:
            _log.exception("Unexpected error in a call")
            detail = "".join(traceback.format_exception(error))
            failure = AnabranchError(f"Unexpected error, please report it: {detail}")
            last = {"end": True, "error": error_message(failure)}
        sent, batch = pack(last, {})
        yield batch, encode(sent)

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Flight's entry for transactions."""
        header = decode(descriptor.command)
        reply: Reply = _translated(lambda: self._handler.exchange(header, _rows(reader)))
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


def _translated(call: Any) -> Any:
    try:
        return call()
    except AnabranchError as error:
        raise flight_error(error) from None
    except ConnectionLost as error:
        raise flight.FlightCancelledError(str(error)) from None
    except Exception as error:
        _log.exception("Unexpected error in a call")
        detail = "".join(traceback.format_exception(error))
        raise flight_error(
            AnabranchError(f"Unexpected error, please report it: {detail}")
        ) from None
