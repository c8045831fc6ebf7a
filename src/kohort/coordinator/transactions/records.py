"""The records of `__transaction_state` to and from bytes, as Kafka 4.3 writes them. Nothing about what they mean.

A key has type 0; a value has version 1, with tagged fields for what KIP-890 needs.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from kohort.coordinator.records import UnknownRecord, UnreadableRecord
from kohort.coordinator.transactions.states import EMPTY, MOVES, NUMBERS, STORED_AS
from kohort.coordinator.transactions.transaction import Transaction
from kohort.protocol.messages import TransactionLogKey, TransactionLogValue
from kohort.protocol.wire import DecodeError

TRANSACTIONS_TOPIC = "__transaction_state"
VALUE_VERSION = 1

_SHORT = Struct(">h")
_Partitions = TransactionLogValue.PartitionsSchema


class Change(NamedTuple):
    transactional_id: str
    value: Transaction | None  # None: the id is forgotten


def encode(change: Change) -> tuple[bytes, bytes | None]:
    key = b"\x00\x00" + TransactionLogKey(transactional_id=change.transactional_id).encode(0)
    return key, None if change.value is None else _value(change.value)


def _value(transaction: Transaction) -> bytes:
    partitions = None
    if transaction.state is not EMPTY:
        by_topic: dict[str, list[int]] = {}
        for topic, index in transaction.partitions:
            by_topic.setdefault(topic, []).append(index)
        partitions = [_Partitions(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]
    message = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=NUMBERS[transaction.state],
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    body: bytes = message.encode(VALUE_VERSION)
    return _SHORT.pack(VALUE_VERSION) + body


def decode(key: bytes, value: bytes | None) -> Change:
    """UnknownRecord for what belongs to the future, UnreadableRecord for what makes no sense."""
    try:
        kind = _SHORT.unpack_from(key)[0]
        if kind != 0:
            raise UnknownRecord(f"key type {kind}")
        transactional_id = TransactionLogKey.decode(key, 0, 2).transactional_id
        return Change(transactional_id, None if value is None else _transaction(transactional_id, value))
    except (IndexError, TypeError, StructError, DecodeError, UnicodeDecodeError) as error:
        raise UnreadableRecord(f"record with key {bytes(key or b'')[:40].hex()} cannot be read: {error}") from error


def _transaction(transactional_id: str, value: bytes) -> Transaction:
    version = _SHORT.unpack_from(value)[0]
    if not 0 <= version <= VALUE_VERSION:
        raise UnknownRecord(f"transaction value version {version}")
    v = TransactionLogValue.decode(value, version, 2)
    state = STORED_AS.get(v.transaction_status)
    if state not in MOVES:
        raise UnreadableRecord(f"transaction status {v.transaction_status}")
    return Transaction(
        transactional_id,
        v.producer_id,
        v.producer_epoch,
        v.transaction_timeout_ms,
        state,
        tuple((p.topic, index) for p in v.transaction_partitions or () for index in p.partition_ids),
        v.transaction_start_timestamp_ms,
        v.transaction_last_update_timestamp_ms,
        v.previous_producer_id,
        v.next_producer_id,
        v.client_transaction_version,
    )
