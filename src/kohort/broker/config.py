"""Configuration by Kafka's names: what a key is, how a value is parsed and checked, and the broker's own values.

The keys themselves are data in `config_keys.py`. Nothing here knows where a value is stored or what it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigType(IntEnum):
    """The type codes of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """The source codes of DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class ConfigError(ValueError):
    """A configuration value or name that cannot be used; the message says what to do."""


Value = bool | int | float | str | list[str] | None


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: Value
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = False
    """Whether AlterConfigs may change it while the broker runs."""

    def parse(self, raw: object) -> Value:
        """The typed value of `raw`, which may be text or already typed; ConfigError if it does not fit."""
        try:
            value = _PARSERS[self.type](raw)
        except (TypeError, ValueError):
            raise ConfigError(
                f"Invalid value {raw} for configuration {self.name}: Not a {self.type.name.lower()}"
            ) from None
        self._check(value)
        return value

    def _check(self, value: Value) -> None:
        if self.minimum is not None and value < self.minimum:  # type: ignore[operator]
            raise ConfigError(
                f"Invalid value {value} for configuration {self.name}: Value must be at least {self.minimum}"
            )
        if self.maximum is not None and value > self.maximum:  # type: ignore[operator]
            raise ConfigError(
                f"Invalid value {value} for configuration {self.name}: Value must be no more than {self.maximum}"
            )
        if self.choices:
            for item in value if isinstance(value, list) else [value]:
                if item not in self.choices:
                    allowed = ", ".join(self.choices)
                    raise ConfigError(
                        f"Invalid value {item} for configuration {self.name}: String must be one of: {allowed}"
                    )

    def text(self, value: Value) -> str | None:
        """The value as DescribeConfigs shows it."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list):
            return ",".join(value)
        return str(value)


def _boolean(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    text = str(raw).strip().lower()
    if text not in ("true", "false"):
        raise ValueError(raw)
    return text == "true"


def _integer(bits: int):
    limit = 1 << (bits - 1)

    def parse(raw: object) -> int:
        if isinstance(raw, bool):
            raise ValueError(raw)
        value = raw if isinstance(raw, int) else int(str(raw).strip())
        if not -limit <= value < limit:
            raise ValueError(raw)
        return value

    return parse


def _double(raw: object) -> float:
    if isinstance(raw, bool):
        raise ValueError(raw)
    return float(raw if isinstance(raw, int | float) else str(raw).strip())


def _string(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError(raw)
    return raw.strip()


def _list(raw: object) -> list[str]:
    if isinstance(raw, list | tuple):
        return [str(item).strip() for item in raw]
    return [item.strip() for item in str(raw).split(",") if item.strip()]


_PARSERS = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: _string,
    ConfigType.INT: _integer(32),
    ConfigType.LONG: _integer(64),
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: _list,
}


def unknown_name(name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that is not among `known`, with the nearest one that is."""
    import difflib  # only where something is misspelt

    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    return ConfigError(f"Unknown configuration {name}.{hint}")


class BrokerConfig:
    """The broker's values: defaults, below what was given at start, below what AlterConfigs has set since."""

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        from kohort.broker.config_keys import BROKER_KEYS

        self.keys: dict[str, ConfigKey] = BROKER_KEYS
        self.given: dict[str, Value] = {}
        self.dynamic: dict[str, Value] = {}
        for name, raw in (given or {}).items():
            self.given[name] = self.key(name).parse(raw)
        self._values: dict[str, Value] = {}
        self._rebuild()
        self._check_together()

    def key(self, name: str) -> ConfigKey:
        found = self.keys.get(name)
        if found is None:
            raise unknown_name(name, self.keys)
        return found

    def __getitem__(self, name: str):  # values are typed by their key; callers know which
        return self._values[name]

    def set_dynamic(self, overrides: Mapping[str, Value]) -> None:
        """Replace all dynamic overrides (already parsed)."""
        self.dynamic = dict(overrides)
        self._rebuild()

    def source(self, name: str) -> ConfigSource:
        if name in self.dynamic:
            return ConfigSource.DYNAMIC_BROKER_CONFIG
        if name in self.given:
            return ConfigSource.STATIC_BROKER_CONFIG
        return ConfigSource.DEFAULT_CONFIG

    def is_set(self, name: str) -> bool:
        return name in self.dynamic or name in self.given

    def _rebuild(self) -> None:
        self._values = {name: key.default for name, key in self.keys.items()} | self.given | self.dynamic

    def _check_together(self) -> None:
        low, high = self["group.min.session.timeout.ms"], self["group.max.session.timeout.ms"]
        if low > high:
            raise ConfigError(
                f"group.min.session.timeout.ms ({low}) is above group.max.session.timeout.ms ({high}); lower it"
            )
