"""Client quotas on a real Apache Kafka and on kohort: what may be set, what is found again, how long one waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import kohort
from apache_kafka import ApacheKafka
from kohort.protocol import messages as m
from wire import WireClient, batch, fetch_request, produce_request

Both = tuple[WireClient, WireClient]
TOPIC = "quotas"


@pytest.fixture(scope="module")
def both(apache_kafka: ApacheKafka) -> Iterator[Both]:
    with kohort.Broker() as broker:
        clients = WireClient(apache_kafka.bootstrap_servers), WireClient(broker.bootstrap_servers)
        kind = m.CreateTopicsRequest
        topic = kind.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        for client in clients:
            client.socket.settimeout(120)
            client.call(kind(topics=[topic], timeout_ms=30_000), 5)
        yield clients
        for client in clients:
            client.close()


def alter(client: WireClient, parts: list[tuple[str, str | None]], ops: dict[str, float | None]) -> tuple[int, Any]:
    kind = m.AlterClientQuotasRequest
    entry = kind.EntryData(
        entity=[kind.EntityData(entity_type=kind_, entity_name=name) for kind_, name in parts],
        ops=[kind.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
    )
    row = client.call(kind(entries=[entry]), 1).entries[0]
    return row.error_code, row.error_message


def describe(client: WireClient, rows: list[tuple[str, int, str | None]], strict: bool) -> Any:
    kind = m.DescribeClientQuotasRequest
    asked = [kind.ComponentData(entity_type=kind_, match_type=how, match=match) for kind_, how, match in rows]
    answer = client.call(kind(components=asked, strict=strict), 1)
    if answer.error_code:
        return answer.error_code
    return sorted(
        (
            sorted((e.entity_type, str(e.entity_name)) for e in entry.entity),
            sorted((v.key, v.value) for v in entry.values),
        )
        for entry in answer.entries
    )


REFUSED: dict[str, tuple[list[tuple[str, str | None]], dict[str, float | None]]] = {
    "nobody": ([], {"producer_byte_rate": 1.0}),
    "another type": ([("color", "red")], {"producer_byte_rate": 1.0}),
    "an empty name": ([("user", "")], {"producer_byte_rate": 1.0}),
    "an address and a user": ([("ip", "10.0.0.1"), ("user", "a")], {"producer_byte_rate": 1.0}),
    "another key": ([("user", "a")], {"no_such": 1.0}),
    "connections of a user": ([("user", "a")], {"connection_creation_rate": 1.0}),
    "bytes of an address": ([("ip", "10.0.0.1")], {"producer_byte_rate": 1.0}),
    "less than nothing": ([("user", "a")], {"producer_byte_rate": -1.0}),
    "nothing": ([("user", "a")], {"consumer_byte_rate": 0.0}),
    "a part of a byte": ([("user", "a")], {"producer_byte_rate": 0.5}),
    "an address that is none": ([("ip", "no address at all")], {"connection_creation_rate": 1.0}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_quota(both: Both, name: str) -> None:
    theirs, ours = (alter(client, *REFUSED[name]) for client in both)
    assert ours == theirs


def test_what_was_set_is_found(both: Both) -> None:
    changes: list[tuple[list[tuple[str, str | None]], dict[str, float | None]]] = [
        ([("user", "alice")], {"producer_byte_rate": 1000.0, "request_percentage": 12.5}),
        ([("user", "alice"), ("client-id", None)], {"consumer_byte_rate": 5.0}),
        ([("user", None)], {"producer_byte_rate": 7.0}),
        ([("client-id", "app")], {"producer_byte_rate": 8.0}),
        ([("ip", "10.0.0.1")], {"connection_creation_rate": 9.0}),
        ([("ip", None)], {"connection_creation_rate": 10.0}),
        ([("client-id", "app")], {"producer_byte_rate": None, "consumer_byte_rate": 3.0}),
    ]
    for parts, ops in changes:
        theirs, ours = (alter(client, parts, ops) for client in both)
        assert ours == theirs == (0, None)
    time.sleep(1)  # a Kafka tells its broker by and by
    asked: list[list[tuple[str, int, str | None]]] = [
        [],
        [("user", 0, "alice")],
        [("user", 1, None)],
        [("user", 2, None)],
        [("user", 0, "alice"), ("client-id", 2, None)],
        [("client-id", 0, "app")],
        [("ip", 2, None)],
        [("ip", 0, "10.0.0.1")],
        [("ip", 2, None), ("user", 2, None)],
        [("color", 0, "red")],
        [("", 0, "red")],
        [("user", 2, None), ("user", 2, None)],
        [("user", 7, None)],
    ]
    for rows in asked:
        for strict in (False, True):
            theirs, ours = (describe(client, rows, strict) for client in both)
            assert ours == theirs, (rows, strict)
    for parts, ops in changes:
        for client in both:
            alter(client, parts, dict.fromkeys(ops))


def test_who_is_over_waits_as_long(both: Both) -> None:
    for client in both:
        alter(client, [("client-id", "test")], {"producer_byte_rate": 10_000.0, "consumer_byte_rate": 10_000.0})
    time.sleep(1)
    data = batch(b"x" * 110_000)
    theirs, ours = (client.call(produce_request(TOPIC, data), 9).throttle_time_ms for client in both)
    assert theirs > 500 and abs(ours - theirs) < 300, (ours, theirs)
    theirs, ours = (client.call(fetch_request(TOPIC, 0), 12) for client in both)
    assert theirs.throttle_time_ms > 500 and abs(ours.throttle_time_ms - theirs.throttle_time_ms) < 300
    assert not theirs.responses and not ours.responses
    for client in both:
        alter(client, [("client-id", "test")], {"producer_byte_rate": None, "consumer_byte_rate": None})


def create(client: WireClient, version: int, *topics: tuple[str, int]) -> Any:
    kind = m.CreateTopicsRequest
    rows = [kind.CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics]
    answer = client.call(kind(topics=rows, timeout_ms=30_000), version)
    return [(row.error_code, row.error_message) for row in answer.topics], answer.throttle_time_ms


def grow(client: WireClient, version: int, topic: str, count: int) -> Any:
    kind = m.CreatePartitionsRequest
    row = kind.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    answer = client.call(kind(topics=[row], timeout_ms=30_000), version)
    return [(row.error_code, row.error_message) for row in answer.results], answer.throttle_time_ms


def delete(client: WireClient, version: int, *topics: str) -> Any:
    answer = client.call(m.DeleteTopicsRequest(topic_names=list(topics), timeout_ms=30_000), version)
    message = (lambda row: row.error_message) if version >= 5 else (lambda row: None)
    return [(row.error_code, message(row)) for row in answer.responses], answer.throttle_time_ms


def fresh(both: Both) -> Both:
    first, second = (WireClient("{}:{}".format(*client.socket.getpeername()[:2])) for client in both)
    return first, second


def test_mutations_over_the_quota(both: Both) -> None:
    """A bucket of 11 seconds' worth: it may be overdrawn once, then nothing is changed until it is full again."""
    for client in both:
        alter(client, [("client-id", "test")], {"controller_mutation_rate": 2.0})
    time.sleep(1)
    steps: list[Any] = [
        lambda client: create(client, 7, ("m1", 10), ("m2", 20), ("m3", 1)),
        lambda client: grow(client, 3, "m1", 12),
        lambda client: delete(client, 5, "m1"),
        lambda client: create(client, 7, ("m4", 0)),
        lambda client: create(client, 5, ("m5", 1)),
        lambda client: delete(client, 4, "m5"),
        lambda client: delete(client, 5, "m2"),
    ]
    both = fresh(both)
    for number, step in enumerate(steps):
        theirs, ours = (step(client) for client in both)
        assert ours[0] == theirs[0], number
        assert abs(ours[1] - theirs[1]) < 1500 and bool(ours[1]) == bool(theirs[1]), (number, ours, theirs)
        following = fresh(both)  # nothing is read from the others for a while
        for client in both:
            client.close()
        both = following
    for client in both:
        alter(client, [("client-id", "test")], {"controller_mutation_rate": None})
    time.sleep(1)
    theirs, ours = (delete(client, 5, "m1", "m2") for client in both)
    assert ours == theirs
    for client in both:
        client.close()


@pytest.mark.parametrize("value", [0.5, 0.0, -1.0])
def test_what_is_a_rate_of_mutations(both: Both, value: float) -> None:
    for parts in ([("client-id", "other")], [("user", "u")], [("ip", "10.0.0.9")]):
        theirs, ours = (alter(client, parts, {"controller_mutation_rate": value}) for client in both)
        assert ours == theirs
        for client in both:
            alter(client, parts, {"controller_mutation_rate": None})
