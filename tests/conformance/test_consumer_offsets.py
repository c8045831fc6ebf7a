"""`__consumer_offsets`: ours read by Kafka's own tools, and Kafka's own read by us."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import kohort
from apache_kafka import ApacheKafka, run_java
from kohort.coordinator.context import CoordinatorConfig
from kohort.coordinator.coordinator import Coordinator
from kohort.coordinator.scan import key_values
from kohort.records.batch import iter_batches

LIMIT_S = 60
OFFSETS_TOPIC = "__consumer_offsets"


def a_group_at_work(servers: str) -> None:
    """A group that has joined, committed with metadata, and still has a member; and a group of commits alone."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result(LIMIT_S)
    producer = Producer({"bootstrap.servers": servers})
    for i in range(30):
        producer.produce("orders", str(i).encode(), partition=i % 3)
    assert producer.flush(LIMIT_S) == 0
    settings = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings | {"group.id": "workers", "group.instance.id": "w1", "client.id": "worker"})
    consumer.subscribe(["orders"])
    read = 0
    while read < 30:
        read += len(consumer.consume(30, LIMIT_S))
    made = [TopicPartition("orders", p, 10, metadata=f"note {p}") for p in range(3)]
    consumer.commit(offsets=made, asynchronous=False)
    consumer.close()  # static: it stays a member
    simple = Consumer(settings | {"group.id": "simple"})
    simple.commit(offsets=[TopicPartition("orders", 1, 7)], asynchronous=False)
    simple.close()


class NoTopics:
    def by_name(self, name: str) -> None:
        return None

    def by_id(self, topic_id: bytes) -> None:
        return None


def load(partition_dirs: list[Path]) -> Coordinator:
    """A coordinator that has read these partitions' segment files."""
    config = CoordinatorConfig(offsets_topic_num_partitions=len(partition_dirs))
    coordinator = Coordinator(config, NoTopics(), lambda: "id")
    coordinator.start()
    for index, directory in enumerate(partition_dirs):
        shard = coordinator.runtime.lead(index, 0, 0)
        for segment in sorted(directory.glob("*.log")):
            data = segment.read_bytes()
            for pos, header in iter_batches(data):
                for offset, key, value in key_values(data, pos, header):
                    shard.state.read(key, value, offset)
        while not shard.state.settle(1_000):
            pass
        coordinator.runtime.loaded(shard, shard.incarnation, 0, 0)
        assert shard.state.skipped == {}
    return coordinator


def hard_state(coordinator: Coordinator, group_id: str) -> tuple[Any, ...]:
    group = coordinator.group(group_id)
    assert group is not None
    members = [
        (
            m.instance_id,
            m.client_id,
            m.client_host,
            m.session_timeout_ms,
            m.rebalance_timeout_ms,
            m.protocols,
            m.assignment,
        )
        for m in group.members.values()
    ]
    offsets = {
        (topic, p): (value.committed_offset, value.leader_epoch, value.metadata.rstrip("\0"))  # librdkafka adds a zero
        for topic, committed in group.offsets.items()
        for p, value in committed.items()
    }
    return group.state, group.generation, group.protocol_type, group.protocol, len(group.members), members, offsets


@pytest.fixture(scope="module")
def our_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ours")
    config = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
    with kohort.Broker(data_dir=path, config=config) as broker:
        a_group_at_work(broker.bootstrap_servers)
    return path


def test_dump_log_decodes_our_offsets(jdk: None, our_log: Path) -> None:
    (segment,) = (our_log / f"{OFFSETS_TOPIC}-0").glob("*.log")
    out = run_java("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(segment)).stdout
    assert '"group":"workers"' in out and '"topic":"orders"' in out
    assert '"metadata":"note 2' in out and '"topicId":"' in out
    assert '"protocolType":"consumer"' in out and '"groupInstanceId":"w1"' in out
    assert "isvalid: true" in out and "isvalid: false" not in out
    assert "Could not decode" not in out and "unknown" not in out.lower()


@pytest.mark.parametrize(
    ("formatter", "expected"),
    [("OffsetsMessageFormatter", '"offset":10'), ("GroupMetadataMessageFormatter", '"groupInstanceId":"w1"')],
)
def test_console_consumer_formats_our_offsets(jdk: None, tmp_path: Path, formatter: str, expected: str) -> None:
    config = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
    with kohort.Broker(config=config) as broker:
        a_group_at_work(broker.bootstrap_servers)
        out = run_java(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", broker.bootstrap_servers, "--topic", OFFSETS_TOPIC, "--from-beginning"),
            *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}", "--timeout-ms", "5000"),
        ).stdout
    assert expected in out


def test_our_log_tells_us_what_we_knew(our_log: Path) -> None:
    state = hard_state(load([our_log / f"{OFFSETS_TOPIC}-0"]), "workers")
    assert state[0].value == "Stable" and state[4] == 1
    assert state[-1] == {("orders", p): (10, -1, f"note {p}") for p in range(3)}


def test_a_log_of_kafka_and_ours_tell_the_same(jdk: None, our_log: Path, tmp_path: Path) -> None:
    """The same work on a real broker: its segments load here, to the same group, members and offsets."""
    config = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
    with ApacheKafka(config) as kafka:
        a_group_at_work(kafka.bootstrap_servers)
        kafka.stop()
        (found,) = kafka.data_dir.rglob(f"{OFFSETS_TOPIC}-0")
        shutil.copytree(found, tmp_path / "theirs")
    theirs, ours = load([tmp_path / "theirs"]), load([our_log / f"{OFFSETS_TOPIC}-0"])
    for group_id in ("workers", "simple"):
        assert hard_state(theirs, group_id) == hard_state(ours, group_id)
