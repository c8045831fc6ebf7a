"""Plain values that users of the client see: partitions, offsets, records. No behaviour beyond reading them."""

from __future__ import annotations

from typing import Any, NamedTuple

NO_LEADER_EPOCH = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int = NO_LEADER_EPOCH


class OpenTransaction(NamedTuple):
    """A transaction that its producer has handed over: all that is needed to end it (`Admin.end_transaction`)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_tv2: bool
    """Whether its end raises the epoch (KIP-890), as its producer has learnt from the cluster."""


class ConsumerRecord(NamedTuple):
    """One record. `timestamp` is in milliseconds, `timestamp_type` 0 (create time) or 1 (log append time).

    `key` and `value` are what the deserializers give, without them bytes or None.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def partition_list(partitions: object) -> str:
    """`orders-0, orders-1`: for messages."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)) or "none"  # type: ignore[call-overload]
