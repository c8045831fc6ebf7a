"""Fetched bytes become records as they are taken: a few kilobytes that hold millions cost what is polled, no more."""

import pytest

from kohort.client import chunks
from kohort.client.chunks import Chunk
from kohort.client.errors import RecordError
from kohort.client.types import TopicPartition
from kohort.records.batch import Compression, Record, build_batch
from kohort.records.fetch import decode_lists

TP = TopicPartition("t", 0)


def batch(start, count, step=1):
    records = [Record(start + number * step, 1, None, b"%d" % (start + number * step)) for number in range(count)]
    return build_batch(records, base_offset=start, compression=Compression.ZSTD)


def taken(chunk, count=7, value_of=None):
    found = []
    while not chunk.exhausted:
        found += chunk.take(count, None, value_of)
    return [(record.offset, record.value) for record in found]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(chunks, "WINDOW", 10)


@pytest.fixture
def decoded(monkeypatch):
    """How many records each decoding gave."""
    sizes = []

    def counting(*args, **kwargs):
        lists = decode_lists(*args, **kwargs)
        sizes.append(len(lists.offsets))
        return lists

    monkeypatch.setattr(chunks, "decode_lists", counting)
    return sizes


def test_many_records_are_decoded_as_they_are_taken(decoded):
    data = memoryview(batch(0, 95) + batch(95, 5))
    chunk = Chunk(TP, data, 3, 100, 0)
    chunk.take(1, None, None)
    assert decoded == [10]
    assert taken(chunk) == [(offset, b"%d" % offset) for offset in range(4, 100)]
    assert max(decoded) == 10


def test_few_records_are_decoded_at_once(decoded):
    assert len(taken(Chunk(TP, memoryview(batch(0, 10)), 0, 10, 0), count=3)) == 10
    assert decoded == [10]


def test_offsets_far_apart_take_few_looks(decoded):
    data = memoryview(batch(0, 12, step=100_000))
    assert [offset for offset, _ in taken(Chunk(TP, data, 0, 1_100_001, 0))] == list(range(0, 1_200_000, 100_000))
    assert len(decoded) < 60, "not one for every ten offsets"


def test_records_of_transactions_are_decoded_at_once(decoded):
    chunk = Chunk(TP, memoryview(batch(0, 30)), 0, 30, 0, aborted=[(7, 0)])
    assert len(taken(chunk)) == 30 and decoded == [30]


def test_a_deserializer_that_fails_late_hands_out_what_is_before(decoded):
    def value_of(value):
        if value == b"25":
            raise ValueError("no")
        return value

    chunk, found = Chunk(TP, memoryview(batch(0, 40)), 0, 40, 0), []
    with pytest.raises(RecordError, match="25"):
        while True:
            found += chunk.take(4, None, value_of)
    assert [record.offset for record in found] == list(range(25)) and not chunk.exhausted


def test_damage_in_a_later_window_is_told_with_its_place():
    data = bytearray(batch(0, 20) + batch(20, 20))
    data[-1] ^= 0xFF
    chunk = Chunk(TP, memoryview(bytes(data)), 0, 40, 0)
    with pytest.raises(RecordError):
        taken(chunk)
