"""A connection over asyncio: bytes from the socket to the sans-IO connection and back. It decides nothing."""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
import ssl
from collections.abc import Callable
from typing import Any

from kohort.client.config import Config
from kohort.client.connection import Answer, Connection
from kohort.client.errors import AuthenticationError, NotConnectedError
from kohort.client.renewal import EARLIEST, LATEST, Renewal
from kohort.client.sasl import OAUTHBEARER, Credentials
from kohort.client.tokens import credentials
from kohort.protocol.errors import KafkaError

JOIN_BELOW = 65_536


class AsyncTransport(asyncio.BufferedProtocol):
    """Tells when it is ready for requests, what was answered, and (once) that it is over and why."""

    def __init__(
        self,
        name: str,
        config: Config,
        on_ready: Callable[[], None],
        on_answers: Callable[[list[Answer]], None],
        on_closed: Callable[[KafkaError], None],
    ) -> None:
        self.connection = Connection(
            name,
            config["client.id"],
            None if config["sasl.mechanism"] == OAUTHBEARER else credentials(config),
            secrets.token_urlsafe(24),
            config["receive.message.max.bytes"],
        )
        self._renewal = Renewal(self.connection, random.uniform(EARLIEST, LATEST))
        self._renewing: asyncio.Task[None] | None = None
        self._config = config
        self._on_ready = on_ready
        self._on_answers = on_answers
        self._on_closed = on_closed
        self._transport: asyncio.WriteTransport | None = None

    async def open(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        """Connects; the handshake follows by itself. NotConnectedError where that fails."""
        name = self.connection.name
        loop = asyncio.get_running_loop()
        if self._config["sasl.mechanism"] == OAUTHBEARER:
            self.connection.credentials = await self._credentials()
        server_hostname = host if context is not None and context.check_hostname else None
        try:
            await loop.create_connection(lambda: self, host, port, ssl=context, server_hostname=server_hostname)
        except ssl.SSLError as error:
            raise NotConnectedError(f"TLS with {name} failed: {error}") from None
        except OSError as error:
            raise NotConnectedError(f"cannot connect to {name}: {error.strerror or error}") from None

    def send(self, token: int, request: Any, min_version: int, max_version: int | None, answered: bool) -> None:
        if self.connection.session_lifetime_ms:
            loop = asyncio.get_running_loop()
            if self._renewal.is_due(loop.time()):
                self.connection.hold()
                self._renewing = loop.create_task(self._renew())
        self.connection.send(token, request, min_version, max_version, answered=answered)
        self._flush()

    async def _renew(self) -> None:
        """A new token may have to be asked for first; requests wait in the connection."""
        failure: KafkaError | None = None
        try:
            given = await self._credentials()
            if given is not None and self.connection.closed is None:
                self.connection.renew(given)
                self._flush()
        except KafkaError as error:
            failure = error
        except Exception as error:  # of a function of the user's
            failure = AuthenticationError(f"no new token for {self.connection.name}: {error!r}")
        self._renewing = None
        if failure is not None:
            self._fail(failure)

    async def _credentials(self) -> Credentials | None:
        if self._config["sasl.mechanism"] != OAUTHBEARER:
            return credentials(self._config)
        # A new token may have to be asked for, and that blocks.
        return await asyncio.to_thread(credentials, self._config)

    def _flush(self) -> None:
        parts = self.connection.take_parts()
        if not parts or self._transport is None:
            return
        if sum(map(len, parts)) < JOIN_BELOW:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)

    def close(self, reason: str) -> None:
        """By our own wish: nobody is told."""
        self.connection.close(reason)
        if self._renewing is not None:
            self._renewing.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: KafkaError) -> None:
        if self.connection.closed is None:
            self.close(str(error))
            self._on_closed(error)

    # -- asyncio.BufferedProtocol -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if self.connection.closed is not None:
            self.close(self.connection.closed)
            return
        self._tune()
        self.connection.start()
        self._flush()

    def _tune(self) -> None:
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, name in ((socket.SO_RCVBUF, "receive.buffer.bytes"), (socket.SO_SNDBUF, "send.buffer.bytes")):
            if self._config.is_given(name) and self._config[name] > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, self._config[name])

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.connection.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        shaking_hands, was_ready = self.connection.is_shaking_hands, self.connection.ready
        try:
            answers = self.connection.received(nbytes)
        except KafkaError as error:
            self._fail(error)
            return
        if shaking_hands:
            self._flush()
            self._renewal.noticed(asyncio.get_running_loop().time())
            if self.connection.ready and not was_ready:
                self._on_ready()
        if answers:
            self._on_answers(answers)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        why = f": {exc}" if exc else ""
        self._fail(NotConnectedError(f"{self.connection.name} closed the connection{why}"))
