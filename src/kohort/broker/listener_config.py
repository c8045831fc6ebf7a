"""Settings of one listener, `listener.name.<listener>.<setting>` as in Kafka: its own, else the broker's. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.broker.config_keys import BROKER_KEYS
from kohort.config_key import ConfigError, nearest

if TYPE_CHECKING:
    from kohort.broker.config import BrokerConfig

PREFIX = "listener.name."
JAAS = "sasl.jaas.config"
_MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")
OF_LISTENERS = (
    "connections.max.reauth.ms",
    "max.connections",
    "sasl.enabled.mechanisms",
    "ssl.client.auth",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.principal.mapping.rules",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
OF_MECHANISMS = ("connections.max.reauth.ms", JAAS)
_JAAS_USER = re.compile(r'\buser_(?P<user>[^=\s]+)="(?P<password>[^"]*)"')


class Setting(NamedTuple):
    """`listener.name.<listener>.[<mechanism>.]<key>`; the mechanism is empty where there is none."""

    listener: str
    mechanism: str
    key: str

    def __str__(self) -> str:
        return PREFIX + ".".join(part for part in self if part)


def parse_name(name: str) -> Setting:
    """What a setting of a listener is about; ConfigError where there is no such setting."""
    listener, _, rest = name.removeprefix(PREFIX).partition(".")
    mechanism = next((one for one in _MECHANISMS if rest.startswith(f"{one}.")), "")
    key = rest.removeprefix(f"{mechanism}.") if mechanism else rest
    if key == JAAS and not mechanism:
        raise ConfigError(
            f"{name} says nothing of the mechanism: write {PREFIX}{listener}.plain.{JAAS}, as Kafka wants it"
        )
    known = OF_MECHANISMS if mechanism else OF_LISTENERS
    if key not in known:
        everywhere = f" {key} is one for all listeners: give it without {PREFIX}{listener}."
        raise ConfigError(f"Unknown configuration {name}.{everywhere if key in BROKER_KEYS else nearest(key, known)}")
    return Setting(listener.lower(), mechanism, key)


def jaas_users(text: str | None) -> dict[str, str]:
    """The users of a JAAS line, as Kafka's PlainLoginModule takes them."""
    return {match["user"]: match["password"] for match in _JAAS_USER.finditer(text or "")}


class ListenerConfig:
    """What holds at one listener."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._config = config
        self._name = listener.lower()

    @property
    def _own(self) -> Mapping[Setting, Any]:
        return self._config.of_listeners

    def __getitem__(self, key: str) -> Any:
        return self._own.get(Setting(self._name, "", key), self._config[key])

    def has(self, key: str) -> bool:
        return Setting(self._name, "", key) in self._own

    def max_session_ms(self, mechanism: str) -> int:
        own = Setting(self._name, mechanism.lower(), "connections.max.reauth.ms")
        found: int = self._own.get(own, self["connections.max.reauth.ms"])
        return found

    @property
    def plain_users(self) -> dict[str, str] | None:
        """Who may log in by PLAIN; None: those of the broker."""
        line = self._own.get(Setting(self._name, "plain", JAAS))
        return None if line is None else jaas_users(line)
