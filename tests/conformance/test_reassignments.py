"""Elections of leaders and reassignments of partitions: a real Apache Kafka and kohort answer alike, field by field.

Once with one broker each, once with two: there partitions can really go elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest

import kohort
from apache_kafka import ApacheKafka, ApacheKafkaCluster
from conformance.test_broker_differential import plain
from kohort.protocol import messages as m
from kohort.protocol.errors import ErrorCode
from wire import WireClient

Both = list[WireClient]
Addresses = list[str]
TOPIC, ELSEWHERE = "reassigned", "reassigned-too"
PREFERRED, UNCLEAN = 0, 1
LIMIT_S = 60
GENERIC = {ErrorCode.ELECTION_NOT_NEEDED}
"""Kafka sends the sentence of the code, kohort its own: that there is one counts."""


class Case(NamedTuple):
    request: Any
    versions: list[int]


def shown(answer: Any) -> Any:
    """All that an answer says, with its messages and in its order."""
    if isinstance(answer, list):
        return [shown(row) for row in answer]
    if hasattr(answer, "unknown_tags"):
        fields = [name for name in type(answer).__slots__ if name not in ("unknown_tags", "throttle_time_ms")]
        found = {name: shown(getattr(answer, name)) for name in fields}
        if found.get("error_code") in GENERIC:
            found["error_message"] = bool(found["error_message"])
        return found
    return plain(answer)


def until(done: Any, what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def elect(*topics: tuple[str, list[int]], kind: int = PREFERRED, timeout_ms: int = 30_000) -> Any:
    make = m.ElectLeadersRequest
    rows = [make.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics]
    return make(election_type=kind, topic_partitions=rows, timeout_ms=timeout_ms)


def elect_all(kind: int = PREFERRED, timeout_ms: int = 30_000) -> Any:
    return m.ElectLeadersRequest(election_type=kind, topic_partitions=None, timeout_ms=timeout_ms)


def move(*topics: tuple[str, list[tuple[int, list[int] | None]]], timeout_ms: int = 30_000, change: bool = True) -> Any:
    make = m.AlterPartitionReassignmentsRequest
    rows = [
        make.ReassignableTopic(
            name=name,
            partitions=[make.ReassignablePartition(partition_index=index, replicas=to) for index, to in partitions],
        )
        for name, partitions in topics
    ]
    return make(topics=rows, timeout_ms=timeout_ms, allow_replication_factor_change=change)


def listed(*topics: tuple[str, list[int]], timeout_ms: int = 30_000) -> Any:
    make = m.ListPartitionReassignmentsRequest
    rows = [make.ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in topics]
    return make(topics=rows, timeout_ms=timeout_ms)


def listed_all(timeout_ms: int = 30_000) -> Any:
    return m.ListPartitionReassignmentsRequest(topics=None, timeout_ms=timeout_ms)


ELECTIONS = {
    "an unknown topic": elect(("none", [0])),
    "no topic name": elect(("", [0])),
    "an unknown partition": elect((TOPIC, [9])),
    "a negative partition": elect((TOPIC, [-1])),
    "the preferred leads already": elect((TOPIC, [0])),
    "a partition twice": elect((TOPIC, [0, 0])),
    "an unknown one and a known one": elect(("none", [0]), (TOPIC, [1, 7])),
    "a topic twice": elect((TOPIC, [0]), (TOPIC, [1])),
    "topics apart": elect((TOPIC, [0]), ("none", [0]), (TOPIC, [0])),
    "no topics": elect(),
    "a topic without partitions": elect((TOPIC, [])),
    "an unknown topic without partitions": elect(("none", [])),
    "no time": elect((TOPIC, [0]), timeout_ms=0),
    "less than no time": elect((TOPIC, [0]), timeout_ms=-1),
}
TYPED = {
    "unclean, there is a leader": elect((TOPIC, [0]), kind=UNCLEAN),
    "unclean, an unknown topic": elect(("none", [0]), kind=UNCLEAN),
    "another type": elect((TOPIC, [0, 9]), ("none", [0]), kind=2),
    "a negative type": elect((TOPIC, [0]), kind=-1),
    "another type, no topics": elect(kind=2),
    "another type, no time": elect((TOPIC, [0]), kind=2, timeout_ms=0),
    "another type, all": elect_all(kind=2),
}
"""Version 0 knows one type."""

MOVES = {
    "an unknown topic": move(("none", [(0, [1])])),
    "no topic name": move(("", [(0, [1])])),
    "an unknown partition": move((TOPIC, [(9, [1])])),
    "a negative partition": move((TOPIC, [(-1, [1])])),
    "no replicas": move((TOPIC, [(0, [])])),
    "a broker twice": move((TOPIC, [(0, [1, 1])])),
    "an unknown broker": move((TOPIC, [(0, [77])])),
    "a negative broker": move((TOPIC, [(0, [-1])])),
    "one more, unknown": move((TOPIC, [(0, [1, 77])])),
    "twice and unknown": move((TOPIC, [(0, [77, 77])])),
    "twice before unknown": move((TOPIC, [(0, [77, 1, 1])])),
    "two unknown": move((TOPIC, [(0, [78, 77])])),
    "a cancel of nothing": move((TOPIC, [(0, None)])),
    "a cancel at an unknown topic": move(("none", [(0, None)])),
    "a cancel at an unknown partition": move((TOPIC, [(9, None)])),
    "a cancel twice": move((TOPIC, [(0, None), (0, None)])),
    "wrong rows twice": move((TOPIC, [(0, []), (0, [77])])),
    "a topic twice": move((TOPIC, [(0, None)]), (TOPIC, [(1, None)])),
    "wrong and wrong elsewhere": move((TOPIC, [(0, None), (7, [1])]), ("none", [(0, [1])])),
    "no topics": move(),
    "a topic without partitions": move((TOPIC, [])),
    "an unknown topic without partitions": move(("none", [])),
    "no time": move((TOPIC, [(0, None)]), timeout_ms=0),
    "no time, a broker that is there": move((TOPIC, [(0, [1])]), timeout_ms=0),
    "no time, no topics": move(timeout_ms=0),
    "less than no time": move((TOPIC, [(0, None)]), timeout_ms=-1),
}
STEADY = {
    "no topics, the same number": move(change=False),
    "no replicas, the same number": move((TOPIC, [(0, [])]), change=False),
    "a cancel of nothing, the same number": move((TOPIC, [(0, None)]), change=False),
    "an unknown broker, the same number": move((TOPIC, [(0, [1, 77])]), change=False),
    "no time, the same number": move((TOPIC, [(0, [1])]), timeout_ms=0, change=False),
}
"""Version 0 cannot say that the number of replicas stays."""

LISTS = {
    "a topic": listed((TOPIC, [0, 1])),
    "an unknown topic": listed(("none", [0])),
    "no topic name": listed(("", [0])),
    "an unknown partition": listed((TOPIC, [9])),
    "no topics": listed(),
    "a topic without partitions": listed((TOPIC, [])),
    "a partition and a topic twice": listed((TOPIC, [0, 0]), (TOPIC, [0])),
    "all": listed_all(),
    "no time": listed((TOPIC, [0]), timeout_ms=0),
    "no time, all": listed_all(timeout_ms=0),
    "less than no time": listed((TOPIC, [0]), timeout_ms=-1),
}
CASES = {
    **{f"elect: {name}": Case(request, [0, 1, 2]) for name, request in ELECTIONS.items()},
    **{f"elect: {name}": Case(request, [1, 2]) for name, request in TYPED.items()},
    **{f"move: {name}": Case(request, [0, 1]) for name, request in MOVES.items()},
    **{f"move: {name}": Case(request, [1]) for name, request in STEADY.items()},
    **{f"list: {name}": Case(request, [0]) for name, request in LISTS.items()},
}


def prepared(addresses: Addresses) -> Addresses:
    for address in addresses:
        with closing(connected(address)) as client:
            make = m.CreateTopicsRequest
            topics = [make.CreatableTopic(name=n, num_partitions=2, replication_factor=1) for n in (TOPIC, ELSEWHERE)]
            client.call(make(topics=topics, timeout_ms=30_000), 5)
            for topic in (TOPIC, ELSEWHERE):
                until(lambda client=client, topic=topic: min(leaders(client, topic)) > 0, "a partition is not led")
    return addresses


def connected(address: str) -> WireClient:
    client = WireClient(address.split(",")[0])
    client.socket.settimeout(120)
    return client


def leaders(client: WireClient, topic: str) -> list[int]:
    asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)])
    rows = client.call(asked, 9).topics[0].partitions
    return [row.leader_id for row in sorted(rows, key=lambda row: row.partition_index)] or [-1]


@pytest.fixture(scope="module")
def one(apache_kafka: ApacheKafka) -> Iterator[Addresses]:
    with kohort.Broker(config={"node.id": 1}) as broker:
        yield prepared([apache_kafka.bootstrap_servers, broker.bootstrap_servers])


@pytest.fixture(scope="module")
def two(jdk: None) -> Iterator[Addresses]:
    with ApacheKafkaCluster(2, {"offsets.topic.num.partitions": 1}) as kafka, kohort.Cluster(2) as cluster:
        yield prepared([kafka.bootstrap_servers, cluster.bootstrap_servers])


@pytest.fixture(params=["one", "two"])
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    clients = [connected(address) for address in request.getfixturevalue(request.param)]
    yield clients
    for client in clients:
        client.close()


one_each = pytest.mark.parametrize("both", ["one"], indirect=True)
two_each = pytest.mark.parametrize("both", ["two"], indirect=True)


@pytest.mark.parametrize("name", CASES)
def test_refusals_and_what_changes_nothing(both: Both, name: str) -> None:
    case = CASES[name]
    for version in case.versions:
        theirs, ours = (shown(client.call(case.request, version)) for client in both)
        assert ours == theirs, f"version {version}"


@pytest.mark.parametrize("request_", [elect_all(), elect_all(UNCLEAN), elect_all(timeout_ms=0)])
def test_an_election_of_all_names_topics_but_not_partitions_that_need_none(both: Both, request_: Any) -> None:
    for version in (1, 2):
        found = []
        for client in both:
            answer = client.call(request_, version)
            rows = [row for row in answer.replica_election_results if row.topic in (TOPIC, ELSEWHERE)]
            found.append((answer.error_code, sorted(map(repr, map(shown, rows)))))
        assert found[1] == found[0]


@one_each
def test_a_move_to_where_a_partition_is(both: Both) -> None:
    for version in (0, 1):
        for request in (move((TOPIC, [(0, [1])])), move((TOPIC, [(0, [1]), (0, [1])]))):
            theirs, ours = (shown(client.call(request, version)) for client in both)
            assert ours == theirs


@two_each
def test_the_number_of_replicas_stays_where_it_is_to(both: Both) -> None:
    theirs, ours = (shown(client.call(move((TOPIC, [(0, [1, 2])]), change=False), 1)) for client in both)
    assert ours == theirs
    assert theirs["responses"][0]["partitions"][0]["error_code"] == ErrorCode.INVALID_REPLICATION_FACTOR


@two_each
def test_a_partition_moves_and_its_new_leader_is_preferred(both: Both) -> None:
    answers = []
    for client in both:
        to = 3 - leaders(client, ELSEWHERE)[0]
        said = [shown(client.call(move((ELSEWHERE, [(0, [to])]), change=False), 1))]
        until(lambda client=client, to=to: leaders(client, ELSEWHERE)[0] == to, "it did not move")
        until(lambda client=client: not client.call(listed_all(), 0).topics, "it is still listed")
        said += [
            shown(client.call(request, version))
            for request, version in [
                (elect((ELSEWHERE, [0])), 2),
                (move((ELSEWHERE, [(0, None)])), 1),
                (listed((ELSEWHERE, [0])), 0),
            ]
        ]
        answers.append(said)
    assert answers[1] == answers[0]


@two_each
def test_two_moves_of_one_partition_in_one_request(both: Both) -> None:
    """The last one counts."""
    answers = []
    for client in both:
        was = leaders(client, ELSEWHERE)[1]
        answers.append(shown(client.call(move((ELSEWHERE, [(1, [was]), (1, [3 - was])])), 1)))
        until(lambda client=client, was=was: leaders(client, ELSEWHERE)[1] == 3 - was, "it did not move")
    assert answers[1] == answers[0]
