"""End to end with a real Spark and a broker: groups join, crash, commit and get stuck, and the reports say so."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import kohort
import kohort.spark
from cli.conftest import CommandLine, Member, until
from coordinator.modern.groups import Members
from kohort import history
from kohort.client.types import TopicPartition
from kohort.coordinator.records import GroupMetadata, OffsetCommit, encode
from kohort.history import tables
from kohort.history.survey import REPORTS, TABLES
from kohort.protocol import messages
from kohort.protocol.uuids import to_base64

TOPIC = "orders"
SECOND = 1_000
TOPIC_IDS = "topic_id string, topic string"
ASKED = ("rebalances", "causes", "downtime", "members", "progress", "lag", "stuck", "talkers")
"""What is known of these few records; the other reports: test_known_course.py."""
QUICK = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": 1,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """For small data: planning and compiling would cost more than the work itself."""
    session = kohort.spark.session("tests", "local[2]", QUICK)
    yield session
    session.stop()


def produce(servers: str, count: int, timestamp_ms: int) -> None:
    with kohort.Producer(bootstrap_servers=servers) as producer:
        for number in range(count):
            producer.send(TOPIC, str(number), partition=0, timestamp_ms=timestamp_ms)


def commit(servers: str, group: str, offset: int) -> None:
    """As an application that assigns its partitions itself."""
    with kohort.Consumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False) as consumer:
        place = TopicPartition(TOPIC, 0)
        consumer.assign([place])
        consumer.commit({place: offset})


def crash_and_leave(broker: kohort.Broker) -> None:
    """`billing`: one joins, two joins and crashes, one goes on alone and leaves."""
    servers = broker.bootstrap_servers
    settings = {"enable_auto_commit": False, "session_timeout_ms": 40_000}
    one = Member(servers, "billing", TOPIC, client_id="one", **settings)
    until(lambda: len(one.assigned) == 2, "one has everything")
    two = Member(servers, "billing", TOPIC, client_id="two", **settings | {"session_timeout_ms": 10_000})
    until(lambda: len(one.assigned) == len(two.assigned) == 1, "they share")
    two.crash()
    broker.clock.advance(10.5)
    until(lambda: len(one.assigned) == 2, "one takes over")
    one.close()


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[str, int]]:
    """The servers, and the time at which the groups that only commit began."""
    settings = {"kohort.group.events.topic.enable": "true", "offsets.topic.num.partitions": 3}
    with kohort.Broker(config={**settings, "group.min.session.timeout.ms": 1_000}) as broker:
        servers = broker.bootstrap_servers
        broker.create_topic(TOPIC, 2)
        crash_and_leave(broker)
        start_ms = broker.clock.now_ms()
        produce(servers, 10, start_ms)
        produce(servers, 10, start_ms + 100 * SECOND)
        commit(servers, "stuck", 5)
        commit(servers, "moving", 2)
        broker.clock.advance(120)
        commit(servers, "moving", 20)
        commit(servers, "moving", 18)
        yield servers, start_ms


@pytest.fixture(scope="module")
def told(spark: Any, world: tuple[str, int], tmp_path_factory: Any) -> dict[str, list[dict[str, Any]]]:
    """Every report of `kohort history --json`, which writes Parquet beside it; times are milliseconds."""
    folder = tmp_path_factory.mktemp("history") / "out"
    k = CommandLine(world[0])
    asked = [word for name in ASKED for word in ("--report", name)]
    page = folder.parent / "reports.html"
    said = k("history", "--json", "--output", str(folder), "--html", str(page), *asked).json()
    assert set(said) == set(ASKED) < set(REPORTS)
    assert {path.name for path in folder.iterdir()} == {*TABLES, *ASKED}
    text = page.read_text()
    assert text.count("<h2") == len(ASKED) and "<script" not in text and "timed_out" in text
    assert spark.read.parquet(str(folder / "rebalances")).count() == len(said["rebalances"])
    assert "already" in k.refused("history", "--output", str(folder))
    return said


def rows(frame: Any) -> list[dict[str, Any]]:
    return frame.toArrow().to_pylist()


def test_rebalances_and_their_causes(told: dict[str, list[dict[str, Any]]]) -> None:
    rebalances = sorted(told["rebalances"], key=lambda row: row["started"])
    assert [(row["cause"], row["member"]) for row in rebalances] == [
        ("joined", "one"), ("joined", "two"), ("timed_out", "two"), ("left", "one"),
    ]  # fmt: skip
    assert [(row["members_before"], row["members_after"]) for row in rebalances] == [(0, 1), (1, 2), (2, 1), (1, 0)]
    assert rebalances[2]["reason"] == "timed out: no heartbeat for 10 s"
    assert {row["source"] for row in rebalances} == {"events"}
    lasted = [row["duration_ms"] for row in rebalances]
    assert lasted[3] is None, "nobody waits in an empty group"
    assert lasted[:3] == [row["completed"] - row["started"] for row in rebalances[:3]]
    causes = {row["cause"]: row for row in told["causes"]}
    assert {cause: (row["rebalances"], row["share"]) for cause, row in causes.items()} == {
        "joined": (2, 0.5), "timed_out": (1, 0.25), "left": (1, 0.25),
    }  # fmt: skip
    assert causes["timed_out"]["standstill_ms"] == lasted[2]
    assert sum(row["standstill_ms"] for row in told["downtime"]) == sum(lasted[:3])
    lives = {row["client_id"]: row for row in told["members"]}
    assert {name: life["ended"] for name, life in lives.items()} == {"one": "left", "two": "timed_out"}
    assert lives["two"]["lifetime_ms"] >= 10 * SECOND and lives["one"]["rejoins"] == 2


def test_progress_lag_and_what_is_stuck(told: dict[str, list[dict[str, Any]]]) -> None:
    progress = max((row for row in told["progress"] if row["group_id"] == "moving"), key=lambda row: row["start"])
    assert (progress["records"], progress["records_per_s"]) == (18, 0.3)
    assert (progress["rewinds"], progress["last_offset"]) == (1, 18)
    seen: dict[str, list[Any]] = {}
    for row in sorted(told["lag"], key=lambda row: row["time"]):
        seen.setdefault(row["group_id"], []).append((row["end_offset"], row["committed_offset"], row["lag"]))
    assert seen["moving"][2] == (10, 2, 8) and seen["moving"][-1] == (20, 18, 2)
    assert seen["stuck"][2] == (10, 5, 5) and seen["stuck"][-1] == (20, 5, 15)
    (stuck,) = told["stuck"]
    assert (stuck["group_id"], stuck["partition"], stuck["arrived"], stuck["lag"]) == ("stuck", 0, 10, 15)
    talkers = {row["group_id"]: row for row in told["talkers"]}
    assert {name: row["commits"] for name, row in talkers.items()} == {"billing": 0, "moving": 3, "stuck": 1}
    assert talkers["billing"]["generations"] >= 3 and talkers["moving"]["share"] == 0.75


def test_of_generations_alone_as_any_kafka_has_them(spark: Any, world: tuple[str, int]) -> None:
    generations = history.generations(spark, world[0], "billing").cache()
    stored = {row["generation"]: row for row in rows(generations) if row["members"]}
    assert [len(row["members"]) for _, row in sorted(stored.items())] == [1, 2, 1]
    held = [part for member in stored[2]["members"] for part in member["assignment"]]
    assert sorted(number for part in held for number in part["partitions"]) == [0, 1]
    nothing = history.group_events(spark, world[0], "no such group")
    told = rows(history.rebalances(nothing, generations).orderBy("started"))
    assert [row["cause"] for row in told][1:3] == ["joined", "gone"]
    assert {row["source"] for row in told} == {"generations"} and not any(row["duration_ms"] for row in told)


def test_a_time_and_a_group_narrow_what_is_read(spark: Any, world: tuple[str, int]) -> None:
    servers, start_ms = world
    late = history.commits(spark, servers, ["moving", "stuck"], since=start_ms + 60 * SECOND)
    assert {(row["group_id"], row["offset"]) for row in rows(late)} == {("moving", 20), ("moving", 18)}
    early = history.commits(spark, servers, "moving", until=start_ms + 60 * SECOND)
    assert [row["offset"] for row in rows(early)] == [2]


def test_tombstones_are_rows_and_what_no_table_has_is_in_quarantine(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset_key, group_key = encode(OffsetCommit("g", TOPIC, 0, None))[0], encode(GroupMetadata("g", None))[0]
    epoch = messages.ConsumerGroupMetadataValue(epoch=7)
    pairs = [
        (offset_key, None),
        (group_key, None),
        (group_key, b"\x00\x63"),
        (b"\x00\x03\x00\x01g", b"\x00\x00" + bytes(epoch.encode(0))),
        (b"\x00\x05\x00\x01g\x00\x01m", None),
        (b"\x00\x05\x00\x01g\x00\x01m", b"\x00\x00damaged"),
        (b"\x00\x63", b"of the future"),
        (b"x", b""),
        (None, None),
    ]
    records = [(key, value, 0, number, datetime(2026, 1, 1)) for number, (key, value) in enumerate(pairs)]
    frame = spark.createDataFrame(records, tables.RECORDS)
    monkeypatch.setattr(tables, "_records", lambda *_: frame)
    assert [(row["group_id"], row["tombstone"], row["offset"]) for row in rows(history.commits(spark, ""))] == [
        ("g", True, None)
    ]
    assert [(row["group_id"], row["tombstone"]) for row in rows(history.generations(spark, ""))] == [("g", True)]
    modern = [(row["kind"], row["member_id"], row["epoch"]) for row in rows(history.group_records(spark, ""))]
    assert modern == [("ConsumerGroupMetadata", None, 7), ("ConsumerGroupMemberMetadata", "m", None)]
    kept = {row["record_offset"]: row for row in rows(history.quarantine(spark, ""))}
    assert {n: (row["key"], row["value"]) for n, row in kept.items()} == {n: pairs[n] for n in (2, 5, 6, 7, 8)}
    assert kept[2]["problem"] == "group metadata value version 99" and kept[6]["problem"] == "key type 99"
    counts = {(row["key_type"], row["family"]): row for row in rows(history.record_counts(spark, ""))}
    assert {key: (row["records"], row["damaged"]) for key, row in counts.items()} == {
        (1, "classic"): (1, 0), (2, "classic"): (2, 1), (3, "consumer"): (1, 0), (5, "consumer"): (2, 1),
        (99, "unknown"): (1, 1), (None, "unknown"): (2, 2),
    }  # fmt: skip


def test_epochs_of_kip_848_are_told(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    members = Members()
    members.join("a")
    members.join("b")
    members.settle()
    log = members.world.log[0]
    records = [(key, value, 0, n, datetime.fromtimestamp(n, UTC)) for n, (key, value) in enumerate(log)]
    frame = spark.createDataFrame(records, tables.RECORDS)
    monkeypatch.setattr(tables, "_records", lambda *_: frame)
    nothing = history.group_events(spark, "").where("false")
    told = history.group_records(spark, "").cache()
    epochs = rows(history.rebalances(nothing, None, told).orderBy("started"))
    assert [(row["cause"], row["members_after"], row["source"]) for row in epochs] == [
        ("joined", 1, "epochs"), ("joined", 2, "epochs"),
    ]  # fmt: skip
    assert {row["member_id"] for row in rows(history.member_lives(nothing, None, told))} == {"a", "b"}
    topics = spark.createDataFrame([(to_base64(members.world.topics.topics["orders"][0]), "orders")], TOPIC_IDS)
    moved = rows(history.handovers(told, topics).where("from_member = 'a'"))
    assert {(row["topic"], row["to_member"]) for row in moved} == {("orders", "b")}
    assert all(row["waited_ms"] > 0 and row["targeted"] <= row["released"] <= row["assigned"] for row in moved)
    assert rows(history.expressions(told)) == []


def test_a_live_table(spark: Any, world: tuple[str, int], tmp_path: Any) -> None:
    live = history.group_events_stream(spark, world[0], "observers", "billing")
    query = live.writeStream.format("memory").queryName("live").trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path)).start()
    query.awaitTermination(120)
    found = spark.sql("SELECT * FROM live")
    assert found.columns == history.group_events(spark, world[0]).columns
    assert {row.type for row in found.collect()} >= {"MemberEvicted", "RebalanceCompleted"}


def test_the_command_line_in_words(spark: Any, world: tuple[str, int]) -> None:
    shown = CommandLine(world[0])("history", "-g", "billing", "--report", "causes", "--since", "1h")
    assert shown.code == 0 and shown.out.startswith("Why groups rebalanced\nGROUP")
    assert [line.split()[1] for line in shown.out.splitlines()[2:]] and "timed_out" in shown.out and "25%" in shown.out
