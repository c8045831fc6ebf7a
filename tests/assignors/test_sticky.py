"""The sticky assignors: what members tell the leader, what stays, what moves, what is held back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from kohort.assignors import (
    Assignment,
    Assignor,
    ClusterMetadata,
    ConsumerGroupMetadata,
    CooperativeStickyAssignor,
    RebalanceProtocol,
    StickyAssignor,
    Subscription,
)
from kohort.assignors.sticky import decode_sticky_user_data, encode_sticky_user_data
from kohort.assignors.topic_partitions import Decoder

Partitions = dict[str, tuple[int, ...]]


def run(
    assignor: Assignor, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
) -> dict[str, Partitions]:
    assignments = assignor.assign(ClusterMetadata(counts), subscriptions)
    return {member: dict(assignment.partitions) for member, assignment in assignments.items()}


def sticky(
    topics: Sequence[str], owned: Partitions | None = None, generation: int | None = 1, **more: object
) -> Subscription:
    user_data = None if owned is None else encode_sticky_user_data(owned, generation)
    return Subscription(topics, user_data, generation_id=-1 if generation is None else generation, **more)


def cooperative(
    topics: Sequence[str], owned: Partitions | None = None, generation: int = 1, **more: object
) -> Subscription:
    return Subscription(topics, None, owned or {}, generation, **more)


# -- user data


def test_sticky_user_data_golden() -> None:
    assert encode_sticky_user_data({"t": (0, 2)}, 5) == b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\2\0\0\0\5"
    assert encode_sticky_user_data({"t": (1,)}, None) == b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\1"


@pytest.mark.parametrize("generation", [None, 0, 7])
def test_sticky_user_data_versions_0_and_1(generation: int | None) -> None:
    claim = decode_sticky_user_data(encode_sticky_user_data({"t": (0, 2)}, generation), Decoder())
    assert (claim.partitions, claim.generation) == ({"t": (0, 2)}, generation)


@pytest.mark.parametrize("garbage", [b"\1", b"\0\0\0\1\0\5t", b"\xff\xff\xff\xff", b"\0\0\0\1\0\1\xff\0\0\0\0"])
def test_user_data_that_cannot_be_read_claims_nothing(garbage: bytes) -> None:
    assert not decode_sticky_user_data(garbage, Decoder()).partitions
    assert run(StickyAssignor(), {"t": 1}, {"A": Subscription(["t"], garbage)}) == {"A": {"t": (0,)}}


def test_a_sticky_member_tells_its_last_assignment() -> None:
    assignor = StickyAssignor()
    assert assignor.subscription_user_data(["t"]) is None
    assignor.on_assignment(Assignment({"t": (3,)}), ConsumerGroupMetadata("g", 9, "m"))
    assert assignor.subscription_user_data(["t"]) == encode_sticky_user_data({"t": (3,)}, 9)


def test_a_cooperative_member_tells_its_generation() -> None:
    assignor = CooperativeStickyAssignor()
    assert assignor.subscription_user_data(["t"]) == b"\xff\xff\xff\xff"
    assignor.on_assignment(Assignment({"t": (3,)}), ConsumerGroupMetadata("g", 9, "m"))
    assert assignor.subscription_user_data(["t"]) == b"\0\0\0\x09"


def test_names_and_protocols() -> None:
    assert StickyAssignor().name == "sticky"
    assert tuple(StickyAssignor().supported_protocols) == (RebalanceProtocol.EAGER,)
    assert CooperativeStickyAssignor().name == "cooperative-sticky"
    assert set(CooperativeStickyAssignor().supported_protocols) == {
        RebalanceProtocol.EAGER,
        RebalanceProtocol.COOPERATIVE,
    }


# -- equal subscriptions


def test_three_members_four_topics_one_leaves() -> None:
    """The example of KIP-54: round robin would move nearly everything, sticky moves what C1 had."""
    topics = ["t0", "t1", "t2", "t3"]
    counts = dict.fromkeys(topics, 2)
    first = run(StickyAssignor(), counts, {member: sticky(topics) for member in ("C0", "C1", "C2")})
    assert first == {
        "C0": {"t0": (0,), "t1": (1,), "t3": (0,)},
        "C1": {"t0": (1,), "t2": (0,), "t3": (1,)},
        "C2": {"t1": (0,), "t2": (1,)},
    }
    second = run(StickyAssignor(), counts, {member: sticky(topics, first[member]) for member in ("C0", "C2")})
    assert second == {
        "C0": {"t0": (0, 1), "t1": (1,), "t3": (0,)},
        "C2": {"t1": (0,), "t2": (0, 1), "t3": (1,)},
    }


def test_one_joins_and_takes_the_highest_numbers() -> None:
    subscriptions = {"A": sticky(["t"], {"t": (0, 1, 2, 3)}), "B": sticky(["t"])}
    assert run(StickyAssignor(), {"t": 4}, subscriptions) == {"A": {"t": (0, 1)}, "B": {"t": (2, 3)}}


def test_new_partitions_go_to_whoever_has_least() -> None:
    subscriptions = {"A": sticky(["t"], {"t": (0, 1)}), "B": sticky(["t"], {"t": (2,)})}
    assert run(StickyAssignor(), {"t": 4}, subscriptions) == {"A": {"t": (0, 1)}, "B": {"t": (2, 3)}}


def test_the_higher_generation_is_believed() -> None:
    subscriptions = {"A": sticky(["t"], {"t": (0, 1)}, 3), "B": sticky(["t"], {"t": (0, 1)}, 4)}
    assert run(StickyAssignor(), {"t": 2}, subscriptions) == {"A": {"t": (1,)}, "B": {"t": (0,)}}


def test_of_claims_of_one_generation_nobody_is_believed() -> None:
    subscriptions = {"A": cooperative(["t"], {"t": (0, 1)}), "B": cooperative(["t"], {"t": (1, 2)})}
    assert run(CooperativeStickyAssignor(), {"t": 3}, subscriptions) == {"A": {"t": (0,)}, "B": {"t": (2,)}}


def test_claims_on_what_does_not_exist_any_more_are_dropped() -> None:
    """A topic that was deleted and made again with fewer partitions, and one that is gone."""
    subscriptions = {"A": sticky(["t"], {"t": (0, 5), "gone": (0,)}), "B": sticky(["t"], {"t": (1, 6, -1)})}
    assert run(StickyAssignor(), {"t": 3}, subscriptions) == {"A": {"t": (0, 2)}, "B": {"t": (1,)}}


def test_a_member_without_topics_gets_nothing() -> None:
    subscriptions = {"A": sticky([]), "B": sticky(["t"])}
    assert run(StickyAssignor(), {"t": 2}, subscriptions) == {"A": {}, "B": {"t": (0, 1)}}


@pytest.mark.parametrize("assignor", [StickyAssignor, CooperativeStickyAssignor])
def test_nobody_and_nothing(assignor: type[Assignor]) -> None:
    assert run(assignor(), {"t": 2}, {}) == {}
    assert run(assignor(), {}, {"A": Subscription(["t"])}) == {"A": {}}


def test_a_partition_leaves_a_member_in_another_rack() -> None:
    racks = {"t": [("a",), ("b",), ("a",), ("b",)]}
    subscriptions = {
        "A": sticky(["t"], {"t": (0, 1)}, rack_id="a"),
        "B": sticky(["t"], {"t": (2, 3)}, rack_id="b"),
    }
    assignments = StickyAssignor().assign(ClusterMetadata({"t": 4}, racks), subscriptions)
    assert {member: dict(a.partitions) for member, a in assignments.items()} == {"A": {"t": (0, 2)}, "B": {"t": (1, 3)}}


# -- different subscriptions


def test_different_subscriptions_are_balanced_as_far_as_possible() -> None:
    """The second example of KIP-54, where round robin leaves C0 with one partition and C2 with four."""
    subscriptions = {
        "C0": sticky(["t0"]),
        "C1": sticky(["t0", "t1"]),
        "C2": sticky(["t0", "t1", "t2"]),
    }
    counts = {"t0": 1, "t1": 2, "t2": 3}
    first = run(StickyAssignor(), counts, subscriptions)
    assert first == {"C0": {"t0": (0,)}, "C1": {"t1": (0, 1)}, "C2": {"t2": (0, 1, 2)}}
    left = {member: sticky(subscriptions[member].topics, first[member]) for member in ("C1", "C2")}
    assert run(StickyAssignor(), counts, left) == {"C1": {"t0": (0,), "t1": (0, 1)}, "C2": {"t2": (0, 1, 2)}}


def test_a_partition_of_a_topic_that_was_left_goes_to_another() -> None:
    subscriptions = {"A": sticky(["u"], {"t": (0,), "u": (0,)}), "B": sticky(["t", "u"], {"u": (1,)})}
    assert run(StickyAssignor(), {"t": 1, "u": 2}, subscriptions) == {"A": {"u": (0,)}, "B": {"t": (0,), "u": (1,)}}


def test_a_stale_owner_that_left_the_topic_does_not_get_it_back() -> None:
    """Kafka 4.3 gives t-0 to A here, which does not subscribe to t."""
    subscriptions = {
        "A": sticky(["u"], {"t": (0,)}, 1),
        "B": sticky(["t"], {"t": (0, 1, 2)}, 2),
        "C": sticky(["t", "u"], {}, 2),
    }
    result = run(StickyAssignor(), {"t": 3, "u": 1}, subscriptions)
    assert set(result["A"]) <= {"u"}
    assert sorted((*result["B"].get("t", ()), *result["C"].get("t", ()))) == [0, 1, 2]


# -- cooperative


@pytest.mark.parametrize("extra", [[], ["other"]], ids=["equal subscriptions", "different subscriptions"])
def test_a_moving_partition_is_first_revoked_then_assigned(extra: list[str]) -> None:
    topics = {"A": ["t", *extra], "B": ["t"]}
    assignor = CooperativeStickyAssignor()
    owned: dict[str, Partitions] = {"A": {"t": (0, 1, 2, 3)}, "B": {}}
    first = run(assignor, {"t": 4}, {m: cooperative(topics[m], owned[m], 1) for m in owned})
    assert len(first["A"]["t"]) == 2
    assert set(first["A"]["t"]) < {0, 1, 2, 3}
    assert first["B"] == {}
    second = run(assignor, {"t": 4}, {m: cooperative(topics[m], first[m], 2) for m in owned})
    assert second["A"] == first["A"]
    assert set(second["B"]["t"]) == {0, 1, 2, 3} - set(first["A"]["t"])


def test_what_nobody_owns_is_assigned_at_once() -> None:
    subscriptions = {"A": cooperative(["t"], {"t": (0, 1)}), "B": cooperative(["t"])}
    assert run(CooperativeStickyAssignor(), {"t": 4}, subscriptions) == {"A": {"t": (0, 1)}, "B": {"t": (2, 3)}}


def test_generation_of_an_old_subscription_comes_from_its_user_data() -> None:
    """Version 1 has owned partitions but no generation."""
    old = Subscription(["t"], b"\0\0\0\3", {"t": (0,)})
    new = cooperative(["t"], {"t": (0, 1)}, 4)
    assert run(CooperativeStickyAssignor(), {"t": 2}, {"A": old, "B": new}) == {"A": {}, "B": {"t": (0,)}}
