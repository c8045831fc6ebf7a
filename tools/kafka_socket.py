"""One blocking connection that speaks the Kafka protocol with kohort's codec: for conformance tests and benchmarks.

No retries, no cluster awareness, no threads: what is sent and received is what the caller says.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any

from kohort.protocol import messages
from kohort.protocol.frames import decode_response, encode_request

_SIZE = struct.Struct(">i")


def request_frame(message: Any, version: int, correlation_id: int = 0, client_id: str = "kafka-socket") -> bytes:
    return b"".join(encode_request(correlation_id, client_id, version, message))


def response_class(request: Any) -> Any:
    """JoinGroupRequest, an instance or the class -> JoinGroupResponse."""
    cls = request if isinstance(request, type) else type(request)
    return getattr(messages, cls.__name__.removesuffix("Request") + "Response")


class KafkaSocket:
    """Requests out, responses in, in order. `in_flight` remembers what each response answers."""

    def __init__(self, bootstrap_servers: str, *, timeout: float = 60.0, client_id: str = "kafka-socket") -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self.in_flight: list[tuple[Any, int]] = []
        self._correlation_id = 0

    def __enter__(self) -> KafkaSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: Any, version: int) -> None:
        self._correlation_id += 1
        self.socket.sendall(request_frame(message, version, self._correlation_id, self.client_id))
        self.in_flight.append((response_class(message), version))

    def receive(self) -> Any:
        """The answer to the oldest request in flight."""
        cls, version = self.in_flight.pop(0)
        return decode_response(self.receive_frame(), version, cls)

    def receive_frame(self) -> bytes:
        return self._exactly(_SIZE.unpack(self._exactly(4))[0])

    def call(self, message: Any, version: int) -> Any:
        self.send(message, version)
        return self.receive()

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        while filled < size:
            count = self.socket.recv_into(view[filled:])
            if count == 0:
                raise ConnectionError("the broker closed the connection")
            filled += count
        return bytes(data)
