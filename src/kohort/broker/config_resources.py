"""The resources that have configurations, by their codes on the wire, and which of them exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.broker.topics import Topic, check_name
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.core import Core

TOPIC = 2
BROKER = 4
"""One broker by its id, or with an empty name all of them."""
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32


def existing_topic(core: Core, name: str) -> Topic:
    check_name(name)
    topic = core.topics.by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def check_broker(core: Core, name: str) -> None:
    if name not in ("", str(core.node_id)):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {core.node_id} or empty string, but received {name}",
        )


def unsupported_type(resource_type: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")
