"""What consumers' subscriptions and assignments say, where the coordinator looks into them. Functions on bytes."""

from collections.abc import Iterable, Mapping

from kohort.assignors import ConsumerProtocolError, decode_assignment, decode_subscription


def gave_back(before: bytes, now: bytes) -> bool:
    """Whether a consumer of the same topics owns less than when it joined before: the rest is for others (KIP-429)."""
    try:
        old, new = decode_subscription(before), decode_subscription(now)
    except ConsumerProtocolError:
        return False  # a member may say anything
    if set(old.topics) != set(new.topics):
        return False
    owned = new.owned_partitions
    return any(set(partitions).difference(owned.get(topic, ())) for topic, partitions in old.owned_partitions.items())


def deals_out(partition_counts: Mapping[str, int], assignments: Iterable[bytes]) -> bool:
    """Whether each partition of these topics is in one of the assignments. Those of a leader that does not speak as
    consumers do, or said nothing at all, are trusted."""
    left = {name: set(range(count)) for name, count in partition_counts.items()}
    said = [assignment for assignment in assignments if assignment]
    try:
        for assignment in said:
            for topic, numbers in decode_assignment(assignment).partitions.items():
                left.get(topic, set()).difference_update(numbers)
    except ConsumerProtocolError:
        return True
    return not said or not any(left.values())
