"""The range assignor: runs of partitions, co-partitioning, static members, racks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.assignors import ClusterMetadata, RangeAssignor, Subscription


def assign(
    counts: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
    racks: Mapping[str, Sequence[Sequence[str]]] | None = None,
) -> dict[str, dict[str, tuple[int, ...]]]:
    assignments = RangeAssignor().assign(ClusterMetadata(counts, racks or {}), subscriptions)
    return {member: dict(assignment.partitions) for member, assignment in assignments.items()}


def test_two_topics_of_four_partitions() -> None:
    both = Subscription(["t0", "t1"])
    assert assign({"t0": 4, "t1": 4}, {"C0": both, "C1": both}) == {
        "C0": {"t0": (0, 1), "t1": (0, 1)},
        "C1": {"t0": (2, 3), "t1": (2, 3)},
    }


def test_two_topics_of_three_partitions_add_up_to_an_uneven_result() -> None:
    both = Subscription(["t0", "t1"])
    assert assign({"t0": 3, "t1": 3}, {"C0": both, "C1": both}) == {
        "C0": {"t0": (0, 1), "t1": (0, 1)},
        "C1": {"t0": (2,), "t1": (2,)},
    }


def test_more_members_than_partitions() -> None:
    one = Subscription(["t"])
    assert assign({"t": 2}, {"C2": one, "C0": one, "C1": one}) == {"C0": {"t": (0,)}, "C1": {"t": (1,)}, "C2": {}}


def test_only_subscribers_of_a_topic_count() -> None:
    subscriptions = {"C0": Subscription(["t0"]), "C1": Subscription(["t0", "t1"]), "C2": Subscription([])}
    assert assign({"t0": 3, "t1": 2}, subscriptions) == {
        "C0": {"t0": (0, 1)},
        "C1": {"t0": (2,), "t1": (0, 1)},
        "C2": {},
    }


def test_a_topic_that_does_not_exist_is_left_out() -> None:
    assert assign({"t": 1, "empty": 0}, {"C0": Subscription(["t", "gone", "empty"])}) == {"C0": {"t": (0,)}}


def test_nobody() -> None:
    assert assign({"t": 3}, {}) == {}


def test_static_members_keep_their_place_under_new_member_ids() -> None:
    """KIP-345: after a rolling bounce the ids sort the other way round, the instances do not."""
    before = assign(
        {"t": 3}, {"C0": Subscription(["t"], group_instance_id="i1"), "C1": Subscription(["t"], group_instance_id="i2")}
    )
    after = assign(
        {"t": 3}, {"C3": Subscription(["t"], group_instance_id="i1"), "C2": Subscription(["t"], group_instance_id="i2")}
    )
    assert before == {"C0": {"t": (0, 1)}, "C1": {"t": (2,)}}
    assert after == {"C3": {"t": (0, 1)}, "C2": {"t": (2,)}}


def test_static_members_come_before_dynamic_ones() -> None:
    subscriptions = {"A": Subscription(["t"]), "Z": Subscription(["t"], group_instance_id="z")}
    assert assign({"t": 3}, subscriptions) == {"Z": {"t": (0, 1)}, "A": {"t": (2,)}}


def test_members_get_partitions_of_their_rack() -> None:
    subscriptions = {"C0": Subscription(["t"], rack_id="b"), "C1": Subscription(["t"], rack_id="a")}
    racks = {"t": [("a",), ("a",), ("b",), ("b",)]}
    assert assign({"t": 4}, subscriptions, racks) == {"C0": {"t": (2, 3)}, "C1": {"t": (0, 1)}}


def test_balance_goes_before_racks() -> None:
    subscriptions = {"C0": Subscription(["t"], rack_id="a"), "C1": Subscription(["t"], rack_id="b")}
    racks = {"t": [("a",), ("a",), ("a",), ("b",)]}
    assert assign({"t": 4}, subscriptions, racks) == {"C0": {"t": (0, 1)}, "C1": {"t": (2, 3)}}


def test_co_partitioning_goes_before_racks() -> None:
    subscriptions = {"C0": Subscription(["t", "u"], rack_id="b"), "C1": Subscription(["t", "u"], rack_id="a")}
    racks = {"t": [("a",), ("b",)], "u": [("a",), ("b",)]}
    assert assign({"t": 2, "u": 2}, subscriptions, racks) == {
        "C0": {"t": (1,), "u": (1,)},
        "C1": {"t": (0,), "u": (0,)},
    }
    crossed = {"t": [("a",), ("b",)], "u": [("b",), ("a",)]}
    assert assign({"t": 2, "u": 2}, subscriptions, crossed) == {
        "C0": {"t": (0,), "u": (0,)},
        "C1": {"t": (1,), "u": (1,)},
    }


def test_racks_that_all_have_everything_do_not_matter() -> None:
    subscriptions = {"C0": Subscription(["t"], rack_id="b"), "C1": Subscription(["t"], rack_id="a")}
    assert assign({"t": 2}, subscriptions, {"t": [("a", "b"), ("b", "a")]}) == {"C0": {"t": (0,)}, "C1": {"t": (1,)}}
