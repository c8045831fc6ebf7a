"""Random groups for the broker's assignors, each over several assignments: members come and go, topics grow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from struct import pack

from kohort.assignors import GroupSpec, MemberSpec, ServerAssignor, TopicSpec

Assigned = dict[str, dict[bytes, frozenset[int]]]


def topic_id(number: int, random: Random | None = None) -> bytes:
    """In the order of Java's hashes too, unless chance is given."""
    return pack(">qq", 0, number) if random is None else random.randbytes(16)


def histories(
    assignor: ServerAssignor, count: int, seed: int, *, alike: bool, any_ids: bool = False
) -> Iterator[GroupSpec]:
    """`count` groups at the moment of an assignment; each goes on from what `assignor` gave it before."""
    random = Random(seed)
    made = 0
    while made < count:
        ids = [topic_id(number, random if any_ids else None) for number in range(1, random.randint(2, 7))]
        topics = {one: TopicSpec(f"t{index}", random.randint(1, 12)) for index, one in enumerate(ids)}
        assigned: Assigned = {}
        members: dict[str, MemberSpec] = {}
        for _ in range(random.randint(1, 6)):
            _change(random, topics, members, alike)
            if not members:
                continue
            now = {name: replace(member, assigned=assigned.get(name, {})) for name, member in members.items()}
            spec = GroupSpec(now, dict(topics), alike)
            yield spec
            made += 1
            assigned = {name: dict(given) for name, given in assignor.assign(spec).items()}


def _change(random: Random, topics: dict[bytes, TopicSpec], members: dict[str, MemberSpec], alike: bool) -> None:
    for _ in range(random.randint(0, 4)):
        static = random.random() < 0.2
        name = f"m{random.randrange(1000):03d}"
        members[name] = MemberSpec(set(), instance_id=f"i-{name}" if static else None)
    for name in random.sample(list(members), min(len(members), random.randint(0, 2))):
        del members[name]
    if random.random() < 0.4:
        grown = random.choice(list(topics))
        topics[grown] = topics[grown]._replace(partitions=min(15, topics[grown].partitions + random.randint(1, 5)))
    shared = set(random.sample(list(topics), random.randint(1, len(topics))))
    for member in members.values():
        if alike:
            member.topic_ids = shared
        elif not member.topic_ids or random.random() < 0.2:
            member.topic_ids = set(random.sample(list(topics), random.randint(0, len(topics))))


def sizes(answer: Assigned) -> list[int]:
    return [sum(map(len, given.values())) for given in answer.values()]


def moved(spec: GroupSpec, answer: Assigned) -> int:
    """Partitions taken from a member that still subscribes to their topic."""
    return sum(
        len(set(numbers) - set(answer.get(name, {}).get(topic, ())))
        for name, member in spec.members.items()
        for topic, numbers in member.assigned.items()
        if topic in member.topic_ids
    )
