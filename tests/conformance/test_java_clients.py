"""Kafka's own clients and command-line tools against kohort's broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kohort
from apache_kafka import run_java

CODECS = "none,gzip,snappy,lz4,zstd"
LIMIT_S = 180


@pytest.fixture(scope="module")
def broker(jdk: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kohort.Broker]:
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4, "log.retention.ms": -1}
    with kohort.Broker(data_dir=tmp_path_factory.mktemp("data"), config=config) as running:
        yield running


def harness(broker: kohort.Broker, java_classes: Path, *arguments: str) -> dict[str, str]:
    done = run_java(
        "ClientHarness", broker.bootstrap_servers, *arguments, extra_class_path=[java_classes], timeout=LIMIT_S
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def tool(broker: kohort.Broker, name: str, *arguments: str, **options) -> str:
    where = ("--bootstrap-server", broker.bootstrap_servers)
    return run_java(name, *where, *arguments, timeout=LIMIT_S, **options).stdout


def test_producer_consumer_and_admin(broker: kohort.Broker, java_classes: Path) -> None:
    produced = harness(broker, java_classes, "produce", "t", CODECS, "200")
    assert produced == {codec: f"{200 * i}..{200 * i + 199}" for i, codec in enumerate(CODECS.split(","))}
    consumed = harness(broker, java_classes, "consume", "t", "1000")
    assert consumed == {
        "seen": "1000",
        "codecs": "{gzip=200, lz4=200, none=200, snappy=200, zstd=200}",
        "end": "1000",
        "by_time": "5",
    }
    assert harness(broker, java_classes, "admin") == {
        "again": "TopicExistsException",
        "replicas": "InvalidReplicationFactorException",
        "name": "InvalidTopicException",
        "partitions": "4",
        "by_id": "1",
        "configs": "1234 4321 DEFAULT_CONFIG",
        "cluster": "1",
        "earliest": "0",
        "latest": "1000",
        "max": "199",
        "time": "3",
        "local": "0",
        "producers": "true",
        "transactions": "0",
        "features": "4",
        "log_dirs": "true",
        "deleted": "true",
        "low": "5",
        "left": "false",
    }


def test_console_producer_and_consumer_in_a_group(broker: kohort.Broker) -> None:
    lines = "".join(f"k{i}:v{i}\n" for i in range(20))
    properties = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tool(broker, "org.apache.kafka.tools.ConsoleProducer", "--topic", "console", *properties, input=lines)
    shown = tool(
        broker,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--topic", "console", "--group", "console-group", "--from-beginning", "--max-messages", "20"),
        *("--formatter-property", "print.key=true", "--timeout-ms", "60000"),
    )
    assert sorted(shown.split("\n")[:-1]) == sorted(f"k{i}\tv{i}" for i in range(20))
    described = tool(
        broker,
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--describe", "--group", "console-group"),
    )
    row = next(line.split() for line in described.splitlines() if line.startswith("console-group"))
    assert row[1:6] == ["console", "0", "20", "20", "0"]


def test_console_consumer_with_the_consumer_protocol(broker: kohort.Broker) -> None:
    """KIP-848 by Kafka's own client, and what its tool shows of such a group."""
    lines = "".join(f"v{i}\n" for i in range(20))
    tool(broker, "org.apache.kafka.tools.ConsoleProducer", "--topic", "modern", input=lines)
    shown = tool(
        broker,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--topic", "modern", "--group", "modern-group", "--from-beginning", "--max-messages", "20"),
        *("--command-property", "group.protocol=consumer", "--timeout-ms", "60000"),
    )
    assert sorted(shown.split()) == sorted(f"v{i}" for i in range(20))
    command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    state = tool(broker, command, "--describe", "--group", "modern-group", "--state")
    row = next(line.split() for line in state.splitlines() if line.startswith("modern-group"))
    assert "uniform" in row and "Empty" in row
    described = tool(broker, command, "--describe", "--group", "modern-group")
    assert "20" in next(line.split() for line in described.splitlines() if line.startswith("modern-group"))


def test_topic_and_config_tools(broker: kohort.Broker) -> None:
    topics, configs = "org.apache.kafka.tools.TopicCommand", "kafka.admin.ConfigCommand"
    tool(broker, topics, "--create", "--topic", "made", "--partitions", "3", "--config", "retention.ms=7777")
    described = tool(broker, topics, "--describe", "--topic", "made")
    assert "PartitionCount: 3" in described and "retention.ms=7777" in described
    tool(broker, topics, "--alter", "--topic", "made", "--partitions", "5")
    tool(
        broker,
        configs,
        "--alter",
        "--entity-type",
        "topics",
        "--entity-name",
        "made",
        "--add-config",
        "segment.ms=9999",
    )
    shown = tool(broker, configs, "--describe", "--entity-type", "topics", "--entity-name", "made")
    assert "retention.ms=7777" in shown and "segment.ms=9999" in shown
    offsets = tool(broker, "org.apache.kafka.tools.GetOffsetShell", "--topic", "made")
    assert offsets.split() == [f"made:{i}:0" for i in range(5)]
    group = ("--entity-type", "groups", "--entity-name", "made")
    tool(broker, configs, "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    shown = tool(broker, configs, "--describe", "--entity-type", "groups")
    assert "Dynamic configs for group made" in shown and "consumer.session.timeout.ms=50000" in shown
    features = tool(broker, "org.apache.kafka.tools.FeatureCommand", "describe")
    assert re.search(r"Feature: metadata.version .*FinalizedVersionLevel: 4\.3-IV0", features)
    assert re.search(r"Feature: group.version .*FinalizedVersionLevel: 1", features)
    tool(broker, topics, "--delete", "--topic", "made")
    assert "made" not in tool(broker, topics, "--list").split()
