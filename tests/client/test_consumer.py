"""The blocking consumer against kohort's broker: the API as a user sees it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kohort
from client.conftest import Topics, until
from kohort.client import (
    CommitFailedError,
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetAndMetadata,
    RebalanceListener,
    TopicPartition,
)

Make = Callable[..., kohort.Consumer]


def read(consumer: kohort.Consumer, count: int) -> list[int]:
    found: list[int] = []
    until(
        lambda: len(found) >= count, f"{count} records", lambda: found.extend(int(r.value) for r in consumer.poll(0.5))
    )
    return found


def test_reads_every_record_once(topics: Topics, consumer: Make) -> None:
    topic = topics.make(records=1_000)
    reader = consumer()
    reader.subscribe(topic)
    assert sorted(read(reader, 1_000)) == list(range(1_000))
    assert reader.poll(0.1) == []
    assert len(reader.assignment()) == 4
    assert set(reader.lag().values()) == {0}


def test_records_carry_what_was_produced(topics: Topics, consumer: Make) -> None:
    from confluent_kafka import Producer

    topic = topics.make(1)
    producer = Producer({"bootstrap.servers": topics.servers, "compression.type": "zstd"})
    producer.produce(topic, b"value", b"key", timestamp=1234, headers=[("a", b"1"), ("b", None)])
    producer.produce(topic, None, None, timestamp=1235)
    producer.flush()
    reader = consumer(group_id=None)
    reader.assign([(topic, 0)])
    records: list[Any] = []
    until(lambda: len(records) >= 2, "two records", lambda: records.extend(reader.poll(1)))
    first, second = records
    assert (first.topic, first.partition, first.offset, first.timestamp) == (topic, 0, 0, 1234)
    assert (first.key, first.value, first.headers) == (b"key", b"value", (("a", b"1"), ("b", None)))
    assert (second.key, second.value, second.headers, second.leader_epoch) == (None, None, (), 0)


def test_iteration_commits_only_what_was_handed_out(topics: Topics, consumer: Make) -> None:
    topic = topics.make(1, records=0)
    topics.produce(topic, 100, partitions=1)
    reader = consumer()
    reader.subscribe(topic)
    for record in reader:
        if record.offset == 9:
            break
    assert reader.position((topic, 0)) == 10
    reader.commit()
    assert reader.committed([(topic, 0)]) == {(topic, 0): OffsetAndMetadata(10, "", 0)}
    assert [int(r.value) for r in reader.poll(1)][:2] == [10, 11]


def test_commits_are_where_the_next_consumer_starts(topics: Topics, consumer: Make) -> None:
    topic = topics.make(1)
    topics.produce(topic, 50, partitions=1)
    first = consumer(enable_auto_commit=False)
    first.subscribe(topic)
    read(first, 50)
    first.commit({TopicPartition(topic, 0): OffsetAndMetadata(20, "here")})
    first.close()
    second = consumer()
    second.subscribe(topic)
    assert read(second, 30) == list(range(20, 50))
    assert second.committed([(topic, 0)])[TopicPartition(topic, 0)].metadata == "here"


def test_close_commits_automatically(topics: Topics, consumer: Make) -> None:
    topic = topics.make(records=40)
    first = consumer()
    first.subscribe(topic)
    read(first, 40)
    first.close()
    second = consumer()
    second.subscribe(topic)
    topics.produce(topic, 8)
    assert sorted(read(second, 8)) == list(range(40, 48))


def test_commit_async_calls_back_in_a_later_poll(topics: Topics, consumer: Make) -> None:
    topic = topics.make(records=4)
    reader = consumer(enable_auto_commit=False)
    reader.subscribe(topic)
    read(reader, 4)
    calls: list[Any] = []
    reader.commit_async(callback=lambda offsets, error: calls.append((len(offsets), error, threading.current_thread())))
    until(lambda: calls, "the callback", lambda: reader.poll(0.1))
    assert calls == [(4, None, threading.current_thread())]


def test_seek_pause_resume_position(topics: Topics, consumer: Make) -> None:
    topic = topics.make(2)
    topics.produce(topic, 20, partitions=2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = consumer(group_id=None)
    reader.assign([zero, one])
    read(reader, 20)
    reader.pause(zero)
    reader.seek(zero, 3)
    reader.seek_to_beginning(one)
    assert {record.partition for record in reader.poll(2)} == {1}
    assert reader.paused() == {zero}
    reader.resume(zero)
    records = until(lambda: reader.poll(0.5), "records of the resumed partition")
    assert records[0].topic_partition == zero and records[0].offset == 3
    assert reader.position(zero) == 10
    reader.seek_to_end(zero)
    assert reader.position(zero) == 10


def test_offsets_by_time_and_ends(topics: Topics, consumer: Make) -> None:
    from confluent_kafka import Producer

    topic = topics.make(1)
    producer = Producer({"bootstrap.servers": topics.servers})
    for number in range(10):
        producer.produce(topic, b"v", timestamp=1_000 + number * 10)
        producer.flush()
    tp = TopicPartition(topic, 0)
    reader = consumer(group_id=None)
    assert reader.beginning_offsets([tp]) == {tp: 0}
    assert reader.end_offsets([tp]) == {tp: 10}
    assert reader.offsets_for_times({tp: 1_015})[tp][:2] == (2, 1_020)
    assert reader.offsets_for_times({tp: 5_000}) == {tp: None}


def test_arrow(topics: Topics, consumer: Make) -> None:
    pytest.importorskip("pyarrow")
    topic = topics.make(records=1_000)
    reader = consumer()
    reader.subscribe(topic)
    rows: list[dict[str, Any]] = []
    until(
        lambda: len(rows) >= 1_000,
        "1,000 rows",
        lambda: rows.extend(
            row for batch in reader.poll_arrow(0.5, ["value", "partition"]) for row in batch.to_pylist()
        ),
    )
    assert sorted(int(row["value"]) for row in rows) == list(range(1_000))
    reader.commit()
    assert {found.offset for found in reader.committed(reader.assignment()).values()} == {250}


def test_deserializers(topics: Topics, consumer: Make) -> None:
    topic = topics.make(records=8)
    reader = consumer(value_deserializer=int, key_deserializer=bytes.decode)
    reader.subscribe(topic)
    records = until(lambda: reader.poll(1), "records")
    assert all(isinstance(record.value, int) and record.key == "key" for record in records)


def test_pattern_subscription_finds_new_topics(
    topics: Topics, admin: kohort.Admin, consumer: Make, group_id: str
) -> None:
    reader = consumer(metadata_max_age_ms=200)
    reader.subscribe(re.compile(rf"{group_id}\..*"))
    reader.poll(0.2)
    admin.create_topics([f"{group_id}.one"])
    until(lambda: reader.subscription() == {f"{group_id}.one"}, "the first topic", lambda: reader.poll(0.1))
    admin.create_topics([f"{group_id}.two"])
    both = {f"{group_id}.one", f"{group_id}.two"}
    until(lambda: {tp.topic for tp in reader.assignment()} == both, "both topics", lambda: reader.poll(0.1))


def test_topic_that_grows_is_read_whole(topics: Topics, admin: kohort.Admin, consumer: Make) -> None:
    topic = topics.make(1)
    reader = consumer(metadata_max_age_ms=200)
    reader.subscribe(topic)
    until(lambda: len(reader.assignment()) == 1, "one partition", lambda: reader.poll(0.1))
    admin.create_partitions({topic: 3})
    until(lambda: len(reader.assignment()) == 3, "three partitions", lambda: reader.poll(0.1))
    assert "went from 1 to 3 partitions" in str(reader.story())


# -- listeners -------------------------------------------------------------------------------------------------------


class Diary(RebalanceListener):
    def __init__(self) -> None:
        self.lines: list[tuple[str, int]] = []
        self.threads: set[str] = set()

    def note(self, what: str, partitions: list[TopicPartition]) -> None:
        self.lines.append((what, len(partitions)))
        self.threads.add(threading.current_thread().name)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.note("revoked", partitions)

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.note("assigned", partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.note("lost", partitions)


def test_listener_on_the_users_thread(topics: Topics, consumer: Make) -> None:
    topic = topics.make()
    diary = Diary()
    first = consumer()
    first.subscribe(topic, diary)
    until(lambda: first.assignment(), "an assignment", lambda: first.poll(0.1))
    second = consumer()
    second.subscribe(topic)

    def both() -> None:
        first.poll(0.05)
        second.poll(0.05)

    until(lambda: len(first.assignment()) == len(second.assignment()) == 2, "two each", both)
    first.close()
    assert diary.lines == [("assigned", 4), ("revoked", 4), ("assigned", 2), ("revoked", 2)]
    assert diary.threads == {threading.current_thread().name}


def test_listener_may_commit_and_seek(topics: Topics, consumer: Make) -> None:
    topic = topics.make(1)
    topics.produce(topic, 10, partitions=1)
    reader = consumer(enable_auto_commit=False)
    committed = []

    def assigned(partitions: list[TopicPartition]) -> None:
        reader.seek(partitions[0], 7)

    def revoked(partitions: list[TopicPartition]) -> None:
        reader.commit()
        committed.append(reader.committed(partitions)[partitions[0]].offset)

    reader.subscribe(topic, on_partitions_assigned=assigned, on_partitions_revoked=revoked)
    assert read(reader, 3) == [7, 8, 9]
    reader.unsubscribe()
    assert committed == [10]
    assert reader.assignment() == frozenset()


@pytest.mark.parametrize("where", ["assigned", "revoked"])
def test_what_a_listener_raises_reaches_the_caller(topics: Topics, consumer: Make, where: str) -> None:
    topic = topics.make(records=4)

    def fail(partitions: list[TopicPartition]) -> None:
        raise LookupError(f"not today: {where}")

    reader = consumer()
    reader.subscribe(topic, **{f"on_partitions_{where}": fail})
    with pytest.raises(LookupError, match="not today"):
        until(lambda: False, "the exception", lambda: (reader.poll(0.2), where == "revoked" and reader.unsubscribe()))
    if where == "assigned":
        assert len(read(reader, 4)) == 4


def test_poll_within_a_listener_is_refused(topics: Topics, consumer: Make) -> None:
    topic = topics.make()
    reader = consumer()
    reader.subscribe(topic, on_partitions_assigned=lambda _: reader.poll(0))
    with pytest.raises(RuntimeError, match="within a listener"):
        until(lambda: False, "the exception", lambda: reader.poll(0.2))


# -- membership ------------------------------------------------------------------------------------------------------


def test_heartbeats_go_on_while_user_code_is_busy(broker: kohort.Broker, topics: Topics, consumer: Make) -> None:
    topic = topics.make()
    reader = consumer(session_timeout_ms=1_000)
    reader.subscribe(topic)
    until(lambda: reader.assignment(), "an assignment", lambda: reader.poll(0.1))
    generation = reader.group_metadata().generation_id
    busy = threading.Event()
    busy.wait(2.5)
    assert reader.poll(0.1) == []
    assert reader.group_metadata().generation_id == generation


def test_polling_too_late_explains_itself(topics: Topics, consumer: Make) -> None:
    topic = topics.make(records=4)
    lost: list[TopicPartition] = []
    reader = consumer(max_poll_interval_ms=300, enable_auto_commit=False)
    reader.subscribe(topic, on_partitions_lost=lost.extend)
    read(reader, 4)
    until(lambda: reader.group_metadata().generation_id == -1, "leaving the group")
    with pytest.raises(CommitFailedError, match=r"poll\(\) was last called .* over max.poll.interval.ms=300"):
        reader.commit()
    until(lambda: lost, "the loss", lambda: reader.poll(0.1))
    until(lambda: len(reader.assignment()) == 4, "being back", lambda: reader.poll(0.1))


def test_removed_by_an_administrator(topics: Topics, admin: kohort.Admin, consumer: Make, group_id: str) -> None:
    topic = topics.make()
    reader = consumer()
    diary = Diary()
    reader.subscribe(topic, diary)
    until(lambda: reader.assignment(), "an assignment", lambda: reader.poll(0.1))
    admin.remove_members(group_id, [reader.group_metadata().member_id])
    until(lambda: len(diary.lines) == 3, "loss and return", lambda: reader.poll(0.1))
    assert diary.lines == [("assigned", 4), ("lost", 4), ("assigned", 4)]


def test_a_second_instance_fences_the_first(topics: Topics, consumer: Make) -> None:
    topic = topics.make()
    first = consumer(group_instance_id="one")
    first.subscribe(topic)
    until(lambda: first.assignment(), "an assignment", lambda: first.poll(0.1))
    second = consumer(group_instance_id="one")
    second.subscribe(topic)
    until(lambda: second.assignment(), "an assignment", lambda: second.poll(0.1))
    with pytest.raises(kohort.client.FencedInstanceIdError, match=r"group\.instance\.id='one'"):
        until(lambda: False, "being fenced", lambda: first.poll(0.1))


def test_the_broker_restarts(topics: Topics, consumer: Make, broker: kohort.Broker) -> None:
    topic = topics.make(records=20)
    reader = consumer(session_timeout_ms=30_000)
    reader.subscribe(topic)
    read(reader, 20)
    generation = reader.group_metadata().generation_id
    broker.restart()
    topics.produce(topic, 20)
    assert sorted(read(reader, 20)) == list(range(20, 40))
    reader.commit()
    assert reader.group_metadata().generation_id == generation


# -- errors ----------------------------------------------------------------------------------------------------------


def test_none_as_reset_policy(topics: Topics, consumer: Make) -> None:
    topic = topics.make(records=4)
    reader = consumer(auto_offset_reset="none")
    reader.subscribe(topic)
    with pytest.raises(NoOffsetForPartitionError, match=r"auto\.offset\.reset=none"):
        until(lambda: False, "the error", lambda: reader.poll(0.5))
    for tp in reader.assignment():
        reader.seek(tp, 0)
    assert len(read(reader, 4)) == 4


def test_a_name_that_no_topic_can_have(consumer: Make) -> None:
    reader = consumer()
    reader.subscribe("not a topic!")
    with pytest.raises(KafkaError, match="topic 'not a topic!'"):
        until(lambda: False, "the refusal", lambda: reader.poll(0.2))


def test_nobody_answers() -> None:
    with kohort.Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", default_api_timeout_ms=300) as reader:
        reader.subscribe("orders")
        assert reader.poll(0.2) == []
        with pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:1"):
            reader.committed([("orders", 0)])
        with pytest.raises(KafkaTimeoutError, match="cannot connect to"):
            reader.partitions_for("orders")


def test_misuse_is_explained(topics: Topics, consumer: Make) -> None:
    topic = topics.make()
    groupless = consumer(group_id=None)
    with pytest.raises(ConfigError, match=r"group\.id"):
        groupless.subscribe(topic)
    with pytest.raises(ConfigError, match=r"subscribe\(\) or assign\(\)"):
        groupless.poll(0)
    groupless.assign([(topic, 0)])
    with pytest.raises(ConfigError, match=r"group\.id"):
        groupless.commit()
    with pytest.raises(ValueError, match="not assigned"):
        groupless.seek((topic, 3), 0)
    reader = consumer()
    reader.subscribe(topic)
    with pytest.raises(ConfigError, match="unsubscribe"):
        reader.assign([(topic, 0)])
    reader.close()
    with pytest.raises(RuntimeError, match="was closed"):
        reader.poll(0)
    reader.close()
