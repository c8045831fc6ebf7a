"""The same sequences of group requests to a real Apache Kafka and to kohort: every answer is equal, in every field.

KOHORT_DIFFERENTIAL=kafka compares two real Kafkas instead, which checks the test itself: what differs there is chance.
"""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Iterator

import pytest

from apache_kafka import ApacheKafka
from conformance import expiry_scripts, membership_scripts, offset_scripts, static_member_scripts  # noqa: F401
from conformance.group_script import SCRIPTS, TOPICS, Script
from conformance.random_groups import random_script
from conformance.sequencer import Player, Sequence
from kafka_socket import KafkaSocket
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import CreateTopicsRequest, FindCoordinatorRequest
from kohort_process import KohortProcess

CONFIG = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "group.max.session.timeout.ms": 1_800_000,
    "group.max.size": 4,
    "offsets.topic.num.partitions": 1,
    "auto.create.topics.enable": "false",
}
ONE_AT_A_TIME = {
    "num.network.threads": 1,
    "num.io.threads": 1,
    "group.coordinator.threads": 1,
    "group.coordinator.append.linger.ms": 0,
}
"""Kafka alone needs these: its threads would handle requests of two connections in any order."""

REWORDED = (
    (
        r"'error_message': (\"[^\"]+\"|'[^']+')",
        "'error_message': <words>",
        "kohort explains errors in words of its own",
    ),
)
"""Deliberate differences in what is said: (pattern in a line, what both sides are replaced by, the reason)."""

ANSWERED_BY_KOHORT_ALONE = {
    ErrorCode.REBALANCE_IN_PROGRESS: "a member repeats a parked request: Kafka forgets the first one, kohort ends it",
    ErrorCode.UNKNOWN_MEMBER_ID: "a member goes while its sync is parked: Kafka forgets the request, kohort ends it",
}
"""Deliberate differences in what is answered: requests that Kafka leaves open until the client gives up on them."""

TURNED_AWAY = f"'error_code': {int(ErrorCode.GROUP_MAX_SIZE_REACHED)},"
"""A deliberate difference in what happens: a member that group.max.size turns away in a rebalance ends the join phase
if it was the last that the others waited for; in Kafka these wait for the rebalance timeout. The two part there."""

VERSION_SEEDS = range(2)
RANDOM_SEEDS = range(160)


def create_topics(bootstrap_servers: str) -> None:
    kind = CreateTopicsRequest.CreatableTopic
    topics = [kind(name=name, num_partitions=count, replication_factor=1) for name, count in TOPICS.items()]
    with KafkaSocket(bootstrap_servers) as connection:
        answer = connection.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
        assert all(topic.error_code == 0 for topic in answer.topics), answer
        for key_type in (0, 1):  # the first question creates the coordinator's topic
            while connection.call(FindCoordinatorRequest(key="any", key_type=key_type), 1).error_code != 0:
                time.sleep(0.05)


@pytest.fixture(scope="module")
def kafka(jdk: None) -> Iterator[Player]:
    with ApacheKafka(CONFIG | ONE_AT_A_TIME) as broker:
        create_topics(broker.bootstrap_servers)
        player = Player(broker.bootstrap_servers, list(TOPICS))
        yield player
        player.close()


@pytest.fixture(scope="module")
def other(jdk: None) -> Iterator[Player]:
    twin = os.environ.get("KOHORT_DIFFERENTIAL") == "kafka"
    with ApacheKafka(CONFIG | ONE_AT_A_TIME) if twin else KohortProcess(CONFIG) as broker:
        create_topics(broker.bootstrap_servers)
        player = Player(broker.bootstrap_servers, list(TOPICS))
        yield player
        player.close()


def assert_equal_play(kafka: Player, other: Player, sequence: Sequence) -> None:
    expected, actual = compared(kafka.play(sequence), other.play(sequence))
    if expected != actual:
        diff = difflib.unified_diff(expected, actual, "Apache Kafka", "kohort", n=4, lineterm="")
        pytest.fail("\n".join(diff), pytrace=False)


def compared(expected: list[str], actual: list[str]) -> tuple[list[str], list[str]]:
    """Both transcripts without the deliberate differences."""
    expected, actual = until_they_part(expected, actual)
    answered = {number for line in expected if (number := answered_request(line)) is not None}
    allowed = tuple(f"'error_code': {int(code)}," for code in ANSWERED_BY_KOHORT_ALONE)
    kept = [
        line
        for line in actual
        if answered_request(line) in (None, *answered) or not any(code in line for code in allowed)
    ]
    return reworded(expected), reworded(kept)


def until_they_part(expected: list[str], actual: list[str]) -> tuple[list[str], list[str]]:
    """Up to a step in which both turn a member away and kohort alone answers those who waited for it."""
    theirs, ours = steps(expected), steps(actual)
    for number, (before, after) in enumerate(zip(theirs, ours, strict=False)):
        if TURNED_AWAY in "".join(before) and TURNED_AWAY in "".join(after):
            joined = [len([line for line in step if "JoinGroupResponse" in line]) for step in (before, after)]
            if joined[0] == 1 < joined[1]:
                return [line for step in theirs[:number] for line in step], [
                    line for step in ours[:number] for line in step
                ]
    return expected, actual


def steps(lines: list[str]) -> list[list[str]]:
    """A transcript by its requests, each with the lines that follow it."""
    found: list[list[str]] = [[]]
    for line in lines:
        if re.match(r"\d+\. ", line):
            found.append([])
        found[-1].append(line)
    return found


def answered_request(line: str) -> int | None:
    found = re.match(r" +-> (\d+)\. ", line)
    return int(found[1]) if found else None


def reworded(lines: list[str]) -> list[str]:
    for pattern, replacement, _ in REWORDED:
        lines = [re.sub(pattern, replacement, line) for line in lines]
    return lines


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str, kafka: Player, other: Player) -> None:
    script = Script(name, name)
    SCRIPTS[name](script)
    assert_equal_play(kafka, other, script.sequence())


@pytest.mark.parametrize("seed", VERSION_SEEDS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_in_any_versions(name: str, seed: int, kafka: Player, other: Player) -> None:
    script = Script(name, f"{name}-{seed}", seed)
    SCRIPTS[name](script)
    assert_equal_play(kafka, other, script.sequence())


@pytest.mark.parametrize("seed", RANDOM_SEEDS)
def test_random(seed: int, kafka: Player, other: Player) -> None:
    assert_equal_play(kafka, other, random_script(seed).sequence())
