"""The topics the broker keeps for itself, made on first need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.broker.topics import Topic
from kohort.coordinator.records import OFFSETS_TOPIC

if TYPE_CHECKING:
    from kohort.broker.core import Core

_MIN_SEGMENT_BYTES = 1024 * 1024


def ensure_offsets_topic(core: Core) -> Topic:
    """`__consumer_offsets`: compacted, with the partition count of its first creation from then on."""
    topic = core.topics.by_name.get(OFFSETS_TOPIC)
    if topic is not None:
        return topic
    overrides = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(max(core.config["offsets.topic.segment.bytes"], _MIN_SEGMENT_BYTES)),
    }
    return core.topics.create(OFFSETS_TOPIC, core.config["offsets.topic.num.partitions"], overrides)
