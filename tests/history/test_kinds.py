"""Every kind of record that Kafka 4.3 writes to `__consumer_offsets` is told by its key; nothing ends a reading."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.history import kinds
from kohort.protocol import messages
from message_filler import fill

MODERN = [kind for kind in kinds.KINDS.values() if kind.key is not None]


def test_all_types_of_kafka_are_known() -> None:
    types = {family: {k.key_type for k in kinds.KINDS.values() if k.family == family} for family in ("classic",)}
    assert types == {"classic": {0, 1, 2}}
    assert {k.key_type for k in MODERN if k.family == kinds.CONSUMER} == {3, 4, 5, 6, 7, 8, 16}
    assert {k.key_type for k in MODERN if k.family == kinds.SHARE} == {10, 11, 12, 13, 14, 15}
    assert {k.key_type for k in MODERN if k.family == kinds.STREAMS} == {17, 19, 20, 21, 22, 23}


def record(kind: kinds.RecordKind) -> tuple[bytes, bytes]:
    key = kind.key(group_id="g")
    if hasattr(key, "member_id"):
        key.member_id = "m"
    value = fill(f"{kind.name}Value", 0, 1, unknown_tags=False)
    return kind.key_type.to_bytes(2, "big") + bytes(key.encode(0)), b"\x00\x00" + bytes(value.encode(0))


@pytest.mark.parametrize("kind", MODERN, ids=lambda kind: kind.name)
def test_a_record_of_every_kind(kind: kinds.RecordKind) -> None:
    key, value = record(kind)
    assert kinds.kind_of(key, value) == (kind.key_type, kind.name, kind.family, None)
    row = kinds.modern_row(key, value)
    assert (row["group_id"], row["kind"], row["tombstone"]) == ("g", kind.name, False) and json.loads(row["data"])
    gone = kinds.modern_row(key, None)
    assert gone["tombstone"] and "data" not in gone
    for cut in range(2, len(value)):
        assert kinds.kind_of(key, value[:cut]).problem
    assert kinds.kind_of(key, b"\x00\x63" + value[2:]).problem
    assert kinds.kind_of(key[:-1], value).problem


def test_a_member_of_kip_848_as_json() -> None:
    partitions = messages.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
        topic_id=b"0123456789abcdef", partitions=[0, 2]
    )
    value = messages.ConsumerGroupCurrentMemberAssignmentValue(member_epoch=4, assigned_partitions=[partitions])
    row = kinds.modern_row(b"\x00\x08\x00\x01g\x00\x01m", b"\x00\x00" + bytes(value.encode(0)))
    assert (row["epoch"], row["member_id"]) == (4, "m")
    (held,) = json.loads(row["data"])["assigned_partitions"]
    assert (held["topic_id"], held["partitions"]) == ("MDEyMzQ1Njc4OWFiY2RlZg", [0, 2])


@given(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=30))
def test_reading_never_fails(key: bytes | None, value: bytes | None) -> None:
    assert kinds.kind_of(key, value).kind


@given(st.sampled_from(MODERN), st.data())
def test_damage_is_told(kind: kinds.RecordKind, data: Any) -> None:
    key, value = (bytearray(part) for part in record(kind))
    for part in (key, value):
        part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    assert kinds.kind_of(bytes(key), bytes(value)).kind
