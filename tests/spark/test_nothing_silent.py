"""Whatever keeps a read from going on is said, soon and now and again, with its reason."""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest

import kohort
from kohort.client.errors import NotConnectedError
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.spark import driver, planning, waiting
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


WRONG = pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "127.0.0.1:1: .*Connection refused"),
        ({"kafka.bootstrap.servers": "no-such-host.invalid:9092"}, "no-such-host.invalid:9092: .*not known"),
    ],
    ids=["no broker", "no host"],
)
TLS_ON_A_PLAIN_PORT = ({"kafka.security.protocol": "SSL"}, "security.protocol=SSL: is that what this port speaks")


@WRONG
def test_a_bounded_read_of_brokers_that_do_not_answer_fails_in_time_with_the_cause(
    servers: str, wrong: dict[str, str], why: str, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded_read_fails(servers, wrong, why, said, monkeypatch)


def test_a_bounded_read_with_tls_of_a_plain_port_fails_in_time_with_the_cause(
    servers: str, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded_read_fails(servers, *TLS_ON_A_PLAIN_PORT, said, monkeypatch)


def bounded_read_fails(
    servers: str, wrong: dict[str, str], why: str, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.2)
    given = {"kafka.bootstrap.servers": servers, "subscribe": "t", "kafka.default.api.timeout.ms": "1000", **wrong}
    options = parse_read_options(given, "batch")
    begun = time.monotonic()
    with pytest.raises(NotConnectedError, match=why):
        planning.bounded_ranges(cluster_for(options.settings), options)
    assert time.monotonic() - begun < 20
    assert re.search(f"nothing could be read: .*{why}", said.text)


@WRONG
def test_a_stream_of_brokers_that_do_not_answer_says_so_and_fails_in_time_with_the_cause(
    servers: str, wrong: dict[str, str], why: str, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_says_so_and_fails(servers, wrong, why, said, monkeypatch)


def test_a_stream_with_tls_of_a_plain_port_says_so_and_fails_in_time_with_the_cause(
    servers: str, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_says_so_and_fails(servers, *TLS_ON_A_PLAIN_PORT, said, monkeypatch)


def stream_says_so_and_fails(
    servers: str, wrong: dict[str, str], why: str, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the log and in a progress, and Spark is not told that there is nothing to read."""
    assert waiting.PATIENCE_SECONDS + driver.PATIENCE_MS / 1000 + driver.PAUSE_SECONDS < 5, "a line within 5 s"
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(driver, "PATIENCE_MS", 100)
    given = {name.replace(".", "_"): value for name, value in wrong.items() if "servers" not in name}
    query = Query(wrong.get("kafka.bootstrap.servers", servers), unique(), subscribe="t", **given)
    with stopping(query):
        assert not query.plan() and not query.idle
        assert re.search(why, (query.driver.report() or {})["waiting"])
        assert re.search(f"nothing could be read: .*{why}", said.text)
        query.driver._waiting._since -= query.options.config()["default.api.timeout.ms"] / 1000  # it has passed
        with pytest.raises(NotConnectedError, match=why):
            query.plan()


def test_a_port_that_does_not_say_a_word_is_told_of_soon(said: pytest.LogCaptureFixture) -> None:
    """What accepts connections and waits, as a plain port of some other service does."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        given = {"kafka.bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}", "subscribe": "t"}
        assert parse_read_options(given, "batch").config()["socket.connection.setup.timeout.ms"] < 5000
        quick = {"kafka.socket.connection.setup.timeout.ms": "200", "kafka.default.api.timeout.ms": "300"}
        for protocol in ("PLAINTEXT", "SSL"):
            options = parse_read_options({**given, **quick, "kafka.security.protocol": protocol}, "batch")
            with pytest.raises(NotConnectedError, match=f"security.protocol={protocol}: is that what this port speaks"):
                planning.bounded_ranges(cluster_for(options.settings), options)


def test_a_stream_that_began_without_brokers_reads_once_they_are_there(
    servers: str, broker: kohort.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is stopped before: its checkpoint has nothing of the topics yet."""
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(driver, "PATIENCE_MS", 100)
    topic, group = unique("orders"), unique()
    create(servers, topic)
    broker.stop()
    try:
        query = Query(servers, group, subscribe=topic, startingOffsets="latest")
        assert not query.plan() and not query.idle
        query.stop()
        again = Query(servers, group, checkpoint=query.offset, subscribe=topic, startingOffsets="latest")
    finally:
        broker.start()
    with stopping(again):
        until(lambda: not again.plan() and again.idle, what="it has found the end of the topic")
        produce(servers, topic, numbers(0, 40))
        again.step_until(40)


def test_nothing_planned_never_means_that_brokers_are_away(
    servers: str, broker: kohort.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's processAllAvailable() returns as soon as nothing is planned."""
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(waiting, "REPEAT_SECONDS", 0.1)
    monkeypatch.setattr(driver, "PATIENCE_MS", 100)
    topic = unique("orders")
    create(servers, topic)
    query = Query(servers, unique(), subscribe=topic)
    with stopping(query):
        query.plan_nothing()
        produce(servers, topic, numbers(0, 40))
        broker.stop()
        try:
            for _ in range(3):
                assert not query.plan() and not query.idle
                assert "waiting" in (query.driver.report() or {})
        finally:
            broker.start()
        query.step_until(40)
        assert query.idle and "waiting" not in (query.driver.report() or {})


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
    monkeypatch.setattr(driver, "COMMIT_SECONDS", 0.5)
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.2)
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


def test_a_loss_after_an_outage_is_not_blamed_on_max_poll_interval(
    servers: str, broker: kohort.Broker, said: pytest.LogCaptureFixture
) -> None:
    """The coordinator comes back without the member, as one does that has lost the group's last records."""
    topic, group = unique("orders"), unique()
    create(servers, topic)
    query = Query(servers, group, subscribe=topic, session_timeout_ms="30000")
    with stopping(query):
        query.plan_nothing()
        broker.stop()
        until(lambda: not query.driver._membership.settled or "Connection refused" in said.text, what="it is noticed")
        broker.faults.fail("Heartbeat", ErrorCode.UNKNOWN_MEMBER_ID, group=group, times=1)
        broker.start()
        until(lambda: f"lost {topic}-0" in said.text, what="the loss")
        (lost,) = [record.getMessage() for record in said.records if f"lost {topic}-0" in record.getMessage()]
        assert "it was without a coordinator for" in lost and "max.poll.interval" not in lost
        broker.clock.advance(31)
        produce(servers, topic, numbers(0, 40))
        query.step_until(40)


def test_an_error_that_no_retry_mends_ends_the_query_at_once(servers: str, broker: kohort.Broker) -> None:
    topic, group = unique("orders"), unique()
    create(servers, topic)
    fault = broker.faults.fail("OffsetFetch", ErrorCode.GROUP_AUTHORIZATION_FAILED, group=group, times=None)
    query = Query(servers, group, subscribe=topic)
    with stopping(query), pytest.raises((KafkaError, RuntimeError), match="GROUP_AUTHORIZATION_FAILED"):
        until(query.plan, 20)
    broker.faults.remove(fault)
