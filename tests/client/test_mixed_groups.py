"""kohort's consumer in one group with confluent-kafka and kafka-python members: all is read, nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from client.conftest import Topics, until
from client.readers import Reader, check_all_read_once, confluent_reader, kafka_python_reader, kohort_reader

STRATEGIES = ["range", "roundrobin", "cooperative-sticky"]


@pytest.fixture
def readers() -> Iterator[list[Reader]]:
    running: list[Reader] = []
    yield running
    for reader in running:
        reader.stop()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_mixed_group_reads_everything(topics: Topics, group_id: str, readers: list[Reader], strategy: str) -> None:
    topic = topics.make(6)
    makers: list[Any] = [kohort_reader, confluent_reader]
    if strategy != "cooperative-sticky":  # kafka-python has no cooperative assignor
        makers.append(kafka_python_reader)
    for make in makers:
        readers.append(make(topics.servers, topic, group_id, strategy))
    share = 6 // len(makers)
    until(lambda: [reader.owned for reader in readers] == [share] * len(makers), "equal shares")
    topics.produce(topic, 300, 6)
    until(lambda: len({value for reader in readers for value in reader.values}) == 300, "300 records")

    first = readers.pop(0)
    first.stop()  # a clean hand-over re-reads nothing
    until(lambda: sum(reader.owned for reader in readers) == 6, "the others have taken over")
    topics.produce(topic, 300, 6)
    readers.append(kohort_reader(topics.servers, topic, group_id, strategy))
    everyone = [first, *readers]
    until(lambda: len({value for reader in everyone for value in reader.values}) == 600, "600 records")
    check_all_read_once(everyone, 600)


def test_either_can_lead(topics: Topics, group_id: str, readers: list[Reader]) -> None:
    """The first member leads: once librdkafka assigns for kohort, once kohort for librdkafka."""
    for number, makers in enumerate([(kohort_reader, confluent_reader), (confluent_reader, kohort_reader)]):
        topic, group = topics.make(4), f"{group_id}-{number}"
        pair = []
        for make in makers:
            pair.append(make(topics.servers, topic, group, "cooperative-sticky"))
            readers.append(pair[-1])
            until(lambda first=pair[0]: first.owned, "the first member")
        until(lambda both=pair: [reader.owned for reader in both] == [2, 2], "two each")
