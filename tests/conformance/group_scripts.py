"""The written sequences of the differential test: each state with each request, and the ways in which clients go wrong.

Only requests are written here. What a broker should answer is what Apache Kafka answers.
"""

from __future__ import annotations

from collections.abc import Callable

from conformance.group_script import REBALANCE_MS, Script, subscription

SCRIPTS: dict[str, Callable[[Script], None]] = {}


def script(function: Callable[[Script], None]) -> Callable[[Script], None]:
    SCRIPTS[function.__name__] = function
    return function


# -- membership -------------------------------------------------------------------------------------------------------


@script
def one_member_from_join_to_delete(s: Script) -> None:
    s.enter("a")
    s.sync("a")
    s.heartbeat("a")
    s.commit("a")
    s.fetch(topics={"t0": [0, 1], "t1": [0]})
    s.delete_groups()
    s.leave("a")
    s.fetch()
    s.delete_groups()
    s.fetch()


@script
def two_members_and_every_rejoin(s: Script) -> None:
    s.assemble("a", "b")
    s.heartbeat("a")
    s.heartbeat("b")
    s.join("b")  # a follower with nothing new
    s.sync("b")
    s.join("a")  # the leader always rebalances
    s.heartbeat("b")
    s.commit("b")
    s.join("b")
    s.sync("b")
    s.sync("a")
    s.join("b", protocols=[("range", subscription("t1"))])  # a follower with something new
    s.heartbeat("a")
    s.join("a")
    s.sync("a")
    s.sync("b")


@script
def three_members_sync_in_any_order(s: Script) -> None:
    s.assemble("a", "b", "c")
    s.join("a")
    s.join("c")
    s.join("b")
    s.sync("c")
    s.heartbeat("c")
    s.sync("a")
    s.sync("b")
    s.heartbeat("b")


@script
def a_new_member_while_completing(s: Script) -> None:
    s.assemble("a", "b")
    s.join("a")
    s.join("b")
    s.sync("b")
    s.enter("c")
    s.heartbeat("a")
    s.sync("a")
    s.join("b")
    s.join("a")
    for actor in "abc":
        s.sync(actor)


@script
def joins_while_completing(s: Script) -> None:
    s.assemble("a", "b")
    s.join("a")
    s.join("b")
    s.join("b")  # the answer may have been lost: the same generation again
    s.join("a")
    s.join("b", protocols=[("range", subscription("t1"))])
    s.join("a")
    s.sync("a")
    s.sync("b")


@script
def a_pending_member_tries_everything(s: Script) -> None:
    s.join("a", member="none", version=9)
    s.describe()
    s.list_groups()
    s.heartbeat("a")
    s.sync("a")
    s.commit("a")
    s.delete_groups()
    s.leave("a")
    s.join("a")


@script
def a_pending_member_holds_up_the_rebalance(s: Script) -> None:
    s.assemble("a", "b")
    s.join("c", member="none", version=7)
    s.join("a")
    s.join("b")
    s.heartbeat("a")
    s.join("c", version=7)
    for actor in "cab":
        s.sync(actor)


@script
def a_pending_member_leaves_during_the_rebalance(s: Script) -> None:
    s.assemble("a", "b")
    s.join("c", member="none", version=7)
    s.join("a")
    s.join("b")
    s.leave("c")
    s.sync("a")
    s.sync("b")


@script
def old_clients_join_in_one_step(s: Script) -> None:
    s.enter("a", version=3)
    s.sync("a", version=2)
    s.enter("b", version=2)
    s.join("a", version=3)
    s.sync("b", version=0)
    s.sync("a", version=1)
    s.leave("b", version=1)
    s.heartbeat("a", version=0)


@script
def wrong_member_ids(s: Script) -> None:
    s.join("x", member="nobody")
    s.heartbeat("x", member="nobody")
    s.sync("x", member="nobody")
    s.leave("x", ("x", "nobody", None))
    s.commit("x", member="nobody")
    s.assemble("a")
    s.join("x", member="nobody")
    s.heartbeat("x", member="nobody", generation=2)
    s.sync("x", member="nobody", generation=2)
    s.leave("x", ("x", "nobody", None))
    s.commit("x", member="nobody", generation=2)
    s.heartbeat("a", member="none")
    s.sync("a", member="none")
    s.commit("a", member="none")


@script
def wrong_generations(s: Script) -> None:
    s.assemble("a", "b")
    for delta in (-1, 1):
        s.heartbeat("a", generation=delta)
        s.sync("b", generation=delta)
        s.commit("b", generation=delta)
    s.join("a")
    for delta in (-1, 1):
        s.heartbeat("b", generation=delta)
        s.sync("b", generation=delta)
        s.commit("b", generation=delta)
    s.join("b")
    for delta in (-1, 1):
        s.heartbeat("b", generation=delta)
        s.sync("b", generation=delta)
        s.commit("b", generation=delta)


@script
def protocols_that_do_not_fit(s: Script) -> None:
    s.join("a", member="none", protocols=[])
    s.join("a", member="none", protocol_type="")
    s.assemble("a")
    s.enter("b", protocols=[("roundrobin", b"x")])
    s.enter("b", protocol_type="connect")
    s.join("b", member="none", protocols=[])
    s.join("b", member="none", protocol_type="")
    s.join("a", protocols=[("sticky", b"x")])
    s.sync("a")
    s.join("a", protocol_type="connect")


@script
def sync_with_another_protocol(s: Script) -> None:
    s.enter("a")
    s.sync("a", version=5, protocol_type="connect")
    s.sync("a", version=5, protocol_name="sticky")
    s.sync("a", version=5, protocol_type=None)
    s.sync("a", version=5, protocol_name=None)
    s.sync("a", version=5, protocol_name="range")
    s.sync("a", version=5, protocol_name="sticky")


@script
def the_vote(s: Script) -> None:
    s.supports("a", "range", "roundrobin", "sticky")
    s.supports("b", "roundrobin", "range")
    s.supports("c", "roundrobin", "sticky", "range")
    s.assemble("a", "b", "c")
    s.supports("b", "sticky", "range", "roundrobin")
    s.join("b", protocols=[("sticky", b"1"), ("range", b"2"), ("roundrobin", b"3")])
    s.join("c", protocols=[("sticky", b"1"), ("range", b"2")])
    s.join("a")
    s.sync("a")
    s.sync("c")
    s.sync("b")


@script
def a_protocol_leaves_with_its_only_supporter(s: Script) -> None:
    s.supports("a", "range", "sticky")
    s.supports("b", "sticky", "range")
    s.assemble("a", "b")
    s.enter("c", protocols=[("roundrobin", b"")])
    s.join("b", protocols=[("sticky", b"")])
    s.join("a")
    s.sync("a")
    s.sync("b")
    s.enter("c", protocols=[("range", b"")])
    s.leave("b")
    s.enter("c", protocols=[("range", b"")])


@script
def assignments_for_some_and_for_strangers(s: Script) -> None:
    s.assemble("a", "b")
    s.join("a")
    s.join("b")
    s.sync("b")
    s.sync("a", assign="self")
    s.sync("b")
    s.join("a")
    s.join("b")
    s.sync("a", assign="stranger")
    s.sync("b")
    s.join("a")
    s.join("b")
    s.sync("a", assign="none")
    s.sync("b")
    s.describe()


@script
def timeouts_out_of_bounds(s: Script) -> None:
    for session_ms in (-1, 0, 99, 1_800_001):
        s.join("a", member="none", session_ms=session_ms)
    s.enter("a", session_ms=1_800_000)
    s.sync("a")


@script
def empty_group_id(s: Script) -> None:
    s.join("a", member="none", group_id="")
    s.sync("a", group_id="")
    s.heartbeat("a", group_id="")
    s.leave("a", ("a", "nobody", None), group_id="")
    s.commit("a", generation=None, group_id="")
    s.commit("a", member="nobody", generation=2, group_id="")
    s.delete_offsets(("t0", 0), group_id="")
    s.fetch(version=8, groups=["", s.group_id], topics={"t0": [0]})
    s.describe("", s.group_id)
    s.delete_groups("", s.group_id)
    s.find_coordinator("")


@script
def a_full_group(s: Script) -> None:
    s.assemble("a", "b", "c", "d")
    s.enter("e", version=9)
    s.enter("f", version=3)
    s.join("g", member="none", instance="i-g", version=9)
    s.join("a")
    s.enter("e", version=9)
    s.join("b")
    s.leave("c")
    s.join("d")
    s.enter("e", version=9)


@script
def a_parked_join_is_sent_again(s: Script) -> None:
    s.assemble("a", "b")
    s.join("b", protocols=[("range", b"new")])
    s.join("b", protocols=[("range", b"newer")])
    s.join("a")
    s.sync("a")
    s.sync("b")


@script
def a_parked_sync_is_sent_again(s: Script) -> None:
    s.assemble("a", "b")
    s.join("a")
    s.join("b")
    s.sync("b")
    s.sync("b")
    s.sync("a")
    s.sync("a")


# -- leaving ----------------------------------------------------------------------------------------------------------


@script
def leaving_in_every_state(s: Script) -> None:
    s.leave("a", ("a", "nobody", None))
    s.assemble("a", "b", "c")
    s.leave("c")
    s.heartbeat("a")
    s.leave("c")
    s.join("a")
    s.leave("b")
    s.sync("a")
    s.enter("d")
    s.join("a")
    s.leave("d")
    s.leave("a")
    s.heartbeat("a")
    s.leave("a")


@script
def the_leader_leaves(s: Script) -> None:
    s.assemble("a", "b")
    s.leave("a")
    s.heartbeat("b")
    s.join("b")
    s.sync("b")
    s.enter("a")
    s.join("b")
    s.sync("a")
    s.sync("b")


@script
def the_leader_leaves_while_completing(s: Script) -> None:
    s.assemble("a", "b")
    s.join("a")
    s.join("b")
    s.sync("b")
    s.leave("a")
    s.join("b")
    s.sync("b")


@script
def leaving_with_parked_requests(s: Script) -> None:
    s.assemble("a", "b")
    s.join("b", protocols=[("range", b"new")])
    s.leave("b")
    s.join("a")
    s.sync("a")


@script
def several_leave_at_once(s: Script) -> None:
    s.assemble("a", "b", "c")
    s.leave("tool", ("b", "own", None), ("x", "nobody", None), ("c", "own", None), ("b", "own", None))
    s.join("a")
    s.sync("a")
    s.leave("tool", ("x", "none", None), ("a", "own", None), version=5)
    s.leave("tool", ("x", "nobody", None), version=2)


# -- static members ---------------------------------------------------------------------------------------------------


@script
def a_static_member_restarts(s: Script) -> None:
    s.static("a", "i-a")
    s.static("b", "i-b")
    s.assemble("a", "b")
    s.commit("b")
    s.join("b", member="none")
    s.sync("b")
    s.heartbeat("b")
    s.heartbeat("b", member="first")
    s.sync("b", member="first")
    s.commit("b", member="first")
    s.join("b", member="first")
    s.leave("b", ("b", "first", "i-b"))
    s.describe()


@script
def a_static_leader_restarts(s: Script) -> None:
    s.static("a", "i-a")
    s.assemble("a", "b")
    for version in (9, 8, 5):
        s.join("a", member="none", version=version)
        s.sync("a")
        s.heartbeat("b")
    s.heartbeat("a", member="first")


@script
def a_static_member_restarts_with_other_metadata(s: Script) -> None:
    s.static("a", "i-a")
    s.static("b", "i-b")
    s.assemble("a", "b")
    s.join("b", member="none", protocols=[("range", subscription("t1"))])
    s.heartbeat("a")
    s.join("a")
    s.sync("a")
    s.sync("b")
    s.join("b", member="none", protocols=[("sticky", b"")])


@script
def a_static_member_restarts_during_a_rebalance(s: Script) -> None:
    s.static("a", "i-a")
    s.static("b", "i-b")
    s.assemble("a", "b")
    s.join("a")
    s.join("b", member="none")
    s.sync("b")
    s.join("b", member="none")
    s.join("a")
    s.sync("a")
    s.sync("b")


@script
def two_processes_with_one_instance_id(s: Script) -> None:
    s.static("a", "i")
    s.assemble("a")
    s.enter("b")
    s.join("x", member="none", instance="i")
    s.heartbeat("a")
    s.join("a")
    s.join("x", instance="i")
    s.sync("x", instance="i")
    s.sync("b")


@script
def a_parked_static_join_is_fenced(s: Script) -> None:
    s.static("b", "i-b")
    s.assemble("a", "b")
    s.join("b", protocols=[("range", b"new")])
    s.join("x", member="none", instance="i-b")
    s.join("a")
    s.sync("a")
    s.sync("x", instance="i-b")


@script
def a_parked_static_sync_is_fenced(s: Script) -> None:
    s.static("b", "i-b")
    s.assemble("a", "b")
    s.join("a")
    s.join("b")
    s.sync("b")
    s.join("x", member="none", instance="i-b")
    s.join("a")
    s.sync("a")
    s.sync("x", instance="i-b")


@script
def wrong_instance_ids(s: Script) -> None:
    s.static("a", "i-a")
    s.assemble("a", "b")
    s.heartbeat("a", instance="unknown")
    s.heartbeat("b", instance="i-a")
    s.sync("b", instance="i-a")
    s.commit("b", instance="i-a")
    s.join("b", instance="i-a")
    s.join("b", instance="unknown")
    s.leave("tool", ("b", "own", "i-a"))
    s.leave("tool", ("x", "none", "unknown"))
    s.heartbeat("a")


@script
def static_members_are_removed_by_instance_id(s: Script) -> None:
    s.static("a", "i-a")
    s.static("b", "i-b")
    s.assemble("a", "b")
    s.leave("tool", ("x", "none", "i-b"))
    s.heartbeat("a")
    s.join("a")
    s.sync("a")
    s.join("b", member="own")
    s.leave("tool", ("x", "none", "i-a"), ("x", "none", "i-b"))
    s.describe()


@script
def a_static_member_with_an_unknown_id(s: Script) -> None:
    s.join("a", member="nobody", instance="i-a")
    s.static("a", "i-a")
    s.assemble("a")
    s.join("b", member="nobody", instance="i-b")
    s.join("a", member="nobody")


# -- offsets ----------------------------------------------------------------------------------------------------------


@script
def commits_without_members(s: Script) -> None:
    s.fetch()
    s.commit("tool", generation=None)
    s.describe()
    s.list_groups()
    s.fetch()
    s.commit("tool", generation=None, offsets=[("t0", 0, 11), ("t0", 2, 7)], metadata=None)
    s.fetch(topics={"t0": [0, 1, 2], "t1": [0]})
    s.commit("x", member="nobody", generation=1)
    s.commit("x", member="nobody", generation=5)
    s.delete_offsets(("t0", 0), ("t1", 0), ("t1", 0), ("t9", 0))
    s.fetch()
    s.delete_groups()


@script
def commits_of_strangers_to_a_group_with_members(s: Script) -> None:
    s.assemble("a")
    s.commit("tool", generation=None)
    s.commit("tool", generation=1)
    s.leave("a")
    s.commit("tool", generation=None)
    s.commit("a")
    s.fetch()


@script
def commits_in_every_state(s: Script) -> None:
    s.enter("a")
    s.commit("a")  # completing
    s.sync("a")
    s.commit("a")  # stable
    s.enter("b")
    s.commit("a")  # preparing
    s.commit("b")
    s.join("a")
    s.commit("a")
    s.commit("b")
    s.sync("a")
    s.sync("b")
    s.commit("b", offsets=[("t0", 2, 99)])
    s.leave("a")
    s.leave("b")
    s.commit("b")  # empty
    s.fetch()


@script
def commits_that_are_refused_in_part(s: Script) -> None:
    s.assemble("a")
    s.commit("a", offsets=[("t0", 0, 1), ("t0", 3, 1), ("missing", 0, 1), ("t1", 0, 4)])
    s.commit("a", metadata="x" * 4096)
    s.commit("a", metadata="x" * 4097)
    s.commit("a", metadata="ü" * 3000)
    s.commit("a", metadata="")
    s.commit("a", metadata=None)
    s.commit("a", offsets=[])
    s.commit("a", offsets=[("t0", 1, -1), ("t0", 2, 1 << 62)])
    s.fetch()


@script
def fetches_of_offsets(s: Script) -> None:
    s.commit("tool", generation=None)
    for version in range(1, 11):
        s.fetch(version=version, topics={"t0": [0, 1, 9], "t1": [0]})
        s.fetch(version=version, topics={"missing": [0], "t1": []})
        if version >= 2:
            s.fetch(version=version)
    s.fetch(stable=True)
    s.fetch(version=9, groups=[s.group_id, f"{s.group_id}-other"])
    s.fetch(version=9, topics={})


@script
def deletes_of_offsets(s: Script) -> None:
    s.delete_offsets(("t0", 0))
    s.assemble("a")
    s.commit("a", offsets=[("t0", 0, 1), ("t1", 0, 1)])
    s.delete_offsets(("t0", 0), ("t1", 0), ("missing", 0))
    s.fetch()
    s.join("a", protocols=[("range", b"new")])
    s.sync("a")
    s.commit("a", offsets=[("t0", 0, 1), ("t1", 0, 1)])
    s.delete_offsets(("t0", 0), ("t1", 0))
    s.leave("a")
    s.commit("tool", generation=None, offsets=[("t0", 0, 1), ("t1", 0, 1)])
    s.delete_offsets(("t0", 0), ("t0", 9))
    s.fetch()


@script
def offsets_of_another_protocol_type(s: Script) -> None:
    s.enter("a", protocol_type="connect", protocols=[("v1", b"")])
    s.sync("a", protocol_type="connect")
    s.commit("a", offsets=[("t0", 0, 1)])
    s.delete_offsets(("t0", 0))
    s.list_groups(states=("Stable",))
    s.describe()
    s.leave("a")
    s.delete_offsets(("t0", 0))
    s.enter("b")


# -- tools ------------------------------------------------------------------------------------------------------------


@script
def describing_and_listing_in_every_state(s: Script) -> None:
    def look() -> None:
        s.describe(version=6)
        s.describe(version=0)
        s.describe(s.group_id, f"{s.group_id}-missing", operations=True)
        s.list_groups(version=5)
        s.list_groups(version=3)
        s.list_groups(version=5, states=("Stable", "preparingrebalance", "nonsense"), types=("Classic",))
        s.list_groups(version=5, types=("consumer",))
        s.list_groups(version=4, states=("Empty",))

    look()
    s.enter("a")
    look()
    s.sync("a")
    look()
    s.enter("b")
    look()
    s.leave("b")
    s.leave("a")
    look()
    s.delete_groups()
    look()


@script
def deleting_groups(s: Script) -> None:
    s.delete_groups()
    s.commit("tool", generation=None)
    s.commit("tool", generation=None, group_id=f"{s.group_id}-two")
    s.delete_groups(s.group_id, f"{s.group_id}-two", f"{s.group_id}-missing")
    s.describe(s.group_id, f"{s.group_id}-two")
    s.enter("a")
    s.delete_groups()
    s.sync("a")
    s.delete_groups()
    s.enter("b")
    s.delete_groups()
    s.leave("a")
    s.leave("b")
    s.delete_groups()
    s.heartbeat("a")
    s.enter("a")


@script
def finding_the_coordinator(s: Script) -> None:
    for version in range(7):
        s.find_coordinator(version=version)
        s.find_coordinator("", version=version)
    for version in range(1, 7):
        s.find_coordinator("tx", key_type=1, version=version)
        s.find_coordinator("x", key_type=2, version=version)
        s.find_coordinator("x", key_type=3, version=version)
    s.find_coordinator("one", "two", "", version=4)
    s.find_coordinator("one", "two", version=6)


# -- time -------------------------------------------------------------------------------------------------------------


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
