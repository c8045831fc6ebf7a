"""How far somebody comes at a listener of a broker, kohort's or Kafka's: TLS and SASL by hand."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from kohort.client.sasl import Credentials, exchange
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from wire import WireClient


@dataclass(frozen=True)
class Visit:
    """Who comes, and how; without an authority in plain text, without a mechanism without a login."""

    listener: str
    authority: Path | None = None
    certificate: Path | None = None
    mechanism: str | None = None
    user: str = "alice"
    password: str = ""


class _Wrapped(WireClient):
    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._correlation_id = 0


def outcome(port: int, visit: Visit) -> str:
    """`in`, with the name in the broker's certificate where there is one, or why not."""
    try:
        with socket.create_connection(("127.0.0.1", port), 30) as plain:
            if visit.authority is None:
                return _logged_in(plain, visit)
            context = ssl.create_default_context(cafile=str(visit.authority))
            if visit.certificate is not None:
                context.load_cert_chain(str(visit.certificate))
            with context.wrap_socket(plain, server_hostname="localhost") as wrapped:
                found = wrapped.getpeercert() or {}
                name = dict(part[0] for part in found["subject"])["commonName"]  # type: ignore[union-attr, misc]
                said = _logged_in(wrapped, visit)
                return f"{said}, met {name}" if said == "in" else said
    except ssl.SSLCertVerificationError:
        return "does not trust the broker"
    except (ssl.SSLError, ConnectionError, EOFError):
        return "closed"


def _logged_in(connection: socket.socket, visit: Visit) -> str:
    client = _Wrapped(connection)
    if visit.mechanism is not None:
        answer = client.call(messages.SaslHandshakeRequest(mechanism=visit.mechanism), 1)
        if answer.error_code:
            return f"{ErrorCode(answer.error_code).name}, {sorted(answer.mechanisms)}"
        steps = exchange(Credentials(visit.mechanism, visit.user, visit.password), "a nonce of the test")
        message = next(steps)
        try:
            while True:
                answer = client.call(messages.SaslAuthenticateRequest(auth_bytes=message), 2)
                if answer.error_code:
                    return ErrorCode(answer.error_code).name
                message = steps.send(bytes(answer.auth_bytes))
        except StopIteration:
            pass
    client.call(messages.MetadataRequest(topics=[]), 9)
    return "in"
