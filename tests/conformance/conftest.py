"""Fixtures of the conformance tests: a real Apache Kafka and the compiled Java harnesses.

Everything in this folder is marked `conformance`, and skipped with the reason where there is no JDK or no Maven.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from apache_kafka import ApacheKafka, available, compile_java

HERE = Path(__file__).parent
TEST_TIMEOUT_S = 600
QUICK = {
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.session.timeout.ms": 3_000,
    "group.consumer.min.session.timeout.ms": 1_000,
}
"""Groups of the consumer protocol take their times from the broker."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.conformance)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


@pytest.fixture(scope="session")
def jdk() -> None:
    """Skips what needs Java where there is none."""
    ok, reason = available()
    if not ok:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def apache_kafka(jdk: None) -> Iterator[ApacheKafka]:
    """One broker for the whole run: use topic and group names of your own."""
    with ApacheKafka({"offsets.topic.num.partitions": 5, "group.min.session.timeout.ms": 100, **QUICK}) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def java_classes(jdk: None) -> Path:
    """The folder of compiled classes of tests/conformance/java."""
    return compile_java(HERE / "java")
