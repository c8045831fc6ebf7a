"""Whatever keeps a read from going on is said, soon and now and again, with its reason."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import pytest

import kohort
from kohort.client.errors import NotConnectedError
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.spark import planning, waiting
from kohort.spark.fetch import cluster_for
from kohort.spark.options import parse_read_options
from kohort.spark.waiting import Waiting
from spark.query import Query, create, numbers, produce, stopping, unique, until
from spark.test_driver_commits import Leader


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "kohort.spark"):
        yield caplog


def test_a_wait_is_told_once_it_has_lasted_and_then_now_and_again(
    said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    wait = Waiting("group g")
    for now in (100.0, 102.0, 103.5, 110.0, 150.0, 164.0):  # noqa: B007
        wait.says("no broker")
    assert [record.getMessage() for record in said.records] == [
        "group g: for 4 s nothing could be read: no broker",
        "group g: for 64 s nothing could be read: no broker",
    ]
    wait.is_over()
    assert said.records[-1].getMessage() == "group g: reading again after 64 s" and wait.reason is None


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "127.0.0.1:1: .*Connection refused"),
        ({"kafka.bootstrap.servers": "no-such-host.invalid:9092"}, "no-such-host.invalid:9092: .*not known"),
        ({"kafka.security.protocol": "SSL"}, "security.protocol=SSL: is that what this port speaks"),
    ],
)
def test_a_bounded_read_of_brokers_that_do_not_answer_fails_in_time_with_the_cause(
    servers: str, wrong: dict[str, str], why: str, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.2)
    given = {"kafka.bootstrap.servers": servers, "subscribe": "t", "kafka.default.api.timeout.ms": "2000", **wrong}
    options = parse_read_options(given, "batch")
    begun = time.monotonic()
    with pytest.raises(NotConnectedError, match=why):
        planning.bounded_ranges(cluster_for(options.settings), options)
    assert time.monotonic() - begun < 20
    assert "nothing could be read" in said.text


def test_a_stream_of_brokers_that_do_not_answer_fails_in_time_with_the_cause() -> None:
    with pytest.raises(NotConnectedError, match="Connection refused"):
        Query("127.0.0.1:1", unique(), subscribe="t", default_api_timeout_ms="1000")


def test_a_stream_says_that_it_waits_for_a_topic(servers: str, said: pytest.LogCaptureFixture) -> None:
    topic = unique("late")
    query = Query(servers, unique(), subscribe=topic)
    with stopping(query):
        until(lambda: not query.plan() and "nothing could be read" in said.text, 10, "a line within 5 s and some")
        assert f"topic {topic} does not exist, waiting for it" in said.text
        assert (query.driver.report() or {})["waiting"] == f"topic {topic} does not exist, waiting for it"
        create(servers, topic)
        produce(servers, topic, numbers(0, 40))
        query.step_until(40)
        assert "waiting" not in (query.driver.report() or {}) and "reading again after" in said.text


def test_a_commit_that_is_not_answered_says_so(
    servers: str, broker: kohort.Broker, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.spark.driver.COMMIT_SECONDS", 0.5)
    topic, group = unique("orders"), unique()
    create(servers, topic)
    query = Query(servers, group, subscribe=topic)
    with stopping(query):
        query.plan_nothing()
        produce(servers, topic, numbers(0, 40))
        until(query.plan)
        query.run()
        fault = broker.faults.drop("OffsetCommit", group=group, times=None)
        query.plan()
        broker.faults.remove(fault)
        assert "will be tried again" in said.text
        assert "not done within 0.5 s; the coordinator did not answer" in said.text


def test_nothing_planned_never_means_that_the_first_assignment_is_awaited(servers: str) -> None:
    """Spark's processAllAvailable() returns as soon as nothing is planned."""
    topic, group = unique("orders"), unique()
    create(servers, topic)
    produce(servers, topic, numbers(0, 40))
    leader = Leader(servers, group, topic)
    query = Query(servers, group, subscribe=topic)
    with stopping(query):
        planning_a_batch = threading.Thread(target=query.plan)
        planning_a_batch.start()
        until(leader.rebalancing, what="the query joins")
        leader.join()
        planning_a_batch.join(2)
        assert planning_a_batch.is_alive(), "the leader has not said who gets what"
        leader.sync()
        planning_a_batch.join()
        assert query.planned is not None and query.run() == 40
    leader.leave()


def test_an_error_that_no_retry_mends_ends_the_query_at_once(servers: str, broker: kohort.Broker) -> None:
    topic, group = unique("orders"), unique()
    create(servers, topic)
    fault = broker.faults.fail("OffsetFetch", ErrorCode.GROUP_AUTHORIZATION_FAILED, group=group, times=None)
    query = Query(servers, group, subscribe=topic)
    with stopping(query), pytest.raises((KafkaError, RuntimeError), match="GROUP_AUTHORIZATION_FAILED"):
        until(query.plan, 20)
    broker.faults.remove(fault)
