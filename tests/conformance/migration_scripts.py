"""Written sequences for groups that move between the protocols: several classic members, parked ones, and refusals."""

from __future__ import annotations

from conformance.consumer_play import Play, script
from kohort.assignors import Assignment, encode_assignment
from kohort.protocol.errors import ErrorCode

REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


def _two(play: Play) -> tuple[str, str]:
    """A stable classic group of two, three partitions each."""
    play.brief = True
    one = play.old_join("").member_id
    play.old_sync(one, {"t0": [0, 1, 2, 3, 4, 5]})
    waiting = play.parked_join()
    play.wait_for_classic("PreparingRebalance", 2)
    play.old_join(one)
    two = play.answer_of(waiting).member_id
    play.epochs[two] = play.epochs[one]
    play.old_sync(one, {"t0": [0, 1, 2]}, others={two: {"t0": [3, 4, 5]}})
    play.old_sync(two)
    return one, two


def _converge(play: Play, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    for _ in range(6):
        for who in old:
            if play.old_beat(who) == REBALANCING:
                play.old_join(who, play.owned.get(who, {}))
            play.old_sync(who)
        for who in new:
            play.acknowledge(who)


@script
def several_classic_members(play: Play) -> None:
    one, two = _two(play)
    play.join("a")
    _converge(play, (one, two), ("a",))
    play.old_leave(one)
    _converge(play, (two,), ("a",))
    play.commit("a", play.epochs["a"])
    play.heartbeat("a", -1)
    play.shown_classic()
    play.old_beat(two)


@script
def several_that_wait_to_join(play: Play) -> None:
    """testConsumerGroupHeartbeatWithPreparingRebalanceClassicGroup: each of them is told to join again."""
    play.brief = True
    one = play.old_join("").member_id
    play.old_sync(one, {"t0": [0, 1, 2, 3, 4, 5]})
    waiting = []
    for count in (2, 3):
        waiting.append(play.parked_join())
        play.wait_for_classic("PreparingRebalance", count)
    play.join("a")
    joined = [play.answer_of(connection).member_id for connection in waiting]
    play.lines.append(f"ids given: {[bool(member_id) for member_id in joined]}")
    for who in joined:
        play.epochs[who] = play.epochs[one]
    _converge(play, (one, *joined), ("a",))
    for who in joined:
        play.old_leave(who)
    _converge(play, (one,), ("a",))


@script
def several_that_wait_to_sync(play: Play) -> None:
    """testConsumerGroupHeartbeatWithCompletingRebalanceClassicGroup"""
    one, two = _two(play)
    waiting = play.parked_join(one)  # the leader
    play.wait_for_classic("PreparingRebalance", 2)
    play.old_join(two)
    play.epochs[one] = play.answer_of(waiting).generation_id
    parked = play.parked_sync(two)
    play.wait_for_classic("CompletingRebalance", 2)
    play.join("a")
    play.answer_of(parked)
    _converge(play, (one, two), ("a",))


@script
def groups_that_stay_classic(play: Play) -> None:
    """Another kind of group, and one that cannot be read."""
    play.old_join("", kind="connect", said=b"worker")
    play.join("a")
    play.shown_classic()


@script
def an_assignor_of_ones_own(play: Play) -> None:
    """testConsumerGroupHeartbeatWithCustomAssignorClassicGroup: data of its own would be lost."""
    one = play.old_join("").member_id
    data = encode_assignment(Assignment({"t0": [0, 1, 2, 3, 4, 5]}, user_data=b"kept"))
    play.connection.call(play.old_sync_message(one, "consumer", {one: data}), 5)
    play.join("a")
    play.shown_classic()
    play.old_beat(one)


@script
def an_empty_classic_group(play: Play) -> None:
    """Begins anew in the other protocol, and so does an empty one of the consumer protocol."""
    one = play.old_join("").member_id
    play.old_sync(one, {"t0": [0]})
    play.old_leave(one)
    play.commit("", -1)
    play.join("a")
    play.fetch(None, -1)
    play.heartbeat("a", -1)
    again = play.old_join("").member_id
    play.old_sync(again, {"t0": [1]})
    play.shown_classic()
    play.fetch(None, -1)


@script
def the_last_consumer_times_out(play: Play) -> None:
    """testLastConsumerProtocolMemberSessionTimeoutInConsumerGroup"""
    one, two = _two(play)
    play.configure(session_timeout_ms=1000, heartbeat_interval_ms=100)
    play.join("a")
    play.wait_for_classic("PreparingRebalance", 2)
    play.old_beat(one)
    play.old_beat(two)


@script
def a_static_classic_member_moves(play: Play) -> None:
    """Comes back under the same instance id with the other protocol, and back again."""
    play.brief = True
    play.old_join("", instance="i")
    one = play.old_join("", instance="i").member_id
    play.old_sync(one, {"t0": [0, 1, 2, 3, 4, 5]})
    play.join("a", instance_id="i")
    play.settle("a")
    play.old_beat(one)
    two = play.old_join("", instance="i", version=9).member_id  # below it ours rebalances: docs/differences.md
    play.old_sync(two)
    play.shown_classic()


@script
def a_classic_member_with_another_assignor(play: Play) -> None:
    play.brief = True
    play.join("a")
    play.old_join("", kind="connect", said=b"worker")
    play.old_join("", said=b"?")
    old = play.old_join("").member_id
    _converge(play, (old,), ("a",))
    play.old_beat(old, 1)
    play.old_beat(old, -1)
    play.old_leave(old)
    play.settle("a")
