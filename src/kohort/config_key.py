"""One configuration key, of a broker, a topic or a group alike: name, type, default, limits, one line of help.

A value comes as text or already typed; `parse` gives the typed value or a ConfigError in Kafka's words. Which keys
there are, who holds their values and what these do is elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, NamedTuple

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigType(IntEnum):
    """The type codes of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class ConfigError(ValueError):
    """A configuration value or name that cannot be used; the message says what to do."""


class ConfigKey(NamedTuple):
    name: str
    type: ConfigType
    default: Any
    doc: str
    low: float | None = None
    high: float | None = None
    also: tuple[int, ...] = ()
    """Values that are allowed outside low..high."""
    choices: tuple[str, ...] = ()
    dynamic: bool = False
    """Whether it may be changed while the broker runs."""
    synonyms: tuple[str, ...] = ()
    """Names of the broker configurations that give the default, the most specific first."""

    @property
    def attribute(self) -> str:
        """The name as a Python identifier."""
        return self.name.replace(".", "_").replace("-", "_")

    def parse(self, raw: object) -> Any:
        try:
            value = _PARSERS[self.type](raw)
        except (TypeError, ValueError):
            raise self._invalid(raw, _NOT_OF_TYPE[self.type]) from None
        if isinstance(value, tuple):
            self._check_items(value)
        elif self.choices and value not in self.choices:
            raise self._invalid(value, f"String must be one of: {', '.join(self.choices)}")
        elif isinstance(value, int | float) and value not in self.also:
            if self.low is not None and value < self.low:
                raise self._invalid(value, f"Value must be at least {self.low}")
            if self.high is not None and value > self.high:
                raise self._invalid(value, f"Value must be no more than {self.high}")
        return value

    @property
    def sensitive(self) -> bool:
        """Whether nobody is shown the value."""
        return self.type is ConfigType.PASSWORD

    def format(self, value: Any) -> str | None:
        """The value as DescribeConfigs shows it: of a password nothing."""
        if value is None or self.sensitive:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def _check_items(self, items: tuple[str, ...]) -> None:
        for item in items:
            if self.choices and item not in self.choices:
                raise self._invalid(item, f"String must be one of: {', '.join(self.choices)}")

    def _invalid(self, value: object, why: str) -> ConfigError:
        shown = "[hidden]" if self.sensitive else value
        return ConfigError(f"Invalid value {shown} for configuration {self.name}: {why}")


def _boolean(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    text = str(raw).strip().lower()
    if text not in ("true", "false"):
        raise ValueError(raw)
    return text == "true"


def _integer(limit: int) -> Callable[[object], int]:
    def parse(raw: object) -> int:
        value = int(str(raw).strip())
        if not -limit - 1 <= value <= limit:
            raise ValueError(raw)
        return value

    return parse


def _string(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError(raw)
    return raw.strip()


def _list(raw: object) -> tuple[str, ...]:
    if isinstance(raw, list | tuple):
        return tuple(str(item).strip() for item in raw)
    return tuple(item.strip() for item in str(raw).split(",") if item.strip())


_PARSERS: dict[ConfigType, Callable[[object], Any]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: _string,
    ConfigType.INT: _integer(INT_MAX),
    ConfigType.SHORT: _integer(2**15 - 1),
    ConfigType.LONG: _integer(LONG_MAX),
    ConfigType.DOUBLE: lambda raw: float(str(raw).strip()),
    ConfigType.LIST: _list,
    ConfigType.PASSWORD: _string,
}
_NOT_OF_TYPE = {
    ConfigType.BOOLEAN: "Expected value to be either true or false",
    ConfigType.STRING: "Expected value to be a string",
    ConfigType.INT: "Not a number of type INT",
    ConfigType.SHORT: "Not a number of type SHORT",
    ConfigType.LONG: "Not a number of type LONG",
    ConfigType.DOUBLE: "Not a number of type DOUBLE",
    ConfigType.LIST: "Expected a comma separated list",
    ConfigType.PASSWORD: "Expected value to be a string",
}


def by_name(keys: Iterable[ConfigKey]) -> dict[str, ConfigKey]:
    return {key.name: key for key in keys}


def nearest(name: str, known: Iterable[str]) -> str:
    """A question to put behind "unknown name" where a known one is close; else nothing."""
    import difflib  # only where something is misspelt

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {found[0]}?" if found else ""
