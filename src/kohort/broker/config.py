"""The broker's configuration: its values by Kafka's names, and where each comes from.

The keys are data in `config_keys.py`. Nothing here knows where a value is stored or what it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from kohort.broker.config_keys import BROKER_KEYS
from kohort.broker.listener_config import PREFIX, Setting, parse_name
from kohort.config_key import ConfigError, ConfigKey, nearest

__all__ = ["BrokerConfig", "ConfigError", "ConfigSource"]


class ConfigSource(IntEnum):
    """The source codes of DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_GROUP_CONFIG = 8


class BrokerConfig:
    """The broker's values: defaults, below what was given at start, below what AlterConfigs has set since for the whole
    cluster, below what it has set for this broker."""

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self.keys: dict[str, ConfigKey] = BROKER_KEYS
        self.given: dict[str, Any] = {}
        self.cluster: dict[str, Any] = {}
        self.dynamic: dict[str, Any] = {}
        self.of_listeners: dict[Setting, Any] = {}
        for name, raw in (given or {}).items():
            if name.startswith(PREFIX):
                setting = parse_name(name)
                self.of_listeners[setting] = self.key(setting.key)._replace(name=name).parse(raw)
            else:
                self.given[name] = self.key(name).parse(raw)
        self._values: dict[str, Any] = {}
        self._rebuild()
        self._check_together()

    def key(self, name: str) -> ConfigKey:
        found = self.keys.get(name)
        if found is None:
            raise ConfigError(f"Unknown configuration {name}.{nearest(name, self.keys)}")
        return found

    def __getitem__(self, name: str) -> Any:
        """The value, typed by its key: callers know which."""
        return self._values[name]

    def enables(self, mechanism: str) -> bool:
        """Whether clients of some listener can log in by a mechanism."""
        key = "sasl.enabled.mechanisms"
        own = (value for setting, value in self.of_listeners.items() if setting.key == key)
        return any(mechanism in mechanisms for mechanisms in (self[key], *own))

    def integer(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int)
        return value

    def set_dynamic(self, cluster: Mapping[str, Any], dynamic: Mapping[str, Any]) -> None:
        """Replace all that AlterConfigs has set (already parsed)."""
        self.cluster, self.dynamic = dict(cluster), dict(dynamic)
        self._rebuild()

    def set_given(self, given: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Replace the values of `removed` that were given at the start (already parsed)."""
        gone = set(removed)
        self.given = {name: value for name, value in self.given.items() if name not in gone} | dict(given)
        self._rebuild()

    def parse(self, texts: Mapping[str, str]) -> dict[str, Any]:
        return {name: self.key(name).parse(raw) for name, raw in texts.items()}

    def texts(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Values as `parse` takes them."""
        return {name: self.key(name).format(value) or "" for name, value in values.items()}

    def source(self, name: str) -> ConfigSource:
        if name in self.dynamic:
            return ConfigSource.DYNAMIC_BROKER_CONFIG
        if name in self.cluster:
            return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        if name in self.given:
            return ConfigSource.STATIC_BROKER_CONFIG
        return ConfigSource.DEFAULT_CONFIG

    def is_set(self, name: str) -> bool:
        return name in self.dynamic or name in self.cluster or name in self.given

    def _rebuild(self) -> None:
        defaults = {name: key.default for name, key in self.keys.items()}
        self._values = defaults | self.given | self.cluster | self.dynamic

    def _check_together(self) -> None:
        low, high = self["group.min.session.timeout.ms"], self["group.max.session.timeout.ms"]
        if low > high:
            raise ConfigError(
                f"group.min.session.timeout.ms ({low}) is above group.max.session.timeout.ms ({high}); lower it"
            )
