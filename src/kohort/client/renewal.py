"""When a session of SASL is to be renewed (KIP-368): before most of it is over, with the next request. Pure.

Kafka's own client does it at 85 to 95 % of the time; a connection on which nothing is asked any more is left to end.
"""

from __future__ import annotations

from kohort.client.connection import Connection, Phase

EARLIEST, LATEST = 0.85, 0.95
"""Of the lifetime: somewhere between, so that not all connections do it at once."""
_NEVER = float("inf")


class Renewal:
    def __init__(self, connection: Connection, share: float) -> None:
        """`share` of a session's lifetime is used."""
        self._connection = connection
        self._share = share
        self._logins = 0
        self._due_s = _NEVER

    def noticed(self, now_s: float) -> None:
        """Something was received: perhaps that a session has begun."""
        if self._connection.logins != self._logins:
            self._logins = self._connection.logins
            lifetime_s = self._connection.session_lifetime_ms / 1000
            self._due_s = now_s + lifetime_s * self._share if lifetime_s > 0 else _NEVER

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._due_s and self._connection.phase is Phase.READY
