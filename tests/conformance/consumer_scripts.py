"""Written sequences for KIP-848 groups, by the areas of Kafka's own tests."""

from __future__ import annotations

from conformance.consumer_play import Play, script
from kohort.protocol.errors import ErrorCode


@script
def reconciliation(play: Play) -> None:
    for who in "abc":
        play.join(who)
        play.settle(*"abc"[: "abc".index(who) + 1])
    play.beat("b", subscribed_topic_names=["t1"])
    play.settle("a", "b", "c")
    play.heartbeat("c", -1)
    play.settle("a", "b")


@script
def epochs(play: Play) -> None:
    play.join("a")
    play.join("b")
    play.beat("a")
    for epoch in (1, 3, 4):
        play.heartbeat("a", epoch)
        play.heartbeat("a", epoch, {"t0": [0]})
        play.heartbeat("a", epoch, {"t0": [5]})
    play.acknowledge("a")
    play.heartbeat("a", 2)
    play.heartbeat("a", 2, {"t0": [0]})
    play.heartbeat("a", 2, {"t0": [0, 5]})
    play.join("a")
    play.settle("a", "b")


@script
def duplicate_full_heartbeats(play: Play) -> None:
    play.join("a")
    play.join("a")
    play.join("b")
    full = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t0"]}
    for _ in range(2):
        play.acknowledge("a", **full)
        play.acknowledge("b", **full)


@script
def static_members(play: Play) -> None:
    play.join("a", instance_id="i")
    play.join("b")
    play.settle("b")
    play.acknowledge("a", instance_id="i")
    play.beat("b")
    play.join("c", instance_id="i")
    play.heartbeat("a", -2, instance_id="i")
    play.beat("b")
    play.join("c", instance_id="i")
    play.beat("a", instance_id="i")
    play.heartbeat("a", -1, instance_id="i")
    play.heartbeat("c", -2, instance_id="j")
    play.acknowledge("c", instance_id="i")
    play.heartbeat("c", -2, instance_id="i")
    play.join("c", instance_id="i")
    play.heartbeat("c", -1, instance_id="i")
    play.settle("b")


@script
def bad_requests(play: Play) -> None:
    play.heartbeat("a", 1)
    play.heartbeat("a", -1)
    play.heartbeat("a", 0, {})
    play.heartbeat("a", 0, {}, rebalance_timeout_ms=1)
    play.heartbeat("a", 0, None, rebalance_timeout_ms=1, subscribed_topic_names=["t0"])
    play.heartbeat("a", 0, {"t0": [0]}, rebalance_timeout_ms=1, subscribed_topic_names=["t0"])
    play.heartbeat("a", -2)
    play.heartbeat("a", -3)
    play.heartbeat("", 0, {}, rebalance_timeout_ms=1, subscribed_topic_names=["t0"])
    play.join("a", instance_id="")
    play.join("a", rack_id="")
    play.join("a", server_assignor="none")
    play.join("a", server_assignor="range")
    play.join("b", server_assignor="uniform")
    play.heartbeat("x", 2)
    play.heartbeat("x", -1)
    play.settle("a", "b")


@script
def subscriptions(play: Play) -> None:
    play.join("a", [])
    play.beat("a", subscribed_topic_names=["missing"])
    play.beat("a", subscribed_topic_names=["missing", "t0"])
    play.settle("a")
    play.beat("a", subscribed_topic_names=["t1"])
    play.beat("a")
    play.settle("a")
    play.beat("a", subscribed_topic_names=[])
    play.settle("a")
    play.beat("a", rack_id="r", rebalance_timeout_ms=5)
    play.beat("a", server_assignor="range")


@script
def offsets(play: Play) -> None:
    play.commit("", -1)
    play.join("a")
    play.join("b")
    play.commit("a", 2)
    play.commit("a", 3)
    play.commit("a", 9)
    play.commit("a", 2, version=8)
    play.commit("x", 2)
    play.commit("", -1)
    play.settle("a", "b")
    for partition in range(6):
        play.commit("a", 2, partition)
        play.commit("a", 3, partition)
    for who, epoch in (("a", 3), ("a", 2), ("x", 3), (None, -1), ("", -1)):
        play.fetch(who, epoch)
    play.delete_offsets()
    play.tools()
    play.heartbeat("a", -1)
    play.heartbeat("b", -1)
    play.commit("", -1)
    play.delete_offsets()
    play.tools()


@script
def a_session_that_ends(play: Play) -> None:
    play.configure(session_timeout_ms=1000, heartbeat_interval_ms=100)
    play.join("a")
    play.wait_for_members(0)
    play.beat("a")
    play.join("a")


@script
def partitions_that_are_not_given_up(play: Play) -> None:
    play.join("a", rebalance_timeout_ms=1000)
    play.join("b")
    play.beat("a")
    play.wait_for_members(1)
    play.beat("b")


@script
def regular_expressions(play: Play) -> None:
    play.join("a", subscribed_topic_regex="t(")
    play.heartbeat("a", 0, {}, rebalance_timeout_ms=1, subscribed_topic_regex="(?=x)")
    play.heartbeat("a", 0, {}, rebalance_timeout_ms=60_000, subscribed_topic_regex="")
    play.settle("a")


@script
def upgrade_and_back(play: Play) -> None:
    old = play.old_join("").member_id
    play.old_sync(old, {"t0": [0, 1, 2, 3, 4, 5]})
    play.old_beat(old)
    play.join("a")
    _converge(play, old, "a")
    play.old_beat(old, 1)
    play.old_beat(old, -1)
    play.commit("a", play.epochs["a"], 4)
    play.heartbeat("a", -1)
    play.shown_classic()
    play.old_beat(old)
    play.old_join(old)
    play.shown_classic()
    play.fetch(None, -1)


@script
def a_classic_member_joins(play: Play) -> None:
    play.join("a")
    old = play.old_join("").member_id
    _converge(play, old, "a")
    play.old_leave(old)
    play.old_leave(old)
    play.settle("a")


def _converge(play: Play, old: str, new: str) -> None:
    for _ in range(6):
        if play.old_beat(old) == ErrorCode.REBALANCE_IN_PROGRESS:
            play.old_join(old, play.owned.get(old, {}))
        play.old_sync(old)
        play.heartbeat(new, play.epochs[new], play.owned.get(new, {}))
