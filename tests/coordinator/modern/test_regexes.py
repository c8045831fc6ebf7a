"""Subscriptions by RE2 expressions: what is one, when it is resolved, and without the extra."""

from __future__ import annotations

import pytest

from coordinator.modern.groups import Members
from kohort.coordinator import expressions
from kohort.protocol.errors import ErrorCode

pytest.importorskip("re2")
E = ErrorCode


def by_regex(members: Members, name: str, regex: str) -> ErrorCode:
    response = members.join(name, subscribed_topic_names=None, subscribed_topic_regex=regex)
    members.world.advance(0)
    return ErrorCode(response.error_code)


def test_an_expression_is_resolved_after_the_heartbeat() -> None:
    """testConsumerGroupMemberJoinsWithNewRegex"""
    members = Members()
    members.world.topics.add("orders-2", 2)
    members.world.topics.add("other", 1)
    assert by_regex(members, "a", "orders.*") == E.NONE
    assert members.owned["a"] == {}, "no heartbeat waits for it"
    members.beat("a")
    assert members.owned["a"] == {"orders": {0, 1, 2, 3}, "orders-2": {0, 1}}
    members.world.restart()
    assert members.group.resolved["orders.*"].topics == {"orders", "orders-2"}
    assert members.settle()["a"] == {"orders": {0, 1, 2, 3}, "orders-2": {0, 1}}


def test_new_topics_are_found() -> None:
    members = Members()
    by_regex(members, "a", "orders|bills")
    members.beat("a")
    members.world.topics.add("bills", 1)
    members.world.coordinator.topics_changed("bills")
    members.beat("a")
    members.world.advance(0)
    assert members.group.resolved["orders|bills"].topics == {"orders"}, "not within ten seconds"
    members.world.advance(10_001)
    members.beat("a")
    members.world.advance(0)
    assert members.settle()["a"] == {"orders": {0, 1, 2, 3}, "bills": {0}}


def test_a_topic_that_came_before_the_coordinator_did_is_found() -> None:
    """The one before had no time to look: expressions are not resolved more often than every ten seconds."""
    members = Members()
    by_regex(members, "a", "orders|bills")
    members.beat("a")
    members.world.topics.add("bills", 1)
    members.world.restart()
    members.world.advance(10_001)
    members.beat("a")
    members.world.advance(0)
    assert members.settle()["a"] == {"orders": {0, 1, 2, 3}, "bills": {0}}


def test_an_expression_that_was_resolved_in_the_future_is_resolved_again() -> None:
    """By a coordinator whose clock is ahead."""
    members = Members()
    by_regex(members, "a", "orders|bills")
    members.beat("a")
    members.world.topics.add("bills", 1)
    members.world.now_ms -= 3_600_000
    members.world.restart()
    members.beat("a")
    members.world.advance(0)
    assert members.settle()["a"] == {"orders": {0, 1, 2, 3}, "bills": {0}}


def test_expressions_are_resolved_again_now_and_then() -> None:
    """testConsumerGroupMemberJoinsRefreshesExpiredRegexes: also where no topic came, as far as the broker has heard."""
    members = Members()
    by_regex(members, "a", "orders.*")
    first_ms = members.group.resolved["orders.*"].timestamp_ms

    def pass_time(minutes: int) -> None:
        for _ in range(2 * minutes):
            members.world.advance(30_000)
            members.beat("a")
            members.world.advance(0)

    pass_time(9)
    assert members.group.resolved["orders.*"].timestamp_ms == first_ms
    pass_time(2)
    assert members.group.resolved["orders.*"].timestamp_ms > first_ms


def test_an_expression_that_nobody_has_any_more_is_forgotten() -> None:
    members = Members()
    by_regex(members, "a", "ord.*")
    members.beat("a")
    members.beat("a", subscribed_topic_names=["orders"], subscribed_topic_regex="")
    assert not members.group.resolved
    assert members.settle()["a"] == {"orders": {0, 1, 2, 3}}
    members.beat("a", subscribed_topic_names=[], subscribed_topic_regex="o.*")
    members.world.advance(0)
    members.leave("a")
    assert not members.group.resolved


@pytest.mark.parametrize("regex", ["a(", "(?=b)", "*"])
def test_what_re2_refuses(regex: str) -> None:
    members = Members()
    assert by_regex(members, "a", regex) == E.INVALID_REGULAR_EXPRESSION
    assert not members.world.log[0]


def test_without_the_extra_the_refusal_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "_re2", lambda: None)
    expressions._compiled.cache_clear()
    try:
        members = Members()
        response = members.join("a", subscribed_topic_names=None, subscribed_topic_regex="x.*")
        assert response.error_code == E.INVALID_REGULAR_EXPRESSION
        assert "kohort[regex]" in response.error_message
    finally:
        expressions._compiled.cache_clear()
