"""Kafka Streams: a Java application with a repartition topic and a state store, tested from Python on a real broker.

pip install kohort pytest, a JDK 17 or newer and Maven, then `pytest test_kafka_streams.py`. The application joins a
group of its name with an assignor of its own; `kohort_broker.story("billing")` tells what happened to it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from jvm import KAFKA, jars, running, until

import kohort

PROGRAM = Path(__file__).with_name("Billing.java")


@pytest.fixture(scope="module")
def class_path() -> str:
    return jars("streams", f"org.apache.kafka:kafka-streams:{KAFKA}", "org.slf4j:slf4j-simple:1.7.36")


@pytest.fixture
def application(kohort_broker, kohort_topic, class_path, tmp_path):
    """Starts one, with a state directory of its own."""
    kohort_topic("invoices")
    kohort_topic("counts")
    kohort_topic("orders", partitions=2)

    def start(name: str):
        command = ("-cp", class_path, str(PROGRAM), kohort_broker.bootstrap_servers, str(tmp_path / name))
        return running(*command, log=tmp_path / f"{name}.log")

    return start


def order(broker, customer: str, *amounts: int) -> None:
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for amount in amounts:
            producer.send("orders", str(amount), key=customer)


def test_large_orders_are_billed_and_counted(kohort_broker, application, tmp_path):
    order(kohort_broker, "ada", *range(20))
    with application("one"):
        until(lambda: len(kohort_broker.records("counts")) >= 10, tmp_path / "one.log")
        until(lambda: len(kohort_broker.records("invoices")) >= 10, tmp_path / "one.log")
    assert [record.value for record in kohort_broker.records("invoices")] == [b"bill %d" % n for n in range(10, 20)]
    last = kohort_broker.records("counts")[-1]
    assert (last.key, last.value) == (b"of-ada", b"10")


def test_another_instance_goes_on_with_what_the_first_has_counted(kohort_broker, kohort_clock, application, tmp_path):
    order(kohort_broker, "ada", 10, 11, 12)
    with application("one"):
        until(lambda: len(kohort_broker.records("counts")) >= 3, tmp_path / "one.log")
    kohort_clock.advance(60)  # it was killed: its session is over at once
    with application("two"):
        order(kohort_broker, "ada", 13)
        until(lambda: kohort_broker.records("counts")[-1].value == b"4", tmp_path / "two.log")
