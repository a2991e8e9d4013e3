"""What failed connections say about certificates; Arrow calls them all "unavailable"."""

from __future__ import annotations

import socket
import ssl
from datetime import datetime, timezone

_PROBE_SECONDS = 1.0


def why_refused(message: str, address: str, is_encrypted: bool) -> str | None:
    """What is wrong with the certificates of a connection that failed with Arrow's message.

    None: nothing, as far as it is known; the other end is just not there. The message has the words
    of OpenSSL or BoringSSL.
    """
    text = message.lower().replace("_", " ")
    if not is_encrypted:
        if "socket closed" in text and "failed to connect" in text and speaks_tls(address):
            return (
                "it speaks TLS, and this process was given no certificate authority to trust. Use "
                "the token file, or the closure, of the running service."
            )
        return None
    if "wrong version number" in text:
        return (
            "it does not speak TLS, and the service of this process does. Something else listens "
            "at that address, or a service with tls=False."
        )
    if "is not in peer certificate" in text:
        return "its certificate is not that of a state service. Something else listens there."
    if "expired" in text or "not yet valid" in text:
        return f"its certificate is not valid now ({_now()} here). Set the clock of this host."
    if "ssl handshake failed" in text or "certificate verify failed" in text:
        return (
            "its certificate is not signed by the authority that this process trusts. Another "
            "service listens at that address, or the service was started again: use the token "
            "file of the running one."
        )
    return None


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def speaks_tls(address: str) -> bool:
    """Whether a server that hangs up on plain calls answers a TLS handshake."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), _PROBE_SECONDS) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except (OSError, ValueError):
        return False
