"""Written sequences: joining, syncing, heartbeats and leaving in each state, and the ways in which clients go wrong.

Only requests are written here. What a broker should answer is what Apache Kafka answers.
"""

from conformance.group_script import Script, script, subscription


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
