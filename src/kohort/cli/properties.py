"""Client settings from files and pairs: Java's properties format, and what Java clients call differently."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from kohort.cli.failures import WrongInput

_JAAS_OPTION = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read(path: Path, option: str = "--command-config") -> dict[str, str]:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WrongInput(f"{path} cannot be read: {error.strerror}; {option} takes a properties file") from None
    except UnicodeDecodeError:
        raise WrongInput(f"{path} is not a text file; {option} takes a properties file") from None


def parse(text: str) -> dict[str, str]:
    """Java's format: `key=value`, `key: value` or `key value`; # and ! comments; a backslash continues a line."""
    found: dict[str, str] = {}
    joined = ""
    for raw in text.splitlines():
        line = joined + raw.lstrip()
        joined = ""
        if not line or line[0] in "#!":
            continue
        if _continues(line):
            joined = line[:-1]
            continue
        _take(line, found)
    if joined:
        _take(joined, found)
    return found


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _take(line: str, found: dict[str, str]) -> None:
    match = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
    assert match is not None
    found[_unescape(match.group(1))] = _unescape(match.group(2).rstrip())


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match.group(1), match.group(1)), text)


def parse_pairs(pairs: Iterable[str], option: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise WrongInput(f"{option} takes KEY=VALUE, not {pair!r}")
        given[name.strip()] = value.strip()
    return given


def client_settings(given: dict[str, str]) -> dict[str, str]:
    """Java's spelling of credentials and certificates in ours; the rest as it is."""
    settings = dict(given)
    if strategies := settings.get("partition.assignment.strategy"):
        names = [name.strip() for name in strategies.split(",")]
        settings["partition.assignment.strategy"] = ",".join(
            _ASSIGNORS.get(name.rpartition(".")[2], name) for name in names
        )
    if jaas := settings.pop("sasl.jaas.config", None):
        options = dict(_JAAS_OPTION.findall(jaas))
        for name in ("username", "password"):
            if name in options:
                settings.setdefault(f"sasl.{name}", _unescape(options[name]))
    if settings.pop("ssl.truststore.type", "").upper() == "PEM" and "ssl.truststore.location" in settings:
        settings.setdefault("ssl.cafile", settings.pop("ssl.truststore.location"))
    if settings.pop("ssl.keystore.type", "").upper() == "PEM" and "ssl.keystore.location" in settings:
        settings.setdefault("ssl.certfile", settings.pop("ssl.keystore.location"))
    if settings.pop("ssl.endpoint.identification.algorithm", "https") == "":
        settings.setdefault("ssl.check.hostname", "false")
    return settings
