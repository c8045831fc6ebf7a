"""A leader that stood still knows nothing of the next one: what it refuses for what its log knows is not told before a
write to its journal has shown that there is none."""

import pytest

from kohort.broker.appends import Append, Appends
from kohort.cluster.journal_writer import JournalWriter
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import Record, build_batch, read_header
from kohort.storage.config import LogConfig
from kohort.storage.journal_log import JournalLog, not_led


class Partition:
    deleted, leader_epoch, bytes_in, messages_in = False, 0, 0, 0

    def __init__(self, writer):
        self.log = JournalLog("orders", 0, LogConfig(), topic_id="topic", epoch=0)
        self.log.lead(writer)


class Owner:
    def __init__(self):
        self.told = []

    def appended(self, append, now_ms):
        self.told.append(append.error)


@pytest.fixture
def writer():
    return JournalWriter("1.1")


@pytest.fixture
def owner():
    return Owner()


@pytest.fixture
def appends(writer, owner):
    """The first batch of a producer is stored, then the seventh comes."""
    appends, partition = Appends(lambda: None), Partition(writer)
    for sequence in (0, 6):
        data = build_batch([Record(0, 0, b"k", b"v")], producer_id=1000, producer_epoch=0, base_sequence=sequence)
        appends.add(Append(partition, data, read_header(data), owner))
        appends.run(0)
        if not sequence:
            writer.stored(writer.next("nonce", 0), 0)
            appends.settle(0)
    assert owner.told == [ErrorCode.NONE]
    return appends


def test_a_leader_refuses_what_is_out_of_order_when_its_journal_was_written_to(appends, writer, owner):
    writer.stored(writer.next("nonce", 0), 0)
    appends.settle(0)
    assert owner.told == [ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_one_that_was_replaced_says_so_instead(appends, writer, owner):
    writer.next("nonce", 0)
    writer.close(not_led("orders", 0))
    appends.settle(0)
    assert owner.told == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_write_that_was_on_its_way_before_shows_nothing(writer):
    log, told = Partition(writer).log, []
    writer.add(log)
    before = writer.next("nonce", 0)
    log.confirm(told.append)
    writer.stored(before, 0)
    assert told == []
    writer.stored(writer.next("nonce", 0), 0)
    assert told == [None]
    log.give_up(not_led("orders", 0))
    log.confirm(told.append)
    assert told[1].code == ErrorCode.NOT_LEADER_OR_FOLLOWER
