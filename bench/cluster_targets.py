"""Clusters under measurement: brokers of kohort as processes over one store, and an Apache Kafka of three nodes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from apache_kafka import PRODUCTION_JVM, ApacheKafkaCluster
from broker import PRODUCE_VERSION, batch_of
from broker_process import free_ports
from kafka_socket import KafkaSocket
from kohort.protocol.messages import CreateTopicsRequest, FindCoordinatorRequest, MetadataRequest, ProduceRequest
from kohort_process import KohortProcess
from targets import Target

BUCKET = "bench"
S3_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


class ClusterBroker(KohortProcess):
    """`kohort serve --cluster`."""

    side = "kohort"

    def __init__(self, store: str, node_id: int, config: Mapping[str, object]) -> None:
        super().__init__(config, log_level="error")
        self.node_id = node_id
        self._store = store

    def _command(self) -> list[str]:
        command = super()._command()
        at = command.index("--data-dir")
        del command[at : at + 2]
        return [*command, "--cluster", self._store, "--node-id", str(self.node_id)]


class Cluster:
    """Any number of brokers of one side. `targets` by node id."""

    def __init__(self, side: str, targets: Mapping[int, Target]) -> None:
        self.side = side
        self.targets = dict(targets)

    @property
    def any(self) -> str:
        return next(target.bootstrap_servers for target in self.targets.values())

    def coordinator(self, group_id: str, ask: str | None = None) -> Target | None:
        """Who says that it is; None where the one that is asked knows none."""
        with KafkaSocket(ask or self.any, timeout=5) as connection:
            answer = connection.call(FindCoordinatorRequest(key=group_id), 1)
        return self.targets.get(answer.node_id) if answer.error_code == 0 else None

    def found(self, group_id: str) -> Target:
        deadline = time.monotonic() + 60
        while (found := self.coordinator(group_id)) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{group_id} has no coordinator in 60 s")
            time.sleep(0.05)
        return found

    def leader(self, topic: str, partition: int) -> Target:
        deadline = time.monotonic() + 60
        while True:
            with KafkaSocket(self.any) as connection:
                wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
                rows = connection.call(wanted, 4).topics[0].partitions
            leaders = {row.partition_index: row.leader_id for row in rows}
            if leaders.get(partition, -1) in self.targets:
                return self.targets[leaders[partition]]
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}-{partition} has no leader in 60 s")
            time.sleep(0.05)


@contextlib.contextmanager
def kohort_cluster(store: str, size: int, config: Mapping[str, object] | None = None) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        brokers = {node_id: ClusterBroker(store, node_id, config or {}) for node_id in range(1, size + 1)}
        for broker in brokers.values():
            stack.callback(broker.close)
            broker.start()
        yield Cluster("kohort", brokers)


@contextlib.contextmanager
def kafka_cluster(size: int = 3) -> Iterator[Cluster]:
    """Offsets and records on three nodes, acknowledged by two at least."""
    config = {"default.replication.factor": size, "min.insync.replicas": 2, "offsets.topic.num.partitions": 50}
    kafka = ApacheKafkaCluster(size, config)
    for node in kafka.nodes:
        node.side = "kafka"  # type: ignore[attr-defined]
        node._jvm, node.log_level = PRODUCTION_JVM, "WARN"
    with kafka:
        yield Cluster("kafka", dict(enumerate(kafka.nodes, 1)))  # type: ignore[arg-type]


@contextlib.contextmanager
def directory() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="kohort-cluster-") as path:
        yield f"file://{path}"


@contextlib.contextmanager
def s3(delay_ms: float) -> Iterator[str]:
    """A bucket of moto; brokers that are started meanwhile find it by their environment."""
    (port,) = free_ports(1)
    command = [sys.executable, str(Path(__file__).resolve().parents[1] / "tools" / "s3.py"), str(port), str(delay_ms)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before = dict(os.environ)
    try:
        _wait_for(port, server)
        endpoint = f"http://127.0.0.1:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=20).close()
        os.environ.update(S3_ENVIRONMENT, AWS_ENDPOINT=endpoint, AWS_ENDPOINT_URL=endpoint)
        yield f"s3://{BUCKET}/cluster"
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.kill()
        server.wait(20)


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5).close()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("moto does not start: pip install 'moto[server]'") from None
            time.sleep(0.05)


def create_topic(cluster: Cluster, name: str, partitions: int = 1) -> None:
    """And wait until its first partition is served, and every broker knows it."""
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1)
    with KafkaSocket(cluster.any) as connection:
        answer = connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
    assert answer.topics[0].error_code == 0, answer
    deadline = time.monotonic() + 60
    while True:
        with KafkaSocket(cluster.leader(name, 0).bootstrap_servers) as connection:
            answer = connection.call(produce_request(name), PRODUCE_VERSION)
        known = all(_knows(target, name) for target in cluster.targets.values())
        if known and answer.responses[0].partition_responses[0].error_code == 0:
            return
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)


def _knows(target: Target, topic: str) -> bool:
    with KafkaSocket(target.bootstrap_servers) as connection:
        wanted = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        return connection.call(wanted, 4).topics[0].error_code == 0


def produce_request(topic: str) -> Any:
    """Of 1 KB, to be stored for good."""
    data = ProduceRequest.PartitionProduceData(index=0, records=batch_of(1024))
    topic_data = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topic_data)
