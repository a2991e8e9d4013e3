"""Certificates: whether a service needs them, and how they are made.

Each service has an authority of its own, for one run. It signs one certificate, which all servers
of the service show, on whatever host: callers check that it is signed by the authority, and has the
one name. The authority's own key is never kept, so nobody can make a second one.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

SERVICE_NAME = "anabranch-service"
"""The name in every certificate of a service; callers ask for it, whatever host they dial."""

_VALID_FROM = datetime(1970, 1, 2, tzinfo=timezone.utc)
"""A host at the edge may have no clock that it could trust."""
_VALID = timedelta(days=3650)
"""Longer than any run of a service."""

_log = logging.getLogger("anabranch.service")


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a server shows, and its private key; only servers of the service may have that."""

    pem: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Authority:
    """Whom callers of a service trust, and the certificate that it has signed."""

    pem: bytes
    certificate: Certificate


def authority_for(listens_on: Iterable[str], tls: bool | None) -> Authority | None:
    """An authority if servers that listen there need one; None: calls are not encrypted.

    `tls` is the user's wish; None: encrypt what others than this machine could hear.
    """
    exposed = [host for host in listens_on if not is_loopback(host)]
    if tls is False:
        if exposed:
            _log.warning(
                "The state service listens on %s without encryption (tls=False): whoever can "
                "listen on that network can read tokens and rows, and run code in workers.",
                ", ".join(exposed),
            )
        return None
    if not exposed and not tls:
        return None
    return make_authority()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on this interface."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host or None, None)
    except OSError:
        return False
    return bool(host) and all(ipaddress.ip_address(f[4][0]).is_loopback for f in found)


def make_authority() -> Authority:
    """A new authority and the certificate of a service."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise InvalidArgument(
            "A state service that other hosts can reach encrypts its calls, which needs the "
            "package cryptography. Install the extra: pip install 'anabranch[tls]' (in a clone of "
            "Anabranch: pip install '.[tls]'). Or say tls=False, if all who can listen on the "
            "network may read tokens and rows, and run code in workers."
        ) from None
    signer, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    serial = x509.random_serial_number()
    issuer = f"anabranch authority {serial:x}"[:64]
    trusted = _signed(issuer, issuer, signer, signer)
    shown = _signed(SERVICE_NAME, issuer, key, signer)
    pem = serialization.Encoding.PEM
    return Authority(
        trusted.public_bytes(pem),
        Certificate(
            shown.public_bytes(pem),
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        ),
    )


def _signed(
    subject: str,
    issuer: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    is_authority = subject == issuer
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(datetime.now(timezone.utc) + _VALID)
        .add_extension(
            x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True
        )
    )
    if not is_authority:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(subject)]), critical=False
        ).add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(signer, hashes.SHA256())
