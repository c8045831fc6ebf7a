"""The records of `__consumer_offsets`: the bytes Kafka 4.3 writes, and tolerance for what it does not know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.coordinator import records
from kohort.coordinator.records import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetCommit,
    StoredGroup,
    StoredMember,
    UnknownRecord,
    partition_for,
)
from kohort.protocol.messages import GroupMetadataValue, OffsetCommitValue
from kohort.protocol.uuids import ZERO_UUID

TOPIC_ID = bytes(range(16))


def test_an_offset_commit_byte_for_byte() -> None:
    change = OffsetCommit("g", "orders", 3, OffsetAndMetadata(258, 7, "", 1_000, -1, TOPIC_ID))
    key, value = records.encode(change)
    assert key == b"\x00\x01" + b"\x00\x01g" + b"\x00\x06orders" + b"\x00\x00\x00\x03"
    assert value == (
        b"\x00\x04"  # value version
        + b"\x00\x00\x00\x00\x00\x00\x01\x02"  # offset
        + b"\x00\x00\x00\x07"  # leader epoch
        + b"\x01"  # empty metadata
        + b"\x00\x00\x00\x00\x00\x00\x03\xe8"  # commit time
        + b"\x01\x00\x10"  # one tagged field: the topic id
        + TOPIC_ID
    )


def test_a_group_byte_for_byte() -> None:
    member = StoredMember("m", None, "c", "/h", 60_000, 10_000, b"sub", b"as")
    key, value = records.encode(GroupMetadata("g", StoredGroup("consumer", 5, "range", "m", 77, (member,))))
    assert key == b"\x00\x02\x00\x01g"
    assert value == (
        b"\x00\x03"
        + b"\x00\x08consumer"
        + b"\x00\x00\x00\x05"
        + b"\x00\x05range"
        + b"\x00\x01m"
        + b"\x00\x00\x00\x00\x00\x00\x00\x4d"
        + b"\x00\x00\x00\x01"
        + b"\x00\x01m\xff\xff\x00\x01c\x00\x02/h"
        + b"\x00\x00\xea\x60\x00\x00\x27\x10"
        + b"\x00\x00\x00\x03sub\x00\x00\x00\x02as"
    )


def test_tombstones() -> None:
    assert records.encode(OffsetCommit("g", "t", 0, None))[1] is None
    assert records.encode(GroupMetadata("g", None)) == (b"\x00\x02\x00\x01g", None)
    assert records.decode(b"\x00\x02\x00\x01g", None) == GroupMetadata("g", None)


@given(
    offset=st.integers(-1, 2**63 - 1),
    epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=300),
    commit_ms=st.integers(0, 2**62),
    topic_id=st.sampled_from([TOPIC_ID, ZERO_UUID]),
)
def test_our_encoder_is_the_protocols(offset: int, epoch: int, metadata: str, commit_ms: int, topic_id: bytes) -> None:
    value = OffsetAndMetadata(offset, epoch, metadata, commit_ms, -1, topic_id)
    message = OffsetCommitValue(
        offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=commit_ms, topic_id=topic_id
    )
    assert records.offset_value(value) == b"\x00\x04" + message.encode(4)
    key = records.offset_key("g", "t", 1)
    assert records.decode(key, records.offset_value(value)) == OffsetCommit("g", "t", 1, value)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_commit_can_be_read(version: int) -> None:
    message = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9, leader_epoch=3, expire_timestamp=12)
    decoded = records.decode(records.offset_key("g", "t", 1), version.to_bytes(2, "big") + message.encode(version))
    expected = OffsetAndMetadata(5, 3 if version >= 3 else -1, "m", 9, 12 if version == 1 else -1, ZERO_UUID)
    assert decoded == OffsetCommit("g", "t", 1, expected)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group_can_be_read(version: int) -> None:
    member = GroupMetadataValue.MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=10, rebalance_timeout=20, subscription=b"s"
    )
    message = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        current_state_timestamp=7,
        members=[member],
    )
    decoded = records.decode(records.group_key("g"), version.to_bytes(2, "big") + message.encode(version))
    assert isinstance(decoded, GroupMetadata) and decoded.value is not None
    assert decoded.value.state_timestamp_ms == (7 if version >= 2 else -1)
    assert decoded.value.members[0].rebalance_timeout_ms == (20 if version >= 1 else 10)


def test_an_offset_key_of_version_0() -> None:
    key, value = records.encode(OffsetCommit("g", "t", 1, OffsetAndMetadata(1, -1, "", 1, -1, TOPIC_ID)))
    assert records.decode(b"\x00\x00" + key[2:], value) == records.decode(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00\x03\x00\x01g", b"\x00\x00\x00\x00\x00\x01"),  # KIP-848: a consumer group
        (b"\x00\x11\x00\x01g", b""),
        (b"", b"x"),
        (b"\x00", None),
        (b"\x00\x01\x00\x09g", b"\x00\x04"),
        (b"\x00\x02\x00\x01g", b"\x00\x09\x00\x00"),
        (b"\x00\x02\x00\x01g", b""),
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x01", b"\x00\x05abc"),
    ],
)
def test_what_is_not_ours_is_said_to_be_unknown(key: bytes, value: bytes | None) -> None:
    with pytest.raises(UnknownRecord):
        records.decode(key, value)


@given(st.binary(max_size=60), st.one_of(st.none(), st.binary(max_size=60)))
def test_any_bytes_decode_or_are_unknown(key: bytes, value: bytes | None) -> None:
    try:
        records.decode(key, value)
    except UnknownRecord:
        pass


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("", 0),
        ("g", 103 % 50),
        ("console-consumer-12345", 158455506 % 50),
        ("polygenelubricants", 0),  # its hash is the smallest int, of which abs is 0
        ("\U0001f600", 1772899 % 50),
    ],
)
def test_the_partition_of_a_group_is_java_s(group_id: str, partition: int) -> None:
    assert partition_for(group_id, 50) == partition
