"""The records of KIP-848 groups: Kafka's read and written again by us, byte by byte; ours read by Kafka's own tools."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kohort
from apache_kafka import ApacheKafka, run_java
from conformance.consumer_scripts import reconciliation, static_members, upgrade_and_back
from conformance.test_consumer_groups import CONFIG, Side
from conformance.test_differential import ONE_AT_A_TIME
from kafka_socket import KafkaSocket
from kohort.coordinator.modern.topics import metadata_hash
from kohort.coordinator.modern_records import GroupEpoch, Kind, ModernChange, TargetEpoch
from kohort.coordinator.records import decode, encode
from kohort.coordinator.scan import key_values
from kohort.protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from kohort.records.batch import iter_batches

OFFSETS_TOPIC = "__consumer_offsets"
Pairs = list[tuple[bytes, bytes | None]]


def work(servers: str) -> dict[str, bytes]:
    side = Side(servers)
    for written in (reconciliation, static_members, upgrade_and_back):
        written(side.play(written.__name__))
    return side.ids


def pairs_of(directory: Path) -> Pairs:
    found: Pairs = []
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        for pos, header in iter_batches(data):
            if not header.is_control:
                found += [(key, value) for _, key, value in key_values(data, pos, header)]
    return found


@pytest.fixture(scope="module")
def theirs(jdk: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pairs, dict[str, bytes]]]:
    copy = tmp_path_factory.mktemp("theirs") / "log"
    with ApacheKafka(CONFIG | ONE_AT_A_TIME) as kafka:
        ids = work(kafka.bootstrap_servers)
        kafka.stop()
        (found,) = kafka.data_dir.rglob(f"{OFFSETS_TOPIC}-0")
        shutil.copytree(found, copy)
    yield pairs_of(copy), ids


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    path = tmp_path_factory.mktemp("ours")
    with kohort.Broker(data_dir=path, config=CONFIG) as broker:
        ids = work(broker.bootstrap_servers)
    return path / f"{OFFSETS_TOPIC}-0", ids


class Topics:
    rack = ""

    def __init__(self, ids: dict[str, bytes], partitions: int) -> None:
        self.known = {"t0": (ids["t0"], partitions), "t1": (ids["t1"], 1)}

    def by_name(self, name: str) -> tuple[bytes, int] | None:
        return self.known.get(name)


def test_kafkas_records_are_ours_byte_by_byte(theirs: tuple[Pairs, dict[str, bytes]]) -> None:
    seen, same, all_of_them = set(), 0, 0
    for key, value in theirs[0]:
        change = decode(key, value)
        if isinstance(change, ModernChange):
            seen.add(change.kind)
            our_key, our_value = encode(change)
            # Partitions that Java's hashes have put out of their order are the same bytes in another one.
            assert (our_key, sorted(our_value or b"")) == (key, sorted(value or b"")), change
            same, all_of_them = same + (our_value == value), all_of_them + 1
    assert same > 0.9 * all_of_them
    assert seen >= {Kind.GROUP, Kind.MEMBER, Kind.TARGET, Kind.TARGET_MEMBER, Kind.CURRENT_MEMBER}


def test_the_hash_of_the_topics_is_kafkas(theirs: tuple[Pairs, dict[str, bytes]]) -> None:
    worlds: list[Any] = [Topics(theirs[1], partitions) for partitions in (3, 6)]  # it grew before the groups came
    hashes = {metadata_hash(topics, names) for topics in worlds for names in ([], ["t0"], ["t1"], ["t0", "t1"])}
    values = [change.value for change in map(lambda pair: decode(*pair), theirs[0]) if isinstance(change, ModernChange)]
    taken = {value.metadata_hash for value in values if isinstance(value, GroupEpoch)}
    assert len(taken) > 2 and taken <= hashes


def plain(pairs: Pairs, ids: dict[str, bytes], group_id: str) -> list[Any]:
    """The records of a group in their order, without what differs by nature."""
    names = {topic_id: name for name, topic_id in ids.items()}
    told = []
    for key, raw in pairs:
        change = decode(key, raw)
        if not isinstance(change, ModernChange) or change.group_id != group_id:
            continue
        value = change.value
        if isinstance(value, TargetEpoch | GroupEpoch):
            value = value.epoch
        elif change.kind is Kind.TARGET_MEMBER and value is not None:
            value = {names[one]: sorted(numbers) for one, numbers in value.items()}
        elif change.kind is Kind.CURRENT_MEMBER and value is not None:
            assigned, pending = (
                {names[one]: dict(rows) for one, rows in e.items()} for e in (value.assigned, value.pending)
            )
            value = (value.member_epoch, value.previous_epoch, value.state, assigned, pending)
        told.append((change.kind, change.name, value))
    return told


@pytest.mark.parametrize("group_id", ["reconciliation", "static_members"])
def test_the_same_records_in_the_same_order(
    theirs: tuple[Pairs, dict[str, bytes]], ours: tuple[Path, dict[str, bytes]], group_id: str
) -> None:
    assert plain(pairs_of(ours[0]), ours[1], group_id) == plain(*theirs, group_id)


def test_kafkas_own_tool_reads_ours(jdk: None, ours: tuple[Path, dict[str, bytes]]) -> None:
    (segment,) = ours[0].glob("*.log")
    out = run_java("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(segment)).stdout
    assert '"metadataHash":' in out and '"assignmentEpoch":' in out and '"subscribedTopicNames":["t0"]' in out
    assert "Could not decode" not in out and "isvalid: false" not in out


def test_a_group_goes_on_from_kafkas_log(theirs: tuple[Pairs, dict[str, bytes]]) -> None:
    from conformance.test_consumer_offsets import NoTopics
    from kohort.coordinator.context import CoordinatorConfig
    from kohort.coordinator.coordinator import Coordinator

    coordinator = Coordinator(CoordinatorConfig(offsets_topic_num_partitions=1), NoTopics(), lambda: "id")  # type: ignore[arg-type]
    coordinator.start()
    shard = coordinator.runtime.lead(0, 0, 0)
    for offset, (key, value) in enumerate(theirs[0]):
        shard.state.read(key, value, offset)
    while not shard.state.settle(1_000):
        pass
    coordinator.runtime.loaded(shard, shard.incarnation, 0, 0)
    assert shard.state.skipped == {}
    group: Any = coordinator.group("reconciliation")
    assert (group.type, group.state_name, sorted(group.members)) == ("consumer", "Stable", ["a", "b"])
    assert coordinator.group("upgrade_and_back").type == "classic"  # type: ignore[union-attr]


def test_kafka_goes_on_from_our_log(jdk: None, ours: tuple[Path, dict[str, bytes]]) -> None:
    """Its `__consumer_offsets` with our records in it: the group is there, in its epoch, and a member goes on."""
    config = CONFIG | ONE_AT_A_TIME
    with ApacheKafka(config) as kafka:
        Side(kafka.bootstrap_servers).play("begins").join("a")
        kafka.stop()
        (directory,) = kafka.data_dir.rglob(f"{OFFSETS_TOPIC}-0")
        for old in (*directory.glob("*.log"), *directory.glob("*index"), *directory.glob("*.snapshot")):
            old.unlink()
        for segment in ours[0].glob("*.log"):
            shutil.copy(segment, directory)
        for checkpoint in directory.parent.glob("*-checkpoint"):
            checkpoint.unlink()
        kafka.start()
        with KafkaSocket(kafka.bootstrap_servers) as connection:
            asked = ConsumerGroupDescribeRequest(group_ids=["reconciliation"])
            limit = time.monotonic() + 60
            while (group := connection.call(asked, 1).groups[0]).error_code:
                assert time.monotonic() < limit, group
                time.sleep(0.1)
            assert sorted(member.member_id for member in group.members) == ["a", "b"]
            epoch = group.members[0].member_epoch
            beat = ConsumerGroupHeartbeatRequest(group_id="reconciliation", member_id="a", member_epoch=epoch)
            assert not connection.call(beat, 1).error_code
