"""The leader's step of a rebalance: encoded subscriptions in, encoded assignments out."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from kohort.assignors.consumer_protocol import HIGHEST_VERSION, decode_subscriptions, encode_assignment
from kohort.assignors.topic_partitions import Encoder
from kohort.assignors.types import Assignment, Assignor, ClusterMetadata, RebalanceProtocol, Subscription


class InvalidAssignmentError(ValueError):
    """An assignor has returned something that would break its group."""


def decode_group(
    metadata_by_member: Mapping[str, bytes], group_instance_ids: Mapping[str, str | None] | None = None
) -> dict[str, Subscription]:
    """The members of a JoinGroup response as subscriptions; `group_instance_ids` names the static members."""
    subscriptions = decode_subscriptions(metadata_by_member)
    for member, instance_id in (group_instance_ids or {}).items():
        subscriptions[member].group_instance_id = instance_id
    return subscriptions


def assign_group(
    assignor: Assignor,
    metadata: ClusterMetadata,
    subscriptions: Mapping[str, Subscription],
    protocol: RebalanceProtocol = RebalanceProtocol.EAGER,
    version: int = HIGHEST_VERSION,
) -> dict[str, bytes]:
    """Run the assignor and encode what every member gets."""
    assignments = assignor.assign(metadata, subscriptions)
    unknown = assignments.keys() - subscriptions.keys()
    if unknown:
        raise InvalidAssignmentError(f"assignor {assignor.name!r} assigned to {sorted(unknown)}: no such members")
    if protocol is RebalanceProtocol.COOPERATIVE and assignor.name != "cooperative-sticky":
        # The built-in one weighs the generations of owned partitions, which this check does not know about.
        check_cooperative(assignor.name, subscriptions, assignments)
    nothing, encoder = Assignment({}), Encoder()
    encoded = {}
    for member in subscriptions:
        try:
            encoded[member] = encode_assignment(assignments.get(member, nothing), version, encoder)
        except (struct.error, TypeError, AttributeError) as e:
            raise InvalidAssignmentError(
                f"assignor {assignor.name!r} gave {member!r} what is no Assignment of partition numbers by topic: {e}"
            ) from e
    return encoded


def check_cooperative(
    name: str, subscriptions: Mapping[str, Subscription], assignments: Mapping[str, Assignment]
) -> None:
    """Under the cooperative protocol, what one member still owns must not be given to another in the same rebalance."""
    added: set[tuple[str, int]] = set()
    revoked: set[tuple[str, int]] = set()
    for member, assignment in assignments.items():
        owned = _pairs(subscriptions[member].owned_partitions)
        assigned = _pairs(assignment.partitions)
        added |= assigned - owned
        revoked |= owned - assigned
    if added & revoked:
        moved = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(added & revoked))
        raise InvalidAssignmentError(
            f"assignor {name!r} supports the cooperative protocol but gave away {moved} in the same rebalance in which "
            "its owner loses it: leave it unassigned first, its owner then rejoins"
        )


def _pairs(partitions: Mapping[str, Iterable[int]]) -> set[tuple[str, int]]:
    return {(topic, partition) for topic, numbers in partitions.items() for partition in numbers}
