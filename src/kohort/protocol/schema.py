"""What a message looks like in each version, read from definitions.json. How they become bytes is codegen's matter."""

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

FOREVER = 1 << 15

ZERO_UUID = bytes(16)

_ZERO: dict[str, Any] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": ZERO_UUID,
}


@dataclass(frozen=True, slots=True)
class Versions:
    """A closed range of versions; `none` is the empty range."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str | None) -> "Versions":
        if text is None or text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), FOREVER)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


_versions = cache(Versions.parse)


class Field(NamedTuple):
    """One field of a struct over all versions. `struct` is set where the type, or the element type, is a struct."""

    name: str
    type: str
    is_array: bool
    struct: "StructDefinition | None"
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: Any
    ignorable: bool
    flexible: Versions | None


class StructDefinition(NamedTuple):
    name: str
    fields: tuple[Field, ...]


class MessageDefinition(NamedTuple):
    """A request, a response, or the key or value of a coordinator's record."""

    name: str
    type: str
    api_key: int | None
    valid: Versions
    flexible: Versions
    latest_unstable: bool
    root: StructDefinition
    structs: dict[str, StructDefinition]


@cache
def snake_case(name: str) -> str:
    """Kafka's CamelCase to Python's snake_case: `GroupInstanceId` -> `group_instance_id`, `ISRNodes` -> `isr_nodes`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _default(kind: str, is_array: bool, is_struct: bool, given: Any) -> Any:
    if given == "null":
        return None
    if is_array:
        return []
    if is_struct:
        return {}
    if given is None or given == "":
        return _ZERO.get(kind, 0)
    if kind == "bool":
        return given in (True, "true")
    if kind == "float64":
        return float(given)
    if kind == "string":
        return given
    return given if isinstance(given, int) else int(given, 0)


class _Reader:
    """Turns one compact definition into a MessageDefinition, resolving structs by name within it."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.structs: dict[str, StructDefinition] = {}
        self.common = definition.get("structs", {})

    def struct(self, name: str, rows: list[list[Any]]) -> StructDefinition:
        if name not in self.structs:
            self.structs[name] = StructDefinition(name, tuple(self.field(*row) for row in rows))
        return self.structs[name]

    def field(self, name: str, kind: str, versions: str, options: dict[str, Any] | None = None) -> Field:
        options = options or {}
        is_array = kind.startswith("[]")
        element = kind.removeprefix("[]")
        struct = None
        if element[0].isupper():
            struct = self.struct(element, options.get("fields") or self.common.get(element, []))
        return Field(
            name=snake_case(name),
            type=element,
            is_array=is_array,
            struct=struct,
            versions=_versions(versions),
            nullable=_versions(options.get("nullable")),
            tagged=_versions(options.get("tagged")),
            tag=options.get("tag"),
            default=_default(element, is_array, struct is not None, options.get("default")),
            ignorable=options.get("ignorable", False),
            flexible=Versions.parse(options["flexible"]) if "flexible" in options else None,
        )


def _read(name: str) -> bytes:
    """A file beside this one, also in a zip; pkgutil, which does the same, takes longer to import than all of it."""
    data: bytes = __loader__.get_data(__file__.rpartition("schema.py")[0] + name)  # type: ignore[name-defined]
    return data


@cache
def _definitions() -> dict[str, dict[str, Any]]:
    text = _read("definitions.json")
    return {definition["name"]: definition for definition in json.loads(text)}


def message_names() -> list[str]:
    return list(_definitions())


def field_names(name: str) -> tuple[str, ...]:
    """Of a message itself, without what is within its fields; KeyError where there is none."""
    return tuple(snake_case(row[0]) for row in _definitions()[name]["fields"])


@cache
def message(name: str) -> MessageDefinition:
    """The schema of a message by Kafka's name; KeyError where there is none."""
    definition = _definitions()[name]
    reader = _Reader(definition)
    root = StructDefinition(name, tuple(reader.field(*row) for row in definition["fields"]))
    return MessageDefinition(
        name=name,
        type=definition["type"],
        api_key=definition.get("key"),
        valid=Versions.parse(definition["valid"]),
        flexible=Versions.parse(definition["flexible"]),
        latest_unstable=definition.get("unstable", False),
        root=root,
        structs=reader.structs,
    )
