"""What may be configured for one group, over the broker's defaults: checked here, kept by the catalog."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.broker.config import BrokerConfig
from kohort.broker.config_keys import GROUP_KEYS
from kohort.config_key import ConfigError


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
