"""What a transaction coordinator is asked by others in the broker, and what it asks them to do: plain values."""

from __future__ import annotations

from typing import NamedTuple

from kohort.coordinator.transactions.transaction import TopicPartition
from kohort.protocol.errors import ErrorCode


class Enlist(NamedTuple):
    """Partitions are to be in the transaction: add them, or with `verify_only` say which of them are not."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool
    version: int  # the transaction.version of the producer


Enlisted = dict[TopicPartition, ErrorCode]
"""The answer to Enlist."""


class DescribeOne(NamedTuple):
    """One transaction of a DescribeTransactions; the answer is its row."""

    transactional_id: str


class ListShard(NamedTuple):
    """The transactions of one shard, as ListTransactions filters them; the answer is a list of rows."""

    states: frozenset[str]
    producer_ids: frozenset[int]
    duration_ms: int
    pattern: str


class Marker(NamedTuple):
    """The end of a transaction, to be written into the log of each partition, wherever that is led."""

    shard_partition: int
    incarnation: int  # of the shard: what is told about the marker of an earlier one does nothing
    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    version: int  # of the transaction; from 2 on an epoch must be higher than any before (KIP-890)
    partitions: tuple[TopicPartition, ...]


class Rollback(NamedTuple):
    """A transaction that nobody asked to abort was aborted: for the log of the broker."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    why: str
