"""Transactional batches that wait for an answer about their transaction: they are appended in the order they came."""

from types import SimpleNamespace

from kohort.broker.admission import ProduceAdmission, Turns
from kohort.protocol.errors import ErrorCode

NOW_MS = 1_000
TV2 = 12


class Core:
    """Asks nobody; what is asked is answered by the test, in any order."""

    def __init__(self):
        self.turns, self.asked, self.log = Turns(self), [], []

    def enlist(self, ask, asker, now_ms):
        self.asked.append(asker)

    def append(self, append):
        self.log.append(append.name)


class Producers:
    """The transaction is open here once the first batch is in the log."""

    def __init__(self, core):
        self._core = core

    def admission(self, producer_id, epoch, raises_epoch):
        return None if self._core.log else object()


class Partition:
    def __init__(self, producers):
        self.topic, self.index, self.log = SimpleNamespace(name="t"), 0, SimpleNamespace(producers=producers)


class Batch:
    def __init__(self, name, partition, told):
        self.name, self.partition, self.error, self.message = name, partition, ErrorCode.NONE, None
        self.header = SimpleNamespace(producer_id=7, producer_epoch=0)
        self.owner = SimpleNamespace(appended=lambda append, now_ms: told.append((append.name, append.error)))

    def fail(self, error, message=None):
        self.error, self.message = error, message


class World:
    def __init__(self):
        self.core, self.told = Core(), []
        self.partition = Partition(Producers(self.core))

    def produce(self, name):
        ProduceAdmission(self.core, TV2).admit("tx", [Batch(name, self.partition, self.told)], NOW_MS)

    def answer(self, number, error=ErrorCode.NONE):
        self.core.asked[number].answered({("t", 0): error}, NOW_MS)


def test_a_batch_that_need_not_be_asked_about_waits_for_the_one_before_it():
    world = World()
    world.produce("first")
    world.produce("second")
    world.answer(0)
    world.produce("third")
    assert world.core.log == ["first"], "the second is still asked about"
    world.answer(1)
    assert world.core.log == ["first", "second", "third"]
    world.produce("fourth")
    assert world.core.log[-1] == "fourth" and len(world.core.asked) == 2


def test_answers_that_come_in_another_order():
    world = World()
    world.produce("first")
    world.produce("second")
    world.answer(1)
    assert world.core.log == []
    world.answer(0)
    assert world.core.log == ["first", "second"]


def test_one_that_is_refused_keeps_nobody_waiting():
    world = World()
    world.produce("first")
    world.produce("second")
    world.answer(1)
    world.answer(0, ErrorCode.NETWORK_EXCEPTION)
    assert world.told == [("first", ErrorCode.NOT_ENOUGH_REPLICAS)] and world.core.log == ["second"]
    assert not world.core.turns._waiting and not world.core.turns._may_go


def test_a_partition_that_was_led_elsewhere_while_its_transaction_was_asked_about():
    """The other leader may have written the marker: what was asked before means nothing in the log as it is now."""
    world = World()
    world.produce("first")
    world.partition.log = SimpleNamespace(producers=Producers(world.core))
    world.answer(0)
    assert world.core.log == [] and world.told == [("first", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    world.produce("first")
    world.answer(1)
    assert world.core.log == ["first"]
