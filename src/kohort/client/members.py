"""Which member a consumer has: the one place that looks at group.protocol."""

from __future__ import annotations

from collections.abc import Callable

from kohort.assignors import load_assignors
from kohort.client.config import Config
from kohort.client.core_config import member_config
from kohort.client.group_member import GroupMember
from kohort.client.member import Member
from kohort.client.modern.member import ModernMember


def _classic(config: Config, uniform: Callable[[], float]) -> GroupMember:
    return Member(member_config(config), load_assignors(config["partition.assignment.strategy"]), uniform)


def _consumer(config: Config, uniform: Callable[[], float]) -> GroupMember:
    return ModernMember(member_config(config), uniform)


MEMBERS: dict[str, Callable[[Config, Callable[[], float]], GroupMember]] = {"classic": _classic, "consumer": _consumer}


def member_of(config: Config, uniform: Callable[[], float]) -> GroupMember:
    return MEMBERS[config["group.protocol"]](config, uniform)
