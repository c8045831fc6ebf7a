"""Control batches: the markers that end transactions, and the kinds a reader must tell apart."""

import struct

import pytest

from kohort.records.batch import CorruptBatch, Record, check_crc, read_header, read_records
from kohort.records.control import ControlType, EndTransactionMarker, build_marker, control_type, read_marker


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_marker_is_a_transactional_control_batch(kind: ControlType) -> None:
    batch = build_marker(
        kind,
        timestamp=5,
        producer_id=9,
        producer_epoch=3,
        coordinator_epoch=12,
        base_offset=70,
        partition_leader_epoch=1,
    )
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, -1)
    [record] = read_records(batch, 0, header)
    assert (record.offset, record.timestamp) == (70, 5)
    assert record.key == struct.pack(">hh", 0, kind)
    assert read_marker(record) == EndTransactionMarker(kind, 12)


def test_newer_versions_and_unknown_kinds_are_read_as_far_as_known() -> None:
    assert control_type(Record(0, 0, b"\0\x07\0\1more")) == ControlType.COMMIT
    assert control_type(Record(0, 0, b"\0\0\0\x2a")) == ControlType.UNKNOWN
    assert control_type(Record(0, 0, b"\0\0\xff\xff")) == ControlType.UNKNOWN
    assert control_type(Record(0, 0, b"\0\0\0\2")) == ControlType.LEADER_CHANGE


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_a_bad_control_key(key: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        control_type(Record(0, 0, key))


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\0\0\0\2", b"\0\0\0\0\0\1"), (b"\0\0\0\1", None), (b"\0\0\0\1", b"\0\0\0"), (b"\0\0\0\1", b"\xff" * 6)],
)
def test_a_bad_marker(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        read_marker(Record(0, 0, key, value))


def test_only_commits_and_aborts_end_transactions() -> None:
    with pytest.raises(ValueError, match="LEADER_CHANGE"):
        build_marker(ControlType.LEADER_CHANGE, timestamp=0, producer_id=1, producer_epoch=0, coordinator_epoch=0)
