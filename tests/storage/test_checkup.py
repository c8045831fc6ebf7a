"""A data directory that no broker uses: what is damaged is found and named, and a repair costs no more than it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.records.batch import Record, build_batch
from kohort.storage.checkup import Checkup, PartitionCheck
from kohort.storage.config import LogConfig
from kohort.storage.disk_store import LogStore
from kohort.storage.errors import StorageError
from kohort.storage.mending import KEPT

SEGMENT = "00000000000000000000.log"
CONFIG = LogConfig.parse({"segment.bytes": "1048576"})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Ten batches of three records in each of two partitions."""
    with_logs(tmp_path, range(10))
    return tmp_path


def with_logs(path: Path, values: range) -> None:
    store = LogStore(path)
    store.load(lambda name: CONFIG, now_ms=1_000)
    for partition in (0, 1):
        log = store.get("t", partition) or store.create("t", partition, b"\x01" * 16, CONFIG, now_ms=1_000)
        for value in values:
            records = [Record(i, 1_000, b"key %d" % i, b"value %03d" % value) for i in range(3)]
            log.append(build_batch(records), leader_epoch=0, now_ms=1_000)
    store.close()


def values(path: Path) -> dict[int, list[int]]:
    """Offsets by partition, as a broker would read them."""
    from kohort.records.batch import iter_batches

    store = LogStore(path)
    store.load(lambda name: CONFIG, now_ms=1_000)
    found = {}
    for partition in (0, 1):
        log = store.logs["t", partition]
        found[partition] = [
            header.base_offset for view in log.read(log.start_offset, 1 << 30) for _, header in iter_batches(view)
        ]
    store.close()
    return found


def batch_size(path: Path) -> int:
    return (path / "t-0" / SEGMENT).stat().st_size // 10


def harm(path: Path, position: int, data: bytes) -> None:
    with open(path / "t-0" / SEGMENT, "r+b") as file:
        file.seek(position)
        file.write(data)


def check(path: Path) -> list[PartitionCheck]:
    with Checkup(path) as checkup:
        return [checkup.check(*place) for place in checkup.partitions()]


def test_nothing_is_damaged(directory: Path) -> None:
    first, second = check(directory)
    assert (first.name, first.batches, first.records, first.damage) == ("t-0", 10, 30, [])
    assert second.name == "t-1" and first.bytes == (directory / "t-0" / SEGMENT).stat().st_size


@pytest.mark.parametrize("inside", [17, 70], ids=["checksum", "body"])
def test_a_batch_whose_checksum_is_wrong(directory: Path, inside: int) -> None:
    size = batch_size(directory)
    harm(directory, 3 * size + inside, b"\xff\xff")
    damaged, sound = check(directory)
    (damage,) = damaged.damage
    assert (damage.segment, damage.position, damage.size, damage.records) == (0, 3 * size, size, 3)
    assert (damage.offset, damage.next_offset) == (9, 12) and "checksum" in damage.reason
    assert not sound.damage


@pytest.mark.parametrize(
    ("inside", "data"),
    [(0, b"\x00" * 61), (8, b"\x00\x00\x00\x00"), (8, b"\x7f\xff\xff\xff"), (16, b"\x09"), (0, b"\xff" * 8)],
    ids=["zeroes", "short length", "long length", "magic", "offset"],
)
def test_bytes_that_are_no_batch(directory: Path, inside: int, data: bytes) -> None:
    size = batch_size(directory)
    harm(directory, 3 * size + inside, data)
    (damage,) = check(directory)[0].damage
    assert (damage.position, damage.size, damage.offset, damage.next_offset) == (3 * size, size, 9, 12)
    assert damage.records is None


def test_an_end_within_a_batch(directory: Path) -> None:
    size = batch_size(directory)
    with open(directory / "t-0" / SEGMENT, "r+b") as file:
        file.truncate(10 * size - 20)
    (damage,) = check(directory)[0].damage
    assert (damage.position, damage.next_offset, damage.records) == (9 * size, None, None)


def test_a_repair_takes_out_what_is_damaged_and_keeps_a_copy(directory: Path) -> None:
    size = batch_size(directory)
    harm(directory, 3 * size + 17, b"\xff\xff")
    harm(directory, 7 * size, b"\x00" * 61)
    bad = (directory / "t-0" / SEGMENT).read_bytes()
    with Checkup(directory) as checkup:
        kept = checkup.repair(checkup.check("t", 0))
        assert checkup.check("t", 0).damage == []
    assert [path.read_bytes() for path in kept] == [bad[3 * size : 4 * size], bad[7 * size : 8 * size]]
    assert {path.parent for path in kept} == {directory / KEPT / "t-0"}
    everything = [3 * i for i in range(10)]
    assert values(directory) == {0: [o for o in everything if o not in (9, 21)], 1: everything}
    with_logs(directory, range(10, 12))  # and the log goes on
    assert values(directory)[0][-2:] == [30, 33]


def test_a_repair_of_a_repair_has_nothing_to_do(directory: Path) -> None:
    harm(directory, 17, b"\xff\xff")
    with Checkup(directory) as checkup:
        checkup.repair(checkup.check("t", 0))
        assert checkup.repair(checkup.check("t", 0)) == []


def test_records_that_whoever_reads_them_cannot_read(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    store.load(lambda name: CONFIG, now_ms=1_000)
    log = store.create("__internal", 0, b"\x01" * 16, CONFIG, now_ms=1_000)
    for key in (b"good", b"bad", b"good"):
        log.append(build_batch([Record(0, 1_000, key, b"")]), leader_epoch=0, now_ms=1_000)
    store.close()
    with Checkup(tmp_path, lambda topic, record: "is bad" if record.key == b"bad" else None) as checkup:
        (damage,) = checkup.check("__internal", 0).damage
    assert (damage.offset, damage.records, damage.reason) == (1, 1, "the record at offset 1: is bad")


def test_a_directory_that_a_broker_uses_is_left_alone(directory: Path) -> None:
    store = LogStore(directory)
    with pytest.raises(StorageError, match="in use by another broker"):
        Checkup(directory)
    store.close()


def test_what_is_no_data_directory(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is no data directory"):
        Checkup(tmp_path)
    with pytest.raises(StorageError, match="is not a directory"):
        Checkup(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []
