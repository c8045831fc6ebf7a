"""Made-up looks at a group, and what is told of them."""

from kohort.coordinator.causes import CauseKind, Who
from kohort.insight.samples import Sample, from_samples


def kinds(rebalance):
    return [(trigger.kind, trigger.who.client_id if trigger.who else None) for trigger in rebalance.triggers]


def test_looks_at_a_group_show_changes_between_them():
    a, b = Who("a-id", None, "a", "h"), Who("b-id", None, "b", "h")
    both = {"a-id": frozenset({("t", 0)}), "b-id": frozenset({("t", 1)})}
    history = from_samples(
        [
            Sample(0, "Stable", (a,), {"a-id": frozenset({("t", 0), ("t", 1)})}, "range"),
            Sample(250, "PreparingRebalance", (a, b), {}, ""),
            Sample(500, "CompletingRebalance", (a, b), {}, ""),
            Sample(750, "Stable", (a, b), both, "range"),
            Sample(1000, "Stable", (a, b), both, "range"),
        ]
    )
    (rebalance,) = history.rebalances
    assert kinds(rebalance) == [(CauseKind.JOINED, "b")]
    assert (rebalance.standstill_ms, rebalance.members, rebalance.protocol) == (500, 2, "range")
    assert from_samples([Sample(0, "Stable", (a,), {}, "range")] * 3).rebalances == []
