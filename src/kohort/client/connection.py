"""One connection to one broker: frames in and out, versions negotiated, authenticated. No retries, no metadata."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kohort.client.compat import downgrade, upgrade
from kohort.client.config import Config
from kohort.client.errors import KafkaTimeoutError, NotConnectedError
from kohort.client.sasl import authenticate
from kohort.client.security import ssl_context
from kohort.protocol.apis import ApiKey
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.frames import decode_response, encode_request
from kohort.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from kohort.protocol.wire import DecodeError

API_VERSIONS_VERSION = 3
MAX_FRAME = 2**31 - 1
SMALL_READ = 64 * 1024

_SIZE = struct.Struct(">i")


@dataclass(slots=True)
class _Waiting:
    correlation_id: int
    request: Any
    version: int
    future: asyncio.Future[Any]
    timer: asyncio.TimerHandle | None


class Connection(asyncio.BufferedProtocol):
    """Large answers are received straight into a buffer of their own size: no copies on the way to the decoder."""

    def __init__(self, name: str, client_id: str, on_close: Callable[[Connection, str], None]) -> None:
        self.name = name
        self.versions: dict[int, tuple[int, int]] = {}
        self.closed: str | None = None
        self.last_used = 0.0
        self._client_id = client_id
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._waiting: deque[_Waiting] = deque()
        self._small = bytearray(SMALL_READ)
        self._held = 0
        self._frame: bytearray | None = None
        self._filled = 0

    @classmethod
    async def open(
        cls, host: str, port: int, config: Config, on_close: Callable[[Connection, str], None]
    ) -> Connection:
        """Connected, versions known, authenticated; NotConnectedError or AuthenticationError else."""
        name = f"{host}:{port}"
        loop = asyncio.get_running_loop()
        context = ssl_context(config)
        made = cls(name, config.client_id, on_close)
        patience = config.socket_connection_setup_timeout_ms / 1000
        try:
            async with asyncio.timeout(patience):
                await loop.create_connection(
                    lambda: made,
                    host,
                    port,
                    ssl=context,
                    server_hostname=host if context is not None and context.check_hostname else None,
                )
        except TimeoutError:
            raise NotConnectedError(f"no connection to {name} within {patience:g} s") from None
        except ssl.SSLError as error:
            raise NotConnectedError(f"TLS with {name} failed: {error}") from None
        except OSError as error:
            raise NotConnectedError(f"cannot connect to {name}: {error.strerror or error}") from None
        try:
            made._tune(config)
            await made._negotiate(config.request_timeout_ms)
            await authenticate(made, config)
        except BaseException as error:
            made.close(str(error))
            raise
        return made

    def _tune(self, config: Config) -> None:
        sock: socket.socket | None = self._transport.get_extra_info("socket") if self._transport else None
        if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, name in ((socket.SO_RCVBUF, "receive.buffer.bytes"), (socket.SO_SNDBUF, "send.buffer.bytes")):
            if config.is_given(name) and config[name] > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, config[name])

    # -- requests -----------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def version_for(self, request: Any, min_version: int = 0, max_version: int | None = None) -> int:
        """The newest version that both sides and the caller's limits allow."""
        low, high = self.versions.get(request.API_KEY, (0, -1))
        low = max(low, request.MIN_VERSION, min_version)
        high = min(high, request.MAX_VERSION, request.MAX_VERSION if max_version is None else max_version)
        if low > high:
            title = ApiKey(request.API_KEY).title
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.name} does not speak {title} in a version that is needed here (at least {low})",
            )
        return high

    async def request(self, request: Any, timeout_ms: int, min_version: int = 0, max_version: int | None = None) -> Any:
        version = self.version_for(request, min_version, max_version)
        return upgrade(request, await self.send(request, version, timeout_ms), version)

    def send(self, request: Any, version: int, timeout_ms: int) -> asyncio.Future[Any]:
        """The answer to come; a request that times out takes the connection with it, as answers come in order."""
        if self.closed is not None or self._transport is None:
            raise NotConnectedError(f"the connection to {self.name} is closed: {self.closed}")
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        future: asyncio.Future[Any] = self._loop.create_future()
        self.last_used = self._loop.time()
        parts = encode_request(self._correlation_id, self._client_id, version, downgrade(request, version))
        timer = self._loop.call_later(timeout_ms / 1000, self._timed_out, request, timeout_ms)
        self._waiting.append(_Waiting(self._correlation_id, request, version, future, timer))
        self._transport.write(b"".join(parts))
        return future

    def send_only(self, request: Any, max_version: int | None = None) -> None:
        """A request that gets no answer: Produce with acks=0."""
        if self.closed is not None or self._transport is None:
            raise NotConnectedError(f"the connection to {self.name} is closed: {self.closed}")
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self.last_used = self._loop.time()
        version = self.version_for(request, 0, max_version)
        self._transport.write(b"".join(encode_request(self._correlation_id, self._client_id, version, request)))

    def _timed_out(self, request: Any, timeout_ms: int) -> None:
        self.close(f"no answer to {ApiKey(request.API_KEY).title} within {timeout_ms / 1000:g} s")

    async def _negotiate(self, timeout_ms: int) -> None:
        """ApiVersions; a broker that is too old for our version of it answers with what it has (KIP-511)."""
        request = ApiVersionsRequest(client_software_name="kohort", client_software_version="0.1.0")
        response = await self.send(request, API_VERSIONS_VERSION, timeout_ms)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = await self.send(ApiVersionsRequest(), 0, timeout_ms)
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code), f"{self.name} refused ApiVersions")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    # -- asyncio.BufferedProtocol -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return memoryview(self._small)[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        try:
            if self._frame is not None:
                self._filled += nbytes
                if self._filled == len(self._frame):
                    frame, self._frame = self._frame, None
                    self._answer(frame)
            else:
                self._held += nbytes
                self._split()
        except (DecodeError, KafkaError) as error:
            self.close(f"{self.name} sent what is not Kafka's protocol: {error}")

    def _split(self) -> None:
        pos, held = 0, self._held
        small = memoryview(self._small)
        while held - pos >= 4:
            (size,) = _SIZE.unpack_from(small, pos)
            if not 4 <= size <= MAX_FRAME:
                raise DecodeError(f"an answer of {size} bytes")
            end = pos + 4 + size
            if end > held:
                if size + 4 > SMALL_READ // 2:
                    self._frame = bytearray(size)
                    self._filled = held - pos - 4
                    self._frame[: self._filled] = small[pos + 4 : held]
                    pos = held
                break
            self._answer(bytes(small[pos + 4 : end]))
            pos = end
        if pos:
            small[: held - pos] = bytes(small[pos:held])
        self._held = held - pos

    def _answer(self, frame: bytes | bytearray) -> None:
        if not self._waiting:
            raise DecodeError("an answer that nobody asked for")
        waiting = self._waiting.popleft()
        if waiting.timer is not None:
            waiting.timer.cancel()
        if _SIZE.unpack_from(frame)[0] != waiting.correlation_id:
            self._waiting.appendleft(waiting)
            raise DecodeError("an answer to another question")
        if waiting.future.done():
            return
        try:
            waiting.future.set_result(self._decode(frame, waiting))
        except DecodeError as error:
            waiting.future.set_exception(NotConnectedError(f"{self.name}: {error}"))
            raise

    @staticmethod
    def _decode(frame: bytes | bytearray, waiting: _Waiting) -> Any:
        response = ApiKey(waiting.request.API_KEY).response
        unsupported = frame[4:6] == b"\x00\x23"
        if response is ApiVersionsResponse and waiting.version > 0 and unsupported:
            return response.decode(frame, 0, 4)
        return decode_response(frame, waiting.version, response)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"{self.name} closed the connection" + (f": {exc}" if exc else ""))

    def close(self, reason: str = "closed") -> None:
        if self._transport is not None:
            self._transport.abort()
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        if self.closed is not None:
            return
        self.closed = reason
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            if one.timer is not None:
                one.timer.cancel()
            if not one.future.done():
                timed_out = reason.startswith("no answer")
                one.future.set_exception(KafkaTimeoutError(reason) if timed_out else NotConnectedError(reason))
                one.future.exception()
        self._on_close(self, reason)
