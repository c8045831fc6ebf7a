"""SASL over a blocking connection: the client's exchange, whose every step answers at once here."""

from __future__ import annotations

from typing import Any

from kohort.client import sasl
from kohort.client.config import Config
from kohort.spark.connection import Connection


class _AnsweringAtOnce:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.name = f"{connection.host}:{connection.port}"

    async def request(self, request: Any, timeout_ms: int) -> Any:
        return self._connection.call(request, self._connection.version_of(type(request)))


def authenticate(connection: Connection, config: Config) -> None:
    """AuthenticationError where the broker refuses."""
    exchange = sasl.authenticate(_AnsweringAtOnce(connection), config)
    try:
        exchange.send(None)
    except StopIteration:
        return
    raise AssertionError("nothing in the exchange waits")
