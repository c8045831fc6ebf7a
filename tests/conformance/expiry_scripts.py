"""Written sequences that wait for real time to pass: sessions, rebalances and syncs that time out.

Only requests are written here. What a broker should answer is what Apache Kafka answers.
"""

from conformance.group_script import REBALANCE_MS, Script, script


@script
def a_silent_member_expires(s: Script) -> None:
    s.enter("a", session_ms=300)
    s.sync("a")
    s.wait("the group is empty", lambda group, parked: group.group_state == "Empty")
    s.heartbeat("a")
    s.join("a")
    s.describe()


@script
def a_silent_follower_expires(s: Script) -> None:
    s.enter("a")
    s.sync("a")
    s.enter("b", session_ms=400)
    s.join("a")
    s.sync("a")
    s.sync("b")
    s.wait("the follower is gone", lambda group, parked: len(group.members) == 1)
    s.heartbeat("a")
    s.heartbeat("b")
    s.join("a")
    s.sync("a")


@script
def a_silent_static_member_expires(s: Script) -> None:
    s.static("b", "i-b")
    s.enter("a")
    s.sync("a")
    s.enter("b", session_ms=400)
    s.join("a")
    s.sync("a")
    s.sync("b")
    s.wait("the static member is gone", lambda group, parked: len(group.members) == 1)
    s.join("b", member="own")
    s.join("a")
    s.sync("a")


@script
def a_member_misses_the_rebalance(s: Script) -> None:
    s.assemble("a", "b", rebalance_ms=500)
    s.join("a", rebalance_ms=500)
    s.wait("the join is answered", lambda group, parked: parked == 0)
    s.sync("a")
    s.join("b")
    s.heartbeat("b")


@script
def a_static_member_misses_the_rebalance(s: Script) -> None:
    s.static("b", "i-b")
    s.assemble("a", "b", rebalance_ms=500)
    s.join("a", rebalance_ms=500)
    s.wait("the join is answered", lambda group, parked: parked == 0)
    s.sync("a", assign="self")
    s.heartbeat("b")


@script
def a_leader_that_never_syncs(s: Script) -> None:
    s.assemble("a", "b", rebalance_ms=3000)
    s.join("a", rebalance_ms=3000)
    s.join("b", rebalance_ms=3000)
    s.sync("b")
    s.wait("the leader is gone", lambda group, parked: len(group.members) == 1 and parked == 0)
    s.heartbeat("b")
    s.heartbeat("a")
    s.join("b")
    s.sync("b")


@script
def a_follower_that_never_syncs(s: Script) -> None:
    s.assemble("a", "b", rebalance_ms=3000)
    s.join("a", rebalance_ms=3000)
    s.join("b", rebalance_ms=3000)
    s.sync("a")
    s.wait("the follower is gone", lambda group, parked: len(group.members) == 1)
    s.heartbeat("a")
    s.join("a", rebalance_ms=REBALANCE_MS)
    s.sync("a")


@script
def a_pending_member_that_never_joins(s: Script) -> None:
    s.assemble("a", "b")
    s.join("c", member="none", version=9, session_ms=500)
    s.join("a")
    s.join("b")
    s.wait("the joins are answered", lambda group, parked: parked == 0)
    s.sync("a")
    s.sync("b")
    s.join("c")
