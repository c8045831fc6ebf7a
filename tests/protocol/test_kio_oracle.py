"""The codec against kio, an independent implementation: every message and version that both have, byte for byte.

kio refuses unknown tagged fields and unknown error codes, so neither is sent; against Kafka's own classes they are.
"""

import dataclasses
import datetime
import importlib
import io
import uuid
from typing import Any

import pytest
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from kohort.protocol import messages, schema
from message_filler import fill

SEEDS = range(4)
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def kio_classes() -> list[tuple[str, str, int]]:
    """(Kafka's name, kio's module and class, version) of each message that kohort knows too."""
    known = set(schema.message_names())
    found = []
    for versions in schema_name_map.values():
        for version, kinds in versions.items():
            for path in kinds.values():
                name = path.rpartition(":")[2]
                if name in known and version in schema.message(name).valid:
                    found.append((name, path, version))
    return found


CASES = kio_classes()


def test_the_oracle_covers_the_protocol() -> None:
    assert len(CASES) > 600
    assert {"JoinGroupRequest", "FetchResponse", "ProduceRequest", "OffsetCommitResponse"} <= {
        name for name, _, _ in CASES
    }


@pytest.mark.parametrize("name", sorted({name for name, _, _ in CASES}))
def test_bytes_and_content_equal_kio(name: str) -> None:
    for path, version in [(path, version) for n, path, version in CASES if n == name]:
        module, _, class_name = path.partition(":")
        kio_class = getattr(importlib.import_module(module), class_name)
        read, write = entity_reader(kio_class), entity_writer(kio_class)
        for seed in SEEDS:
            message = fill(name, version, seed, unknown_tags=False, small_integers=True)
            data = message.encode(version)
            theirs, size = read(data, 0)
            assert size == len(data)
            assert_equal_content(message, theirs, f"{name} v{version} seed {seed}")
            out = io.BytesIO()
            write(out, theirs)
            assert out.getvalue() == data, f"{name} v{version} seed {seed}"
            assert getattr(messages, name).decode(out.getvalue(), version) == message


def assert_equal_content(ours: Any, theirs: Any, where: str) -> None:
    for name in (field.name for field in dataclasses.fields(theirs)):
        # kio drops the unit where it makes a timedelta, and keeps off the names of builtins
        our_name = next(n for n in (name, f"{name}_ms", name.rstrip("_")) if hasattr(ours, n))
        assert_equal_value(getattr(ours, our_name), getattr(theirs, name), f"{where}.{name}")


def assert_equal_value(ours: Any, theirs: Any, where: str) -> None:
    match theirs:
        case tuple():
            assert len(ours) == len(theirs), where
            for mine, other in zip(ours, theirs, strict=True):
                assert_equal_value(mine, other, where)
        case datetime.timedelta():
            assert ours == theirs // datetime.timedelta(milliseconds=1), where
        case datetime.datetime():
            assert ours == (theirs - EPOCH) // datetime.timedelta(milliseconds=1), where
        case uuid.UUID():
            assert ours == theirs.bytes, where
        case _ if dataclasses.is_dataclass(theirs):
            assert_equal_content(ours, theirs, where)
        case None if isinstance(ours, bytes):
            assert ours == schema.ZERO_UUID, where
        case _:
            assert ours == theirs, where
