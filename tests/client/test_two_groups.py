"""Two groups on one topic: each divides all of its partitions among its own members and keeps its own offsets."""

from __future__ import annotations

from collections.abc import Callable

import kohort
from client.conftest import Topics, until


def test_four_readers_have_one_partition_each_and_two_have_two(
    topics: Topics, consumer: Callable[..., kohort.Consumer], group_id: str
) -> None:
    topic = topics.make(4)
    groups = {
        f"{group_id}-{size}": [consumer(group_id=f"{group_id}-{size}", enable_auto_commit=False) for _ in range(size)]
        for size in (4, 2)
    }
    for members in groups.values():
        for member in members:
            member.subscribe(topic)
    found: dict[str, list[int]] = {group: [] for group in groups}

    def poll_all() -> None:
        for group, members in groups.items():
            for member in members:
                found[group] += [int(record.value) for record in member.poll(0.02)]

    def held() -> list[list[int]]:
        return [[len(member.assignment()) for member in members] for members in groups.values()]

    until(lambda: held() == [[1, 1, 1, 1], [2, 2]], "4 x 1 and 2 x 2 partitions", poll_all)
    for members in groups.values():
        owned = [partition for member in members for partition in member.assignment()]
        assert sorted(owned) == [(topic, number) for number in range(4)], "each partition has one reader in each group"
    topics.produce(topic, 400)
    until(lambda: all(len(values) >= 400 for values in found.values()), "every record in both groups", poll_all)
    assert all(sorted(values) == list(range(400)) for values in found.values())

    four, two = groups.values()
    for member in four:
        member.commit()
    assert {offset.offset for offset in four[0].committed(owned).values()} == {100}
    assert set(two[0].committed(owned).values()) == {None}, "the offsets of a group are its own"
