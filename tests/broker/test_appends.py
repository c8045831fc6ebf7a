"""Waking the loop for what has become durable: once for all of it, and never too late."""

from types import SimpleNamespace

from kohort.broker.appends import Append, Appends
from kohort.records.batch import Record, build_batch, read_header

DATA = build_batch([Record(0, 0, b"k", b"v")])


class Log:
    config = SimpleNamespace(flush_every_append=True)

    def __init__(self):
        self.callbacks = []

    def append(self, data, *, leader_epoch, now_ms):
        return SimpleNamespace(base_offset=0, last_offset=0, log_append_time_ms=-1, log_start_offset=0)

    def flush_async(self, callback):
        self.callbacks.append(callback)


class Partition:
    deleted, leader_epoch, bytes_in, messages_in = False, 0, 0, 0

    def __init__(self):
        self.log = Log()


class Owner:
    def __init__(self):
        self.told = 0
        self.then = None

    def appended(self, append, now_ms):
        self.told += 1
        if self.then is not None:
            then, self.then = self.then, None
            then()


def appended(count):
    """So many partitions with an append that waits for the disk."""
    woken, owner = [], Owner()
    appends = Appends(lambda: woken.append(True))
    partitions = [Partition() for _ in range(count)]
    for partition in partitions:
        appends.add(Append(partition, DATA, read_header(DATA), owner))
    appends.run(0)
    return appends, owner, woken, [partition.log.callbacks[0] for partition in partitions]


def test_what_becomes_durable_together_wakes_once():
    appends, owner, woken, durable = appended(3)
    for done in durable:
        done(None)
    assert woken == [True]
    appends.settle(0)
    assert owner.told == 3


def test_what_becomes_durable_while_others_are_told_wakes_again_or_is_told_too():
    appends, owner, woken, durable = appended(2)
    durable[0](None)
    owner.then = lambda: durable[1](None)
    appends.settle(0)
    assert owner.told == 2 or len(woken) == 2


def test_a_wake_for_what_was_told_already_does_not_swallow_the_next():
    appends, owner, woken, durable = appended(3)
    durable[0](None)
    owner.then = lambda: durable[1](None)  # told in the same go, and has woken the loop for nothing
    appends.settle(0)
    assert appends.woken
    appends.settle(0)  # the turn that this wake began
    durable[2](None)
    assert len(woken) == 3
    appends.settle(0)
    assert owner.told == 3
