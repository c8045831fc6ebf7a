"""The recorded past with another choice: what would have moved, stood still, and not have been at all."""

from __future__ import annotations

import pytest

from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.insight.generations import GenerationMember, StoredGeneration
from kohort.insight.rebalances import Rebalance, Trigger
from kohort.insight.whatif import Choice, Outcome, Tally, replay

TOPIC, PARTITIONS, SESSION_MS = "orders", 6, 10_000


class Past:
    """A group of eager members, whose partitions are dealt out in turns: a member more or less moves nearly all."""

    def __init__(self, protocol: str = "roundrobin") -> None:
        self.protocol = protocol
        self.rebalances: list[Rebalance] = []
        self.generations: list[StoredGeneration] = []
        self._members: dict[str, Who] = {}
        self._born = 0

    def joins(self, name: str, at_ms: int, lasts_ms: int = 1_000) -> Past:
        self._born += 1
        who = self._members[name] = Who(f"{name}-{self._born}", None, name, "/10.0.0.1")
        return self._rebalance(Cause(CauseKind.JOINED, (who,)), at_ms, lasts_ms)

    def goes(self, name: str, at_ms: int, kind: CauseKind = CauseKind.LEFT, lasts_ms: int = 1_000) -> Past:
        timeout_ms = SESSION_MS if kind is CauseKind.TIMED_OUT else None
        return self._rebalance(Cause(kind, (self._members.pop(name),), timeout_ms=timeout_ms), at_ms, lasts_ms)

    def _rebalance(self, cause: Cause, at_ms: int, lasts_ms: int) -> Past:
        number, whos = len(self.generations) + 1, sorted(self._members.values())
        held = [frozenset((TOPIC, p) for p in range(i, PARTITIONS, len(whos))) for i in range(len(whos))]
        members = tuple(GenerationMember(w, SESSION_MS, 60_000, (TOPIC,), h) for w, h in zip(whos, held, strict=True))
        end_ms = at_ms + lasts_ms
        self.generations.append(StoredGeneration(end_ms, number, self.protocol, "", members))
        self.rebalances.append(
            Rebalance(at_ms, [Trigger(at_ms, cause)], end_ms, number, len(members), self.protocol, lasts_ms)
        )
        return self

    def with_(self, **choice: object) -> Outcome:
        return replay(self.rebalances, self.generations, Choice(**choice))  # type: ignore[arg-type]


def grown() -> Past:
    return Past().joins("a", 0).joins("b", 100_000).joins("c", 200_000)


def test_the_same_choice_gives_what_was() -> None:
    found = grown().with_(assignor="roundrobin")
    assert found.was == found.would == Tally(3, 3 + 4, 3_000, 1_000 * PARTITIONS * 2)


def test_a_sticky_assignor_moves_only_what_it_must_and_stands_still_as_long() -> None:
    found = grown().with_(assignor="sticky")
    assert found.would == found.was._replace(moved=3 + 2)


def test_a_cooperative_one_stands_still_for_what_moves_and_takes_a_second_rebalance() -> None:
    found = grown().with_(assignor="cooperative-sticky")
    assert found.would == Tally(3 + 2, 3 + 2, 0, (3 + 2) * 1_000)


def test_the_consumer_protocol_has_no_standstill() -> None:
    found = grown().with_(consumer_protocol=True)
    assert found.would == Tally(3, 3 + 2, 0, (3 + 2) * 5_000)


def test_a_longer_session_spares_who_comes_back_in_time_and_costs_more_where_nobody_does() -> None:
    past = grown().goes("c", 300_000, CauseKind.TIMED_OUT).joins("c", 315_000)  # silent since 290,000
    past.goes("b", 400_000, CauseKind.TIMED_OUT)
    found = past.with_(session_timeout_ms=30_000)
    assert (found.was.rebalances, found.would.rebalances) == (6, 4)
    assert found.was.standstill_ms - found.would.standstill_ms == 2_000
    unread_ms = 2 * 25_000 + 2 * 30_000  # c was away, b is missed after 30 s
    assert found.would.partition_ms == 3 * 1_000 * PARTITIONS + unread_ms
    assert any("not recorded" in note for note in found.notes)


def test_static_members_come_back_without_a_rebalance_and_are_missed_after_a_session() -> None:
    past = grown().goes("c", 300_000).joins("d", 302_000).joins("c", 305_000)
    past.goes("a", 400_000)
    found = past.with_(static=True)
    assert (found.was.rebalances, found.would.rebalances) == (7, 5)
    # d joins three that are there: four members share six partitions.
    assert found.would.partition_ms == 4 * 1_000 * PARTITIONS + 2 * 5_000 + 2 * SESSION_MS


def test_what_was_is_not_changed_by_a_choice() -> None:
    was = {
        grown().with_(**choice).was for choice in ({"static": True}, {"assignor": "range"}, {"session_timeout_ms": 1})
    }
    assert len(was) == 1


@pytest.mark.parametrize("choice", [{"static": True}, {"assignor": "range"}, {"consumer_protocol": True}])
def test_a_past_without_generations_says_so(choice: dict[str, object]) -> None:
    past = grown()
    past.generations.clear()
    found = past.with_(**choice)
    assert found.would.rebalances == 3 and found.would.moved == 0
    assert any("not in the log any more" in note for note in found.notes)


def test_a_partition_number_that_no_topic_has_is_not_replayed() -> None:
    past = grown()
    last = past.generations[-1]
    wild = last.members[0]._replace(partitions=frozenset({(TOPIC, 2**31 - 1)}))
    past.generations[-1] = last._replace(members=(wild, *last.members[1:]))
    found = past.with_(assignor="range")
    assert found.would.moved < 10 and any("not replayed" in note for note in found.notes)


def test_an_unknown_assignor_is_taken_as_it_was() -> None:
    past = Past("mine").joins("a", 0).joins("b", 100_000)
    found = past.with_(session_timeout_ms=60_000)
    assert found.would.moved == found.was.moved == 3
    assert "assignments of mine are taken as they were" in found.notes
