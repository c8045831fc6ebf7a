"""What `partition.assignment.strategy` may be, and what it says when it cannot be used."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence

import pytest

from kohort.assignors import (
    Assignment,
    Assignor,
    AssignorConfigError,
    ClusterMetadata,
    CooperativeStickyAssignor,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
    Subscription,
    load_assignor,
    load_assignors,
    rebalance_protocol,
)


class Everything(Assignor):
    """All to the first member."""

    name = "everything"

    def assign(self, metadata: ClusterMetadata, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        first = min(subscriptions)
        return {first: Assignment({topic: range(count) for topic, count in metadata.partition_counts.items()})}


class DuckTyped:
    """Implements the protocol without subclassing it."""

    name = "duck"
    version = 1
    supported_protocols = (RebalanceProtocol.COOPERATIVE,)

    def subscription_user_data(self, topics: Sequence[str]) -> bytes | None:
        return None

    def assign(self, metadata: ClusterMetadata, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        return {}

    def on_assignment(self, assignment: Assignment, metadata: object) -> None:
        pass


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> str:
    module = types.ModuleType("their_assignors")
    module.Everything = Everything
    module.made = Everything()
    module.number = 3
    monkeypatch.setitem(sys.modules, "their_assignors", module)
    return "their_assignors"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("range", RangeAssignor),
        ("roundrobin", RoundRobinAssignor),
        ("sticky", StickyAssignor),
        ("cooperative-sticky", CooperativeStickyAssignor),
        ("org.apache.kafka.clients.consumer.RangeAssignor", RangeAssignor),
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", CooperativeStickyAssignor),
    ],
)
def test_builtin(name: str, expected: type[Assignor]) -> None:
    assignor = load_assignor(name)
    assert type(assignor) is expected
    assert assignor is not load_assignor(name)


def test_a_path_a_class_an_object(plugin: str) -> None:
    assert isinstance(load_assignor(f"{plugin}:Everything"), Everything)
    assert isinstance(load_assignor(f"{plugin}:made"), Everything)
    assert isinstance(load_assignor(Everything), Everything)
    made = DuckTyped()
    assert load_assignor(made) is made


def test_defaults_of_a_custom_assignor() -> None:
    assignor = load_assignor(Everything)
    assert (assignor.version, tuple(assignor.supported_protocols)) == (0, (RebalanceProtocol.EAGER,))
    assert assignor.subscription_user_data(["t"]) is None


def test_several_in_order_of_preference() -> None:
    assert [a.name for a in load_assignors("cooperative-sticky, range")] == ["cooperative-sticky", "range"]
    assert [a.name for a in load_assignors(["range", Everything, DuckTyped()])] == ["range", "everything", "duck"]
    assert [a.name for a in load_assignors(Everything)] == ["everything"]


class Nameless(Assignor):
    def assign(self, metadata: ClusterMetadata, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        return {}


class Idle(Assignor):
    name = "idle"


class Needy(Everything):
    def __init__(self, what: str) -> None: ...


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "rnage",
            r"unknown assignor 'rnage': use range, roundrobin, sticky, cooperative-sticky, or 'package.module:Class'",
        ),
        ("no_such_module:Class", "cannot import 'no_such_module'"),
        ("their_assignors:Nothing", "has no 'Nothing'"),
        ("their_assignors:number", "needs a `name`"),
        (Nameless, "needs a `name`"),
        (Idle, r"must define assign\(metadata, subscriptions\)"),
        (Needy, "must be made without arguments"),
        (types.SimpleNamespace(name="half", assign=print), "lacks subscription_user_data, on_assignment"),
    ],
)
def test_errors_say_what_to_do(plugin: str, spec: object, message: str) -> None:
    with pytest.raises(AssignorConfigError, match=message):
        load_assignor(spec)


def test_none_and_twice_are_refused() -> None:
    with pytest.raises(AssignorConfigError, match="no assignor configured"):
        load_assignors(" ,")
    with pytest.raises(AssignorConfigError, match="names must differ, got range, range"):
        load_assignors("range,range")


def test_the_highest_protocol_all_support() -> None:
    assert rebalance_protocol(load_assignors("cooperative-sticky")) is RebalanceProtocol.COOPERATIVE
    assert rebalance_protocol(load_assignors("range,cooperative-sticky")) is RebalanceProtocol.EAGER
    with pytest.raises(AssignorConfigError, match="no rebalance protocol in common"):
        rebalance_protocol(load_assignors(["range", DuckTyped()]))
