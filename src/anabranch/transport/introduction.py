"""How an agent that has nothing but a token comes to trust a coordinator.

Sending the token to whoever listens would give it away, and a certificate authority is made for
each run of a service. So the agent asks first, without the token and over a connection that it does
not trust yet: who is your authority? Both know the token, so the reply can be signed with it. From
then on the agent trusts that authority, and nobody else.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

import pyarrow as pa
import pyarrow.flight as flight

from anabranch.errors import AccessRefused
from anabranch.transport.auth import Credentials, call_options
from anabranch.transport.certificate_errors import speaks_tls, why_refused
from anabranch.transport.codec import decode, encode
from anabranch.transport.messages.hosts import Introduce, Introduction
from anabranch.transport.messages.names import NAMES
from anabranch.transport.tls import is_loopback
from anabranch.transport.wire import from_flight

STRANGER = "stranger"
"""What the question is asked with: everybody knows it, and it allows only this question."""

SECONDS_MAX = 10.0


def introduction_of(token: str, asked: Introduce, authority: bytes | None) -> Introduction:
    """The coordinator's reply to an agent that has this token."""
    pem = authority or b""
    return Introduction(_proof(token, asked.nonce, pem), pem)


def introduced(address: str, token: str, tls: bool | None = None) -> Credentials:
    """What to call a coordinator with.

    `tls` None: encrypted; on loopback, as the coordinator does.
    """
    host = address.rpartition(":")[0]
    if tls is None:
        tls = not is_loopback(host) or speaks_tls(address)
    return Credentials(token, _authority_of(address, token) if tls else None)


def _authority_of(address: str, token: str) -> bytes:
    asked = Introduce(token_id(token), secrets.token_hex(16))
    options = call_options(Credentials(STRANGER), SECONDS_MAX)
    action = flight.Action(NAMES[Introduce], encode(asked))
    # no limit: the options of its only call have a deadline
    with flight.FlightClient(f"grpc+tls://{address}", disable_server_verification=True) as client:
        try:
            (result,) = client.do_action(action, options)  # no limit: the options have one
        except (pa.ArrowException, flight.FlightError, OSError) as error:
            why = why_refused(str(error), address, is_encrypted=True)
            if why is not None:
                raise AccessRefused(f"The coordinator at {address} was not asked: {why}") from None
            raise from_flight(error, f"The coordinator at {address}", address) from None
    reply = decode(Introduction, result.body)
    if not hmac.compare_digest(reply.proof, _proof(token, asked.nonce, reply.authority)):
        raise AccessRefused(
            f"The process at {address} does not know the token of this host: it was not told the "
            "token. Check the address, and use the token file of the running service."
        )
    return reply.authority


def token_id(token: str) -> str:
    """Names a token without telling it."""
    return hashlib.sha256(b"anabranch token " + token.encode()).hexdigest()


def _proof(token: str, nonce: str, authority: bytes) -> str:
    return hmac.digest(
        token.encode(), b"authority " + nonce.encode() + authority, hashlib.sha256
    ).hex()
