"""Commits decoded by columns are what decoding record by record says, whatever the bytes are."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.coordinator.records import OffsetAndMetadata, OffsetCommit, encode
from kohort.history import arrow, columnar
from kohort.protocol.messages import OffsetCommitValue
from kohort.protocol.uuids import ZERO_UUID
from kohort.records import kernel

NAME = st.text(max_size=8) | st.sampled_from(["orders", "g", "grüße", "", "名前"])
LONG = st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 10)


@st.composite
def values(draw: Any) -> bytes | None:
    version = draw(st.integers(0, 4))
    message = OffsetCommitValue(
        offset=draw(LONG),
        metadata=draw(NAME | st.just("m" * 300) | st.just("m" * 17_000)),
        commit_timestamp=draw(LONG),
    )
    if version == 1:
        message.expire_timestamp = draw(LONG)
    if version >= 3:
        message.leader_epoch = draw(st.integers(-1, 9))
    if version >= 4:
        message.topic_id = draw(st.sampled_from([ZERO_UUID, b"0123456789abcdef"]))
    return version.to_bytes(2, "big") + bytes(message.encode(version))


@st.composite
def keys(draw: Any) -> bytes:
    group, topic = draw(NAME).encode(), draw(NAME).encode()
    kind = draw(st.sampled_from([0, 1, 1, 1]))
    size, tail = struct.pack(">h", len(topic)), struct.pack(">i", draw(st.integers(-(2**31), 2**31 - 1)))
    return struct.pack(">hh", kind, len(group)) + group + size + topic + tail


@st.composite
def damaged(draw: Any, whole: Any) -> bytes:
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 2))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.sampled_from([0, 0, 0, 1, 5, 12]))
    return bytes(data[: len(data) - cut]) + draw(st.sampled_from([b"", b"", b"\x00", b"\xff\xff"]))


KEYS = keys() | damaged(keys()) | st.binary(max_size=20) | st.none()
VALUES = values() | damaged(values()) | st.binary(max_size=40) | st.none()


@pytest.mark.parametrize("use_kernel", [True, False])
@given(st.lists(st.tuples(KEYS, VALUES), max_size=12), st.integers(0, 3))
@settings(max_examples=300)
def test_columns_are_what_records_are(use_kernel: bool, pairs: list[tuple[Any, Any]], skipped: int) -> None:
    key = pa.array([key for key, _ in pairs], pa.binary()).slice(skipped)
    value = pa.array([value for _, value in pairs], pa.binary()).slice(skipped)
    with pytest.MonkeyPatch.context() as patch:
        if not use_kernel:
            patch.setattr(kernel, "load", lambda: None)
        decoded = arrow.decode_commits(key, value)
    decoded.validate(full=True)
    assert decoded.to_pylist() == arrow._one_by_one(key, value).to_pylist()


@pytest.mark.parametrize("metadata", ["", "hôtel", "m" * 200])
def test_what_kafka_writes_is_never_decoded_one_by_one(metadata: str) -> None:
    def commit(number: int) -> OffsetCommit:
        topic_id = ZERO_UUID if number % 2 else b"0123456789abcdef"
        kept = OffsetAndMetadata(number, 3, metadata, 1_000, 9_000 if number % 3 == 0 else -1, topic_id)
        return OffsetCommit(f"grüße-{number}", "orders", number, None if number % 7 == 0 else kept)

    key, value = (pa.array(column, pa.binary()) for column in zip(*(encode(commit(n)) for n in range(50)), strict=True))
    assert not columnar.decode(key, value).odd.any()
