"""How long a group cannot commit when its coordinator is killed, or stopped: for the section `cluster`.

    python bench/failover.py --rounds 50
    python bench/failover.py --s3 30 --objects 300 --rounds 3      moto with 30 ms more for each request

With S3, journals have that many objects which have not become segments. Moto answers one request at a time: how many a
second is measured too, as it is what such a take-over waits for.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from cluster_targets import Cluster, create_topic, directory, kohort_cluster, s3
from group_load import COMMIT_VERSION, Member, join_alone
from kafka_socket import KafkaSocket
from kohort.cluster.open_engine import open_engine
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
    with directory() as store:
        _measure(table, store, rounds, 0)
    table.notes.append(
        f"{rounds} of each, three processes on one directory, broker.session.timeout.ms {SESSION_TIMEOUT_MS}; "
        "the member keeps its generation"
    )


def measure_on_s3(table: Table, rounds: int, delay_ms: float, objects: int) -> None:
    with s3(delay_ms) as store:
        table.put("kohort", "requests that moto answers, of 64 at a time", _requests_a_second(store), "a second")
        _measure(table, store, rounds, objects)
    table.notes.append(f"{rounds} of each, moto and {delay_ms:g} ms, {objects} objects in the journal of who goes")


def _measure(table: Table, store: str, rounds: int, objects: int) -> None:
    """One member of one generation, from beginning to end: no fail-over makes it join again."""
    config = CONFIG | ({"kohort.cluster.journal.objects": 10 * objects} if objects else {})
    with kohort_cluster(store, 3, config) as cluster:
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
            times = [one_failover(cluster, end, commit, objects) for _ in range(rounds)]
            put_distribution(table, f"commits again after {what} of the coordinator", times, goal_s)


def _requests_a_second(store: str, count: int = 500) -> float:
    engine = open_engine(store)
    engine.create("measured/object", bytes(500))
    with ThreadPoolExecutor(64) as threads:
        began = time.perf_counter()
        list(threads.map(engine.get, ["measured/object"] * count))
        return count / (time.perf_counter() - began)


def one_failover(cluster: Cluster, end: End, commit: Any, objects: int = 0) -> float:
    """Seconds from the end of the coordinator to the first commit that another one has stored."""
    victim = cluster.found(GROUP)
    _fill(victim, commit, objects)
    others = Cluster(cluster.side, {node: target for node, target in cluster.targets.items() if target is not victim})
    began = time.perf_counter()
    ending = end(victim)
    took_s = until_committed(others, GROUP, commit) - began
    if isinstance(ending, threading.Thread):
        ending.join()
    victim.start()
    _until_known(cluster, victim)
    return took_s


def _fill(target: Target, commit: Any, objects: int, lanes: int = 3) -> None:
    """So many objects for its journal, or a few less."""

    def commits() -> None:
        with KafkaSocket(target.bootstrap_servers) as connection:
            for _ in range(objects // lanes):
                connection.call(commit, COMMIT_VERSION)

    threads = [threading.Thread(target=commits) for _ in range(lanes if objects else 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


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


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=50)
    options.add_argument("--s3", type=float, metavar="DELAY_MS", help="moto in place of a directory")
    options.add_argument("--objects", type=int, default=300)
    given = options.parse_args()
    table = Table("Fail-over")
    if given.s3 is None:
        measure_failover(table, given.rounds)
    else:
        measure_on_s3(table, given.rounds, given.s3, given.objects)
    print(table.as_text())


if __name__ == "__main__":
    main()
