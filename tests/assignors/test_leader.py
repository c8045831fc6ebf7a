"""The leader's step: encoded subscriptions in, encoded assignments out, and what it refuses from a custom assignor."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kohort.assignors import (
    BUILTIN,
    Assignment,
    Assignor,
    ClusterMetadata,
    InvalidAssignmentError,
    RebalanceProtocol,
    Subscription,
    assign_group,
    decode_assignment,
    decode_group,
    encode_subscription,
)

METADATA = ClusterMetadata({"t": 4})


class Fixed(Assignor):
    """Always answers the same."""

    name = "fixed"
    supported_protocols = (RebalanceProtocol.COOPERATIVE,)

    def __init__(self, answer: dict[str, Assignment]) -> None:
        self.answer = answer

    def assign(self, metadata: ClusterMetadata, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        return self.answer


@pytest.mark.parametrize("name", BUILTIN)
def test_from_bytes_to_bytes(name: str) -> None:
    group = decode_group({member: encode_subscription(Subscription(["t"])) for member in ("A", "B")})
    encoded = assign_group(BUILTIN[name](), METADATA, group)
    assigned = {member: decode_assignment(data).partitions for member, data in encoded.items()}
    assert sorted((*assigned["A"]["t"], *assigned["B"]["t"])) == [0, 1, 2, 3]
    assert len(assigned["A"]["t"]) == 2


def test_group_instance_ids_reach_the_assignor() -> None:
    group = decode_group({m: encode_subscription(Subscription(["t"])) for m in ("A", "B")}, {"B": "static", "A": None})
    encoded = assign_group(BUILTIN["range"](), METADATA, group)
    assert decode_assignment(encoded["B"]).partitions == {"t": (0, 1)}


def test_a_member_the_assignor_forgot_gets_nothing() -> None:
    encoded = assign_group(
        Fixed({"A": Assignment({"t": [0]}, b"hello")}), METADATA, {"A": Subscription(["t"]), "B": Subscription(["t"])}
    )
    assert decode_assignment(encoded["A"]) == Assignment({"t": (0,)}, b"hello")
    assert decode_assignment(encoded["B"]) == Assignment({})


def test_an_unknown_member_is_refused() -> None:
    with pytest.raises(InvalidAssignmentError, match=r"'fixed' assigned to \['Z'\]: no such members"):
        assign_group(Fixed({"Z": Assignment({})}), METADATA, {"A": Subscription(["t"])})


@pytest.mark.parametrize("answer", [{"t": ["0"]}, {"t": [2**31]}, {"t": 3}, [("t", 0)], None])
def test_what_is_no_assignment_is_refused(answer: object) -> None:
    with pytest.raises(InvalidAssignmentError, match="gave 'A' what is no Assignment"):
        assign_group(Fixed({"A": Assignment(answer)}), METADATA, {"A": Subscription(["t"])})


def test_cooperative_assignors_must_not_move_in_one_step() -> None:
    """Kafka's own check of custom cooperative assignors."""
    subscriptions = {"A": Subscription(["t"], None, {"t": (0, 1)}), "B": Subscription(["t"])}
    moving = Fixed({"A": Assignment({"t": (0,)}), "B": Assignment({"t": (1, 2)})})
    with pytest.raises(InvalidAssignmentError, match=r"gave away t-1 .* leave it unassigned first"):
        assign_group(moving, METADATA, subscriptions, RebalanceProtocol.COOPERATIVE)
    assign_group(moving, METADATA, subscriptions, RebalanceProtocol.EAGER)
    waiting = Fixed({"A": Assignment({"t": (0,)}), "B": Assignment({"t": (2,)})})
    assign_group(waiting, METADATA, subscriptions, RebalanceProtocol.COOPERATIVE)
