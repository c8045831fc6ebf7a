"""Section `consumer_groups`: what groups of the consumer protocol (KIP-848) cost, the same requests to both brokers.

Heartbeats that change nothing: 64 connections with 16 requests in flight, a group of one member each. Convergence: all
members of one group, each on its connection, send heartbeats round after round, until all are in the newest epoch and
everything has an owner.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from struct import pack, unpack
from typing import Any

from apache_kafka import compile_java, java_command
from broker import create_topic
from coordinator import memory_in_use
from group_load import expect, find_coordinator
from kafka_socket import KafkaSocket
from kohort.assignors import GroupSpec, MemberSpec, TopicSpec, UniformAssignor
from kohort.protocol.messages import CreatePartitionsRequest
from loadgen import Lane, pump
from modern_members import VERSION, Member, beat, converge
from process import cpu_seconds
from tables import Table
from targets import Target, running

ROOT = Path(__file__).resolve().parent.parent
CONNECTIONS, DEPTH = 64, 16
CONFIG = {"group.consumer.assignment.interval.ms": 0}


def run(options: argparse.Namespace) -> Iterator[Table]:
    table = Table(f"Groups of the consumer protocol ({CONNECTIONS} connections, {DEPTH} in flight)")
    for side in options.sides:
        with running(side, CONFIG) as target:
            with KafkaSocket(target.bootstrap_servers) as connection:
                find_coordinator(connection, "warm-up")
            measure_heartbeats(target, table, options)
            measure_memory(target, table, 200 if options.quick else 10_000)
            for count in (20,) if options.quick else (100, 1000):
                measure_convergence(target, table, count)
    table.notes.append("memory: resident memory of kohort; of Kafka the Java heap in use after a full collection")
    table.notes.append(
        "convergence: rounds of heartbeats without pauses, a connection a member, until everything has an owner"
    )
    yield table
    yield assignment_table(options)


def measure_heartbeats(target: Target, table: Table, options: argparse.Namespace) -> None:
    create_topic(target.bootstrap_servers, "beaten", 1)
    members = [
        Member(KafkaSocket(target.bootstrap_servers), f"beat-{i}", f"m-{i}", "beaten") for i in range(CONNECTIONS)
    ]
    beat(members)
    beat(members)
    lanes = [Lane(m.connection, m.request(), VERSION, lambda answer: expect(answer.error_code, "")) for m in members]
    load = pump(lanes, depth=DEPTH, warmup=options.warmup, seconds=options.seconds, pid=target.pid)
    name = "ConsumerGroupHeartbeat without news"
    table.put(target.side, name, load.requests_per_second, "requests/s", lower_is_better=False)
    table.put(target.side, name, load.cpu_us_per_request, "broker CPU us/request", goal="at most 1/5 of Kafka's")
    for member in members:
        member.connection.close()


def measure_memory(target: Target, table: Table, count: int) -> None:
    create_topic(target.bootstrap_servers, "remembered", 1)
    connections = [KafkaSocket(target.bootstrap_servers) for _ in range(CONNECTIONS)]

    def join(prefix: str, size: int) -> None:
        members = [
            Member(connections[i % CONNECTIONS], f"{prefix}-{i}", f"m-{i:05d}", "remembered") for i in range(size)
        ]
        for begin in range(0, size, CONNECTIONS * DEPTH):
            beat(members[begin : begin + CONNECTIONS * DEPTH])

    join("warm", count // 5)
    before = memory_in_use(target)
    join("remembered", count)
    table.put(target.side, "memory per member, its group included", (memory_in_use(target) - before) / count, "bytes")
    for connection in connections:
        connection.close()


def measure_convergence(target: Target, table: Table, count: int) -> None:
    topic, partitions = f"shared-{count}", 2 * count
    create_topic(target.bootstrap_servers, topic, partitions)
    connections = [KafkaSocket(target.bootstrap_servers) for _ in range(count + 3)]
    group_id = f"converge-{count}"
    members = [Member(connections.pop(), group_id, f"m-{i:05d}", topic) for i in range(count)]
    converge(members, partitions, 0)
    times: dict[str, list[float]] = {"a join": [], "a leave": [], "a topic that grows": []}
    beats: dict[str, list[float]] = {what: [] for what in times}

    def measure(what: str) -> None:
        took, heartbeats = converge(members, partitions, after_epoch)
        times[what].append(1000 * took)
        beats[what].append(heartbeats / len(members))

    cpu = cpu_seconds(target.pid)
    for number in range(3):
        after_epoch = members[0].epoch
        members.append(Member(connections.pop(), group_id, f"n-{number}", topic))
        measure("a join")
        after_epoch = members[0].epoch
        gone = members.pop(0)
        gone.leave()
        gone.connection.close()
        measure("a leave")
        after_epoch = members[0].epoch
        partitions += count
        row = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
        members[0].connection.call(CreatePartitionsRequest(topics=[row], timeout_ms=30_000), 3)
        measure("a topic that grows")
    cpu = (cpu_seconds(target.pid) - cpu) / 9
    for what, measured in times.items():
        name = f"{count} members converge after {what}"
        table.put(target.side, name, statistics.median(measured), "ms", goal="faster than Kafka")
        table.put(target.side, name, statistics.median(beats[what]), "heartbeats a member")
    table.put(target.side, f"{count} members converge", 1000 * cpu, "broker CPU ms a change")
    for member in members:
        member.connection.close()


# ---- the assignor alone


def assignment_table(options: argparse.Namespace) -> Table:
    members, partitions, topics = (50, 1000, 10) if options.quick else (1000, 100_000, 100)
    table = Table(f"Target assignment by `uniform`: {members:,} members, {partitions:,} partitions, {topics} topics")
    ids = [pack(">qq", 0, number) for number in range(1, topics + 1)]
    specs = {one: TopicSpec(f"t{i}", partitions // topics) for i, one in enumerate(ids)}
    empty = {f"m-{i:05d}": MemberSpec(frozenset(ids)) for i in range(members)}
    first = GroupSpec(empty, specs, True)
    given = UniformAssignor().assign(first)
    joined = {name: MemberSpec(frozenset(ids), given[name]) for name in empty} | {"new": MemberSpec(frozenset(ids))}
    cases = {"first assignment": first, "a member joins": GroupSpec(joined, specs, True)}
    for name, spec in cases.items():
        table.put("kohort", name, statistics.median(_ours(spec)), "ms", goal="at most 1.5x Java's")
    if "kafka" in options.sides:
        for name, times in zip(cases, _theirs(cases.values()), strict=True):
            table.put("kafka", name, statistics.median(times), "ms")
    return table


def _ours(spec: GroupSpec) -> list[float]:
    times = []
    for _ in range(15):
        began = time.perf_counter()
        UniformAssignor().assign(spec)
        times.append(1000 * (time.perf_counter() - began))
    return times


def _theirs(specs: Any) -> Iterator[list[float]]:
    classes = compile_java(ROOT / "tests/conformance/java")
    command = java_command("ServerAssignorHarness", "bench", "15", extra_class_path=[classes], jvm=("-Xmx1g",))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    for spec in specs:
        process.stdin.write(_lines(spec))
        process.stdin.flush()
        yield [float(word) for word in process.stdout.readline().split()]
    process.stdin.close()
    process.wait(30)


def _lines(spec: GroupSpec) -> str:
    made = ["case uniform alike", *(f"topic {_id(one)} {topic.partitions}" for one, topic in spec.topics.items())]
    topics = ",".join(map(_id, spec.topics))
    for name, member in spec.members.items():
        assigned = ";".join(f"{_id(one)}={','.join(map(str, numbers))}" for one, numbers in member.assigned.items())
        made.append(f"member {name} - {topics} {assigned or '-'}")
    return "\n".join([*made, "end\n"])


def _id(topic_id: bytes) -> str:
    return "{}:{}".format(*unpack(">qq", topic_id))
