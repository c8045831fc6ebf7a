"""Written sequences: static members that restart, are fenced, and are removed (KIP-345, KIP-814).

Only requests are written here. What a broker should answer is what Apache Kafka answers.
"""

from conformance.group_script import Script, script, subscription


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
