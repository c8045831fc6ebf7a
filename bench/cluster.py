"""Section `cluster`: several brokers over one store, beside one broker with files and an Apache Kafka of three nodes.
`--parts` and `--places` choose among its tables and rows.

Latency: one request at a time. CPU: of all brokers together, under the load of many connections. Kafka writes with
acks=all to three nodes, of which two must have it; kohort's answer means that the store has it.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
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
PATIENT = {name: value for name, value in CONFIG.items() if not name.startswith("broker.")}
PARTS = ("failover", "move", "week", "two", "cpu", "latency")
ROUNDS = 7
Opened = Callable[[], contextlib.AbstractContextManager[Cluster]]


def run(options: argparse.Namespace) -> Iterator[Table]:
    parts = options.parts or PARTS
    if unknown := sorted({*parts} - {*PARTS}):
        raise SystemExit(f"unknown part {', '.join(unknown)}: choose from {', '.join(PARTS)}")
    if "kohort" in options.sides:
        failover = Table("Fail-over, and what the store has")
        if "failover" in parts:
            measure_failover(failover, rounds=3 if options.quick else 50)
        if "move" in parts:
            measure_move(failover, records=50_000 if options.quick else 1_000_000)
        if "week" in parts:
            measure_week(failover, 3_600 if options.quick else WEEK_S)
        if failover.rows:
            yield failover
        if "two" in parts:
            yield measure_two(options)
        if "cpu" in parts:
            yield measure_cpu(options)
    if "latency" in parts:
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
    if options.places:
        places = {place: opened for place, opened in places.items() if place in options.places}
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
    loads = (
        ("commit", _committing(coordinator, groups)),
        ("produce of 1 KB", [_lane(leader, record, PRODUCE_VERSION, check_produced) for _ in range(CONNECTIONS)]),
    )
    for name, lanes in loads:
        load, cpu = _pump(cluster, lanes, options.warmup, options.seconds)
        _close(lanes)
        for place in places:
            spent = 1e6 * sum(cpu) / max(load.requests, 1)
            table.put(cluster.side, f"{name} under load, {place}", spent, "CPU us of all brokers")


def _lane(target: Target, request: Any, version: int, check: Any) -> Lane:
    return Lane(KafkaSocket(target.bootstrap_servers), request, version, check)


def _committing(coordinator: Target, groups: list[str]) -> list[Lane]:
    commits = [Member(None, group).commit(TOPIC, 1) for group in groups]  # type: ignore[arg-type]
    return [_lane(coordinator, commit, COMMIT_VERSION, check_commit) for commit in commits]


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


def _pump(cluster: Cluster, lanes: list[Lane], warmup: float, seconds: float) -> tuple[Load, list[float]]:
    """The load, and the CPU seconds of each broker for what was counted of it."""
    pids = [target.pid for target in cluster.targets.values()]
    if warmup:
        pump(lanes, depth=DEPTH, warmup=warmup, seconds=0.01, pid=pids[0])
    for lane in lanes:
        lane.answered = 0
    before = [cpu_seconds(pid) for pid in pids]
    load = pump(lanes, depth=DEPTH, warmup=0, seconds=seconds, pid=pids[0])
    after = [cpu_seconds(pid) for pid in pids]
    return load, [now - then for now, then in zip(after, before, strict=True)]


def _close(lanes: Iterable[Lane]) -> None:
    for lane in lanes:
        lane.connection.close()


# ---- CPU of a commit: the same load in turns, so that whatever else the machine does is the same for both


def measure_cpu(options: argparse.Namespace) -> Table:
    table = Table("CPU of a commit under load, in turns, the median of all turns")
    with _alone() as files, _on(directory()) as three:
        sides = []
        for cluster in (files, three):
            with KafkaSocket(cluster.any) as connection:
                find_coordinator(connection, "latency")
            coordinator = _coordinator(cluster)
            create_topic(cluster, TOPIC)
            lanes = _committing(coordinator, _groups_of(cluster, coordinator, CONNECTIONS))
            _pump(cluster, lanes, options.warmup, 0.01)
            sides.append((cluster, lanes))
        spent: list[list[float]] = [[], []]
        rates: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for at, (cluster, lanes) in enumerate(sides):
                load, cpu = _pump(cluster, lanes, 0, options.seconds / 3)
                spent[at].append(1e6 * sum(cpu) / max(load.requests, 1))
                rates[at].append(load.requests_per_second)
        for _, lanes in sides:
            _close(lanes)
    for at, place in enumerate(("files", "directory, all three brokers")):
        table.put("kohort", f"a commit, {place}", statistics.median(spent[at]), "CPU us")
        table.put("kohort", f"commits, {place}", statistics.median(rates[at]), "a second", lower_is_better=False)
    ratios = sorted(three / one for one, three in zip(*spent, strict=True))
    table.put("kohort", "a commit, directory over files", statistics.median(ratios), "ratio", goal="at most 1.5")
    table.notes.append(f"ratios of {ROUNDS} turns: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    return table


def _coordinator(cluster: Cluster) -> Target:
    return cluster.found("latency")


def _groups_of(cluster: Cluster, target: Target, count: int) -> list[str]:
    """Names of groups that this broker coordinates."""
    found: list[str] = []
    number = 0
    with KafkaSocket(cluster.any) as connection:
        while len(found) < count:
            if number > 1000 * count:
                raise RuntimeError(f"a broker coordinates {len(found)} of {number} groups: was it taken for dead?")
            name = f"group-{number}"
            number += 1
            answer = connection.call(FindCoordinatorRequest(key=name), 1)
            if answer.error_code == 0 and cluster.targets.get(answer.node_id) is target:
                found.append(name)
    return found


# ---- two brokers carry more than one


def measure_two(options: argparse.Namespace) -> Table:
    """Each broker of two is loaded as one alone is: so many connections, so much in flight on each. In turns."""
    table = Table("What brokers carry, on one directory, each under the same load; the median of all turns")
    carried: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with contextlib.ExitStack() as stack:
        loads = {size: _loads_of(stack, size) for size in (1, 2)}
        for name in ("heartbeats", "commits"):
            for cluster, lanes in loads.values():
                _carried(cluster, lanes[name], options.warmup, 0.01)
            for _ in range(ROUNDS):
                for size, (cluster, lanes) in loads.items():
                    found = _carried(cluster, lanes[name], 0, options.seconds / 3)
                    carried.setdefault((name, size), []).append(found)
    for name in ("heartbeats", "commits"):
        for at, how in enumerate(("by CPU", "by the clock")):
            rates = {size: [row[at] for row in carried[name, size]] for size in (1, 2)}
            for size, some in rates.items():
                row = f"{name}, {size} broker{'s' if size > 1 else ''}, {how}"
                table.put("kohort", row, statistics.median(some), "a second", lower_is_better=False)
            ratios = sorted(two / one for one, two in zip(rates[1], rates[2], strict=True))
            row = f"{name}, two over one, {how}"
            goal = "1.7 or more"
            table.put("kohort", row, statistics.median(ratios), "ratio", lower_is_better=False, goal=goal)
            table.notes.append(f"{row}: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    table.notes.append("by CPU: what each broker does in a second of a core of its own, summed")
    table.notes.append("by the clock: as it was, two cores carrying the brokers and what loads them")
    return table


def _loads_of(stack: contextlib.ExitStack, size: int) -> tuple[Cluster, dict[str, dict[int, list[Lane]]]]:
    """A cluster, and lanes to each of its brokers."""
    store = stack.enter_context(directory())
    cluster = stack.enter_context(kohort_cluster(store, size, PATIENT))
    with KafkaSocket(cluster.any) as connection:
        find_coordinator(connection, "first")
    create_topic(cluster, TOPIC)
    beating: dict[int, list[Lane]] = {}
    committing: dict[int, list[Lane]] = {}
    for node, some in _members(cluster, CONNECTIONS).items():
        beating[node] = [Lane(m.connection, m.heartbeat(), HEARTBEAT_VERSION, check_heartbeat) for m in some]
        committing[node] = [Lane(_again(m), m.commit(TOPIC, 1), COMMIT_VERSION, check_commit) for m in some]
    return cluster, {"heartbeats": beating, "commits": committing}


def _carried(cluster: Cluster, lanes: dict[int, list[Lane]], warmup: float, seconds: float) -> tuple[float, float]:
    """Requests a second: of a core for each broker, summed; and by the clock."""
    load, cpu = _pump(cluster, [lane for some in lanes.values() for lane in some], warmup, seconds)
    answered = [sum(lane.answered for lane in lanes[node]) for node in cluster.targets]
    return sum(count / max(spent, 0.01) for count, spent in zip(answered, cpu, strict=True)), load.requests_per_second


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
