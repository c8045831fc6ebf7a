"""When a journal is written to: at once where it is idle, else what gathers is one object; told in order of slots."""

import pytest

from kohort.cluster.journal import decode
from kohort.cluster.journal_writer import GATHER_MS, MAX_IN_FLIGHT, SPACING_MS, JournalWriter


class Log:
    topic_id, epoch = "topic", 0

    def __init__(self, partition=0):
        self.partition = partition
        self.end = self.taken = 0
        self.told = []

    def append(self, writer, count=1):
        self.end += count
        writer.add(self, count)

    def take_unjournaled(self, max_bytes):
        base, self.taken = self.taken, self.end
        return base, self.end, [b"x" * (self.end - base)] if self.end > base else []

    def take_start(self):
        return None

    def stored_to(self, offset, seq):
        self.told.append((offset, seq))

    def give_up(self, error):
        self.told.append(error)


@pytest.fixture
def writer():
    return JournalWriter("1.1")


def test_an_idle_journal_is_written_to_at_once(writer):
    log = Log()
    assert not writer.may_begin(0)
    for now_ms in (0, 1):
        log.append(writer)
        assert writer.may_begin(now_ms)
        writer.stored(writer.next("nonce", now_ms), now_ms)
    assert log.told == [(1, 0), (2, 1)]


def test_what_comes_while_an_object_is_under_way_is_one_object(writer):
    logs = [Log(0), Log(1)]
    logs[0].append(writer)
    first = writer.next("a", 100)
    for log in (*logs, *logs):
        log.append(writer)
        assert not writer.may_begin(100 + SPACING_MS - 1)
    writer.stored(first, 101)
    assert writer.may_begin(101)
    second = decode("", writer.next("b", 101).encoded())
    found = [(entry.partition, entry.base_offset, entry.next_offset) for entry in second.entries]
    assert found == [(0, 1, 3), (1, 0, 2)]
    assert second.stored == 0


def test_a_slow_store_gets_several_side_by_side_and_they_are_told_in_order(writer):
    log, writes = Log(), []
    for number in range(MAX_IN_FLIGHT):
        log.append(writer)
        now_ms = writer.next_deadline() if writes else 0
        assert now_ms == number * SPACING_MS
        assert writer.may_begin(now_ms)
        writes.append(writer.next("nonce", now_ms))
    log.append(writer)
    assert not writer.may_begin(1_000_000)
    assert writer.next_deadline() is None
    for write in reversed(writes):
        assert log.told == []
        writer.stored(write, 100)
    assert log.told == [(1, 0), (2, 1), (3, 2)]


def test_nobody_waits_for_a_time_at_which_nothing_can_begin(writer):
    assert writer.next_deadline() is None
    log = Log()
    log.append(writer)
    assert writer.next_deadline() is None  # at once
    writer.next("nonce", 0)
    assert writer.next_deadline() is None
    log.append(writer)
    assert writer.next_deadline() == SPACING_MS
    writer.close("over")
    assert writer.next_deadline() is None
    assert not writer.may_begin(1_000_000, even_empty=True)
    assert log.told == ["over"]


def test_a_word_without_records_waits_its_turn(writer):
    assert writer.may_begin(0, even_empty=True)
    write = writer.next("nonce", 0)
    assert not writer.may_begin(0, even_empty=True)
    writer.stored(write, 0)
    assert writer.may_begin(0, even_empty=True)


def test_those_who_were_answered_are_waited_for_until_half_of_them_are_there(writer):
    log = Log()
    log.append(writer, 100)
    writer.stored(writer.next("nonce", 0), 10)
    log.append(writer, 49)
    assert not writer.may_begin(10)
    assert writer.next_deadline() == 10 + GATHER_MS
    log.append(writer, 1)
    assert writer.may_begin(10)
    assert writer.next_deadline() is None


def test_nobody_is_waited_for_long(writer):
    log = Log()
    log.append(writer, 1_000_000)
    writer.stored(writer.next("nonce", 0), 10)
    log.append(writer)
    assert not writer.may_begin(10 + GATHER_MS - 1)
    assert writer.may_begin(10 + GATHER_MS)
    writer.stored(writer.next("nonce", 13), 14)
    log.append(writer)
    assert writer.may_begin(14)
