"""The small ZooKeeper keeps ZooKeeper's promises: order, one-shot watches, sessions, copies that may be old."""

from random import Random

import pytest

from kohort.schemes.process import Process
from kohort.schemes.znodes import NodeExists, NoNode
from kohort.schemes.zookeeper import Ensemble
from kohort.sim.scheduler import Scheduler

LEADER, BEHIND = 0, 1
TIMEOUT_MS = 6_000


class World:
    def __init__(self):
        self.scheduler = Scheduler(0)
        self.ensemble = Ensemble(self.scheduler, Random(1))
        self.heard = []

    def client(self, server, name="client"):
        return self.ensemble.connect(
            server,
            TIMEOUT_MS,
            lambda path: self.heard.append((name, path)),
            lambda: self.heard.append((name, "expired")),
        )

    def ask(self, operation):
        """The answer, or what it raises."""
        found = []

        def steps():
            try:
                found.append((yield operation))
            except (NoNode, NodeExists) as error:
                found.append(error)

        Process(self.scheduler, steps())
        self.scheduler.run(self.scheduler.now_ms + 200)
        return found[0] if found else None


@pytest.fixture
def world():
    return World()


def test_a_znode_is_created_once(world):
    first, second = world.client(LEADER), world.client(BEHIND)
    assert world.ask(first.create_ephemeral("/a/x", "first")) is None
    assert isinstance(world.ask(second.create_ephemeral("/a/x", "second")), NodeExists)
    assert world.ask(second.get("/a/x")) == "first"
    assert world.ask(second.children("/a")) == ["x"]
    assert isinstance(world.ask(second.get("/a/y")), NoNode)


def test_a_watch_is_good_for_one_time(world):
    watcher = world.client(BEHIND)
    world.ask(watcher.children("/a", watch=True))
    for name in "xy":
        world.ensemble.put(f"/a/{name}", "")
        world.scheduler.run(world.scheduler.now_ms + 200)
    assert world.heard == [("client", "/a")]
    assert world.ensemble.counts.notifications == 1
    world.ask(watcher.children("/a", watch=True))
    world.ensemble.put("/a/x", "changed")  # the same children as before
    world.ensemble.remove("/a/y")
    world.scheduler.run(world.scheduler.now_ms + 200)
    assert world.heard == [("client", "/a")] * 2


def test_a_follower_that_is_behind_shows_what_was_and_tells_late(world):
    on_leader, on_follower = world.client(LEADER, "leader"), world.client(BEHIND, "follower")
    for client in (on_leader, on_follower):
        world.ask(client.children("/a", watch=True))
    world.ensemble.servers[BEHIND].fall_behind(5_000)
    world.ensemble.put("/a/x", "")
    assert (world.ask(on_leader.children("/a")), world.ask(on_follower.children("/a"))) == (["x"], [])
    assert world.heard == [("leader", "/a")]
    world.scheduler.run(6_000)
    assert world.ask(on_follower.children("/a")) == ["x"]
    assert world.heard == [("leader", "/a"), ("follower", "/a")]


def test_who_writes_through_a_follower_reads_its_own_write(world):
    client = world.client(BEHIND)
    world.ensemble.servers[BEHIND].fall_behind(1_000)
    assert world.ask(client.create_ephemeral("/a/x", "mine")) is None
    assert world.ensemble.truth.get("/a/x") == "mine", "decided, though not answered"
    world.scheduler.run(1_100)
    assert world.ask(client.get("/a/x")) == "mine"


def test_ephemeral_znodes_end_with_their_session_and_not_with_a_short_silence(world):
    client, other = world.client(LEADER, "one"), world.client(LEADER, "other")
    world.ask(client.create_ephemeral("/a/x", ""))
    world.ask(other.children("/a", watch=True))
    client.cut()
    world.scheduler.run(world.scheduler.now_ms + TIMEOUT_MS - 1_000)
    client.heal()
    world.scheduler.run(world.scheduler.now_ms + 2 * TIMEOUT_MS)
    assert world.heard == []
    client.cut()
    world.scheduler.run(world.scheduler.now_ms + TIMEOUT_MS + 100)
    assert world.heard == [("other", "/a")], "the silent one does not know yet"
    client.heal()
    world.scheduler.run(world.scheduler.now_ms + 100)
    assert world.heard[-1] == ("one", "expired")
    assert world.ask(other.children("/a")) == []


def test_what_was_asked_while_cut_off_is_answered_in_the_new_session(world):
    client = world.client(LEADER)
    client.cut()
    asked = world.ask(client.create_ephemeral("/a/x", "late"))
    assert asked is None and "/a/x" not in world.ensemble.truth.nodes
    world.scheduler.run(TIMEOUT_MS + 500)
    client.heal()
    world.scheduler.run(world.scheduler.now_ms + 100)
    assert world.ensemble.truth.get("/a/x") == "late"
    assert world.ensemble.truth.nodes["/a/x"].session_id == client.session_id


def test_a_herd_makes_others_wait(world):
    herd = [world.client(LEADER) for _ in range(200)]
    for client in herd:
        world.ask(client.children("/a", watch=True))
    world.ensemble.counts.longest_wait_us = 0
    world.ensemble.put("/a/x", "")
    world.scheduler.run(world.scheduler.now_ms + 200)
    assert world.ensemble.counts.longest_wait_us == 200 * 35
