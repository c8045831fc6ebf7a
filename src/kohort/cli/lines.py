"""Records as lines of text and back: JSON objects, plain values, kcat's %-templates. Pure.

A JSON line of `consume` is one that `produce` takes: bytes that are not UTF-8 are in `key_base64` and `value_base64`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kohort.cli.failures import WrongInput

Header = tuple[str, bytes | None]
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


class Outgoing(NamedTuple):
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


# -- to text ----------------------------------------------------------------------------------------------------------


def _put(target: dict[str, Any], name: str, content: bytes | None) -> None:
    try:
        target[name] = None if content is None else content.decode()
    except UnicodeDecodeError:
        assert content is not None
        target[f"{name}_base64"] = base64.b64encode(content).decode()


def to_json(record: Any) -> bytes:
    line: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    _put(line, "key", record.key)
    _put(line, "value", record.value)
    line["headers"] = []
    for name, content in record.headers:
        header: dict[str, Any] = {"key": name}
        _put(header, "value", content)
        line["headers"].append(header)
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def to_value(record: Any) -> bytes:
    return (record.value or b"") + b"\n"


def _headers(record: Any) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if v is None else v) for name, v in record.headers)


_FIELDS: dict[str, Callable[[Any], bytes]] = {
    "t": lambda r: r.topic.encode(),
    "p": lambda r: b"%d" % r.partition,
    "o": lambda r: b"%d" % r.offset,
    "T": lambda r: b"%d" % r.timestamp,
    "k": lambda r: r.key or b"",
    "K": lambda r: b"%d" % (-1 if r.key is None else len(r.key)),
    "s": lambda r: r.value or b"",
    "v": lambda r: r.value or b"",
    "S": lambda r: b"%d" % (-1 if r.value is None else len(r.value)),
    "h": _headers,
    "%": lambda r: b"%",
}


def template(text: str) -> Callable[[Any], bytes]:
    """kcat's -f: %t topic, %p partition, %o offset, %T timestamp, %k key, %s value, %h headers; \\n, \\t as in C."""
    parts: list[bytes | Callable[[Any], bytes]] = []
    place = 0
    while place < len(text):
        char, after = text[place], text[place + 1 : place + 2]
        if char == "%":
            if after not in _FIELDS or not after:
                raise WrongInput(f"--format: %{after} is unknown; use {' '.join(f'%{field}' for field in _FIELDS)}")
            parts.append(_FIELDS[after])
            place += 2
        elif char == "\\" and after in _ESCAPES:
            parts.append(_ESCAPES[after])
            place += 2
        else:
            parts.append(char.encode())
            place += 1
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def formatter(name: str) -> Callable[[Any], bytes]:
    """Of `value`, `json`, or a template, which has a % in it."""
    if name == "json":
        return to_json
    if name == "value":
        return to_value
    if "%" in name:
        return template(name)
    raise WrongInput(f"--format takes value, json or a template such as '%k: %s\\n', not {name!r}")


# -- from text --------------------------------------------------------------------------------------------------------


def from_line(line: bytes, key_separator: bytes | None) -> Outgoing:
    if key_separator is None:
        return Outgoing(line)
    key, found, value = line.partition(key_separator)
    if not found:
        raise WrongInput(f"no key separator {key_separator.decode()!r} in the line {_short(line)}")
    return Outgoing(value, key)


def from_json(line: bytes) -> Outgoing:
    """An object with key, value, headers, partition, timestamp, each optional; others are passed over."""
    try:
        found = json.loads(line)
    except (ValueError, UnicodeDecodeError):
        raise WrongInput(f"not JSON: {_short(line)}; with --format json every line is one object") from None
    if not isinstance(found, dict):
        raise WrongInput(f'not a JSON object: {_short(line)}; give {{"key": ..., "value": ...}}')
    return Outgoing(
        _content(found, "value"),
        _content(found, "key"),
        _read_headers(found.get("headers") or []),
        _number(found, "partition"),
        _number(found, "timestamp"),
    )


def _content(found: Mapping[str, Any], name: str) -> bytes | None:
    encoded = found.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise WrongInput(f"{name}_base64 is not base64: {_short(str(encoded).encode())}") from None
    value = found.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _read_headers(given: Any) -> tuple[Header, ...]:
    if isinstance(given, dict):
        return tuple((name, _content({"value": value}, "value")) for name, value in given.items())
    if isinstance(given, list) and all(isinstance(one, dict) and isinstance(one.get("key"), str) for one in given):
        return tuple((one["key"], _content(one, "value")) for one in given)
    raise WrongInput('headers must be an object or a list of {"key": ..., "value": ...}')


def _number(found: Mapping[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise WrongInput(f"{name} must be a whole number, not {value!r}")
    return value


def _short(line: bytes) -> str:
    text = line.decode(errors="replace")
    return repr(text if len(text) <= 60 else text[:57] + "...")
