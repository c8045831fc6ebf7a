"""The sequences of test_differential.py with the coordinator moved between requests, from one node of three to the
next: a real Apache Kafka of three nodes and a cluster of kohort answer alike, in every field.

Whoever waits for a join or a sync when its coordinator goes is told so by both; what the next one has loaded is the
group as it was stored. Kafka moves a leader by a reassignment and an election of the preferred one.

Each move of a real Kafka takes its time: `make conformance` plays some of the sequences, `make moved` all of them.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import kohort
from apache_kafka import ApacheKafkaCluster
from conformance import membership_scripts, offset_scripts, static_member_scripts
from conformance.group_script import SCRIPTS, TOPICS, Script
from conformance.random_groups import random_script
from conformance.sequencer import Play, Player, Sequence
from conformance.test_differential import CONFIG, ONE_AT_A_TIME, assert_equal_play, create_topics
from conformance.test_reassignments import elect, move
from kafka_socket import KafkaSocket
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.protocol.messages import DescribeGroupsRequest, MetadataRequest, OffsetCommitRequest

LIMIT_S = 60
NODES = (1, 2, 3)
ALL = os.environ.get("KOHORT_MOVED") == "all"
OFTEN = range(2 if ALL else 1)
RANDOM = range(40 if ALL else 2)
TIMELESS = (membership_scripts, offset_scripts, static_member_scripts)
APART = {"finding_the_coordinator"}
NAMES = [
    name
    for name, play in SCRIPTS.items()
    if play.__module__ in {module.__name__ for module in TIMELESS} and name not in APART
]
"""Sessions that run out meanwhile would have to run out between the same two requests: those are left out, and so is
what asks for the coordinators of transactions, which stay where they are."""
BETWEEN, ANYWHERE = (NAMES, NAMES) if ALL else (NAMES[::5], NAMES[2::12])


class MovingPlayer(Player):
    """Speaks to whoever coordinates now; `moves(number, whether somebody waits)` says before which steps it changes."""

    def __init__(self, nodes: Mapping[int, str], move_to: Callable[[int], None]) -> None:
        self._nodes = dict(nodes)
        self._move_to = move_to
        self._node = NODES[0]
        self._controls = {node: KafkaSocket(address) for node, address in nodes.items()}
        self.moves: Callable[[int, bool], bool] = lambda number, waits: False
        super().__init__(nodes[self._node], list(TOPICS))
        self.move()

    def connection(self) -> KafkaSocket:
        port = int(self.bootstrap_servers.rpartition(":")[2])
        kept = [one for one in self.idle if one.socket.getpeername()[1] == port]
        for other in set(self.idle) - set(kept):
            other.close()
        self.idle = kept
        return super().connection()

    def move(self) -> None:
        """To the next node; it has loaded all groups when this returns."""
        self._node = self._node % len(NODES) + 1
        self._move_to(self._node)
        self.bootstrap_servers, self.control = self._nodes[self._node], self._controls[self._node]
        until(lambda: not self.control.call(DescribeGroupsRequest(groups=["any"]), 5).groups[0].error_code)

    def commit_elsewhere(self) -> None:
        """To another group, in the same partition of the coordinator's topic."""
        kind = OffsetCommitRequest
        row = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = kind.OffsetCommitRequestTopic(name="t0", partitions=[row])
        answer = self.control.call(kind(group_id="elsewhere", topics=[topic]), 8)
        assert not answer.topics[0].partitions[0].error_code, answer

    def begin(self, sequence: Sequence) -> Play:
        return MovedPlay(self, sequence)

    def before(self, play: Any, number: int) -> None:
        if number and self.moves(number, bool(play.parked)):
            self.move()
            play.moved()


class MovedPlay(Play):
    player: MovingPlayer

    def _barrier(self) -> Any:
        """What was decided before is stored when a commit to the same partition is: that takes its time here."""
        self.player.commit_elsewhere()
        return super()._barrier()

    def moved(self) -> None:
        """Whoever waited is answered by the one that was."""
        until(lambda: len(self._readable()) == len(self.parked))
        self.lines.append("   (another node coordinates)")
        for answered, of, answer in self._settle():
            self.lines.append(f"   -> {answered}. {self._show(answer, of.version)}")
        self.lines.append(f"   group {self._described}")


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture(scope="module")
def kafka(jdk: None) -> Iterator[MovingPlayer]:
    with ApacheKafkaCluster(3, CONFIG | ONE_AT_A_TIME) as cluster:
        nodes = dict(zip(NODES, (node.bootstrap_servers for node in cluster.nodes), strict=True))
        create_topics(nodes[1])
        asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=OFFSETS_TOPIC)])
        with KafkaSocket(nodes[1]) as admin:

            def row() -> tuple[int, int]:
                (found,) = admin.call(asked, 9).topics[0].partitions
                return found.leader_id, found.replica_nodes[0]

            def move_to(node: int) -> None:
                others = [other for other in NODES if other != node]
                answer = admin.call(move((OFFSETS_TOPIC, [(0, [node, *others])])), 1)
                assert not answer.responses[0].partitions[0].error_code, answer
                until(lambda: row()[1] == node)
                admin.call(elect((OFFSETS_TOPIC, [0])), 2)
                until(lambda: row()[0] == node)

            player = MovingPlayer(nodes, move_to)
            yield player
            player.close()


@pytest.fixture(scope="module")
def other() -> Iterator[MovingPlayer]:
    with kohort.Cluster(3, CONFIG) as cluster:
        nodes = {node: broker.bootstrap_servers for node, broker in cluster.brokers.items()}
        create_topics(nodes[1])
        player = MovingPlayer(nodes, lambda node: cluster.move(OFFSETS_TOPIC, 0, to=node))
        yield player
        player.close()


def unless_somebody_waits(number: int, waits: bool) -> bool:
    return not waits


def now_and_then(seed: str) -> Callable[[int, bool], bool]:
    chance = random.Random(seed)
    drawn = [chance.random() < 0.3 for _ in range(1000)]
    return lambda number, waits: drawn[number]


def compare(kafka: MovingPlayer, other: MovingPlayer, sequence: Sequence, moves: Callable[[int, bool], bool]) -> None:
    kafka.moves = other.moves = moves
    assert_equal_play(kafka, other, sequence)


@pytest.mark.parametrize("name", BETWEEN)
def test_between_any_two_requests_while_nobody_waits(name: str, kafka: MovingPlayer, other: MovingPlayer) -> None:
    script = Script(name, f"{name}-moved")
    SCRIPTS[name](script)
    compare(kafka, other, script.sequence(), unless_somebody_waits)


@pytest.mark.parametrize("seed", OFTEN)
@pytest.mark.parametrize("name", ANYWHERE)
def test_anywhere(name: str, seed: int, kafka: MovingPlayer, other: MovingPlayer) -> None:
    script = Script(name, f"{name}-anywhere-{seed}")
    SCRIPTS[name](script)
    compare(kafka, other, script.sequence(), now_and_then(f"{name} {seed}"))


@pytest.mark.parametrize("seed", RANDOM)
def test_random(seed: int, kafka: MovingPlayer, other: MovingPlayer) -> None:
    compare(kafka, other, random_script(seed).sequence(), now_and_then(str(seed)))
