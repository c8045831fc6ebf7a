"""Made-up generations of a group, as `__consumer_offsets` keeps them, and what is told of them."""

from kohort.coordinator.causes import CauseKind, Who
from kohort.insight.generations import GenerationMember, StoredGeneration, from_generations


def kinds(rebalance):
    return [(trigger.kind, trigger.who.client_id if trigger.who else None) for trigger in rebalance.triggers]


def stored(name, topics=("t",), partitions=()):
    who = Who(f"{name}-id", None, name, "/h")
    return GenerationMember(who, 45_000, 300_000, topics, frozenset(("t", p) for p in partitions))


def test_generations_tell_who_came_and_went():
    history = from_generations(
        [
            StoredGeneration(5, 0, "", "", ()),
            StoredGeneration(10, 1, "range", "a-id", (stored("a", partitions=(0, 1)),)),
            StoredGeneration(20, 2, "range", "a-id", (stored("a", partitions=(0,)), stored("b", partitions=(1,)))),
            StoredGeneration(30, 3, "range", "b-id", (stored("b", partitions=(0, 1)),)),
            StoredGeneration(40, 4, "range", "b-id", (stored("b", ("t", "u"), (0, 1)),)),
            StoredGeneration(50, 5, "range", "b-id", (stored("b", ("t", "u"), (0, 1, 2)),)),
            StoredGeneration(60, 6, "", "", ()),
        ]
    )
    assert [kinds(r) for r in history.rebalances] == [
        [(CauseKind.JOINED, "a")],
        [(CauseKind.JOINED, "b")],
        [(CauseKind.GONE, "a")],
        [(CauseKind.METADATA_CHANGED, "b")],
        [(CauseKind.PARTITIONS_CAME, None)],
        [(CauseKind.GONE, "b")],
    ]
    assert "session timeout of 45 s" in history.rebalances[2].triggers[0].text
    assert "1 partitions came in" in history.rebalances[4].triggers[0].text
    assert all(r.standstill_ms is None for r in history.rebalances)


def test_a_group_that_began_anew_has_no_predecessor():
    history = from_generations(
        [
            StoredGeneration(10, 9, "range", "a-id", (stored("a"),)),
            StoredGeneration(20, 1, "range", "b-id", (stored("b"),)),
        ]
    )
    assert [kinds(r) for r in history.rebalances] == [
        [(CauseKind.FIRST_KNOWN, None)],
        [(CauseKind.BEGAN, None)],
    ]
    assert "the group began" in history.rebalances[1].triggers[0].text
