"""The same requests about KIP-848 groups to a real Apache Kafka and to kohort: every answer and every description of
the group equal, field by field. Sentences differ: kohort explains errors in words of its own.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator

import pytest

from apache_kafka import ApacheKafka
from conformance import consumer_change_scripts, consumer_scripts, migration_scripts  # noqa: F401
from conformance.consumer_play import SCRIPTS, Play, random_play
from conformance.sequencer import Player
from conformance.test_differential import ONE_AT_A_TIME, create_topics
from kafka_socket import KafkaSocket
from kohort.protocol.messages import CreatePartitionsRequest
from kohort_process import KohortProcess

CONFIG = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "offsets.topic.num.partitions": 1,
    "auto.create.topics.enable": "false",
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 50,
}
RANDOM_SEEDS = range(60)


class Side:
    def __init__(self, bootstrap_servers: str) -> None:
        create_topics(bootstrap_servers)
        with KafkaSocket(bootstrap_servers) as connection:
            grow = CreatePartitionsRequest.CreatePartitionsTopic(name="t0", count=6, assignments=None)
            answer = connection.call(CreatePartitionsRequest(topics=[grow], timeout_ms=30_000), 3)
            assert not answer.results[0].error_code
        self.connection = KafkaSocket(bootstrap_servers)
        self.ids = Player(bootstrap_servers, ["t0", "t1"]).topic_ids
        for number in range(200):  # Kafka's coordinator hears of the growth later
            play = self.play(f"ready-{number}")
            play.join("a")
            if len(play.owned["a"]["t0"]) == 6:
                break
            time.sleep(0.05)

    def play(self, group_id: str) -> Play:
        return Play(self.connection, group_id, self.ids)


@pytest.fixture(scope="module")
def kafka(jdk: None) -> Iterator[Side]:
    with ApacheKafka(CONFIG | ONE_AT_A_TIME) as broker:
        yield Side(broker.bootstrap_servers)


@pytest.fixture(scope="module")
def ours() -> Iterator[Side]:
    with KohortProcess(CONFIG) as broker:
        yield Side(broker.bootstrap_servers)


def compare(theirs: Play, mine: Play) -> None:
    if theirs.lines != mine.lines:
        diff = difflib.unified_diff(theirs.lines, mine.lines, "Apache Kafka", "kohort", n=4, lineterm="")
        pytest.fail("\n".join(diff), pytrace=False)


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str, kafka: Side, ours: Side) -> None:
    plays = [side.play(f"script-{name}") for side in (kafka, ours)]
    for play in plays:
        try:
            SCRIPTS[name](play)
        finally:
            play.close()
    compare(*plays)


@pytest.mark.parametrize("seed", RANDOM_SEEDS)
def test_random(seed: int, kafka: Side, ours: Side) -> None:
    plays = [side.play(f"random-{seed}") for side in (kafka, ours)]
    for play in plays:
        random_play(play, seed)
    compare(*plays)
