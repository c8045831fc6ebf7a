"""Groups of the consumer protocol (KIP-848) on a real Kafka: the stories of `client.protocol_stories`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("client.protocol_stories")

import kohort  # noqa: E402
from apache_kafka import ApacheKafka  # noqa: E402
from client.conftest import Topics  # noqa: E402
from client.protocol_stories import *  # noqa: E402, F403


@pytest.fixture(scope="module")
def topics(apache_kafka: ApacheKafka) -> Iterator[Topics]:
    with kohort.Admin(bootstrap_servers=apache_kafka.bootstrap_servers) as admin:
        yield Topics(apache_kafka.bootstrap_servers, admin)
