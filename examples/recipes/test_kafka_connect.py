"""Kafka Connect: a worker with a connector between a file and a topic, each way, on a real broker.

pip install kohort pytest, a JDK 17 or newer and Maven, then `pytest test_kafka_connect.py`. A standalone worker keeps
the offsets of its sources in a file; sinks read as the group `connect-NAME`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from jvm import KAFKA, jars, running, until

ORDERS = [f"order {number}" for number in range(20)]


@pytest.fixture(scope="module")
def class_path() -> str:
    wanted = ("connect-runtime", "connect-file", "connect-json")
    return jars("connect", *(f"org.apache.kafka:{name}:{KAFKA}" for name in wanted), "org.slf4j:slf4j-simple:1.7.36")


def properties(path: Path, **settings: object) -> str:
    path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items()))
    return str(path)


@pytest.fixture
def worker(kohort_broker, class_path, tmp_path):
    """Starts a standalone worker with a connector."""

    def start(name: str, **connector: object):
        text = "org.apache.kafka.connect.storage.StringConverter"
        config = properties(
            tmp_path / "worker.properties",
            bootstrap_servers=kohort_broker.bootstrap_servers,
            key_converter=text,
            value_converter=text,
            offset_storage_file_filename=tmp_path / "offsets",
            offset_flush_interval_ms=100,
            listeners="http://127.0.0.1:0",
        )
        chosen = properties(tmp_path / f"{name}.properties", name=name, tasks_max=1, **connector)
        command = ("-cp", class_path, "org.apache.kafka.connect.cli.ConnectStandalone", config, chosen)
        return running(*command, log=tmp_path / f"{name}.log")

    return start


def test_a_source_writes_a_file_to_a_topic(worker, kohort_broker, kohort_topic, tmp_path):
    kohort_topic("orders")
    (tmp_path / "orders.txt").write_text("".join(f"{order}\n" for order in ORDERS))
    kind = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    with worker("reads", connector_class=kind, file=tmp_path / "orders.txt", topic="orders"):
        until(lambda: len(kohort_broker.records("orders")) >= len(ORDERS), tmp_path / "reads.log")
    assert [record.value.decode() for record in kohort_broker.records("orders")] == ORDERS


def test_a_sink_reads_a_topic_as_a_group_and_commits(worker, kohort_committed, kohort_topic, tmp_path):
    kohort_topic("orders", partitions=2, records=[order.encode() for order in ORDERS])
    out = tmp_path / "out.txt"
    kind = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    with worker("writes", connector_class=kind, file=out, topics="orders"):
        until(lambda: out.exists() and len(out.read_text().splitlines()) >= len(ORDERS), tmp_path / "writes.log")
        until(lambda: sum(kohort_committed("connect-writes").values()) == len(ORDERS), tmp_path / "writes.log")
    assert sorted(out.read_text().splitlines()) == sorted(ORDERS)
