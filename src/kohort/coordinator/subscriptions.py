"""What a consumer's subscription says beside its topics, where the coordinator looks into it. Functions on bytes."""

from kohort.assignors import ConsumerProtocolError, decode_subscription


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
