"""A broker in this process per test."""

from collections.abc import Iterator

import pytest

import kohort


@pytest.fixture
def broker() -> Iterator[kohort.Broker]:
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4}
    with kohort.Broker(config=config) as running:
        yield running
