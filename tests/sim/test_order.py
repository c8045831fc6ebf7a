"""What is sent over one connection arrives in the order it was sent, whatever strikes on the way."""

from random import Random

from kohort.sim.network import Link, Network
from kohort.sim.scheduler import Scheduler, Stall


class Ear:
    """A broker's host that only listens."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def accept(self, link: Link) -> bool:
        return True

    def receive(self, link: Link, data: bytes) -> None:
        self.heard.append(data)

    def disconnected(self, link: Link) -> None:
        self.heard.append(b"closed")


def test_a_partition_that_heals_keeps_the_order_of_a_connection() -> None:
    for seed in range(50):
        scheduler, random = Scheduler(0), Random(seed)
        network = Network(scheduler, random, max_delay_ms=100)
        network.acceptors["b1"] = ear = Ear()
        link = Link(network, "m1", "b1", lambda data: None, lambda reason: None)
        sent = [b"%d" % number for number in range(40)]
        for number, data in enumerate(sent):
            scheduler.at(number * 10, link.to_broker, data)
        scheduler.at(random.randint(0, 200), network.partition, "m1")
        scheduler.at(random.randint(200, 400), network.heal, "m1")
        scheduler.at(random.randint(0, 200), network.partition, "b1")
        scheduler.at(random.randint(200, 400), network.heal, "b1")
        scheduler.run(1_000)
        assert ear.heard == sent, seed


def test_a_stalled_process_does_things_in_order_when_it_goes_on() -> None:
    scheduler = Scheduler(0)
    stall, done = Stall(scheduler), []

    def do(what: str) -> None:
        if not stall.holds(do, what):
            done.append((scheduler.now_ms, what))

    scheduler.at(0, stall.lasts, 100)
    scheduler.at(100, do, "due at the very end of the stall")  # made before the next, and due when that one goes on
    scheduler.at(50, do, "in the middle of it")
    scheduler.at(60, stall.lasts, 140)
    scheduler.at(70, do, "after it got longer")
    scheduler.at(300, do, "long after")
    scheduler.run(1_000)
    assert done == [
        (200, "in the middle of it"),
        (200, "after it got longer"),
        (200, "due at the very end of the stall"),
        (300, "long after"),
    ]


def test_a_process_that_died_does_nothing_of_what_it_held() -> None:
    scheduler = Scheduler(0)
    stall, done = Stall(scheduler), []
    stall.lasts(100)
    assert stall.holds(done.append, "lost")
    stall.forget()
    scheduler.run(200)
    assert not stall.holds(done.append, "never asked for") and done == []
