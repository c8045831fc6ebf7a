"""How the configs of a topic follow from the broker's: each has synonyms there, the most specific first."""

from __future__ import annotations

from typing import Any

from kohort.broker.config import BrokerConfig
from kohort.broker.config_keys import TO_MILLISECONDS
from kohort.storage.config import CONFIG_KEYS, LogConfig


def broker_log_config(config: BrokerConfig) -> LogConfig:
    """The defaults of every topic, from the broker's own configs."""
    values: dict[str, Any] = {}
    for name, key in CONFIG_KEYS.items():
        synonym = config_synonym(config, name)
        if synonym is not None:
            values[key.attribute] = topic_value(config, synonym)
    if config["kohort.fsync"] == "always" and not config.is_set("log.flush.interval.messages"):
        values["flush_messages"] = 1
    elif config["kohort.fsync"] == "interval" and not config.is_set("log.flush.interval.ms"):
        values["flush_ms"] = 1000
    return LogConfig(**values)


def config_synonym(config: BrokerConfig, topic_config: str) -> str | None:
    """The broker config in effect for a topic config: the first that is set, else the first with a default."""
    synonyms = [name for name in CONFIG_KEYS[topic_config].synonyms if name in config.keys]
    for name in synonyms:
        if config.is_set(name) and config[name] is not None:
            return name
    return next((name for name in synonyms if config[name] is not None), None)


def topic_value(config: BrokerConfig, synonym: str) -> Any:
    """A broker config in the unit of the topic config it stands in for."""
    value, unit = config[synonym], TO_MILLISECONDS.get(synonym)
    if unit is None:
        return value
    return value * unit if value >= 0 else -1
