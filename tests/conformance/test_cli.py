"""The command line against a real Apache Kafka: the same numbers as kafka-consumer-groups, on the same cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from apache_kafka import ApacheKafka, run_java
from cli.conftest import CommandLine, Member, until

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
COUNTS = (10, 20, 30)


@pytest.fixture(scope="module")
def k(apache_kafka: ApacheKafka) -> CommandLine:
    return CommandLine(apache_kafka.bootstrap_servers)


@pytest.fixture(scope="module")
def topic(k: CommandLine) -> str:
    assert k("topics", "create", "cli-orders", "--partitions", "3", "--config", "retention.ms=-1").code == 0
    records = [
        {"partition": partition, "value": str(number), "timestamp": 1_000 + number}
        for partition, count in enumerate(COUNTS)
        for number in range(count)
    ]
    stored = k("produce", "cli-orders", "--format", "json", stdin="\n".join(map(json.dumps, records)))
    assert stored.err == "kohort: 60 records stored in cli-orders\n"
    return "cli-orders"


@pytest.fixture(scope="module")
def busy(k: CommandLine, topic: str) -> Iterator[str]:
    """Two members, one of them static, that have read everything and committed a part of it."""
    group = "cli-busy"
    one = Member(k.servers, group, topic, client_id="one", enable_auto_commit=False)
    until(lambda: len(one.assigned) == 3, "the first has all partitions: the second makes another generation")
    two = Member(k.servers, group, topic, client_id="two", group_instance_id="static", enable_auto_commit=False)
    until(lambda: len(one.assigned) + len(two.assigned) == 3 and one.assigned and two.assigned, "both have partitions")
    for member in (one, two):
        member.pause()
        member.consumer.commit({tp: 3 + tp.partition for tp in member.assigned if tp.partition != 2})
    yield group
    for member in (one, two):
        member.close()


def table(text: str, *columns: str) -> list[tuple[str, ...]]:
    """Columns of a table of Kafka's tool, which may have a blank line and other tables around it."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    header = next(i for i, line in enumerate(lines) if set(columns) <= set(line))
    places = [lines[header].index(column) for column in columns]
    return sorted(tuple(line[place] for place in places) for line in lines[header + 1 :])


def kafka(cluster: ApacheKafka, *arguments: str) -> str:
    return run_java(TOOL, "--bootstrap-server", cluster.bootstrap_servers, *arguments).stdout


def described(k: CommandLine, group: str) -> dict[str, Any]:
    (report,) = k("groups", "describe", group, "--json").json()
    return report


def dash(value: Any) -> str:
    return "-" if value is None else str(value)


def test_describe_shows_the_numbers_of_kafkas_tool(apache_kafka: ApacheKafka, k: CommandLine, busy: str) -> None:
    report = described(k, busy)
    columns = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
    theirs = table(kafka(apache_kafka, "--describe", "--group", busy, "--offsets"), *columns)
    keys = ("topic", "partition", "current_offset", "log_end_offset", "lag", "member_id", "host", "client_id")
    ours = sorted(tuple(dash(row[key]) for key in keys) for row in report["partitions"])
    assert [(*row[:6], f"/{row[6]}", row[7]) for row in ours] == theirs
    assert sorted(row[4] for row in theirs) == ["-", "16", "7"]


def test_members_are_those_of_kafkas_tool(apache_kafka: ApacheKafka, k: CommandLine, busy: str) -> None:
    ours = [(m["member_id"], str(sum(map(len, m["assignment"].values())))) for m in described(k, busy)["members"]]
    # A dynamic member leaves the column of the instance id blank, so that only the first and the last are sure.
    text = kafka(apache_kafka, "--describe", "--group", busy, "--members")
    theirs = [(line.split()[1], line.split()[-1]) for line in text.splitlines() if line.startswith(busy)]
    assert sorted(ours) == sorted(theirs)
    static = next(m for m in described(k, busy)["members"] if m["instance_id"] == "static")
    assert any("static" in line.split() and static["member_id"] in line for line in text.splitlines())


def test_the_state_is_that_of_kafkas_tool(apache_kafka: ApacheKafka, k: CommandLine, busy: str) -> None:
    report = described(k, busy)
    (theirs,) = table(kafka(apache_kafka, "--describe", "--group", busy, "--state"), "STATE", "#MEMBERS")
    assert (report["state"], str(len(report["members"]))) == theirs == ("Stable", "2")
    assert "range" in kafka(apache_kafka, "--describe", "--group", busy, "--state")
    assert (report["protocol"], report["type"]) == ("range", "classic")
    assert report["generation"] >= 2  # from __consumer_offsets: DescribeGroups does not say
    listed = {line for line in kafka(apache_kafka, "--list").splitlines() if line.startswith("cli-")}
    assert listed <= {row[0] for row in k("groups", "list").rows()}


def test_explain_reads_the_generations(k: CommandLine, busy: str) -> None:
    told = k("groups", "explain", busy, "--json").json()
    assert told["source"] == "generations" and told["generation"] == described(k, busy)["generation"]
    joined = {c["member"]["client_id"] for r in told["rebalances"] for c in r["causes"] if c["kind"] == "joined"}
    assert "two" in joined


def test_an_active_group_is_refused(k: CommandLine, busy: str) -> None:
    said = k.refused("groups", "reset-offsets", busy, "--to-latest", "--all-topics", "--execute", code=1)
    assert "is Stable with 2 members" in said
    assert "stop its consumers first" in k.refused("groups", "delete", busy, code=1)


@pytest.mark.parametrize(
    "mode",
    [
        ["--to-earliest"],
        ["--to-latest"],
        ["--to-current"],
        ["--to-offset", "15"],
        ["--shift-by", "-4"],
        ["--to-datetime", "1970-01-01T00:00:01.012"],
        ["--by-duration", "PT1H"],
    ],
    ids=lambda mode: mode[0][2:],
)
def test_resets_are_planned_as_kafkas_tool_does(
    apache_kafka: ApacheKafka, k: CommandLine, topic: str, mode: list[str]
) -> None:
    group = "cli-idle"
    k("groups", "reset-offsets", group, "--topic", topic, "--to-offset", "5", "--execute")
    theirs = table(
        kafka(apache_kafka, "--reset-offsets", "--group", group, "--all-topics", *mode, "--dry-run"),
        "TOPIC",
        "PARTITION",
        "NEW-OFFSET",
    )
    planned = k("groups", "reset-offsets", group, "--all-topics", *mode, "--json").json()["offsets"]
    assert [(row["topic"], str(row["partition"]), str(row["after"])) for row in planned] == theirs


def test_a_reset_is_carried_out_and_exported(
    apache_kafka: ApacheKafka, k: CommandLine, topic: str, tmp_path: Any
) -> None:
    group = "cli-reset"
    assert k("groups", "reset-offsets", group, "--topic", topic, "--to-offset", "15", "--execute").code == 0
    offsets = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    theirs = table(kafka(apache_kafka, "--describe", "--group", group, "--offsets"), *offsets)
    assert theirs == [("0", "10", "10", "0"), ("1", "15", "20", "5"), ("2", "15", "30", "15")]
    plan = tmp_path / "plan.csv"
    plan.write_text(k("groups", "reset-offsets", group, "--to-earliest", "--all-topics", "--export").out)
    kafka(apache_kafka, "--reset-offsets", "--group", group, "--from-file", str(plan), "--execute")
    assert [row["current_offset"] for row in described(k, group)["partitions"]] == [0, 0, 0]
    assert k("groups", "delete", group).out == f"deleted group {group}\n"
    assert group not in k("groups", "list").out


def test_members_are_removed(k: CommandLine, topic: str) -> None:
    member = Member(k.servers, "cli-removed", topic, group_instance_id="ghost")
    until(lambda: member.assigned, "it has partitions")
    member.crash()
    assert k("groups", "remove-member", "cli-removed", "--group-instance-id", "ghost").code == 0
    until(lambda: described(k, "cli-removed")["members"] == [], "it is out")


def test_a_group_of_the_newer_protocol(apache_kafka: ApacheKafka, k: CommandLine, topic: str) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": k.servers, "group.id": "cli-modern", "group.protocol": "consumer"})
    consumer.subscribe([topic])
    try:
        until(lambda: consumer.poll(0.2) is None and len(consumer.assignment()) == 3, "it has partitions")
        until(lambda: consumer.poll(0.2) is None and described(k, "cli-modern")["state"] == "Stable", "it is stable")
        report = described(k, "cli-modern")
        (theirs,) = table(kafka(apache_kafka, "--describe", "--group", "cli-modern", "--state"), "STATE", "#MEMBERS")
        assert (report["state"], str(len(report["members"]))) == theirs
        assert (report["type"], report["protocol"]) == ("consumer", "uniform") and report["generation"] > 0
        assert report["members"][0]["assignment"] == {topic: [0, 1, 2]}
        assert k("groups", "explain", "cli-modern", "--sample", "0.5").code == 0
        refused = k.refused("groups", "reset-offsets", "cli-modern", "--to-latest", "--topic", topic, code=1)
        assert "stop its consumers first" in refused
    finally:
        consumer.close()


def test_keys_go_to_the_partitions_of_the_java_producer(apache_kafka: ApacheKafka, k: CommandLine) -> None:
    for name in ("cli-keys-java", "cli-keys-kohort"):
        assert k("topics", "create", name, "--partitions", "7").code == 0
    lines = "".join(f"key-{number}é:{number}\n" for number in range(100))
    producer = "org.apache.kafka.tools.ConsoleProducer"
    parse = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    servers = ["--bootstrap-server", k.servers]
    run_java(producer, *servers, "--topic", "cli-keys-java", *parse, input=lines)
    assert k("produce", "cli-keys-kohort", "--key-separator", ":", "-z", "zstd", stdin=lines).code == 0

    def placed(name: str) -> list[str]:
        return sorted(k("consume", name, "--from", "earliest", "--exit", "-f", "%k %p\\n").out.splitlines())

    assert len(placed("cli-keys-java")) == 100 and placed("cli-keys-java") == placed("cli-keys-kohort")


def test_a_consumer_in_a_group_and_topics(apache_kafka: ApacheKafka, k: CommandLine, topic: str) -> None:
    read = k("consume", topic, "--group", "cli-reader", "--from", "earliest", "--exit", "-f", "%p-%o\\n").out.split()
    assert len(read) == 60 == len(set(read))
    assert described(k, "cli-reader")["total_lag"] == 0
    assert k("topics", "alter", topic, "--config", "segment.ms=86400000").code == 0
    (report,) = k("topics", "describe", topic, "--json").json()
    assert (report["configs"]["retention.ms"], report["configs"]["segment.ms"]) == ("-1", "86400000")
    assert [p["end_offset"] for p in report["partitions"]] == list(COUNTS)
    assert k("topics", "create", "cli-short-lived").code == 0 and k("topics", "delete", "cli-short-lived").code == 0
