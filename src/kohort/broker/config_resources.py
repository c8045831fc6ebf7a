"""The resources that have configurations, by their codes on the wire; which of them exist, what a group may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kohort.broker.config import BrokerConfig
from kohort.broker.config_keys import GROUP_KEYS
from kohort.broker.topics import Topic, check_name
from kohort.config_key import ConfigError
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


def check_group_configs(config: BrokerConfig, values: Mapping[str, str]) -> None:
    """ConfigError where a name is unknown, or a value is none or outside what the broker allows."""
    for name, raw in values.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise ConfigError(f"Unknown group config name: {name}")
        value, of_broker = key.parse(raw), key.synonyms[0]
        low, high = (of_broker.replace("group.consumer.", f"group.consumer.{end}.") for end in ("min", "max"))
        if value < config.integer(low):
            raise ConfigError(f"{name} must be greater than or equal to {low}")
        if value > config.integer(high):
            raise ConfigError(f"{name} must be less than or equal to {high}")
