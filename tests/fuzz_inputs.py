"""Inputs that get far: whole messages with something wrong in them. The same seed gives the same bytes."""

from __future__ import annotations

import os
import random
import struct
from typing import Any

from hypothesis import HealthCheck, settings

from kohort.protocol.frames import encode_request
from kohort.records.batch import Compression, Record, build_batch
from message_filler import fill

EXAMPLES = int(os.environ.get("KOHORT_FUZZ_EXAMPLES", "0"))
"""Many more than in every test run, and others each time: KOHORT_FUZZ_EXAMPLES=10000 pytest tests/fuzz."""

INTERESTING = [
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\x00\x00",
    b"\x7f\xff",
    b"\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\x7f" + b"\xff" * 7,
    b"\x80" + b"\x00" * 7,
]


def fuzzed(examples: int) -> settings:
    return settings(
        max_examples=EXAMPLES or examples,
        deadline=None,
        derandomize=not EXAMPLES,
        suppress_health_check=list(HealthCheck),
    )


def mutated(data: bytes, chance: random.Random, most: int = 4) -> bytes:
    """The bytes with up to `most` changes: bits, interesting numbers, cuts, repetitions."""
    made = bytearray(data)
    for _ in range(chance.randrange(most + 1)):
        at = chance.randrange(len(made) + 1)
        match chance.randrange(6):
            case 0 if at < len(made):
                made[at] ^= 1 << chance.randrange(8)
            case 1:
                number = chance.choice(INTERESTING)
                made[at : at + len(number)] = number
            case 2:
                made[at:at] = chance.choice(INTERESTING)
            case 3:
                del made[at : at + chance.randrange(1, 9)]
            case 4:
                del made[at:]
            case _:
                made[at:at] = made[at : at + chance.randrange(1, 40)]
    return bytes(made)


def small_batch(chance: random.Random) -> bytes:
    records = [
        Record(n, 1_000 + n, chance.choice([None, b"k"]), chance.randbytes(chance.randrange(30)))
        for n in range(chance.randrange(1, 4))
    ]
    return build_batch(records, compression=chance.choice(list(Compression)))


def request(name: str, version: int, chance: random.Random) -> Any:
    """A request that is about things that exist, more often than not."""
    made = fill(f"{name}Request", version, chance.randrange(1 << 16), small_integers=chance.random() < 0.7)
    if chance.random() < 0.8:
        _aim(made, chance)
    return made


def _aim(value: Any, chance: random.Random) -> None:
    for name in value.__slots__:
        inner = getattr(value, name)
        if name in ("group_id", "key") and isinstance(inner, str) and inner:
            setattr(value, name, "fuzzed")
        elif name in ("name", "topic") and isinstance(inner, str) and inner:
            setattr(value, name, chance.choice(["orders", "__consumer_offsets", inner]))
        elif name in ("index", "partition", "partition_index", "acks") and isinstance(inner, int):
            setattr(value, name, chance.choice([0, 1, -1]))
        elif name == "records":
            setattr(value, name, mutated(small_batch(chance), chance, 1))
        elif isinstance(inner, list):
            for item in inner:
                if hasattr(item, "__slots__"):
                    _aim(item, chance)


def frame(name: str, version: int, seed: int, changes: int = 3) -> bytes:
    """A request frame, without its size, that may be damaged."""
    chance = random.Random(seed)
    made = encode_request(1, chance.choice(["fuzz", None, ""]), version, request(name, version, chance))
    return mutated(b"".join(map(bytes, made))[4:], chance, changes)


def with_size(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data
