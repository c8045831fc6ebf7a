"""The connections a worker process keeps between tasks.

Executor workers live long and read one range at a time, so blocking sockets serve them best: no event loop, no threads.
A connection is taken from the pool, used by one reader, and given back; one with an answer still under way is closed.
"""

from __future__ import annotations

import os

from kohort.client.blocking import BlockingTransport, has_input
from kohort.client.config import Config


class Pool:
    """Idle connections by broker and settings. Belongs to one process: a fork begins with an empty one."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._idle: dict[tuple[object, ...], list[BlockingTransport]] = {}

    def take(self, host: str, port: int, config: Config) -> BlockingTransport:
        if self._owner != os.getpid():
            self._owner, self._idle = os.getpid(), {}
        waiting = self._idle.get(self._key(host, port, config))
        while waiting:
            transport = waiting.pop()
            if not has_input(transport.socket):
                return transport
            transport.close()
        return BlockingTransport(host, port, config)

    def give_back(self, transport: BlockingTransport, config: Config) -> None:
        if transport.closed:
            return
        if not transport.idle or self._owner != os.getpid():
            transport.close()
            return
        self._idle.setdefault(self._key(transport.host, transport.port, config), []).append(transport)

    def close(self) -> None:
        for transports in self._idle.values():
            for transport in transports:
                transport.close()
        self._idle.clear()

    @staticmethod
    def _key(host: str, port: int, config: Config) -> tuple[object, ...]:
        return (host, port, config["client.id"], *(str(config[name]) for name in _IDENTITY))


_IDENTITY = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.token.provider",
    "ssl.cafile",
    "ssl.certfile",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "receive.buffer.bytes",
)

POOL = Pool()
