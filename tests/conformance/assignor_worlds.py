"""Random consumer groups over several generations, as cases for our assignors and for Kafka's.

Each case is a group at the moment its leader assigns. The groups live on from case to case: members join, leave, miss
generations, change their minds, topics grow; what a member claims is what it really got, unless it is made to lie.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from kohort.assignors import BUILTIN, ClusterMetadata, Subscription, decode_group, encode_subscription
from kohort.assignors.sticky import encode_sticky_user_data

RACKS = ("rack-a", "rack-b", "rack-c", "rack-d")


def java_bucket(name: str, capacity: int) -> int:
    """Where a Java HashMap of this capacity keeps a string."""
    value = 0
    for unit in name:
        value = (31 * value + ord(unit)) & 0xFFFFFFFF
    return (value ^ value >> 16) & (capacity - 1)


def names_in_hash_order(count: int) -> list[str]:
    """Member ids whose alphabetical order is also the order in which a Java HashMap of up to 3/4 `count` has them.

    Kafka serves sticky members in the order of a HashMap; with these names there is one right answer.
    """
    names = []
    for i in range(count):
        suffix = next(s for s in range(100_000) if java_bucket(f"consumer-{i:02d}-{s:x}", count) == i)
        names.append(f"consumer-{i:02d}-{suffix:x}")
    return names


@dataclass
class Case:
    """One rebalance. `owners` says who really had a partition, of the members still there."""

    assignor: str
    metadata: ClusterMetadata
    encoded: dict[str, bytes]
    instance_ids: dict[str, str]
    owners: dict[tuple[str, int], str]
    subscriptions: dict[str, Subscription] = field(init=False)

    def __post_init__(self) -> None:
        self.subscriptions = decode_group(self.encoded, self.instance_ids)

    def lines(self) -> str:
        """In the form the Java harness reads."""
        lines = [f"case {self.assignor}"]
        for topic, count in self.metadata.partition_counts.items():
            racks = ";".join(",".join(known) for known in self.metadata.replica_racks.get(topic, ()))
            lines.append(f"topic {topic} {count} {racks}".rstrip())
        for member, data in self.encoded.items():
            lines.append(f"member {member} {self.instance_ids.get(member, '-')} {base64.b64encode(data).decode()}")
        return "\n".join([*lines, "end\n"])


@dataclass
class Member:
    topics: list[str]
    version: int = 3
    rack: str | None = None
    instance_id: str | None = None
    assigned: dict[str, tuple[int, ...]] | None = None
    generation: int = -1
    forgot: bool = False
    """Lost its place in the group: it knows what it had, but sends no generation."""


class World:
    """One group under one assignor."""

    def __init__(self, random: Random, assignor: str, *, equal: bool, racks: bool, exact: bool) -> None:
        self.random = random
        self.assignor = assignor
        self.equal = equal
        self.exact = exact
        self.racks = racks
        self.big = random.random() < 0.25
        names = names_in_hash_order(32 if self.big else 16)
        self.names = names if exact else [f"{random.getrandbits(64):016x}" for _ in names]
        self.replica_count = random.choice((1, 2, 3))
        self.counts = {f"topic-{chr(97 + i)}": random.randint(1, 14) for i in range(random.randint(1, 6))}
        self.replica_racks: dict[str, list[tuple[str, ...]]] = {}
        self.shared_topics = self._some_topics()
        self.members: dict[str, Member] = {}
        self.generation = random.randint(0, 5)
        self.lowest_version = random.choice((0, 1, 3, 3)) if exact else 3
        for _ in range(random.randint(13, 24) if self.big else random.randint(1, 12)):
            self._join()

    def _some_topics(self) -> list[str]:
        topics = [topic for topic in self.counts if self.random.random() < 0.7] or [min(self.counts)]
        if self.random.random() < 0.1:
            topics.append("missing")
        self.random.shuffle(topics)
        return topics

    def _join(self) -> None:
        random = self.random
        name = random.choice([name for name in self.names if name not in self.members])
        self.members[name] = Member(
            topics=self.shared_topics if self.equal else self._some_topics(),
            version=random.randint(self.lowest_version, 3),
            rack=random.choice((*RACKS[:3], None)) if self.racks else None,
            instance_id=f"static-{random.randrange(10**6)}" if random.random() < 0.2 else None,
        )

    def _change(self) -> None:
        """What happens between two generations."""
        random = self.random
        least, most = (13, 24) if self.big else (1, 12)
        for member in self.members.values():
            member.forgot = False
        for _ in range(random.choice((0, 1, 1, 1, 2, 4))):
            if len(self.members) > least:
                del self.members[random.choice(list(self.members))]
        for _ in range(random.choice((0, 1, 1, 1, 2, 4))):
            if len(self.members) < most:
                self._join()
        if random.random() < 0.3:
            topic = random.choice(list(self.counts))
            self.counts[topic] += random.randint(1, 8)
        if random.random() < 0.2:
            self.counts[f"topic-{chr(97 + len(self.counts))}"] = random.randint(1, 14)
        if self.equal and random.random() < 0.2:
            self.shared_topics = self._some_topics()
            for member in self.members.values():
                member.topics = self.shared_topics
        elif not self.equal and random.random() < 0.4:
            random.choice(list(self.members.values())).topics = self._some_topics()
        if random.random() < 0.1:
            random.choice(list(self.members.values())).forgot = True

    def _lies(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Rarely, members claim what others have as well."""
        claims = {name: dict(member.assigned or {}) for name, member in self.members.items()}
        if self.exact and self.random.random() < 0.15:
            for _ in range(self.random.randint(1, 3)):
                topic = self.random.choice(list(self.counts))
                number = self.random.randrange(self.counts[topic])
                for name in self.random.sample(list(claims), min(len(claims), self.random.randint(1, 3))):
                    claims[name][topic] = tuple({*claims[name].get(topic, ()), number})
        return claims

    def _encode(self, member: Member, claim: dict[str, tuple[int, ...]]) -> bytes:
        generation = -1 if member.forgot else member.generation
        user_data, owned = None, {}
        if self.assignor == "sticky":
            if member.assigned is not None or claim:
                with_generation = member.generation if member.version >= 1 else None
                user_data = encode_sticky_user_data(claim, with_generation)
        elif self.assignor == "cooperative-sticky":
            user_data = generation.to_bytes(4, "big", signed=True) if self.random.random() < 0.9 else None
            owned = claim
        if self.exact and user_data is not None and self.random.random() < 0.02:
            user_data = self.random.randbytes(self.random.randrange(8))
        subscription = Subscription(member.topics, user_data, owned, generation, member.rack)
        return encode_subscription(subscription, member.version)

    def _metadata(self) -> ClusterMetadata:
        for topic, count in self.counts.items():
            racks = self.replica_racks.setdefault(topic, [])
            while self.racks and len(racks) < count:
                racks.append(tuple(self.random.sample(RACKS, self.replica_count)))
        known = {topic: list(racks) for topic, racks in self.replica_racks.items() if racks}
        return ClusterMetadata(dict(self.counts), known)

    def next_case(self) -> Case:
        metadata, claims = self._metadata(), self._lies()
        encoded = {name: self._encode(self.members[name], claims[name]) for name in sorted(self.members)}
        instance_ids = {name: m.instance_id for name, m in self.members.items() if m.instance_id}
        owners = {
            (topic, number): name
            for name, member in self.members.items()
            if member.generation == self.generation
            for topic, numbers in (member.assigned or {}).items()
            for number in numbers
        }
        return Case(self.assignor, metadata, encoded, instance_ids, owners)

    def live_on(self, case: Case) -> None:
        """Everybody gets what our assignor says, but for those that miss this generation."""
        assignments = BUILTIN[self.assignor]().assign(case.metadata, case.subscriptions)
        self.generation += 1
        for name, member in self.members.items():
            if not self.exact or self.random.random() < 0.93:
                member.assigned = dict(assignments[name].partitions)
                member.generation = self.generation
        self._change()


def cases(assignor: str, count: int, seed: int, *, exact: bool = True) -> Iterator[Case]:
    """Where not `exact`, members have any names; then what hangs on their order is left out: racks, unclear claims."""
    random = Random(f"{assignor} {seed}")
    made = 0
    while made < count:
        racks = exact and random.random() < 0.4
        world = World(random, assignor, equal=random.random() < 0.5, racks=racks, exact=exact)
        for _ in range(min(random.randint(2, 8), count - made)):
            case = world.next_case()
            world.live_on(case)
            yield case
            made += 1
