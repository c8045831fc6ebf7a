"""The exactly-once sink on brokers whose transaction.version is 1: an end keeps the epoch, partitions are enlisted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

import kohort
from kohort.broker.apis import features
from kohort.spark import sink_commit as sc
from spark.conftest import BROKER
from spark.query import create, unique
from spark.test_sink_exactly_once import CRASHES, LONGER_THAN_ANY_S, Query, expected, is_a, open_transactions


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    with mock.patch.dict(features.LEVELS, {"transaction.version": 1}), kohort.Broker(config=BROKER) as running:
        yield running


@pytest.fixture
def query(servers: str) -> Query:
    topic = unique("tv1")
    create(servers, topic, 2)
    return Query(servers, topic)


def test_the_tasks_speak_tv1(query: Query) -> None:
    messages = query.write(0)
    assert not any(message.share.transaction.is_tv2 for message in messages)
    query.writer.commit(messages, 0)
    query.run(1)
    assert query.read() == expected(2)


@pytest.mark.parametrize(("is_there", "ends"), CRASHES)
def test_a_driver_that_dies(query: Query, is_there: Callable[[Any], bool], ends: int) -> None:
    query.run(0)
    query.commit_until(query.write(1), 1, is_there, ends)
    again = Query(query.servers, query.topic, query.name)
    again.run(1)
    again.run(2)
    assert again.read() == expected(3)
    assert open_transactions(query) == []


def test_tasks_that_died_are_swept_and_what_expired_is_written_again(query: Query, broker: kohort.Broker) -> None:
    query.write(0)
    query.run(0)
    query.commit_until(query.write(1), 1, is_a(sc.Finish), ends=1)
    broker.clock.advance(LONGER_THAN_ANY_S)
    query.run(1)
    assert query.read() == expected(2)
    assert open_transactions(query) == []
