"""Answers to clients that are over their quota (KIP-219): they are told how long to wait, and not read from until then.

What a quota is, and who is over it, is in `quotas.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.broker.quotas import FETCH, PRODUCE, REQUEST_TIME
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.connection import Call, Connection
    from kohort.broker.core import Core


def throttle(core: Core, call: Call, response: Any) -> None:
    """Before an answer is written; None stands for that of a request that has none."""
    wait_ms = max(_over(core, call, REQUEST_TIME, 0), getattr(response, "throttle_time_ms", 0))
    if call.entry.name == "Produce":
        wait_ms = max(wait_ms, _over(core, call, PRODUCE, call.size))
    if wait_ms:
        mute(call.connection, core.topics.now_ms + wait_ms)
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = wait_ms


def mute(connection: Connection, until_ms: int) -> None:
    connection.muted_until_ms = max(connection.muted_until_ms, until_ms)


def fetch_wait_ms(core: Core, call: Call, size: int) -> int:
    """0 where records of that size may be sent; else how long their client has to wait for them."""
    wait_ms = _over(core, call, FETCH, size)
    if wait_ms:
        connection, now_ms = call.connection, core.topics.now_ms
        core.quotas.give_back(FETCH, connection.principal, connection.client_id, size, now_ms)
    return wait_ms


def _over(core: Core, call: Call, key: str, used: float) -> int:
    connection = call.connection
    return core.quotas.throttle_ms(key, connection.principal, connection.client_id, used, core.topics.now_ms)


class Mutations:
    """The partitions that one request makes or removes, against the quota of its client (KIP-599). Before a certain
    version clients do not know the refusal: they are only made to wait. A request that is asked once more, as those
    are that change a cluster, is not counted once more."""

    def __init__(self, core: Core, call: Call, strict_since: int) -> None:
        self._core = core
        self._call = call
        self._strict = call.version >= strict_since
        self._known: dict[str, bool] = {}
        self.wait_ms = 0

    @classmethod
    def of(cls, core: Core, call: Call, strict_since: int) -> Mutations:
        if call.mutations is None:
            call.mutations = cls(core, call, strict_since)
        return call.mutations

    def count(self, topic: str, partitions: int) -> None:
        """KafkaError where they are too many."""
        if not self._core.quotas.active:
            return
        if topic not in self._known:
            connection, quotas = self._call.connection, self._core.quotas
            self._known[topic], wait_ms = quotas.mutate(
                connection.principal,
                connection.client_id,
                partitions,
                self._core.topics.now_ms,
                strict=self._strict,
            )
            self.wait_ms = max(self.wait_ms, wait_ms)
        if not self._known[topic]:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
