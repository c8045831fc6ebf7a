"""The Spark source on a real Apache Kafka: groups as Kafka's own tools see them, transactions, compacted topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import kohort.spark
from apache_kafka import ApacheKafka, run_java
from broker_process import free_ports
from kohort.client.errors import AuthenticationError
from kohort.spark import fetch
from kohort.spark.offsets import Piece
from spark.query import Query, committed, create, produce, produce_transactions, stopping, unique, until
from spark.streams import share_and_take_over


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = kohort.spark.session("tests", "local[2]", {"spark.driver.memory": "512m", "spark.log.level": "ERROR"})
    yield session
    session.stop()


def describe(kafka: ApacheKafka, group: str, *what: str) -> list[dict[str, str]]:
    """What `kafka-consumer-groups --describe` prints, one dict a line."""
    command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    arguments = ("--bootstrap-server", kafka.bootstrap_servers, "--describe", "--group", group, *what)
    lines = [line.split() for line in run_java(command, *arguments).stdout.splitlines() if line.strip()]
    head = next(i for i, line in enumerate(lines) if line[0] == "GROUP")
    return [dict(zip(lines[head], line, strict=False)) for line in lines[head + 1 :]]


def test_queries_share_a_group_that_kafkas_tools_can_see(spark: Any, apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    def members_are_shown(group: str, topic: str) -> None:
        shown = describe(apache_kafka, group, "--members")
        assert len(shown) == 2 and all(line["CLIENT-ID"] == "kohort-spark" for line in shown)
        assert [line["#PARTITIONS"] for line in shown] == ["2", "2"]

    def the_lag_is_zero(group: str, topic: str) -> None:
        shown = describe(apache_kafka, group)
        assert [line["LAG"] for line in shown] == ["0"] * 4
        assert {line["TOPIC"] for line in shown} == {topic} and "-" not in {line["CONSUMER-ID"] for line in shown}

    share_and_take_over(spark, apache_kafka.bootstrap_servers, tmp_path, members_are_shown, the_lag_is_zero)


def test_queries_share_a_group_of_the_consumer_protocol(spark: Any, apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    """Two queries, a consumer of librdkafka, a kill -9: the same story, and the broker assigns."""

    def of_the_protocol(group: str, topic: str) -> None:
        shown = describe(apache_kafka, group, "--state")
        assert shown[0]["ASSIGNMENT-STRATEGY"] == "uniform"

    share_and_take_over(spark, apache_kafka.bootstrap_servers, tmp_path, of_the_protocol, protocol="consumer")


def test_a_group_of_the_consumer_protocol_without_a_standstill(apache_kafka: ApacheKafka) -> None:
    """A hand-over waits for the batch in flight, rereads nothing, and a static query finds its partitions again."""
    servers, topic, group = apache_kafka.bootstrap_servers, unique("orders"), unique()
    create(servers, topic)
    produce(servers, topic, [str(number) for number in range(80)])
    modern = {"subscribe": topic, "group_protocol": "consumer"}
    first = Query(servers, group, group_instance_id="one", **modern)
    until(first.plan)
    second = Query(servers, group, group_instance_id="two", **modern)
    with stopping(first, second):
        assert len(first.owned()) == 4, "the batch in flight keeps its partitions"
        assert first.run() == 80
        until(lambda: (not first.plan() and len(first.owned()) == len(second.owned()) == 2) or (second.plan() and None))
        produce(servers, topic, [str(number) for number in range(80, 160)])
        until(lambda: first.step() + second.step() is not None and len(first.rows) + len(second.rows) == 160)
        first.plan_nothing()
        second.plan_nothing()
        held, checkpoint = second.owned(), second.offset
        second.stop()
        again = Query(servers, group, checkpoint, group_instance_id="two", **modern)
        with stopping(again):
            until(lambda: again.step() is not None and again.owned() == held)
            assert len(first.owned()) == 2
    assert sorted(map(int, first.values() + second.values())) == list(range(160))


def test_transactions(apache_kafka: ApacheKafka) -> None:
    servers, topic = apache_kafka.bootstrap_servers, unique("payments")
    create(servers, topic, 1)
    producer = produce_transactions(servers, topic)
    producer.begin_transaction()
    producer.produce(topic, "still open", partition=0)
    producer.flush()
    committed_values = ["a0", "a1", "a2", "c0", "c1", "c2"]
    careful = Query(servers, unique(), subscribe=topic, isolation_level="read_committed")
    with stopping(careful):
        careful.step_until(6)
        assert careful.values() == committed_values
    hasty = Query(servers, unique(), subscribe=topic)
    with stopping(hasty):
        hasty.step_until(10)
        assert len(hasty.values()) == 10
    producer.abort_transaction(60)


def test_a_compacted_topic_is_read_over_its_gaps(apache_kafka: ApacheKafka) -> None:
    servers, topic = apache_kafka.bootstrap_servers, unique("prices")
    fast = {"cleanup_policy": "compact", "segment_ms": "100", "min_cleanable_dirty_ratio": "0.01"}
    create(servers, topic, 1, **fast, max_compaction_lag_ms="100", delete_retention_ms="0")
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "batch.num.messages": 5})

    def put(first: int, stop: int) -> None:
        for number in range(first, stop):
            producer.produce(topic, str(number), "same key", partition=0)
            producer.flush()

    put(0, 40)
    task = fetch.ReadTask((Piece(topic, 0, 0, 40),), ("offset", "value"), {"bootstrap.servers": servers}, True)

    def offsets() -> list[int]:
        time.sleep(0.5)
        put(40, 41)
        return [offset for batch in fetch.read(task) for offset in batch.column("offset").to_pylist()]

    left = until(lambda: len(found := offsets()) < 40 and [found], 120, "the cleaner has run")[0]
    assert left == sorted(left), "offsets that compaction removed are skipped, and that is no loss"


def test_a_broker_restart_within_a_batch() -> None:
    with ApacheKafka({"offsets.topic.num.partitions": 1, "group.min.session.timeout.ms": 100}) as kafka:
        servers, topic, group = kafka.bootstrap_servers, unique("orders"), unique()
        create(servers, topic)
        produce(servers, topic, [str(number) for number in range(400)])
        query = Query(servers, group, subscribe=topic, default_api_timeout_ms="120000")
        with stopping(query):
            until(query.plan)
            kafka.kill()
            kafka.start()
            query.run()
            produce(servers, topic, [str(number) for number in range(400, 800)])
            query.step_until(800)
            assert sorted(map(int, query.values())) == list(range(800))
            until(lambda: query.plan() or sum(committed(servers, group, topic).values()) == 800)


def test_sasl_for_the_member_and_for_tasks() -> None:
    kafka = ApacheKafka({"offsets.topic.num.partitions": 1})
    (port,) = free_ports(1)
    listeners = f"PLAINTEXT://127.0.0.1:{kafka.port},SASL_PLAINTEXT://127.0.0.1:{port}"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    kafka.config |= {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{kafka.controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login} user_alice="secret";',
    }
    with kafka:
        topic = unique("orders")
        create(kafka.bootstrap_servers, topic)
        produce(kafka.bootstrap_servers, topic, [str(number) for number in range(40)])
        user = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "alice"}
        query = Query(f"127.0.0.1:{port}", unique(), subscribe=topic, sasl_password="secret", **user)
        with stopping(query):
            query.step_until(40)
        with pytest.raises(AuthenticationError, match=r"refused sasl\.username=alice"):
            Query(f"127.0.0.1:{port}", unique(), subscribe=topic, sasl_password="wrong", **user)


def test_oauthbearer_and_a_jaas_line() -> None:
    kafka = ApacheKafka({"offsets.topic.num.partitions": 1})
    (port,) = free_ports(1)
    listeners = f"PLAINTEXT://127.0.0.1:{kafka.port},SASL_PLAINTEXT://127.0.0.1:{port}"
    security = "org.apache.kafka.common.security"
    kafka.config |= {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{kafka.controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{security}.plain.PlainLoginModule required user_alice="secret";'
        ),
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            f'{security}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
    }
    with kafka:
        topic = unique("orders")
        create(kafka.bootstrap_servers, topic)
        produce(kafka.bootstrap_servers, topic, [str(number) for number in range(40)])
        plain = f'{security}.plain.PlainLoginModule required username="alice" password="secret";'
        for login in (
            {"kafka.sasl.mechanism": "OAUTHBEARER", "kafka.sasl.oauthbearer.token.provider": "spark.unsecured:token"},
            {"kafka.sasl.jaas.config": plain},
        ):
            given = {"kafka.security.protocol": "SASL_PLAINTEXT", **login}
            query = Query(f"127.0.0.1:{port}", unique(), subscribe=topic, **given)
            with stopping(query):
                query.step_until(40)
        wrong = {"kafka.sasl.mechanism": "OAUTHBEARER", "kafka.sasl.oauthbearer.token.provider": "time:ctime"}
        with pytest.raises(AuthenticationError):
            Query(
                f"127.0.0.1:{port}", unique(), subscribe=topic, **{"kafka.security.protocol": "SASL_PLAINTEXT", **wrong}
            )
