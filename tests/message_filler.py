"""Instances of any message for codec tests, filled from its schema and a seed; the same seed gives the same instance.

Seed 0 leaves empty and null whatever can be, seed 1 sets every field, other seeds choose and add unknown tagged fields.
"""

import random
from typing import Any

from kohort.protocol import messages, schema

WORDS = ("orders", "größe", "日本語", "a.b-c_d", "🙂")
LIMITS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def fill(name: str, version: int, seed: int, *, unknown_tags: bool = True, small_integers: bool = False) -> Any:
    """An instance of the message with values in the fields that the version carries.

    `small_integers` keeps to numbers that are also known error codes and sensible times.
    """
    return Filler(name, version, seed, unknown_tags, small_integers).message()


def messages_and_versions() -> list[tuple[str, int]]:
    """Every message of the protocol with every version it has."""
    found = []
    for name in schema.message_names():
        valid = schema.message(name).valid
        found += [(name, version) for version in range(valid.low, valid.high + 1)]
    return found


class Filler:
    def __init__(self, name: str, version: int, seed: int, unknown_tags: bool, small_integers: bool) -> None:
        self.cls = getattr(messages, name)
        self.definition = schema.message(name)
        self.version = version
        self.seed = seed
        self.small_integers = small_integers
        self.random = random.Random(f"{name} {version} {seed}")
        self.unknown_tags = unknown_tags and version in self.definition.flexible and seed > 1

    def message(self) -> Any:
        return self.struct(self.definition.root, self.cls)

    def empty(self) -> bool:
        return self.seed == 0 or (self.seed > 1 and self.random.randrange(4) == 0)

    def struct(self, struct: schema.StructDefinition, cls: type) -> Any:
        values = {
            field.name: self.value(field)
            for field in struct.fields
            if self.version in field.versions and not (self.version in field.tagged and self.empty())
        }
        if self.unknown_tags and self.random.randrange(3) == 0:
            values["unknown_tags"] = {self.random.randrange(100, 100_000): self.bytes()}
        return cls(**values)

    def value(self, field: schema.Field) -> Any:
        if self.version in field.nullable and self.empty():
            return None
        if field.is_array:
            count = 0 if self.empty() else self.random.randrange(1, 4)
            return [self.element(field) for _ in range(count)]
        return self.element(field)

    def element(self, field: schema.Field) -> Any:
        if field.struct is not None:
            return self.struct(field.struct, getattr(self.cls, field.struct.name))
        match field.type:
            case "bool":
                return self.random.random() < 0.5
            case "float64":
                return self.random.gauss(0, 1e6)
            case "string":
                return self.text()
            case "bytes" | "records":
                return self.bytes()
            case "uuid":
                return self.random.randbytes(16)
            case kind:
                return self.integer(*LIMITS[kind])

    def integer(self, low: int, high: int) -> int:
        if self.small_integers:
            return self.random.randint(0, 100)
        return self.random.choice((low, high, 0, 1, self.random.randint(low, high), self.random.randint(low, high)))

    def text(self) -> str:
        if self.empty():
            return ""
        return self.random.choice((*WORDS, WORDS[0] * 30)) + str(self.random.randrange(1000))

    def bytes(self) -> bytes:
        return b"" if self.empty() else self.random.randbytes(self.random.randrange(200))
