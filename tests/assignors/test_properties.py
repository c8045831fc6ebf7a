"""What holds for every group: each partition once and only to subscribers; balance; stickiness; order is no matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.assignors import BUILTIN, ClusterMetadata, Subscription
from kohort.assignors.sticky import encode_sticky_user_data

TOPICS = ["ta", "tb", "tc", "td"]
RACKS = ["r1", "r2", "r3"]
STICKY = ["sticky", "cooperative-sticky"]
Owned = dict[str, dict[str, tuple[int, ...]]]

# Hypothesis picks and shrinks sizes; what is in them comes from a seed, which is much faster than drawing each value.
many = settings(deadline=None, max_examples=150)
randoms = st.integers(0, 2**32).map(Random)


def some(random: Random, options: Sequence[str]) -> list[str]:
    return random.sample(options, random.randrange(len(options) + 1))


def name_members(random: Random, count: int) -> list[str]:
    return list({"".join(random.choices("abcxyz0159é", k=random.randint(1, 4))): None for _ in range(count)})


member_ids = st.builds(name_members, randoms, st.integers(1, 9))


@st.composite
def partition_counts(draw: st.DrawFn) -> dict[str, int]:
    random, most = draw(randoms), draw(st.integers(0, 12))
    return {topic: random.randint(0, most) for topic in TOPICS if random.random() < 0.8}


@st.composite
def clusters(draw: st.DrawFn) -> ClusterMetadata:
    counts, random = draw(partition_counts()), draw(randoms)
    if draw(st.booleans()):
        return ClusterMetadata(counts)
    return ClusterMetadata(counts, {t: [some(random, RACKS) for _ in range(count)] for t, count in counts.items()})


@st.composite
def groups(draw: st.DrawFn, equal: bool | None = None) -> dict[str, Subscription]:
    """Members with any topics and any claims, true or not."""
    random = draw(randoms)
    with_claims, with_racks = draw(st.booleans()), draw(st.booleans())
    equal = draw(st.booleans()) if equal is None else equal
    shared = some(random, [*TOPICS, "missing"])
    group = {}
    for member in draw(member_ids):
        claim = {t: tuple(random.randint(-1, 12) for _ in range(random.randrange(6))) for t in some(random, TOPICS)}
        generation = random.randint(-1, 3)
        told = encode_sticky_user_data(claim, random.choice([None, generation]))
        group[member] = Subscription(
            topics=shared if equal else some(random, [*TOPICS, "missing"]),
            user_data=random.choice([None, b"??", told, told]) if with_claims else None,
            owned_partitions=claim if with_claims else {},
            generation_id=generation,
            rack_id=random.choice([None, *RACKS]) if with_racks else None,
            group_instance_id=random.choice([None, None, f"instance of {member}"]),
        )
    return group


def assign(name: str, metadata: ClusterMetadata, group: dict[str, Subscription]) -> Owned:
    assignments = BUILTIN[name]().assign(metadata, group)
    assert assignments.keys() == group.keys()
    return {member: {t: tuple(p) for t, p in a.partitions.items() if p} for member, a in assignments.items()}


def pairs(owned: Owned) -> list[tuple[str, int]]:
    return [
        (topic, number) for partitions in owned.values() for topic, numbers in partitions.items() for number in numbers
    ]


def wanted(metadata: ClusterMetadata, group: dict[str, Subscription]) -> list[tuple[str, int]]:
    topics = {topic for subscription in group.values() for topic in subscription.topics}
    return [(t, number) for t in topics for number in range(metadata.partition_counts.get(t, 0))]


def sizes(owned: Owned) -> list[int]:
    return [sum(map(len, partitions.values())) for partitions in owned.values()]


def rejoin(name: str, group: dict[str, Subscription], owned: Owned, generation: int) -> dict[str, Subscription]:
    """The same members, saying truly what they have."""
    return {
        member: Subscription(
            s.topics,
            encode_sticky_user_data(owned.get(member, {}), generation) if name == "sticky" else None,
            owned.get(member, {}),
            generation,
        )
        for member, s in group.items()
    }


def fresh(group: dict[str, Subscription]) -> dict[str, Subscription]:
    return {member: Subscription(s.topics) for member, s in group.items()}


@many
@given(st.sampled_from(sorted(BUILTIN)), clusters(), groups())
def test_every_partition_once_and_only_to_subscribers(
    name: str, metadata: ClusterMetadata, group: dict[str, Subscription]
) -> None:
    owned = assign(name, metadata, group)
    given_away = pairs(owned)
    assert len(set(given_away)) == len(given_away)
    if name == "cooperative-sticky":
        assert set(given_away) <= set(wanted(metadata, group))
    else:
        assert sorted(given_away) == sorted(wanted(metadata, group))
    for member, partitions in owned.items():
        assert set(partitions) <= set(group[member].topics)


@many
@given(st.sampled_from(sorted(BUILTIN)), clusters(), groups(), randoms)
def test_the_order_of_members_and_topics_does_not_matter(
    name: str, metadata: ClusterMetadata, group: dict[str, Subscription], random: Random
) -> None:
    members, counts = list(group), list(metadata.partition_counts)
    random.shuffle(members)
    random.shuffle(counts)
    other = ClusterMetadata({t: metadata.partition_counts[t] for t in counts}, metadata.replica_racks)
    assert assign(name, other, {member: group[member] for member in members}) == assign(name, metadata, group)


@many
@given(st.sampled_from(["roundrobin", "sticky"]), clusters(), groups(equal=True))
def test_equal_subscriptions_are_balanced_within_one(
    name: str, metadata: ClusterMetadata, group: dict[str, Subscription]
) -> None:
    sized = sizes(assign(name, metadata, group))
    assert max(sized) - min(sized) <= 1


@many
@given(clusters(), groups(equal=True))
def test_range_is_balanced_within_one_in_each_topic(metadata: ClusterMetadata, group: dict[str, Subscription]) -> None:
    owned = assign("range", metadata, group)
    for topic in metadata.partition_counts:
        sized = [len(partitions.get(topic, ())) for partitions in owned.values()]
        assert max(sized) - min(sized) <= 1


@many
@given(st.sampled_from(STICKY), partition_counts(), groups())
def test_nothing_moves_when_nothing_has_changed(
    name: str, counts: dict[str, int], group: dict[str, Subscription]
) -> None:
    metadata = ClusterMetadata(counts)
    owned = assign(name, metadata, fresh(group))
    assert assign(name, metadata, rejoin(name, group, owned, 1)) == owned


@many
@given(partition_counts(), groups(equal=True), st.data())
def test_when_members_leave_the_others_keep_what_they_have(
    counts: dict[str, int], group: dict[str, Subscription], data: st.DataObject
) -> None:
    """Fewer members: every quota grows, so balance never needs anything from those that stay."""
    metadata = ClusterMetadata(counts)
    before = assign("sticky", metadata, fresh(group))
    staying = data.draw(st.lists(st.sampled_from(sorted(group)), min_size=1, unique=True))
    after = assign("sticky", metadata, rejoin("sticky", {member: group[member] for member in staying}, before, 1))
    for member in staying:
        assert Counter(pairs({member: before[member]})) <= Counter(pairs({member: after[member]}))


@many
@given(partition_counts(), groups(equal=True), member_ids)
def test_when_members_join_only_what_they_need_moves(
    counts: dict[str, int], group: dict[str, Subscription], joining: list[str]
) -> None:
    """No partition goes from one of the old members to another."""
    metadata = ClusterMetadata(counts)
    before = assign("sticky", metadata, fresh(group))
    topics = next(iter(group.values())).topics
    everybody = rejoin("sticky", group, before, 1) | {m: Subscription(topics) for m in joining if m not in group}
    after = assign("sticky", metadata, everybody)
    for member in group:
        assert set(pairs({member: after[member]})) <= set(pairs({member: before[member]}))


@many
@given(partition_counts(), groups(), groups())
def test_cooperative_revokes_first_and_arrives_where_sticky_does(
    counts: dict[str, int], before: dict[str, Subscription], now: dict[str, Subscription]
) -> None:
    """No partition is given away while a surviving member owns it; with every step owned truly, it soon ends."""
    name, metadata = "cooperative-sticky", ClusterMetadata(counts)
    owned = assign(name, metadata, fresh(before))
    for generation in range(1, 10):
        group = rejoin(name, now, owned, generation)
        assigned = assign(name, metadata, group)
        owner = {pair: member for member in now for pair in pairs({member: owned.get(member, {})})}
        for member, partitions in assigned.items():
            for pair in pairs({member: partitions}):
                assert owner.get(pair, member) == member
        if assigned == {member: owned.get(member, {}) for member in now}:
            break
        owned = assigned
    assert sorted(pairs(assigned)) == sorted(wanted(metadata, now))
    if len({frozenset(s.topics) for s in now.values()}) == 1:
        assert max(sizes(assigned)) - min(sizes(assigned)) <= 1
