"""A connection over a blocking socket, for threads that do one thing at a time. Versions, frames: see `connection`.

Errors of the socket are NotConnectedError. No retries and no pool in here.
"""

from __future__ import annotations

import random
import secrets
import select
import socket
import ssl
import time
from collections import deque
from typing import Any

from kohort.client.config import Config
from kohort.client.connection import Answer, Connection
from kohort.client.errors import KafkaTimeoutError, NotConnectedError
from kohort.client.renewal import EARLIEST, LATEST, Renewal
from kohort.client.security import ssl_context
from kohort.client.tokens import credentials
from kohort.protocol.errors import KafkaError


class BlockingTransport:
    """Connected and authenticated when it is made. Answers come in the order of the requests."""

    def __init__(self, host: str, port: int, config: Config) -> None:
        self.host, self.port = host, port
        self.connection = Connection(
            f"{host}:{port}",
            config["client.id"],
            credentials(config),
            secrets.token_urlsafe(24),
            config["receive.message.max.bytes"],
        )
        self._config = config
        self._renewal = Renewal(self.connection, random.uniform(EARLIEST, LATEST))
        self._answers: deque[Answer] = deque()
        self._token = 0
        self._socket = self._connect(config)
        try:
            self.connection.start()
            self._flush()
            while not self.connection.ready:
                self._receive_some()
            self._socket.settimeout(config["request.timeout.ms"] / 1000)
        except (NotConnectedError, KafkaTimeoutError) as error:
            raise NotConnectedError(f"{error.message}, before its first answer; {_doubt(config)}") from error
        except BaseException as error:
            self.close(str(error))
            raise

    def _connect(self, config: Config) -> socket.socket:
        """Its timeout stays that of the set-up until the other side has shown that it speaks as we do."""
        try:
            sock = socket.create_connection((self.host, self.port), config["socket.connection.setup.timeout.ms"] / 1000)
        except OSError as error:
            raise NotConnectedError(f"{self.name}: {error}") from error
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, option in (("receive.buffer.bytes", socket.SO_RCVBUF), ("send.buffer.bytes", socket.SO_SNDBUF)):
                if config.is_given(name) and config[name] > 0:
                    sock.setsockopt(socket.SOL_SOCKET, option, config[name])
            context = ssl_context(config)
            return sock if context is None else context.wrap_socket(sock, server_hostname=self.host)
        except ssl.SSLCertVerificationError as error:
            sock.close()
            raise NotConnectedError(f"{self.name}: {error}") from error
        except (OSError, ssl.SSLError) as error:
            sock.close()
            raise NotConnectedError(f"{self.name}: {error}; {_doubt(config)}") from error

    @property
    def name(self) -> str:
        return self.connection.name

    @property
    def closed(self) -> bool:
        return self.connection.closed is not None

    @property
    def idle(self) -> bool:
        """No answer is under way: another reader may use it."""
        return self.connection.in_flight == 0 and not self._answers

    # -- one request after another ------------------------------------------------------------------------------------

    def send(self, request: Any, max_version: int | None = None, *, lasting: bool = True) -> None:
        self._token += 1
        self.send_as(self._token, request, 0, max_version, lasting=lasting)

    def receive(self) -> Any:
        """The answer to the oldest request not yet answered."""
        while not self._answers:
            self._receive_some()
        return self._answers.popleft().response

    def call(self, request: Any, max_version: int | None = None) -> Any:
        self.send(request, max_version)
        return self.receive()

    # -- for whoever waits on several ---------------------------------------------------------------------------------

    def send_as(
        self, token: int, request: Any, min_version: int = 0, max_version: int | None = None, *, lasting: bool = True
    ) -> None:
        """`take_answers` will give the answer under `token`."""
        if self.connection.session_lifetime_ms and self._renewal.is_due(time.monotonic()):
            given = credentials(self._config)
            assert given is not None
            self.connection.renew(given)
        self.connection.send(token, request, min_version, max_version, lasting=lasting)
        self._flush()

    def take_answers(self) -> list[Answer]:
        """What has arrived; waits where nothing has."""
        self._receive_some()
        while getattr(self._socket, "pending", int)():
            self._receive_some()
        answers = list(self._answers)
        self._answers.clear()
        return answers

    @property
    def socket(self) -> socket.socket:
        """To wait on with others; reading and writing stay in here."""
        return self._socket

    # -- the socket ---------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        try:
            self._socket.sendall(self.connection.take_output())
        except OSError as error:
            raise self._lost(error) from error

    def _receive_some(self) -> None:
        try:
            shaking_hands = self.connection.is_shaking_hands
            count = self._socket.recv_into(self.connection.get_buffer())
            if count == 0:
                raise self._lost("closed by the broker")
            self._answers.extend(self.connection.received(count))
            output = self.connection.take_output()
            if output:
                self._socket.sendall(output)
            if shaking_hands:
                self._renewal.noticed(time.monotonic())
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            self.close("no answer in time")
            raise KafkaTimeoutError(f"{self.name}: no answer within {self._socket.gettimeout() or 0:g} s") from None
        except OSError as error:
            raise self._lost(error) from error
        except KafkaError as error:
            self.close(str(error))
            raise

    def _lost(self, why: object) -> NotConnectedError:
        self.close(str(why))
        return NotConnectedError(f"{self.name}: {why}")

    def close(self, reason: str = "closed") -> None:
        self.connection.close(reason)
        self._answers.clear()
        self._socket.close()


def _doubt(config: Config) -> str:
    return f"security.protocol={config['security.protocol']}: is that what this port speaks?"


def has_input(sock: socket.socket) -> bool:
    """Whether there is something to read; for an idle connection, that the other side closed it."""
    poll = select.poll()
    try:
        poll.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    except (OSError, ValueError):
        return True
    return bool(poll.poll(0))
