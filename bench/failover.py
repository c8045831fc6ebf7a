"""How long a group cannot commit when its coordinator is killed, or stopped: for the section `cluster`."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from cluster_targets import Cluster, create_topic, directory, kohort_cluster
from group_load import COMMIT_VERSION, Member, join_alone
from kafka_socket import KafkaSocket
from tables import Table
from targets import Target

SESSION_TIMEOUT_MS = 1500
CONFIG = {
    "broker.session.timeout.ms": SESSION_TIMEOUT_MS,
    "broker.heartbeat.interval.ms": 300,
    "kohort.cluster.balance.delay.ms": 3_600_000,
    "group.initial.rebalance.delay.ms": 0,
    "group.max.session.timeout.ms": 1_800_000,
}
GROUP = "paid"
TOPIC = "orders"
LIMIT_S = 60
End = Callable[[Target], object]


def measure_failover(table: Table, rounds: int) -> None:
    """One member of one generation, from beginning to end: no fail-over makes it join again."""
    with directory() as store, kohort_cluster(store, 3, CONFIG) as cluster:
        coordinator = cluster.found(GROUP)
        create_topic(cluster, TOPIC)
        with KafkaSocket(coordinator.bootstrap_servers) as connection:
            member = Member(connection, GROUP)
            join_alone([member])
        commit = member.commit(TOPIC, 1)
        ends: tuple[tuple[str, End, float], ...] = (
            ("kill -9", lambda target: target.kill(), SESSION_TIMEOUT_MS / 1000 + 1),  # type: ignore[attr-defined]
            ("a clean stop", _stop_beside, 1.0),
        )
        for what, end, goal_s in ends:
            times = [one_failover(cluster, end, commit) for _ in range(rounds)]
            put_distribution(table, f"commits again after {what} of the coordinator", times, goal_s)
    table.notes.append(
        f"{rounds} of each, three processes on one directory, broker.session.timeout.ms {SESSION_TIMEOUT_MS}; "
        "the member keeps its generation"
    )


def one_failover(cluster: Cluster, end: End, commit: Any) -> float:
    """Seconds from the end of the coordinator to the first commit that another one has stored."""
    victim = cluster.found(GROUP)
    others = Cluster(cluster.side, {node: target for node, target in cluster.targets.items() if target is not victim})
    began = time.perf_counter()
    ending = end(victim)
    took_s = until_committed(others, GROUP, commit) - began
    if isinstance(ending, threading.Thread):
        ending.join()
    victim.start()
    _until_known(cluster, victim)
    return took_s


def until_committed(others: Cluster, group_id: str, commit: Any) -> float:
    """The time at which one of them has taken the commit."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for target in others.targets.values():
            try:
                if others.coordinator(group_id, target.bootstrap_servers) is target and _commits(target, commit):
                    return time.perf_counter()
            except OSError:
                continue
        time.sleep(0.005)
    raise TimeoutError(f"no commit of {group_id} in {LIMIT_S} s")


def _commits(target: Target, commit: Any) -> bool:
    with KafkaSocket(target.bootstrap_servers, timeout=5) as connection:
        answer = connection.call(commit, COMMIT_VERSION)
    return all(row.error_code == 0 for row in answer.topics[0].partitions)


def _stop_beside(target: Target) -> threading.Thread:
    stopping = threading.Thread(target=target.stop)
    stopping.start()
    return stopping


def _until_known(cluster: Cluster, target: Target) -> None:
    """The broker that came back knows the coordinator: it has its place again."""
    deadline = time.monotonic() + LIMIT_S
    while cluster.coordinator(GROUP, target.bootstrap_servers) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"a broker that was started again knows no coordinator in {LIMIT_S} s")
        time.sleep(0.02)


def put_distribution(table: Table, name: str, times: list[float], goal_s: float) -> None:
    ordered = sorted(times)
    for what, value in (
        ("median", statistics.median(ordered)),
        ("90 %", ordered[int(0.9 * (len(ordered) - 1))]),
        ("longest", ordered[-1]),
    ):
        table.put("kohort", f"{name}, {what}", 1000 * value, "ms", goal=f"at most {1000 * goal_s:,.0f}")
