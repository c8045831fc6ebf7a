"""One blocking connection to one broker, and the connections a worker process keeps between tasks.

Executor workers live long and read one range at a time, so plain sockets serve them best: no event loop, no threads.
A connection is taken from the pool, used by one reader, and given back; one with an answer still under way is closed.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
from collections import deque
from struct import Struct
from typing import Any

from kohort.client.config import Config
from kohort.protocol import frames
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, Message
from kohort.protocol.wire import DecodeError

_SIZE = Struct(">i")
_MAX_FRAME = 2**31 - 1
_MOST_KEPT = 8 * 1024 * 1024
API_VERSIONS_V0_ERROR = ErrorCode.UNSUPPORTED_VERSION


class ConnectionLost(ConnectionError):
    """The broker cannot be reached or went away: look up who serves the partition now, and try again."""


class Connection:
    """Requests out, responses in, in order. Versions are agreed with the broker at the start."""

    def __init__(self, host: str, port: int, config: Config) -> None:
        self.host, self.port = host, port
        self._client_id = config["client.id"]
        self._correlation_id = 0
        self._waiting: deque[tuple[int, int, type[Message]]] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self._memory = bytearray()
        self.closed = False
        try:
            self._socket = self._connect(host, port, config)
        except (OSError, ssl.SSLError) as error:
            raise ConnectionLost(f"{host}:{port}: {error}") from error
        try:
            self._agree_on_versions()
            if config["security.protocol"].startswith("SASL"):
                from kohort.spark.authentication import authenticate

                authenticate(self, config)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _connect(host: str, port: int, config: Config) -> socket.socket:
        sock = socket.create_connection((host, port), config["socket.connection.setup.timeout.ms"] / 1000)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, option in (("receive.buffer.bytes", socket.SO_RCVBUF), ("send.buffer.bytes", socket.SO_SNDBUF)):
            if config.is_given(name) and config[name] > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, config[name])
        sock.settimeout(config["request.timeout.ms"] / 1000)
        if config["security.protocol"].endswith("SSL"):
            from kohort.client.security import ssl_context

            context = ssl_context(config)
            return context.wrap_socket(sock, server_hostname=host)
        return sock

    def _agree_on_versions(self) -> None:
        for version in (3, 0):
            self.send(ApiVersionsRequest(client_software_name="kohort", client_software_version="0"), version)
            response = self.receive()
            if response.error_code != API_VERSIONS_V0_ERROR:
                break
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code))
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    # -- requests ------------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """No answer is under way: another reader may use it."""
        return not self._waiting

    def version_of(self, request: type[Message], most: int | None = None) -> int:
        """The newest version both sides speak."""
        low, high = self._versions.get(request.API_KEY, (0, -1))
        version = min(high, request.MAX_VERSION if most is None else most)
        if version < max(low, request.MIN_VERSION):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.host}:{self.port} speaks {request.__name__} {low} to {high}, which this client does not",
            )
        return version

    def send(self, request: Message, version: int) -> None:
        from kohort.protocol import messages

        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts = frames.encode_request(self._correlation_id, self._client_id, version, request)
        response = getattr(messages, type(request).__name__.removesuffix("Request") + "Response")
        try:
            self._socket.sendall(b"".join(parts))
        except OSError as error:
            raise self._lost(error) from error
        self._waiting.append((self._correlation_id, version, response))

    def receive(self, *, lasting: bool = True) -> Any:
        """The answer to the oldest request not yet answered.

        One that need not last holds records only until the next is received: both share the connection's memory.
        """
        correlation_id, version, response = self._waiting[0]
        frame = self._frame(lasting)
        self._waiting.popleft()
        if frames.response_correlation_id(frame) != correlation_id:
            raise self._lost("an answer to another request")
        try:
            if response is ApiVersionsResponse and frame[4:6] == b"\0\x23":
                # A broker that does not know the version asked for answers with version 0.
                version = 0
            return frames.decode_response(frame, version, response)
        except DecodeError as error:
            raise self._lost(error) from error

    def call(self, request: Message, version: int) -> Any:
        self.send(request, version)
        return self.receive()

    def _frame(self, lasting: bool) -> memoryview:
        try:
            (size,) = _SIZE.unpack(self._fill(memoryview(bytearray(4))))
            if not 4 <= size <= _MAX_FRAME:
                raise ConnectionResetError(f"a frame of {size} bytes")
            return self._fill(memoryview(bytearray(size)) if lasting else self._kept(size))
        except OSError as error:
            raise self._lost(error) from error

    def _kept(self, size: int) -> memoryview:
        """Memory that has been in use is much cheaper than fresh memory."""
        if size > _MOST_KEPT:
            return memoryview(bytearray(size))
        if len(self._memory) < size:
            self._memory = bytearray(size)
        return memoryview(self._memory)[:size]

    def _fill(self, view: memoryview) -> memoryview:
        filled = 0
        while filled < len(view):
            count = self._socket.recv_into(view[filled:])
            if count == 0:
                raise ConnectionResetError("closed by the broker")
            filled += count
        return view

    @property
    def socket(self) -> socket.socket:
        """To wait on with others; reading and writing stay in here."""
        return self._socket

    def readable(self) -> bool:
        """Whether there is something to read right now."""
        return bool(getattr(self._socket, "pending", int)()) or has_input(self._socket)

    def _lost(self, why: object) -> ConnectionLost:
        self.close()
        return ConnectionLost(f"{self.host}:{self.port}: {why}")

    def close(self) -> None:
        self.closed = True
        self._waiting.clear()
        self._socket.close()


class Pool:
    """Idle connections by broker and settings. Belongs to one process: a fork begins with an empty one."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._idle: dict[tuple[object, ...], list[Connection]] = {}

    def take(self, host: str, port: int, config: Config) -> Connection:
        if self._owner != os.getpid():
            self._owner, self._idle = os.getpid(), {}
        waiting = self._idle.get(self._key(host, port, config))
        while waiting:
            connection = waiting.pop()
            if not has_input(connection.socket):
                return connection
            connection.close()
        return Connection(host, port, config)

    def give_back(self, connection: Connection, config: Config) -> None:
        if connection.closed:
            return
        if not connection.idle or self._owner != os.getpid():
            connection.close()
            return
        self._idle.setdefault(self._key(connection.host, connection.port, config), []).append(connection)

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    @staticmethod
    def _key(host: str, port: int, config: Config) -> tuple[object, ...]:
        return (host, port, config["client.id"], *(str(config[name]) for name in _IDENTITY))


_IDENTITY = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "ssl.cafile",
    "ssl.certfile",
    "receive.buffer.bytes",
)


def has_input(sock: socket.socket) -> bool:
    """Whether there is something to read; for an idle connection, that the other side closed it."""
    poll = select.poll()
    try:
        poll.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    except (OSError, ValueError):
        return True
    return bool(poll.poll(0))


POOL = Pool()
