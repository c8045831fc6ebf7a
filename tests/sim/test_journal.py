"""The journal knows what stood when; a damaged byte is one that can be mended."""

import pytest

from kohort.records.batch import Record, build_batch, check_crc, iter_batches
from kohort.sim.journal import Past
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
