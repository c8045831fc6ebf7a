"""Section `coordinator`: what groups cost the broker, the same requests to both brokers.

Heartbeats and commits: 64 connections with 16 requests in flight, a group of one member each.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import time
from typing import Any

from broker import create_topic
from group_load import (
    COMMIT_VERSION,
    HEARTBEAT_VERSION,
    MOVING,
    Member,
    assemble,
    expect,
    find_coordinator,
    join_alone,
    rebalance,
)
from kafka_socket import KafkaSocket
from kohort.protocol.messages import OffsetFetchRequest
from loadgen import Lane, Load, pump
from process import cpu_seconds, resident_bytes
from tables import Table
from targets import Target, running

CONNECTIONS, DEPTH = 64, 16
CONFIG = {"group.initial.rebalance.delay.ms": 0, "group.max.session.timeout.ms": 1_800_000}
TOPIC, TOPIC_PARTITIONS = "committed", 50


def run(options: argparse.Namespace) -> list[Table]:
    table = Table(f"Group coordinator ({CONNECTIONS} connections, {DEPTH} in flight)")
    for side in options.sides:
        with running(side, CONFIG) as target:
            prepare(target)
            measure_requests(target, table, options)
            for count in (20, 50) if options.quick else (100, 1000):
                measure_rebalance(target, table, count, rounds=3 if options.quick else 7)
            measure_groups(target, table, groups=200 if options.quick else 5000)
        with running(side, CONFIG) as target:
            prepare(target)
            measure_members(target, table, options, few=100, many=1000 if options.quick else 100_000)
        with running(side, CONFIG | {"offsets.topic.num.partitions": 1}) as target:
            prepare(target)
            measure_loading(target, table, records=50_000 if options.quick else 1_000_000)
    table.notes.append("broker CPU = user + system time of the broker's process, from /proc")
    table.notes.append(
        "memory per member: resident memory of kohort; of Kafka the Java heap in use after a full collection"
    )
    table.notes.append(
        "loading: how much longer a start takes until offsets are served than with an empty __consumer_offsets"
    )
    return [table]


def prepare(target: Target) -> None:
    with KafkaSocket(target.bootstrap_servers) as connection:
        find_coordinator(connection, "warm-up")
    create_topic(target.bootstrap_servers, TOPIC, TOPIC_PARTITIONS)


def open_members(target: Target, prefix: str, count: int, *, one_group: bool = False) -> list[Member]:
    names = [prefix if one_group else f"{prefix}-{i}" for i in range(count)]
    return [Member(KafkaSocket(target.bootstrap_servers), name) for name in names]


def close_members(members: list[Member]) -> None:
    for member in members:
        member.connection.close()


def load_heartbeats(target: Target, members: list[Member], options: argparse.Namespace) -> Load:
    lanes = [Lane(m.connection, m.heartbeat(), HEARTBEAT_VERSION, check_heartbeat) for m in members]
    return pump(lanes, depth=DEPTH, warmup=options.warmup, seconds=options.seconds, pid=target.pid)


def check_heartbeat(answer: Any) -> None:
    expect(answer.error_code, "Heartbeat")


def check_commit(answer: Any) -> None:
    for partition in answer.topics[0].partitions:
        expect(partition.error_code, "OffsetCommit")


def measure_requests(target: Target, table: Table, options: argparse.Namespace) -> None:
    members = open_members(target, "requests", CONNECTIONS)
    join_alone(members)
    load = load_heartbeats(target, members, options)
    table.put(target.side, "Heartbeat", load.requests_per_second, "requests/s", lower_is_better=False)
    table.put(target.side, "Heartbeat", load.cpu_us_per_request, "broker CPU us/request", goal="at most 10")
    for partitions, goal in ((1, "at most 20"), (10, "")):
        lanes = [Lane(m.connection, m.commit(TOPIC, partitions), COMMIT_VERSION, check_commit) for m in members]
        load = pump(lanes, depth=DEPTH, warmup=options.warmup, seconds=options.seconds, pid=target.pid)
        name = f"OffsetCommit, {partitions} partition{'s' if partitions > 1 else ''}"
        table.put(target.side, name, load.requests_per_second, "requests/s", lower_is_better=False)
        table.put(target.side, name, load.cpu_us_per_request, "broker CPU us/request", goal=goal)
    close_members(members)


def measure_rebalance(target: Target, table: Table, count: int, rounds: int) -> None:
    members = open_members(target, f"rebalance-{count}", count, one_group=True)
    assemble(members)
    rebalance(members, 1)
    times, cpu_before = [], cpu_seconds(target.pid)
    for number in range(rounds):
        began = time.perf_counter()
        rebalance(members, 2 + number)
        times.append(time.perf_counter() - began)
    cpu = (cpu_seconds(target.pid) - cpu_before) / rounds
    close_members(members)
    name = f"rebalance of {count} members"
    table.put(target.side, name, 1000 * statistics.median(times), "ms", goal="faster than Kafka")
    table.put(target.side, name, 1000 * cpu, "broker CPU ms")


def join_many(target: Target, prefix: str, count: int) -> list[Member]:
    """`count` groups of one member each, over a few connections that they share."""
    connections = [KafkaSocket(target.bootstrap_servers) for _ in range(min(CONNECTIONS, count))]
    joined: list[Member] = []
    for first in range(0, count, len(connections)):
        wave = [Member(c, f"{prefix}-{first + i}") for i, c in enumerate(connections[: count - first])]
        join_alone(wave)
        joined += wave
    return joined


def measure_groups(target: Target, table: Table, groups: int) -> None:
    join_many(target, "warm-groups", groups // 5)
    began = time.perf_counter()
    members = join_many(target, "groups", groups)
    rate = groups / (time.perf_counter() - began)
    close_members(members[:CONNECTIONS])
    table.put(target.side, "new groups, joined and synced", rate, "groups/s", lower_is_better=False)


def measure_members(target: Target, table: Table, options: argparse.Namespace, few: int, many: int) -> None:
    """The same heartbeats from the same members, among `few` and among `many`."""
    crowd = join_many(target, "few", few)
    among_few = load_heartbeats(target, crowd[:CONNECTIONS], options)
    before = memory_in_use(target)
    added = join_many(target, "many", many - few)
    after = memory_in_use(target)
    among_many = load_heartbeats(target, crowd[:CONNECTIONS], options)
    close_members(crowd[:CONNECTIONS] + added[:CONNECTIONS])
    for count, load in ((few, among_few), (many, among_many)):
        name = f"Heartbeat among {count:,} members"
        table.put(target.side, name, load.cpu_us_per_request, "broker CPU us/request")
    ratio = among_many.cpu_us_per_request / max(among_few.cpu_us_per_request, 0.01)
    table.put(target.side, f"cost of {many:,} over {few:,}", ratio, "ratio", goal="at most 1.5")
    table.put(
        target.side,
        "memory per member, its group included",
        (after - before) / (many - few),
        "bytes",
        goal="under 4096",
    )


def memory_in_use(target: Target) -> int:
    """Bytes: a JVM's resident memory says little, so its heap is collected and then asked for what is left."""
    if target.side != "kafka":
        return resident_bytes(target.pid)
    jcmd = shutil.which("jcmd")
    if jcmd is None:
        return resident_bytes(target.pid)
    subprocess.run([jcmd, str(target.pid), "GC.run"], check=True, capture_output=True)
    info = subprocess.run([jcmd, str(target.pid), "GC.heap_info"], check=True, capture_output=True, text=True).stdout
    used = next(
        word for line in info.splitlines() if "heap" in line and "used" in line for word in [line.split("used ")[1]]
    )
    return int(used.split("K")[0]) * 1024


def seconds_until_offsets_are_served(target: Target, group_id: str) -> float:
    """Restart, then ask for the group's offsets until they come; from the start of the process."""
    target.stop()
    began = time.monotonic()
    target.start()
    with KafkaSocket(target.bootstrap_servers) as connection:
        while True:
            answer = connection.call(OffsetFetchRequest(group_id=group_id, topics=None), 7)
            if answer.error_code not in MOVING:
                expect(answer.error_code, "OffsetFetch")
                return time.monotonic() - began
            time.sleep(0.005)


def measure_loading(target: Target, table: Table, records: int) -> None:
    groups = 200
    empty = min(seconds_until_offsets_are_served(target, "loaded-0") for _ in range(3))
    members = [Member(KafkaSocket(target.bootstrap_servers), f"loaded-{i}") for i in range(groups)]
    for _ in range(records // (groups * TOPIC_PARTITIONS)):
        for member in members:
            member.connection.send(member.commit(TOPIC, TOPIC_PARTITIONS), COMMIT_VERSION)
        for member in members:
            check_commit(member.connection.receive())
    close_members(members)
    full = min(seconds_until_offsets_are_served(target, f"loaded-{i}") for i in range(3))
    if full <= 1.05 * empty:
        table.notes.append(f"loading {records:,} records took {target.side} no longer than the noise of its start")
        return
    rate = records / (full - empty)
    table.put(
        target.side, "loading __consumer_offsets", rate, "records/s", lower_is_better=False, goal="200,000 or more"
    )
