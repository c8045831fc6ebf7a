"""Connections that have to do with the coordinator: which node is asked for it, when it is connected to, who shares."""

from __future__ import annotations

import re
from collections import Counter

from client.core_stage import CoreStage, tp
from kohort.client import events as ev
from kohort.protocol.messages import ListOffsetsRequest


def test_the_lookup_goes_to_the_node_with_the_fewest_requests_in_flight() -> None:
    stage = CoreStage()
    stage.do(ev.Refresh(1, 10_000))
    stage.metadata_if_asked()
    for ask_id, node_id in enumerate((1, 1, 1, 2, 3, 3), start=2):
        stage.do(ev.Request(ask_id, ListOffsetsRequest(), 30_000, node_id))
    asked = Counter(stage.hosts[one.link_id] for one in stage.waiting("ListOffsets"))
    assert asked == {"one": 3, "two": 1, "three": 2}
    stage.do(ev.FetchCommitted(9, frozenset({tp(0)}), 10_000))
    assert stage.host_of("FindCoordinator") == "two"


def test_the_coordinator_is_connected_to_when_it_is_found_though_there_is_nothing_to_say_yet() -> None:
    """A pattern that has not seen the names of topics cannot join; the connection is made meanwhile."""
    stage = CoreStage()
    stage.do(ev.Subscribe(frozenset(), re.compile("orders")))
    stage.do(ev.Poll())
    stage.coordinator(2)
    assert stage.opened[-1] == "two"
    assert [one for one in stage.sent if stage.hosts[one.link_id] == "two"] == []
    stage.metadata_if_asked()
    assert stage.host_of("JoinGroup") == "two"
    assert stage.opened.count("two") == 1


def test_heartbeats_do_not_share_a_connection_with_fetches_from_the_same_node() -> None:
    stage = CoreStage(fetching=True)
    stage.stable(1)
    stage.offsets(orders_0=5, orders_1=5)
    stage.do(ev.Poll())
    stage.pass_time(3_000)
    (heartbeat,), (fetch, *_) = stage.waiting("Heartbeat"), stage.waiting("Fetch")
    assert stage.hosts[heartbeat.link_id] == stage.hosts[fetch.link_id] == "one"
    assert heartbeat.link_id != fetch.link_id
