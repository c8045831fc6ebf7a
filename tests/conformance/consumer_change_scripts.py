"""Written sequences for KIP-848 groups whose topics change, who subscribe by expressions, and whose targets wait."""

from __future__ import annotations

from conformance.consumer_play import Play, script


@script
def a_topic_grows(play: Play) -> None:
    """A new epoch, by whoever is heard of first; those who have partitions keep them."""
    name = play.topic("grows", 2)
    play.join("a", [name])
    play.until(2, "a")
    play.join("b", [name])
    play.until(2, "a", "b")
    play.grow(name, 5)
    play.until(5, "a", "b")
    play.settle("a", "b")
    play.grow(name, 6)
    play.until(6, "a", "b")


@script
def a_topic_goes_and_comes_again(play: Play) -> None:
    first, other = play.topic("goes", 4), play.topic("stays", 1)
    play.join("a", [first, other])
    play.until(5, "a")
    play.delete_topic(first)
    play.until(1, "a")
    play.settle("a")
    play.topic("goes", 2)
    play.until(3, "a")
    play.settle("a")


@script
def a_topic_that_comes_later(play: Play) -> None:
    play.join("a", [f"{play.group_id}-later"])
    play.beat("a")
    play.topic("later", 3)
    play.until(3, "a")


@script
def a_resolved_expression(play: Play) -> None:
    """The first answer is without partitions: the expression is held against the topics meanwhile."""
    play.described = False  # whether it is resolved when that is asked is left to chance
    play.topic("red-1", 2)
    regex = f"{play.group_id}-red-.*"
    play.join("a", [], subscribed_topic_regex=regex)
    play.until(2, "a")
    play.join("b", [], subscribed_topic_regex=regex)
    play.until(2, "a", "b")
    play.settle("a", "b")
    play.grow(f"{play.group_id}-red-1", 3)
    play.until(3, "a", "b")
    play.topic("red-2", 3)
    play.until(6, "a", "b")


@script
def an_expression_beside_names(play: Play) -> None:
    play.described = False  # whether it is resolved when that is asked is left to chance
    green, blue = play.topic("green", 2), play.topic("blue", 3)
    play.join("a", [green], subscribed_topic_regex=f"{play.group_id}-b.*")
    play.until(5, "a")
    play.beat("a", subscribed_topic_regex="")
    play.until(2, "a")
    play.beat("a", subscribed_topic_names=[], subscribed_topic_regex=f"{play.group_id}-(green|blue)")
    play.until(5, "a")
    play.beat("a", subscribed_topic_regex=f"{play.group_id}-gre")
    play.until(0, "a")
    play.beat("a", subscribed_topic_names=[blue], subscribed_topic_regex="(")
    play.settle("a")


@script
def two_expressions(play: Play) -> None:
    play.described = False  # whether it is resolved when that is asked is left to chance
    play.topic("one", 2)
    play.topic("two", 2)
    play.join("a", [], subscribed_topic_regex=f"{play.group_id}-o.*")
    play.until(2, "a")
    play.join("b", [], subscribed_topic_regex=f"{play.group_id}-t.*")
    play.until(4, "a", "b")
    play.settle("a", "b")
    play.heartbeat("b", -1)
    play.until(2, "a")
    play.described = True
    play.settle("a")


@script
def targets_that_wait(play: Play) -> None:
    """testConsumerGroupAssignmentInterval: who joins meanwhile is in the group and has nothing yet."""
    play.configure(assignment_interval_ms=15_000)
    play.join("a")
    play.join("b")
    play.settle("a", "b")
    play.heartbeat("b", -1)
    play.settle("a")
    play.configure(assignment_interval_ms=-1)
    play.configure(assignment_interval_ms=0)
    play.join("b")
    play.settle("a", "b")


@script
def members_that_rejoin_with_epoch_zero(play: Play) -> None:
    """testMemberCanRejoinWithEpochZeroIn*: in each state that a member can be in."""
    play.join("a")
    play.join("b")
    play.beat("a")  # a has to give up
    play.join("a")
    play.acknowledge("a")
    play.join("b")  # b waits
    play.settle("a", "b")
    play.join("a")
    play.join("b")
    play.settle("a", "b")


@script
def assignors_by_votes(play: Play) -> None:
    play.join("a", ["t0"], server_assignor="range")
    play.join("b", ["t0"])
    play.settle("a", "b")
    play.join("c", ["t0"], server_assignor="uniform")
    play.settle("a", "b", "c")
    play.beat("b", server_assignor="uniform")
    play.settle("a", "b", "c")
    play.heartbeat("c", -1)
    play.settle("a", "b")


@script
def a_static_member_times_out(play: Play) -> None:
    play.configure(session_timeout_ms=1000, heartbeat_interval_ms=100)
    play.join("a", instance_id="i")
    play.heartbeat("a", -2, instance_id="i")
    play.wait_for_members(0)
    play.join("b", instance_id="i")
    play.heartbeat("a", 2, instance_id="i")
