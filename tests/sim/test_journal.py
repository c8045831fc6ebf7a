"""The journal knows what stood when; a damaged byte is one that can be mended."""

from typing import Any

import pytest

from kohort.coordinator.records import GroupMetadata, StoredGroup, encode, partition_for
from kohort.records.batch import Record, build_batch, check_crc, iter_batches
from kohort.sim.journal import Journal, Past
from kohort.storage.config import LogConfig
from kohort.storage.memory_log import MemoryLog


def test_the_past_is_what_stood_at_a_moment_and_all_that_came_after() -> None:
    past: Past[str] = Past()
    assert list(past.since(0)) == [None]
    past.add(3, "a")
    past.add(5, None)
    past.add(8, "b")
    assert list(past.since(2)) == ["b", None, "a", None]
    assert list(past.since(3)) == ["b", None, "a"]
    assert list(past.since(7)) == ["b", None]
    assert list(past.since(8)) == list(past.since(9)) == ["b"]
    assert past.now == "b"


@pytest.mark.parametrize("position", [17, 61, 70, 5_000])
def test_damage_changes_one_batch_and_once_more_undoes_it(position: int) -> None:
    log = MemoryLog("t", 0, LogConfig())
    for number in range(3):
        data = build_batch([Record(0, 1, b"k", b"v%d" % number), Record(1, 1, b"k", b"w")])
        log.append(data, leader_epoch=0, now_ms=1)

    def sound() -> list[bool]:
        return [check_crc(view, pos, header) for view in log.read(0, 1 << 20) for pos, header in iter_batches(view)]

    assert sound() == [True, True, True]
    log.damage(3, position)
    assert sound() == [True, False, True]
    log.damage(3, position)
    assert sound() == [True, True, True]


class Offsets:
    """An offsets topic that grows, and a trace that hears which groups have ended."""

    def __init__(self) -> None:
        self.logs = [MemoryLog("__consumer_offsets", 0, LogConfig())]
        self.ended: list[str] = []

    def get(self, topic: str, partition: int) -> Any:
        return self.logs[partition] if partition < len(self.logs) else None

    def group_removed(self, group_id: str) -> None:
        self.ended.append(group_id)

    def grow(self) -> None:
        self.logs.append(MemoryLog("__consumer_offsets", len(self.logs), LogConfig()))

    def store(self, partition: int, group_id: str, generation: int | None) -> None:
        stored = None if generation is None else StoredGroup("consumer", generation, None, None, 1, ())
        key, value = encode(GroupMetadata(group_id, stored))
        self.logs[partition].append(build_batch([Record(0, 1, key, value)]), leader_epoch=0, now_ms=1)


@pytest.mark.parametrize(("at_home", "ended"), [(6, []), (0, ["g"])])
def test_a_group_that_was_deleted_while_it_moved_has_ended(at_home: int, ended: list[str]) -> None:
    offsets = Offsets()
    journal = Journal(offsets, offsets)  # type: ignore[arg-type]
    offsets.store(0, "g", 6)
    journal.read()
    offsets.grow()
    assert partition_for("g", 2) == 1
    offsets.store(1, "g", at_home)
    offsets.store(0, "g", None)
    journal.read()
    assert offsets.ended == ended


@pytest.mark.parametrize("at_once", [True, False])
def test_a_group_that_moves_twice_has_not_ended(at_once: bool) -> None:
    offsets = Offsets()
    journal = Journal(offsets, offsets)  # type: ignore[arg-type]
    offsets.store(0, "e", 6)
    journal.read()
    offsets.grow()
    offsets.store(1, "e", 6)
    if not at_once:
        journal.read()
    offsets.grow()
    assert [partition_for("e", count) for count in (1, 2, 3)] == [0, 1, 2]
    offsets.store(0, "e", None)
    journal.read()
    assert offsets.ended == []
    now = journal.group("e").now
    assert now is not None and now.generation == 6
