"""Incremental fetch sessions (KIP-227): a consumer names its partitions once, then only what changes.

A session is found by its id and must be used in the order of its epochs. Which partitions have news is decided in
`apis/fetch.py`; here is what is remembered between two fetches, and who is evicted when the cache is full.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.topics import Partition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
EVICTION_MS = 120_000
_INT_MAX = 2**31 - 1

Key = tuple[bytes | str, int]
"""(topic id from version 13 on, topic name before, partition index)."""


class FetchPartition:
    """What a consumer asked of one partition, and what it was told last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "index",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "topic",
    )

    def __init__(self, topic: bytes | str, request: Any) -> None:
        self.topic = topic
        self.index: int = request.partition
        self.key: Key = (topic, self.index)
        self.partition: Partition | None = None
        self.high_watermark = -1
        self.log_start_offset = -1
        self.update(request)

    def update(self, request: Any) -> None:
        self.fetch_offset: int = request.fetch_offset
        self.max_bytes: int = request.partition_max_bytes
        self.current_leader_epoch: int = request.current_leader_epoch
        self.last_fetched_epoch: int = request.last_fetched_epoch


class FetchSession:
    __slots__ = ("created_ms", "epoch", "last_used_ms", "partitions", "session_id", "uses_topic_ids")

    def __init__(
        self, session_id: int, uses_topic_ids: bool, partitions: Iterable[FetchPartition], now_ms: int
    ) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.partitions: OrderedDict[Key, FetchPartition] = OrderedDict((p.key, p) for p in partitions)
        self.epoch = 1
        self.created_ms = now_ms
        self.last_used_ms = now_ms

    def update(self, asked: Iterable[FetchPartition], forgotten: Iterable[Key]) -> None:
        for wanted in asked:
            known = self.partitions.get(wanted.key)
            if known is None:
                self.partitions[wanted.key] = wanted
                continue
            known.fetch_offset = wanted.fetch_offset
            known.max_bytes = wanted.max_bytes
            known.current_leader_epoch = wanted.current_leader_epoch
            known.last_fetched_epoch = wanted.last_fetched_epoch
        for key in forgotten:
            self.partitions.pop(key, None)


class FetchSessions:
    """The cache. `random_int()` gives ids; the least recently used session comes first."""

    def __init__(self, slots: int, random_int: Callable[[], int]) -> None:
        self.slots = slots
        self._random_int = random_int
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def remove(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def resume(self, session_id: int, epoch: int, uses_topic_ids: bool, now_ms: int) -> FetchSession:
        """The session an incremental fetch belongs to, moved to its next epoch."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == _INT_MAX else epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return session

    def create(self, partitions: list[FetchPartition], uses_topic_ids: bool, now_ms: int) -> int:
        """The id of a new session, or NO_SESSION where there is no room for one."""
        if not partitions or not self._make_room(len(partitions), now_ms):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random_int() & _INT_MAX
        self._sessions[session_id] = FetchSession(session_id, uses_topic_ids, partitions, now_ms)
        return session_id

    def _make_room(self, size: int, now_ms: int) -> bool:
        """An idle session goes first; else a smaller one that has had its time (KIP-227)."""
        if len(self._sessions) < self.slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            self.remove(oldest.session_id)
            return True
        served = [s for s in self._sessions.values() if now_ms - s.created_ms > EVICTION_MS]
        smallest = min(served, key=lambda session: len(session.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= size:
            return False
        self.remove(smallest.session_id)
        return True
