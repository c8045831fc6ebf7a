"""What a streaming query promises, without Spark in the way: every call is the one Spark would make."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import Consumer

import kohort
from kohort.spark import driver, waiting
from kohort.spark.accounting import DataLossError
from spark.query import Query, commit, committed, create, delete, grow, numbers, produce, stopping, unique, until


@pytest.fixture
def topic(servers: str) -> str:
    name = unique("orders")
    create(servers, name)
    return name


# -- where a query starts ------------------------------------------------------------------------------------------


def test_a_new_group_starts_at_starting_offsets_and_commits_what_it_read(servers: str, topic: str) -> None:
    produce(servers, topic, numbers(0, 40))
    group = unique()
    query = Query(servers, group, subscribe=topic)
    with stopping(query):
        query.step_until(40)
        assert sorted(query.values(), key=int) == numbers(0, 40)
        assert committed(servers, group, topic) == {0: 10, 1: 10, 2: 10, 3: 10}


def test_committed_offsets_win_over_starting_offsets(servers: str, topic: str) -> None:
    produce(servers, topic, numbers(0, 40))
    group = unique()
    commit(servers, group, topic, {0: 7, 1: 10})
    query = Query(servers, group, subscribe=topic)
    with stopping(query):
        query.step_until(3 + 0 + 10 + 10)
        assert min(offset for _, partition, offset, _ in query.rows if partition == 0) == 7
        assert not any(partition == 1 for _, partition, _, _ in query.rows)


def test_latest_is_settled_at_the_first_assignment_and_survives_a_restart(servers: str, topic: str) -> None:
    produce(servers, topic, numbers(0, 40))
    group = unique()
    query = Query(servers, group, subscribe=topic, startingOffsets="latest")
    query.plan_nothing()
    assert committed(servers, group, topic) == {0: 10, 1: 10, 2: 10, 3: 10}
    query.stop()
    produce(servers, topic, numbers(40, 44))
    again = Query(servers, group, checkpoint=query.offset, subscribe=topic, startingOffsets="latest")
    with stopping(again):
        again.step_until(4)
        assert sorted(again.values()) == numbers(40, 44)


def test_an_idle_query_returns_its_start_unchanged(servers: str, topic: str) -> None:
    query = Query(servers, unique(), subscribe=topic)
    with stopping(query):
        query.plan_nothing()
        produce(servers, topic, numbers(0, 4))
        query.step_until(4)
        before = query.offset
        assert query.driver.latest_offset(before, None) is before


# -- sharing, taking over ------------------------------------------------------------------------------------------


def test_two_queries_share_the_partitions_and_read_every_record_once(servers: str, topic: str) -> None:
    group = unique()
    first, second = Query(servers, group, subscribe=topic), Query(servers, group, subscribe=topic)
    with stopping(first, second):
        until(lambda: (first.step(), second.step()) and len(first.owned()) == len(second.owned()) == 2)
        assert first.owned() | second.owned() == {(topic, number) for number in range(4)}
        produce(servers, topic, numbers(0, 80))
        until(lambda: (first.step(), second.step()) and len(first.rows) + len(second.rows) >= 80)
        assert sorted(first.values() + second.values(), key=int) == numbers(0, 80)


def test_a_hand_over_waits_for_the_batch_in_flight_and_rereads_nothing(servers: str, topic: str) -> None:
    produce(servers, topic, numbers(0, 40))
    group = unique()
    first = Query(servers, group, subscribe=topic)
    until(first.plan)
    second = Query(servers, group, subscribe=topic)
    with stopping(first, second):
        second.plan_nothing()
        until(lambda: first.driver.holdings._revoking, what="the group asks for partitions back")
        for _ in range(20):
            second.plan_nothing()
        assert len(first.owned()) == 4, "nothing is given up while the batch runs"
        first.run()
        until(lambda: (first.step(), second.step()) and len(second.owned()) == 2)
        produce(servers, topic, numbers(40, 80))
        until(lambda: (first.step(), second.step()) and len(first.rows) + len(second.rows) >= 80)
        assert sorted(first.values() + second.values(), key=int) == numbers(0, 80)


def test_a_revocation_waits_at_most_for_the_rebalance_timeout(servers: str, topic: str) -> None:
    produce(servers, topic, numbers(0, 40))
    group = unique()
    first = Query(servers, group, subscribe=topic, max_poll_interval_ms="2000")
    until(first.plan)
    second = Query(servers, group, subscribe=topic, max_poll_interval_ms="2000")
    with stopping(first, second):
        until(lambda: second.step() is not None and second.owned(), what="the partitions come, the batch still runs")
        until(lambda: second.step() is not None and len(second.rows) >= 20)
        first.run()
        first.plan()
        assert set(second.values()) < set(first.values()), "read twice, which is all that can be promised here"
        moved = {partition for _, partition in second.owned()}
        assert all(committed(servers, group, topic)[partition] == 10 for partition in moved)


def test_a_clean_stop_hands_over_at_once(servers: str, topic: str) -> None:
    produce(servers, topic, numbers(0, 40))
    group = unique()
    first = Query(servers, group, subscribe=topic, session_timeout_ms="300000")
    first.step_until(40)
    first.stop()
    second = Query(servers, group, subscribe=topic, session_timeout_ms="300000")
    with stopping(second):
        until(lambda: second.step() is not None and len(second.owned()) == 4)
        produce(servers, topic, numbers(40, 44))
        second.step_until(4)
        assert sorted(second.values()) == numbers(40, 44)


def test_after_a_crash_only_the_uncommitted_batch_is_read_again(
    servers: str, topic: str, broker: kohort.Broker
) -> None:
    produce(servers, topic, numbers(0, 40))
    group = unique()
    first = Query(servers, group, subscribe=topic)
    first.step_until(40)
    produce(servers, topic, numbers(40, 60))
    until(first.plan)
    first.run()
    first.vanish()
    second = Query(servers, group, subscribe=topic)
    with stopping(second):
        broker.clock.advance(6)
        second.step_until(20)
        assert sorted(second.values()) == numbers(40, 60)


def test_a_plain_consumer_takes_part(servers: str, topic: str) -> None:
    group = unique()
    query = Query(servers, group, subscribe=topic)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "partition.assignment.strategy": "cooperative-sticky",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            "enable.auto.commit": False,
        }
    )
    seen: list[str] = []

    def poll() -> None:
        message = consumer.poll(0.02)
        if message is not None and message.error() is None:
            seen.append(message.value().decode())
            consumer.commit(message, asynchronous=False)

    with stopping(query):
        query.plan_nothing()
        consumer.subscribe([topic])
        until(lambda: (poll(), query.step()) and len(consumer.assignment()) == len(query.owned()) == 2)
        produce(servers, topic, numbers(0, 40))
        until(lambda: (poll(), query.step()) and len(seen) + len(query.rows) >= 40)
        consumer.close()
        until(lambda: query.step() is not None and len(query.owned()) == 4)
        produce(servers, topic, numbers(40, 80))
        until(lambda: query.step() is not None and len(seen) + len(query.rows) >= 80)
        assert sorted(seen + query.values(), key=int) == numbers(0, 80)


# -- checkpoints -----------------------------------------------------------------------------------------------------


def test_an_unfinished_batch_is_replayed_exactly(servers: str, topic: str) -> None:
    produce(servers, topic, numbers(0, 40))
    group = unique()
    first = Query(servers, group, subscribe=topic)
    until(first.plan)
    unfinished = first.planned
    first.stop()
    produce(servers, topic, numbers(40, 80))
    second = Query(servers, group, checkpoint=first.offset, subscribe=topic)
    with stopping(second):
        second.planned = unfinished
        assert second.run() == 40
        assert sorted(second.values(), key=int) == numbers(0, 40)
        second.step_until(80)
        assert sorted(second.values(), key=int) == numbers(0, 80)


def test_a_checkpoint_ahead_of_its_own_commit_wins(servers: str, topic: str) -> None:
    """The batch was durable, then the process died before the commit."""
    produce(servers, topic, numbers(0, 40))
    group = unique()
    first = Query(servers, group, subscribe=topic)
    first.step_until(40)
    produce(servers, topic, numbers(40, 80))
    until(first.plan)
    first.run()
    first.driver._membership._holdings.drop(first.driver.holdings.owned())
    first.stop()
    assert sum(committed(servers, group, topic).values()) == 40
    second = Query(servers, group, checkpoint=first.offset, subscribe=topic)
    with stopping(second):
        second.plan_nothing()
        assert committed(servers, group, topic) == {0: 20, 1: 20, 2: 20, 3: 20}


def test_the_group_wins_over_an_old_checkpoint_where_others_moved_on(
    servers: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce(servers, topic, numbers(0, 40))
    group = unique()
    first = Query(servers, group, subscribe=topic)
    first.step_until(40)
    first.stop()
    produce(servers, topic, numbers(40, 80))
    commit(servers, group, topic, {0: 20, 1: 5})
    second = Query(servers, group, checkpoint=first.offset, subscribe=topic)
    with stopping(second), caplog.at_level(logging.WARNING, "kohort.spark"):
        second.step_until(0 + 15 + 10 + 10)
        spans = {number: [offset for _, p, offset, _ in second.rows if p == number] for number in range(4)}
        assert spans == {0: [], 1: list(range(5, 20)), 2: list(range(10, 20)), 3: list(range(10, 20))}
    assert f"{topic}-0: the checkpoint says 10" in caplog.text and "which wins" in caplog.text


def test_a_foreign_checkpoint_is_refused(servers: str, topic: str) -> None:
    query = Query(servers, unique(), subscribe=topic)
    with stopping(query), pytest.raises(ValueError, match="new checkpointLocation"):
        query.driver.latest_offset({topic: {"0": 12}}, None)


# -- a changing world --------------------------------------------------------------------------------------------------


def test_a_topic_that_grows(servers: str, topic: str) -> None:
    query = Query(servers, unique(), subscribe=topic)
    with stopping(query):
        query.plan_nothing()
        grow(servers, topic, 6)
        produce(servers, topic, ["new"], partition=5)
        query.step_until(1)
        assert query.rows[0][1] == 5 and len(query.owned()) == 6


def test_topics_that_appear_by_pattern(servers: str) -> None:
    prefix = unique("logs")
    query = Query(servers, unique(), subscribePattern=f"{prefix[2:]}-.$")
    with stopping(query):
        query.plan_nothing()
        for name in ("a", "b"):
            create(servers, f"{prefix}-{name}", 1)
            produce(servers, f"{prefix}-{name}", [name], partition=0)
        create(servers, f"{prefix}-other", 1)
        query.step_until(2)
        assert sorted(query.values()) == ["a", "b"] and len(query.owned()) == 2


def test_a_deleted_topic_leaves_the_rest(servers: str) -> None:
    prefix = unique("logs")
    for name in ("a", "b"):
        create(servers, f"{prefix}-{name}", 1)
        produce(servers, f"{prefix}-{name}", [name], partition=0)
    query = Query(servers, unique(), subscribePattern=f"{prefix}-.*")
    with stopping(query):
        query.step_until(2)
        delete(servers, f"{prefix}-a")
        until(lambda: query.step() is not None and query.owned() == {(f"{prefix}-b", 0)})
        produce(servers, f"{prefix}-b", ["more"], partition=0)
        query.step_until(3)


def test_a_topic_deleted_with_unread_records_is_a_loss(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "GONE_PATIENCE_MS", 200)
    query = Query(servers, unique(), subscribe=topic, metadata_max_age_ms="60000")
    with stopping(query):
        query.plan_nothing()
        produce(servers, topic, numbers(0, 40))
        query.step(limit=4)
        delete(servers, topic)
        with pytest.raises(DataLossError, match="was deleted with 9 records not read"):
            until(query.plan)


def test_records_that_retention_took_are_a_loss(servers: str, topic: str) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    produce(servers, topic, numbers(0, 40))
    group = unique()
    commit(servers, group, topic, {0: 2})
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        future.result(30)
    strict = Query(servers, group, subscribe=topic)
    with stopping(strict), pytest.raises(DataLossError, match=r"\[2, 6\).*failOnDataLoss=false"):
        until(strict.plan)
    lenient = Query(servers, group, subscribe=topic, failOnDataLoss="false")
    with stopping(lenient):
        lenient.step_until(34)
        assert min(offset for _, partition, offset, _ in lenient.rows if partition == 0) == 6


def test_a_session_that_expires_within_a_batch(servers: str, topic: str, broker: kohort.Broker) -> None:
    produce(servers, topic, numbers(0, 40))
    group = unique()
    query = Query(servers, group, subscribe=topic)
    with stopping(query):
        until(query.plan)
        broker.clock.advance(7)
        until(lambda: query.driver.holdings.assignments > 1, what="it joins again while the batch runs")
        query.run()
        query.step_until(40)
        assert sorted(query.values(), key=int) == numbers(0, 40), "nobody else took over, nothing is read twice"
        until(lambda: query.plan() or sum(committed(servers, group, topic).values()) == 40)


def test_a_broker_restart_within_a_batch(topic: str, servers: str, broker: kohort.Broker) -> None:
    produce(servers, topic, numbers(0, 40))
    group = unique()
    query = Query(servers, group, subscribe=topic)
    with stopping(query):
        until(query.plan)
        broker.restart()
        query.run()
        produce(servers, topic, numbers(40, 80))
        query.step_until(80)
        assert sorted(query.values(), key=int) == numbers(0, 80)
        until(lambda: query.plan() or sum(committed(servers, group, topic).values()) == 80)


def test_a_broker_that_is_away_makes_the_query_wait(
    topic: str,
    servers: str,
    broker: kohort.Broker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0)
    monkeypatch.setattr(waiting, "CHANGED_SECONDS", 0)
    monkeypatch.setattr(driver, "PATIENCE_MS", 300)
    query = Query(servers, unique(), subscribe=topic)
    with stopping(query), caplog.at_level(logging.WARNING, "kohort.spark"):
        query.plan_nothing()
        broker.stop()
        try:
            query.plan_nothing()
        finally:
            broker.start()
        assert "no batch can be planned now" in caplog.text and "Connection refused" in caplog.text
        assert "Connection refused" in (query.driver.report() or {})["waiting"]
        produce(servers, topic, numbers(0, 40))
        query.step_until(40)


def test_a_static_member_that_restarts_finds_its_partitions_as_they_were(servers: str, topic: str) -> None:
    group = unique()
    static = {"group_instance_id": "driver-1"}
    first = Query(servers, group, subscribe=topic, **static)
    produce(servers, topic, numbers(0, 40))
    first.step_until(40)
    generation = first.driver._membership._member.generation.generation_id
    first.stop()
    second = Query(servers, group, checkpoint=first.offset, subscribe=topic, **static)
    with stopping(second):
        until(lambda: second.plan() or len(second.owned()) == 4)
        assert second.driver._membership._member.generation.generation_id == generation


# -- limits and ends -------------------------------------------------------------------------------------------------


def test_a_limit_is_shared_by_lag(servers: str, topic: str) -> None:
    produce(servers, topic, numbers(0, 90), partition=0)
    produce(servers, topic, numbers(90, 100), partition=1)
    query = Query(servers, unique(), subscribe=topic)
    with stopping(query):
        until(lambda: query.plan(20))
        assert query.planned is not None
        spans = query.planned["offsets"][topic]
        assert spans["0"] == [0, 17] and spans["1"] == [0, 3]


def test_available_now_ends_where_the_log_ended_at_the_start(servers: str, topic: str) -> None:
    produce(servers, topic, numbers(0, 40))
    query = Query(servers, unique(), subscribe=topic)
    with stopping(query):
        query.driver.stop_at_present_end()
        produce(servers, topic, numbers(40, 80))
        while query.plan(15):
            query.run()
        assert sorted(query.values(), key=int) == numbers(0, 40)


def test_progress_shows_the_lag_of_every_partition(servers: str, topic: str) -> None:
    produce(servers, topic, numbers(0, 40))
    query = Query(servers, unique(), subscribe=topic)
    with stopping(query):
        until(lambda: query.plan(12))
        report = query.driver.report()
        assert report is not None
        assert report["lag"][topic] == {"0": 7, "1": 7, "2": 7, "3": 7} and report["totalLag"] == 28


def test_a_group_with_another_protocol_is_refused_in_plain_words(servers: str, topic: str) -> None:
    group = unique()
    first = Query(servers, group, subscribe=topic)
    first.plan_nothing()
    second = Query(servers, group, subscribe=topic, partition_assignment_strategy="range")
    with stopping(first, second), pytest.raises(RuntimeError, match=r"partition\.assignment\.strategy"):
        second.plan()
