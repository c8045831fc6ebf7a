"""Section `consumer_groups`: what groups of the consumer protocol (KIP-848) cost, the same requests to both brokers.

Heartbeats that change nothing: 64 connections with 16 requests in flight, a group of one member each. Convergence: all
members of one group send heartbeats, round after round, until everybody is where the target wants them.
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
from kohort.protocol.messages import ConsumerGroupHeartbeatRequest, CreatePartitionsRequest
from loadgen import Lane, pump
from process import cpu_seconds
from tables import Table
from targets import Target, running

ROOT = Path(__file__).resolve().parent.parent
CONNECTIONS, DEPTH, VERSION = 64, 16, 1
CONFIG = {"group.consumer.assignment.interval.ms": 0}
_Request = ConsumerGroupHeartbeatRequest


class Member:
    """Says what it has in every heartbeat that follows an assignment."""

    def __init__(self, connection: KafkaSocket, group_id: str, member_id: str, topic: str) -> None:
        self.connection = connection
        self.group_id, self.member_id, self.topic = group_id, member_id, topic
        self.epoch = 0
        self.owned: list[Any] = []
        self.has_news = True

    def request(self) -> Any:
        request = _Request(group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch)
        if self.epoch == 0:
            request.rebalance_timeout_ms, request.subscribed_topic_names = 300_000, [self.topic]
        if self.has_news:
            request.topic_partitions = self.owned
        return request

    def send(self) -> None:
        self.connection.send(self.request(), VERSION)

    def receive(self) -> bool:
        """Whether the heartbeat has moved it."""
        answer = self.connection.receive()
        expect(answer.error_code, "ConsumerGroupHeartbeat")
        moved = answer.member_epoch != self.epoch or answer.assignment is not None
        self.epoch, self.has_news = answer.member_epoch, answer.assignment is not None
        if answer.assignment is not None:
            make = _Request.TopicPartitions
            rows = answer.assignment.topic_partitions
            self.owned = [make(topic_id=row.topic_id, partitions=row.partitions) for row in rows]
        return moved


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
    table.notes.append("convergence: rounds of heartbeats without pauses, until a whole round has moved nobody")
    yield table
    yield assignment_table(options)


def measure_heartbeats(target: Target, table: Table, options: argparse.Namespace) -> None:
    create_topic(target.bootstrap_servers, "beaten", 1)
    members = [
        Member(KafkaSocket(target.bootstrap_servers), f"beat-{i}", f"m-{i}", "beaten") for i in range(CONNECTIONS)
    ]
    converge(members)
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
            some = members[begin : begin + CONNECTIONS * DEPTH]
            for member in some:
                member.send()
            for member in some:
                member.receive()

    join("warm", count // 5)
    before = memory_in_use(target)
    join("remembered", count)
    table.put(target.side, "memory per member, its group included", (memory_in_use(target) - before) / count, "bytes")
    for connection in connections:
        connection.close()


def converge(members: list[Member]) -> float:
    """Seconds until nobody moves any more."""
    began = time.perf_counter()
    while True:
        for member in members:
            member.send()
        moved = [member.receive() for member in members]
        if not any(moved):
            return time.perf_counter() - began


def measure_convergence(target: Target, table: Table, count: int) -> None:
    topic, partitions = f"shared-{count}", 2 * count
    create_topic(target.bootstrap_servers, topic, partitions)
    connections = [KafkaSocket(target.bootstrap_servers) for _ in range(min(count, CONNECTIONS))]
    group_id = f"converge-{count}"
    members = [Member(connections[i % len(connections)], group_id, f"m-{i:05d}", topic) for i in range(count)]
    converge(members)
    times: dict[str, list[float]] = {"a join": [], "a leave": [], "a topic that grows": []}
    cpu = cpu_seconds(target.pid)
    for number in range(3):
        members.append(Member(connections[0], group_id, f"n-{number}", topic))
        times["a join"].append(converge(members))
        gone = members.pop(0)
        gone.connection.call(_Request(group_id=group_id, member_id=gone.member_id, member_epoch=-1), VERSION)
        times["a leave"].append(converge(members))
        partitions += count
        row = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
        connections[0].call(CreatePartitionsRequest(topics=[row], timeout_ms=30_000), 3)
        times["a topic that grows"].append(converge_to(members, partitions))
    cpu = (cpu_seconds(target.pid) - cpu) / 9
    for what, measured in times.items():
        name = f"{count} members converge after {what}"
        table.put(target.side, name, 1000 * statistics.median(measured), "ms", goal="faster than Kafka")
    table.put(target.side, f"{count} members converge", 1000 * cpu, "broker CPU ms a change")
    for connection in connections:
        connection.close()


def converge_to(members: list[Member], partitions: int) -> float:
    """The coordinator may hear of the growth later: until everything is dealt out."""
    began = time.perf_counter()
    while sum(len(row.partitions) for member in members for row in member.owned) < partitions:
        converge(members)
    return time.perf_counter() - began


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
