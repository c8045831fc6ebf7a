"""What a consumer can be subscribed to: topics by name, a pattern matched here, a pattern that the broker matches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kohort.client import events as ev
from kohort.client.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """An expression in the syntax of RE2 that the broker matches with whole names; for group.protocol=consumer."""

    pattern: str

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str) or not self.pattern:
            raise ConfigError("a SubscriptionPattern needs an expression in the syntax of RE2, such as 'orders-.*'")


Wanted = frozenset[str] | re.Pattern[str] | SubscriptionPattern
Topics = str | Iterable[str] | re.Pattern[str] | SubscriptionPattern


def subscription(topics: Topics) -> Wanted:
    if isinstance(topics, re.Pattern | SubscriptionPattern):
        return topics
    if isinstance(topics, str):
        if topics.startswith("^"):
            return re.compile(topics)
        topics = [topics]
    names = frozenset(topics)
    if not names or "" in names or not all(isinstance(name, str) for name in names):
        raise ConfigError("subscribe() needs one or more topic names, or a pattern; unsubscribe() ends a subscription")
    return names


def as_event(wanted: Wanted) -> ev.Subscribe:
    if isinstance(wanted, SubscriptionPattern):
        return ev.Subscribe(frozenset(), regex=wanted.pattern)
    if isinstance(wanted, re.Pattern):
        return ev.Subscribe(frozenset(), wanted)
    return ev.Subscribe(wanted)
