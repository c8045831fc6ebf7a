"""Bytewax: a dataflow from one topic to another, run to the end of its input on a real broker.

pip install kohort 'bytewax[kafka]' pytest, then `pytest test_bytewax.py`. Bytewax joins no group: it keeps its
offsets in a recovery store of its own.
"""

from __future__ import annotations

import bytewax.operators as op
import pytest
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

ORDERS = [b"%d" % number for number in range(20)]
QUICK = {"reconnect.backoff.max.ms": "100"}


def dataflow(servers: str) -> Dataflow:
    """The application: it would be imported; `tail=False` ends it at the end of the topic."""
    flow = Dataflow("billing")
    orders = op.input("orders", flow, KafkaSource([servers], ["orders"], tail=False, add_config=QUICK))
    large = op.filter("large", orders, lambda message: int(message.value) >= 10)
    bills = op.map("bill", large, lambda message: KafkaSinkMessage(message.key, b"bill " + message.value))
    op.output("invoices", bills, KafkaSink([servers], "invoices", add_config=QUICK))
    return flow


@pytest.fixture
def servers(kohort_broker, kohort_topic) -> str:
    kohort_topic("orders", partitions=3, records=ORDERS)
    kohort_topic("invoices")
    return kohort_broker.bootstrap_servers


def test_large_orders_are_billed(servers, kohort_records):
    run_main(dataflow(servers))
    assert {record.value for record in kohort_records("invoices")} == {b"bill " + order for order in ORDERS[10:]}


def test_a_partition_whose_leader_moves(servers, kohort_records, kohort_faults):
    moved = kohort_faults.fail("Fetch", code="NOT_LEADER_OR_FOLLOWER", topic="orders", partition=1, times=1)
    run_main(dataflow(servers))
    assert moved.hits == 1 and len(kohort_records("invoices")) == 10
