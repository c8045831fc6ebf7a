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
