"""What DescribeConfigs shows of a topic, a broker or a group: each value with its source and what it hides.

Pure: from configurations to rows. Reading requests and changing values is in `apis/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import dropwhile
from typing import NamedTuple

from kohort.broker.config import BrokerConfig, ConfigSource
from kohort.broker.config_keys import GROUP_KEYS
from kohort.broker.topic_configs import config_synonym
from kohort.config_key import ConfigKey
from kohort.storage.config import CONFIG_KEYS, LogConfig


class Synonym(NamedTuple):
    """A place where the value could come from."""

    name: str
    value: str | None
    source: ConfigSource


class Row(NamedTuple):
    key: ConfigKey
    value: str | None
    synonyms: list[Synonym]
    """In the order in which they apply: the first has given the value."""
    read_only: bool = False

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT_CONFIG


# Broker configurations of which one stands in for the other, in other units.
_ALIASES = {name: key.synonyms for key in CONFIG_KEYS.values() for name in key.synonyms}


def topic_rows(config: BrokerConfig, effective: LogConfig, overrides: Iterable[str]) -> list[Row]:
    rows = []
    for name, key in CONFIG_KEYS.items():
        value = key.format(effective.get(name))
        own = [Synonym(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG)] if name in overrides else []
        rows.append(Row(key, value, own + (_broker_synonyms(config, key.synonyms[0]) if key.synonyms else [])))
    return rows


def topic_sources(
    config: BrokerConfig, effective: LogConfig, overrides: Iterable[str]
) -> Iterable[tuple[str, str | None, ConfigSource]]:
    """Name, value and source of each, as CreateTopics shows them: by the synonym in effect, not the first one."""
    for name, key in CONFIG_KEYS.items():
        source = ConfigSource.DYNAMIC_TOPIC_CONFIG
        if name not in overrides:
            synonym = config_synonym(config, name)
            source = config.source(synonym) if synonym is not None else ConfigSource.DEFAULT_CONFIG
        yield name, key.format(effective.get(name)), source


def broker_rows(config: BrokerConfig) -> list[Row]:
    """The configurations of this broker."""
    return [
        Row(key, key.format(config[name]), _broker_synonyms(config, name), not key.dynamic)
        for name, key in config.keys.items()
    ]


def cluster_rows(config: BrokerConfig) -> list[Row]:
    """What is set for all brokers of the cluster."""
    rows = []
    for name, raw in config.cluster.items():
        value = config.keys[name].format(raw)
        rows.append(Row(config.keys[name], value, [Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)]))
    return rows


def group_rows(config: BrokerConfig, overrides: Mapping[str, str]) -> list[Row]:
    rows = []
    for name, key in GROUP_KEYS.items():
        value = overrides.get(name) or key.format(config[key.synonyms[0]])
        own = [Synonym(name, value, ConfigSource.DYNAMIC_GROUP_CONFIG)] if name in overrides else []
        rows.append(Row(key, value, own + _broker_synonyms(config, key.synonyms[0])))
    return rows


def _broker_synonyms(config: BrokerConfig, name: str) -> list[Synonym]:
    """From the first place that has this very name on: what only its aliases have set before does not show."""
    names = _ALIASES.get(name, (name,))
    levels = (
        (config.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (config.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (config.given, ConfigSource.STATIC_BROKER_CONFIG),
        ({alias: config.keys[alias].default for alias in names}, ConfigSource.DEFAULT_CONFIG),
    )
    found = [
        Synonym(alias, config.keys[alias].format(values[alias]), source)
        for values, source in levels
        for alias in names
        if values.get(alias) is not None
    ]
    return list(dropwhile(lambda synonym: synonym.name != name, found))
