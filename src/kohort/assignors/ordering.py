"""The two orders Kafka's assignors rely on: Java's order of strings and the order of group members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.assignors.types import Subscription


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def java_sorted(names: Iterable[str]) -> list[str]:
    """Sorted as Java's `String.compareTo` does: by UTF-16 code units, which differs from Python's order past U+FFFF."""
    names = list(names)
    if all(map(str.isascii, names)):
        return sorted(names)
    return sorted(names, key=_utf16)


def sorted_members(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Static members by their instance id, then dynamic ones by member id.

    A restarted static member gets a new member id but keeps its place, so it gets the same partitions (KIP-345).
    """
    dynamic = [member for member, s in subscriptions.items() if s.group_instance_id is None]
    static = [(s.group_instance_id, member) for member, s in subscriptions.items() if s.group_instance_id is not None]
    static.sort(key=lambda pair: (_utf16(pair[0]), _utf16(pair[1])))
    return [member for _, member in static] + java_sorted(dynamic)
