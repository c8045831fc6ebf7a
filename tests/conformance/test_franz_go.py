"""franz-go's own transactional test on kohort: three stages that read, process and write, every record once."""

from __future__ import annotations

from typing import Any

import pytest

import kohort
from apache_kafka import Unavailable
from franz_go import fetch_franz_go, run_tests

RECORDS = 20_000
LIMIT_S = 300


@pytest.mark.timeout(LIMIT_S + 120)
@pytest.mark.parametrize("brokers", [1, 3])
def test_its_transactions(brokers: int) -> None:
    try:
        fetch_franz_go()
    except Unavailable as unavailable:
        pytest.skip(str(unavailable))
    config = {"group.initial.rebalance.delay.ms": 0}
    made: Any = kohort.Broker(config=config) if brokers == 1 else kohort.Cluster(brokers, config)
    with made as running:
        done = run_tests("TestTxnEtl", running.bootstrap_servers, RECORDS, LIMIT_S)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
