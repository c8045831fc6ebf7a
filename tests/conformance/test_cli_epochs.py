"""`kohort groups describe|explain` on a group of the consumer protocol in a real Apache Kafka: who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from apache_kafka import ApacheKafka
from cli.conftest import CommandLine, Member, until

MODERN = {"group_protocol": "consumer", "session_timeout_ms": None, "heartbeat_interval_ms": None}
GROUP, TOPIC = "cli-epochs", "cli-epochs"


@pytest.fixture(scope="module")
def waiting(apache_kafka: ApacheKafka) -> Iterator[tuple[CommandLine, dict[str, Any]]]:
    """`one` has everything and does not poll, so it gives nothing up; `two` waits."""
    k = CommandLine(apache_kafka.bootstrap_servers)
    assert k("topics", "create", TOPIC, "--partitions", "2").code == 0
    one = Member(k.servers, GROUP, TOPIC, client_id="one", **MODERN)
    until(lambda: len(one.assigned) == 2, "the first has both")
    one.pause()
    two = Member(k.servers, GROUP, TOPIC, client_id="two", **MODERN)

    def look() -> Any:
        (report,) = k("groups", "describe", GROUP, "--json").json()
        return report if any(wait["reason"] == "not_revoked" for wait in report["waits"]) else None

    yield k, until(look, "a wait")
    for member in (one, two):
        member.close()


def test_describe_tells_who_waits_for_whom(waiting: tuple[CommandLine, dict[str, Any]]) -> None:
    _, report = waiting
    (wait,) = report["waits"]
    ids = {member["client_id"]: member["member_id"] for member in report["members"]}
    assert (report["type"], report["protocol"], report["state"]) == ("consumer", "uniform", "Reconciling")
    assert (wait["member_id"], wait["held_by"]) == (ids["two"], ids["one"])
    assert report["assignment_epoch"] == report["generation"]


def test_explain_reads_the_epochs(waiting: tuple[CommandLine, dict[str, Any]]) -> None:
    k, report = waiting
    told = k("groups", "explain", GROUP, "--json").json()
    assert (told["source"], told["generation"]) == ("epochs", report["generation"])
    joined = [c["member"]["client_id"] for r in told["rebalances"] for c in r["causes"] if c["kind"] == "joined"]
    assert joined == ["one", "two"]
    assert "handing over" in [finding["kind"] for finding in told["findings"]]
