"""Records that nobody can read, sent to a real Apache Kafka and to kohort: both refuse them, and neither stores them.

The codes are the same but for those in DIFFERENT, which docs/differences.md lists.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import kohort
from apache_kafka import ApacheKafka
from kohort.protocol import messages as m
from kohort.protocol.errors import ErrorCode
from records.test_validate import nonsense
from wire import WireClient, produce_request

NAMES = list(nonsense())
SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
DIFFERENT = {
    "offsets with a hole": ErrorCode.NONE,
    "offsets that stand still": ErrorCode.NONE,
    "a varint without an end": SERVER_ERROR,
    **{
        name: SERVER_ERROR
        for name in NAMES
        if name.startswith(("no GZIP", "no SNAPPY", "no LZ4", "no ZSTD", "half of"))
    },
}
"""What Kafka answers where we refuse with INVALID_RECORD."""


@pytest.fixture(scope="module")
def both(apache_kafka: ApacheKafka) -> Iterator[tuple[WireClient, WireClient]]:
    with kohort.Broker() as broker:
        clients = WireClient(apache_kafka.bootstrap_servers), WireClient(broker.bootstrap_servers)
        kind = m.CreateTopicsRequest
        topic = kind.CreatableTopic(name="unreadable", num_partitions=1, replication_factor=1)
        for client in clients:
            client.socket.settimeout(60)
            client.call(kind(topics=[topic], timeout_ms=30_000), 5)
        yield clients
        for client in clients:
            client.close()


def code(client: WireClient, batch: bytes) -> ErrorCode:
    """A topic that was just created is not there at once; a Kafka that had to wait for its machine leads nothing."""
    for _ in range(200):
        answer = client.call(produce_request("unreadable", batch), 9)
        found = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if found not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            return found
        time.sleep(0.1)
    raise AssertionError("the topic did not come")


@pytest.mark.parametrize("name", NAMES)
def test_the_same_refusal(both: tuple[WireClient, WireClient], name: str) -> None:
    theirs, ours = (code(client, nonsense()[name]) for client in both)
    assert ours == ErrorCode.INVALID_RECORD
    assert theirs == DIFFERENT.get(name, ours)
