"""The round robin assignor: one partition at a time, around the members."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.assignors import ClusterMetadata, RoundRobinAssignor, Subscription


def assign(
    counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
) -> dict[str, dict[str, tuple[int, ...]]]:
    assignments = RoundRobinAssignor().assign(ClusterMetadata(counts), subscriptions)
    return {member: dict(assignment.partitions) for member, assignment in assignments.items()}


def test_two_topics_of_three_partitions() -> None:
    both = Subscription(["t0", "t1"])
    assert assign({"t0": 3, "t1": 3}, {"C0": both, "C1": both}) == {
        "C0": {"t0": (0, 2), "t1": (1,)},
        "C1": {"t0": (1,), "t1": (0, 2)},
    }


def test_different_subscriptions_can_end_uneven() -> None:
    subscriptions = {
        "C0": Subscription(["t0"]),
        "C1": Subscription(["t0", "t1"]),
        "C2": Subscription(["t0", "t1", "t2"]),
    }
    assert assign({"t0": 1, "t1": 2, "t2": 3}, subscriptions) == {
        "C0": {"t0": (0,)},
        "C1": {"t1": (0,)},
        "C2": {"t1": (1,), "t2": (0, 1, 2)},
    }


def test_the_circle_goes_on_from_topic_to_topic() -> None:
    subscriptions = {"A": Subscription(["t", "v"]), "B": Subscription(["t", "u"]), "C": Subscription(["u", "v"])}
    assert assign({"t": 1, "u": 2, "v": 3}, subscriptions) == {
        "A": {"t": (0,), "v": (0, 2)},
        "B": {"u": (0,)},
        "C": {"u": (1,), "v": (1,)},
    }


def test_static_members_come_first_and_by_their_instance() -> None:
    subscriptions = {
        "A": Subscription(["t"]),
        "B": Subscription(["t"], group_instance_id="2"),
        "C": Subscription(["t"], group_instance_id="1"),
    }
    assert assign({"t": 3}, subscriptions) == {"C": {"t": (0,)}, "B": {"t": (1,)}, "A": {"t": (2,)}}


def test_names_sort_as_in_java() -> None:
    """Java compares UTF-16 code units: a character beyond U+FFFF comes before U+FF61."""
    subscriptions = {"\uff61": Subscription(["t"]), "\U0001f600": Subscription(["t"])}
    assert assign({"t": 1}, subscriptions) == {"\U0001f600": {"t": (0,)}, "\uff61": {}}
