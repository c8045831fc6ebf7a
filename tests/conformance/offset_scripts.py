"""Written sequences: offsets committed, fetched and deleted in each state, and what tools ask of groups.

Only requests are written here. What a broker should answer is what Apache Kafka answers.
"""

from conformance.group_script import Script, script


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
