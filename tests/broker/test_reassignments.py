"""Elections and reassignments at a broker that stands alone: all is answered, row by row, and nothing is changed.

That Kafka answers so is shown by tests/conformance/test_reassignments.py.
"""

import pytest

from kohort.broker import error_answers
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import AlterPartitionReassignmentsRequest as Alter
from kohort.protocol.messages import ElectLeadersRequest as Elect
from wire import World


@pytest.fixture
def world():
    world = World()
    world.create_topic("orders", 2)
    return world


def elect(world, *topics, version=2, **more):
    rows = [Elect.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics]
    request = Elect(**{"topic_partitions": rows, "timeout_ms": 1000, **more})
    answer = world.connect().call(request, version)
    found = [
        (topic.topic, [(row.partition_id, ErrorCode(row.error_code).name) for row in topic.partition_result])
        for topic in answer.replica_election_results
    ]
    return ErrorCode(answer.error_code).name, found


def alter(world, *rows, **more):
    partitions = [Alter.ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in rows]
    topics = [Alter.ReassignableTopic(name="orders", partitions=partitions)] if rows else []
    return world.connect().call(Alter(**{"topics": topics, "timeout_ms": 1000, **more}), 1)


def test_topics_are_answered_in_the_order_and_as_often_as_asked_for(world):
    asked = [("orders", [0, 0]), ("none", [3]), ("orders", [1, 9]), ("none", [])]
    assert elect(world, *asked) == (
        "NONE",
        [
            ("orders", [(0, "ELECTION_NOT_NEEDED")] * 2),
            ("none", [(3, "UNKNOWN_TOPIC_OR_PARTITION")]),
            ("orders", [(1, "ELECTION_NOT_NEEDED"), (9, "UNKNOWN_TOPIC_OR_PARTITION")]),
            ("none", []),
        ],
    )


def test_an_election_of_all_names_topics_without_what_needs_none(world):
    assert elect(world, topic_partitions=None) == ("NONE", [("orders", [])])


def test_an_unknown_election_type_is_answered(world):
    refused = "INVALID_REQUEST"
    assert elect(world, ("orders", [0, 9]), election_type=2) == (refused, [("orders", [(0, refused), (9, refused)])])
    assert elect(world, topic_partitions=None, election_type=-1) == (refused, [])
    assert elect(world, election_type=2) == ("NONE", [])


@pytest.mark.parametrize(("version", "top"), [(0, "NONE"), (1, "REQUEST_TIMED_OUT"), (2, "REQUEST_TIMED_OUT")])
def test_who_does_not_wait_is_told_that_it_takes_too_long(world, version, top):
    found = elect(world, ("orders", [0]), version=version, timeout_ms=0)
    assert found == (top, [("orders", [(0, "REQUEST_TIMED_OUT")])])
    answer = alter(world, (0, [0]), (1, None), timeout_ms=0, allow_replication_factor_change=False)
    codes = [row.error_code for row in answer.responses[0].partitions]
    assert [answer.error_code, *codes] == [ErrorCode.REQUEST_TIMED_OUT] * 3
    assert answer.allow_replication_factor_change is True
    assert alter(world, timeout_ms=0).error_code == ErrorCode.NONE


def test_an_unknown_broker_is_told_before_one_that_comes_twice_and_the_smallest_first(world):
    node = world.core.node_id
    rows = [[78, 77], [77, 77], [77, node, node], [-1], []]
    answer = alter(world, *((0, replicas) for replicas in rows))
    said = [(row.error_code, row.error_message) for row in answer.responses[0].partitions]
    assert {code for code, _ in said} == {ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    parts = ["broker 77,", "broker 77,", f"broker {node} more", "broker -1,", "an empty"]
    for (_, message), part in zip(said, parts, strict=True):
        assert part in message


def test_a_code_that_says_it_all_has_no_message(world):
    (row,) = alter(world, (0, None)).responses[0].partitions
    assert (row.error_code, row.error_message) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_election_can_fail_as_a_whole_in_every_version(version):
    request = Elect(topic_partitions=[Elect.TopicPartitions(topic="orders", partitions=[0, 1])])
    answer = error_answers.entire("ElectLeaders", version, request, ErrorCode.REQUEST_TIMED_OUT)
    rows = [row.error_code for topic in answer.replica_election_results for row in topic.partition_result]
    assert rows == [ErrorCode.REQUEST_TIMED_OUT] * 2 if version == 0 else answer.error_code
