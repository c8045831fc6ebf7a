"""Where a broker listens and what it tells clients: listeners by name, each with its protocol. Pure: text to values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from kohort.broker.config import BrokerConfig, ConfigError

_ADDRESS = re.compile(r"(?:(?P<name>[A-Za-z0-9_.-]+)://)?(?P<host>\[[^\]]*\]|[^:/]*):(?P<port>\d+)")


class Protocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def encrypts(self) -> bool:
        return self.value.endswith("SSL")

    @property
    def authenticates(self) -> bool:
        return self.value.startswith("SASL")


@dataclass(slots=True)
class Listener:
    """`host` and `port` are what is bound; `advertised_host` and `advertised_port` what clients are told."""

    name: str
    protocol: Protocol
    host: str
    port: int
    advertised_host: str = ""
    advertised_port: int = 0

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def listeners(config: BrokerConfig, host: str, port: int) -> list[Listener]:
    """Those of `listeners`, or the one that was asked for by host and port; ConfigError where they contradict."""
    protocols = _protocol_map(config)
    found: list[Listener] = []
    for text in config["listeners"] or ():
        name, bound, number = _address(text, "listeners")
        found.append(Listener(name or "PLAINTEXT", _protocol(name or "PLAINTEXT", protocols), bound, number))
    if not found:
        found = [Listener("PLAINTEXT", _protocol("PLAINTEXT", protocols), host, port)]
    names = [listener.name for listener in found]
    if len(set(names)) != len(names):
        raise ConfigError("Each listener must have a different name: give one of listeners another")
    for text in config["advertised.listeners"] or ():
        name, told, number = _address(text, "advertised.listeners")
        listener = next((one for one in found if name in ("", one.name)), None)
        if listener is None:
            raise ConfigError(f"advertised.listeners names {name}, which is not among listeners: {', '.join(names)}")
        if not told or not number:
            raise ConfigError(f"Invalid value {text} for configuration advertised.listeners: write it as HOST:PORT")
        listener.advertised_host, listener.advertised_port = told, number
    for setting in config.of_listeners:
        if setting.listener not in [name.lower() for name in names]:
            raise ConfigError(f"{setting} is of a listener that is not among listeners: {', '.join(names)}")
    return found


def _address(text: str, key: str) -> tuple[str, str, int]:
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(f"Invalid value {text} for configuration {key}: write it as NAME://HOST:PORT or as HOST:PORT")
    return (match["name"] or "").upper(), match["host"].strip("[]"), int(match["port"])


def _protocol_map(config: BrokerConfig) -> dict[str, str]:
    found = {protocol.value: protocol.value for protocol in Protocol}
    for entry in config["listener.security.protocol.map"] or ():
        name, _, protocol = entry.partition(":")
        found[name.strip().upper()] = protocol.strip().upper()
    return found


def _protocol(name: str, protocols: dict[str, str]) -> Protocol:
    given = protocols.get(name)
    if given is None:
        raise ConfigError(
            f"No security protocol is known for the listener {name}: add {name}:PLAINTEXT (or another) to "
            "listener.security.protocol.map"
        )
    try:
        return Protocol(given)
    except ValueError:
        raise ConfigError(
            f"Invalid value {given} for configuration listener.security.protocol.map: one of "
            f"{', '.join(Protocol)} is meant"
        ) from None
