"""A query's membership when the broker is old, gone or slow: whoever waits gets an answer."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from kohort.client.connection import Connection
from kohort.client.errors import KafkaError
from kohort.client.types import TopicPartition
from kohort.protocol.apis import ApiKey
from kohort.spark.holdings import Holdings
from kohort.spark.membership import Membership
from kohort.spark.options import parse_read_options
from spark.query import create, unique, until


def membership(servers: str, topic: str, **settings: Any) -> Membership:
    given = {f"kafka.{name.replace('_', '.')}": str(value) for name, value in settings.items()}
    options = {"kafka.bootstrap.servers": servers, "group.id": unique(), "subscribe": topic, **given}
    return Membership(parse_read_options(options, "stream"), Holdings())


def test_a_broker_too_old_for_a_static_member_is_said_and_nobody_waits_for_ever(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions_of = Connection._versions_of

    def old(response: Any) -> dict[int, tuple[int, int]]:
        return {**versions_of(response), int(ApiKey.JOIN_GROUP): (0, 3)}

    monkeypatch.setattr(Connection, "_versions_of", staticmethod(old))
    topic = unique("orders")
    create(servers, topic, 1)
    member = membership(servers, topic, group_instance_id="static")
    member.start()
    try:
        until(lambda: member._failure is not None, what="the refusal")
        with pytest.raises(RuntimeError, match="does not speak JoinGroup"):
            member.check()
        assert member._thread.is_alive()
    finally:
        member.stop("the test is over")
    assert not member._thread.is_alive()


def test_whoever_waits_when_the_membership_ends_is_answered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        member = membership(f"127.0.0.1:{silent.getsockname()[1]}", "orders")
        member.start()
        errors: list[Any] = []

        def ask() -> None:
            errors.append(member.outcome(member.begin_commit({TopicPartition("orders", 0): 1}, 60), 60))

        waiting = threading.Thread(target=ask)
        waiting.start()
        until(lambda: bool(member._driver._asks), what="the question")
        began = time.monotonic()
        member.stop("the test is over")
        waiting.join(20)
        assert not waiting.is_alive() and time.monotonic() - began < 20
        assert isinstance(errors[0], KafkaError)


def test_a_commit_that_is_not_done_in_time_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        member = membership(f"127.0.0.1:{silent.getsockname()[1]}", "orders")
        member.start()
        try:
            error = member.outcome(member.begin_commit({TopicPartition("orders", 0): 1}, 0.3), 0.3)
            assert "not done within 0.3 s" in str(error)
            assert member.committed([TopicPartition("orders", 0)], 0.3) is None
        finally:
            member.stop("the test is over")
