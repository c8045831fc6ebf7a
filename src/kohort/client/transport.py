"""A connection over asyncio: bytes from the socket to the sans-IO connection and back. No retries, no metadata."""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
from collections.abc import Callable
from typing import Any

from kohort.client.config import Config
from kohort.client.connection import Connection
from kohort.client.errors import KafkaTimeoutError, NotConnectedError
from kohort.client.sasl import credentials
from kohort.client.security import ssl_context
from kohort.protocol.apis import ApiKey
from kohort.protocol.errors import KafkaError


class AsyncTransport(asyncio.BufferedProtocol):
    def __init__(self, name: str, config: Config, on_close: Callable[[AsyncTransport, str], None]) -> None:
        self.connection = Connection(
            name,
            config.client_id,
            credentials(config),
            secrets.token_urlsafe(24),
            config["receive.message.max.bytes"],
        )
        self.last_used = 0.0
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._token = 0
        self._waiting: dict[int, tuple[asyncio.Future[Any], asyncio.TimerHandle]] = {}

    @classmethod
    async def open(
        cls, host: str, port: int, config: Config, on_close: Callable[[AsyncTransport, str], None]
    ) -> AsyncTransport:
        """Connected, versions known, authenticated; NotConnectedError or AuthenticationError else."""
        name = f"{host}:{port}"
        loop = asyncio.get_running_loop()
        context = ssl_context(config)
        made = cls(name, config, on_close)
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
            async with asyncio.timeout(config.request_timeout_ms / 1000):
                await made._ready
        except TimeoutError:
            made.close(f"no answer to ApiVersions within {config.request_timeout_ms / 1000:g} s")
            raise KafkaTimeoutError(f"{name}: {made.closed}") from None
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

    @property
    def name(self) -> str:
        return self.connection.name

    @property
    def closed(self) -> str | None:
        return self.connection.closed

    # -- requests -----------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        return self.connection.in_flight

    async def request(self, request: Any, timeout_ms: int, min_version: int = 0, max_version: int | None = None) -> Any:
        """A request that times out takes the connection with it, as answers come in order."""
        self._token += 1
        self.connection.send(self._token, request, min_version, max_version)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[self._token] = (
            future,
            self._loop.call_later(timeout_ms / 1000, self._timed_out, request, timeout_ms),
        )
        self._flush()
        return await future

    def send_only(self, request: Any, max_version: int | None = None) -> None:
        """A request that gets no answer: Produce with acks=0."""
        self.connection.send(0, request, 0, max_version, answered=False)
        self._flush()

    def _flush(self) -> None:
        self.last_used = self._loop.time()
        output = self.connection.take_output()
        if output and self._transport is not None:
            self._transport.write(output)

    def _timed_out(self, request: Any, timeout_ms: int) -> None:
        reason = f"no answer to {ApiKey(request.API_KEY).title} within {timeout_ms / 1000:g} s"
        self.close(reason, KafkaTimeoutError(reason))

    # -- asyncio.BufferedProtocol -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self.connection.start()
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.connection.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            answers = self.connection.received(nbytes)
        except KafkaError as error:
            self.close(str(error), error)
            return
        self._flush()
        for token, response in answers:
            future, timer = self._waiting.pop(token)
            timer.cancel()
            if not future.done():
                future.set_result(response)
        if self.connection.ready and not self._ready.done():
            self._ready.set_result(None)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(f"{self.name} closed the connection" + (f": {exc}" if exc else ""))

    def close(self, reason: str = "closed", error: KafkaError | None = None) -> None:
        if self.connection.closed is not None:
            return
        self.connection.close(reason)
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, {}
        error = error or NotConnectedError(reason)
        for future, timer in waiting.values():
            timer.cancel()
            if not future.done():
                future.set_exception(error)
                future.exception()
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()
        self._on_close(self, reason)
