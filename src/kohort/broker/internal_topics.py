"""The topics the broker keeps for itself, made on first need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.broker.topics import Topic
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.coordinator.transactions.records import TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from kohort.broker.core import Core

_MIN_SEGMENT_BYTES = 1024 * 1024


def ensure_offsets_topic(core: Core) -> Topic:
    """`__consumer_offsets`: compacted, with the partition count of its first creation from then on."""
    config = core.config
    partitions, segment_bytes = config["offsets.topic.num.partitions"], config["offsets.topic.segment.bytes"]
    return _ensure(core, OFFSETS_TOPIC, partitions, segment_bytes, "producer")


def ensure_transactions_topic(core: Core) -> Topic:
    """`__transaction_state`: the same."""
    config = core.config
    partitions = config["transaction.state.log.num.partitions"]
    return _ensure(core, TRANSACTIONS_TOPIC, partitions, config["transaction.state.log.segment.bytes"], "uncompressed")


def _ensure(core: Core, name: str, partitions: int, segment_bytes: int, compression: str) -> Topic:
    topic = core.topics.by_name.get(name)
    if topic is not None:
        return topic
    overrides = {
        "cleanup.policy": "compact",
        "compression.type": compression,
        "segment.bytes": str(max(segment_bytes, _MIN_SEGMENT_BYTES)),
    }
    return core.topics.create(name, partitions, overrides)
