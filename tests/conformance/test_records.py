"""Record batches against Kafka's own classes: each reads what the other writes, and both refuse the same bytes."""

import random
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from apache_kafka import run_java
from kohort.records.batch import Compression, Record, build_batch, check_crc, iter_batches, read_header, read_records
from kohort.records.control import ControlType, build_marker
from kohort.records.errors import CorruptBatch
from kohort.records.fetch import decode_records

Ask = Callable[[list[str]], list[str]]


@pytest.fixture(scope="module")
def ask(java_classes: Path) -> Ask:
    """Sends lines to the Java harness and returns one answer for each."""

    def send(lines: list[str]) -> list[str]:
        done = run_java("RecordHarness", input="\n".join(lines) + "\n", extra_class_path=[java_classes], timeout=300)
        return done.stdout.split("\n")[: len(lines)]

    return send


def text(data: bytes | None) -> str:
    return "~" if data is None else b64encode(data).decode()


def describe(records: list[Record]) -> str:
    return ";".join(
        ",".join(
            [str(r.offset), str(r.timestamp), text(r.key), text(r.value)]
            + [f"{text(key.encode())}:{text(value)}" for key, value in r.headers]
        )
        for r in records
    )


def some_records(rng: random.Random, count: int) -> list[Record]:
    def maybe(size: int) -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.randrange(size)) + b"padding " * rng.randrange(20)

    timestamp = 1_700_000_000_000
    records = []
    for offset in range(count):
        timestamp += rng.randrange(-5000, 9000)
        headers = tuple((f"h{n}é", maybe(30)) for n in range(rng.choice([0, 0, 0, 1, 3])))
        records.append(Record(offset, timestamp, maybe(20), maybe(300), headers))
    return records


def tiny_records(rng: random.Random, count: int) -> list[Record]:
    def maybe() -> bytes | None:
        return rng.choice([None, b"", b"a", b"abc"])

    return [
        Record(n, 1000 + n, maybe(), maybe(), tuple(("h", maybe()) for _ in range(rng.choice([0, 0, 1, 2]))))
        for n in range(count)
    ]


def reading(batch: bytes) -> str:
    return f"read {text(batch)}"


@pytest.mark.parametrize("compression", Compression)
def test_kafka_reads_what_we_write(ask: Ask, compression: Compression) -> None:
    rng = random.Random(compression)
    worlds = [some_records(rng, count) for count in (1, 2, 50, 2000)]
    answers = ask([reading(build_batch(records, compression=compression)) for records in worlds])
    assert answers == [describe(records) for records in worlds]


@pytest.mark.parametrize("compression", Compression)
def test_we_read_what_kafka_writes(ask: Ask, compression: Compression) -> None:
    rng = random.Random(compression)
    worlds = [some_records(rng, count) for count in (1, 2, 50, 2000)]
    for records, answer in zip(
        worlds, ask([f"write {compression.name.lower()} {describe(records)}" for records in worlds]), strict=True
    ):
        batch = b64decode(answer)
        header = read_header(batch)
        assert check_crc(batch, 0, header)
        assert header.compression == compression
        assert read_records(batch, 0, header) == records
        assert decode_records(batch) == decode_records(batch, use_kernel=False) == records


def test_plain_batches_are_equal_byte_for_byte(ask: Ask) -> None:
    records = some_records(random.Random(5), 300)
    [answer] = ask([f"write none {describe(records)}"])
    assert b64decode(answer) == build_batch(records)


def test_kafka_reads_our_markers(ask: Ask) -> None:
    marker = build_marker(
        ControlType.ABORT, timestamp=7, producer_id=5, producer_epoch=1, coordinator_epoch=3, base_offset=44
    )
    [(pos, header)] = iter_batches(marker)
    assert ask([reading(marker)]) == [describe(read_records(marker, pos, header))]


def test_both_refuse_the_same_bytes(ask: Ask) -> None:
    """Bits flipped in the records of plain batches, under a right checksum; tiny fields, so that lengths are hit."""
    rng = random.Random(42)
    batches = []
    for _ in range(3000):
        batch = bytearray(build_batch(tiny_records(rng, rng.randrange(1, 5))))
        for _ in range(rng.choice([1, 1, 2, 3])):
            batch[rng.randrange(61, len(batch))] ^= 1 << rng.randrange(8)
        batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
        batches.append(bytes(batch))
    refused = 0
    for batch, answer in zip(batches, ask([reading(batch) for batch in batches]), strict=True):
        try:
            ours = describe(read_records(batch, 0, read_header(batch)))
        except CorruptBatch:
            ours = "refused"
        if answer.startswith("refused"):
            answer = "refused"
        refused += ours == "refused"
        if not has_replaced_characters(batch):
            assert answer == ours, text(batch)
    assert 300 < refused < 2700


def has_replaced_characters(batch: bytes) -> bool:
    """Java and Python differ in how many characters they put for bytes that are no UTF-8."""
    try:
        records = read_records(batch, 0, read_header(batch))
    except CorruptBatch:
        return False
    return any("\ufffd" in key for record in records for key, _ in record.headers)
