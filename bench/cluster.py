"""Section `cluster`: several brokers over one store, beside one broker with files and an Apache Kafka of three nodes.

Latency: one request at a time. CPU: of all brokers together, under the load of many connections. Kafka writes with
acks=all to three nodes, of which two must have it; kohort's answer means that the store has it.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from broker import PRODUCE_VERSION, check_produced
from cluster_targets import Cluster, create_topic, directory, kafka_cluster, kohort_cluster, produce_request, s3
from cluster_week import WEEK_S, measure_week
from coordinator import check_commit, check_heartbeat
from failover import CONFIG, TOPIC, measure_failover, until_committed
from group_load import COMMIT_VERSION, HEARTBEAT_VERSION, Member, find_coordinator, join_alone
from kafka_socket import KafkaSocket
from kohort.protocol.messages import FindCoordinatorRequest
from loadgen import Lane, Load, pump
from process import cpu_seconds
from tables import Table
from targets import Target, running

CONNECTIONS, DEPTH = 16, 16
SLOW_MS = 30
Opened = Callable[[], contextlib.AbstractContextManager[Cluster]]


def run(options: argparse.Namespace) -> Iterator[Table]:
    if "kohort" in options.sides:
        failover = Table("Fail-over, and what the store has")
        measure_failover(failover, rounds=3 if options.quick else 50)
        measure_move(failover, records=50_000 if options.quick else 1_000_000)
        measure_week(failover, 3_600 if options.quick else WEEK_S)
        yield failover
        yield measure_two(options)
    yield measure_latency(options)


# ---- latency and CPU


def measure_latency(options: argparse.Namespace) -> Table:
    table = Table("Commits and produces, one at a time, by where they are stored (Kafka: three nodes, acks=all)")
    places: dict[str, Opened] = {
        "files": _alone,
        "directory": lambda: _on(directory()),
        "S3": lambda: _on(s3(0)),
        f"S3 + {SLOW_MS} ms": lambda: _on(s3(SLOW_MS)),
    }
    if "kohort" in options.sides:
        for place, opened in places.items():
            with opened() as cluster:
                _measure(table, cluster, [place], options)
    if "kafka" in options.sides:
        with kafka_cluster() as cluster:
            _measure(table, cluster, list(places), options)
    table.notes.append(
        "files: one broker. Others: three brokers, CPU of all of them. S3 is moto on this machine, whose"
    )
    table.notes.append("CPU is not counted but takes a core from the rest. Kafka is the same in every row.")
    return table


@contextlib.contextmanager
def _alone() -> Iterator[Cluster]:
    with running("kohort", {"group.initial.rebalance.delay.ms": 0}) as target:
        yield Cluster("kohort", {1: target})


@contextlib.contextmanager
def _on(store: contextlib.AbstractContextManager[str]) -> Iterator[Cluster]:
    with store as url, kohort_cluster(url, 3) as cluster:
        yield cluster


def _measure(table: Table, cluster: Cluster, places: list[str], options: argparse.Namespace) -> None:
    with KafkaSocket(cluster.any) as connection:
        find_coordinator(connection, "latency")
    coordinator = _coordinator(cluster)
    groups = _groups_of(cluster, coordinator, CONNECTIONS)
    create_topic(cluster, TOPIC)
    commit = Member(None, groups[0]).commit(TOPIC, 1)  # type: ignore[arg-type]
    leader = cluster.leader(TOPIC, 0)
    record = produce_request(TOPIC)
    latencies = (
        ("commit", coordinator, commit, COMMIT_VERSION, check_commit, "at most 3 ms, and below Kafka's"),
        ("produce of 1 KB", leader, record, PRODUCE_VERSION, check_produced, ""),
    )
    for name, target, request, version, check, goal in latencies:
        times = sorted(_times(target, request, version, check, options))
        for place in places:
            for what, at in (("p50", 0.5), ("p99", 0.99)):
                value = 1000 * times[int(at * (len(times) - 1))]
                wanted = goal if (what, place) == ("p50", "directory") else ""
                table.put(cluster.side, f"{name}, {place}, {what}", value, "ms", goal=wanted)
    lanes = [
        Lane(
            KafkaSocket(coordinator.bootstrap_servers),
            Member(None, group).commit(TOPIC, 1),
            COMMIT_VERSION,
            check_commit,
        )  # type: ignore[arg-type]
        for group in groups
    ]
    load, cpu = _pump(cluster, lanes, options)
    for place in places:
        goal = "1.5x of files" if place == "directory" else ""
        name = f"commit under load, {place}"
        table.put(cluster.side, name, 1e6 * sum(cpu) / max(load.requests, 1), "CPU us of all brokers", goal=goal)


def _times(target: Target, request: Any, version: int, check: Any, options: argparse.Namespace) -> list[float]:
    found: list[float] = []
    with KafkaSocket(target.bootstrap_servers) as connection:
        warm_at = time.perf_counter() + options.warmup
        end_at = warm_at + options.seconds
        while (began := time.perf_counter()) < end_at:
            check(connection.call(request, version))
            if began > warm_at:
                found.append(time.perf_counter() - began)
    return found


def _pump(cluster: Cluster, lanes: list[Lane], options: argparse.Namespace) -> tuple[Load, list[float]]:
    """The load, and the CPU seconds of each broker for what was counted of it."""
    pids = [target.pid for target in cluster.targets.values()]
    pump(lanes, depth=DEPTH, warmup=options.warmup, seconds=0.01, pid=pids[0])
    for lane in lanes:
        lane.answered = 0
    before = [cpu_seconds(pid) for pid in pids]
    load = pump(lanes, depth=DEPTH, warmup=0, seconds=options.seconds, pid=pids[0])
    after = [cpu_seconds(pid) for pid in pids]
    for lane in lanes:
        lane.connection.close()
    return load, [now - then for now, then in zip(after, before, strict=True)]


def _coordinator(cluster: Cluster) -> Target:
    return cluster.found("latency")


def _groups_of(cluster: Cluster, target: Target, count: int) -> list[str]:
    """Names of groups that this broker coordinates."""
    found: list[str] = []
    number = 0
    with KafkaSocket(cluster.any) as connection:
        while len(found) < count:
            name = f"group-{number}"
            number += 1
            answer = connection.call(FindCoordinatorRequest(key=name), 1)
            if answer.error_code == 0 and cluster.targets.get(answer.node_id) is target:
                found.append(name)
    return found


# ---- two brokers carry more than one


def measure_two(options: argparse.Namespace) -> Table:
    """Each broker of two is loaded as one alone is: so many connections, so much in flight on each."""
    table = Table("What brokers carry, on one directory, each under the same load")
    carried: dict[tuple[str, int], tuple[float, float]] = {}
    for size in (1, 2):
        with directory() as store, kohort_cluster(store, size, CONFIG) as cluster:
            with KafkaSocket(cluster.any) as connection:
                find_coordinator(connection, "first")
            create_topic(cluster, TOPIC)
            members = _members(cluster, CONNECTIONS)
            beating = {
                node: [Lane(m.connection, m.heartbeat(), HEARTBEAT_VERSION, check_heartbeat) for m in some]
                for node, some in members.items()
            }
            committing = {
                node: [Lane(_again(m), m.commit(TOPIC, 1), COMMIT_VERSION, check_commit) for m in some]
                for node, some in members.items()
            }
            carried["heartbeats", size] = _carried(cluster, beating, options)
            carried["commits", size] = _carried(cluster, committing, options)
    for name in ("heartbeats", "commits"):
        for at, how in enumerate(("by CPU", "by the clock")):
            one, two = carried[name, 1][at], carried[name, 2][at]
            for size, rate in ((1, one), (2, two)):
                row = f"{name}, {size} broker{'s' if size > 1 else ''}, {how}"
                table.put("kohort", row, rate, "a second", lower_is_better=False)
            row = f"{name}, two over one, {how}"
            table.put("kohort", row, two / one, "ratio", lower_is_better=False, goal="1.7 or more")
    table.notes.append("by CPU: what each broker does in a second of a core of its own, summed")
    table.notes.append("by the clock: as it was, two cores carrying the brokers and what loads them")
    return table


def _carried(cluster: Cluster, lanes: dict[int, list[Lane]], options: argparse.Namespace) -> tuple[float, float]:
    """Requests a second: of a core for each broker, summed; and by the clock."""
    load, cpu = _pump(cluster, [lane for some in lanes.values() for lane in some], options)
    rates = [sum(lane.answered for lane in lanes[node]) / cpu[at] for at, node in enumerate(cluster.targets)]
    return sum(rates), load.requests_per_second


def _members(cluster: Cluster, count: int) -> dict[int, list[Member]]:
    """Groups of one member, so many at each broker."""
    found = {
        node: [Member(KafkaSocket(target.bootstrap_servers), group) for group in _groups_of(cluster, target, count)]
        for node, target in cluster.targets.items()
    }
    join_alone([member for some in found.values() for member in some])
    return found


def _again(member: Member) -> KafkaSocket:
    """Another connection to the broker that the member's was to."""
    host, port = member.connection.socket.getpeername()[:2]
    return KafkaSocket(f"{host}:{port}")


# ---- a large partition moves


def measure_move(table: Table, records: int) -> None:
    config = {**CONFIG, "offsets.topic.num.partitions": 1, "log.cleaner.enable": "false"}
    groups, partitions = 200, 50
    with directory() as store, kohort_cluster(store, 2, config) as cluster:
        coordinator = cluster.found("loaded-0")
        create_topic(cluster, TOPIC, partitions)
        members = [Member(KafkaSocket(coordinator.bootstrap_servers), f"loaded-{i}") for i in range(groups)]
        for _ in range(records // (groups * partitions)):
            for member in members:
                member.connection.send(member.commit(TOPIC, partitions), COMMIT_VERSION)
            for member in members:
                check_commit(member.connection.receive())
        for member in members:
            member.connection.close()
        others = {node: target for node, target in cluster.targets.items() if target is not coordinator}
        began = time.perf_counter()
        coordinator.stop()
        took_s = until_committed(Cluster("kohort", others), "loaded-0", members[0].commit(TOPIC, 1)) - began
        name = f"a partition of {records:,} commits is served elsewhere, after a clean stop"
        table.put("kohort", name, 1000 * took_s, "ms", goal="at most 3,000")
