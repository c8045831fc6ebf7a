"""Section `broker`: Produce and Fetch, start-up and idle memory, the same requests to both brokers.

acks=1, one partition a connection, topics with default settings, no fetch sessions, data in the page cache.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial
from typing import Any

from kafka_socket import KafkaSocket
from kohort.protocol.messages import (
    CreateTopicsRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from kohort.records.batch import Record, build_batch
from loadgen import Lane, Load, pump
from process import resident_bytes
from tables import Table
from targets import Target, running

PRODUCE_VERSION, FETCH_VERSION, CREATE_TOPICS_VERSION, LIST_OFFSETS_VERSION = 9, 12, 5, 7
STORED_BATCH_BYTES = 16 * 1024
"""Fetches ask for a multiple of it: Kafka cuts a batch at the limit of a fetch, kohort does not."""


def run(options: argparse.Namespace) -> list[Table]:
    starts, throughput = Table("Start-up and idle memory"), Table("Produce and Fetch (acks=1, raw sockets, pipelined)")
    for side in options.sides:
        measure_start(side, starts, rounds=1 if options.quick else 5)
    for side in options.sides:
        with running(side) as target:
            for size, connections, depth in ((1024, 16, 16), (65536, 8, 8)):
                measure_produce(target, throughput, options, size, connections, depth)
            for size, connections, depth in ((65536, 16, 8), (1 << 20, 8, 4)):
                measure_fetch(target, throughput, options, size, connections, depth)
    throughput.notes.append("broker CPU = user + system time of the broker's process, from /proc")
    return [starts, throughput]


def measure_start(side: str, table: Table, rounds: int) -> None:
    """From the start of the process to its first answer; memory after a moment of rest."""
    times, memory = [], []
    with running(side) as target:
        for _ in range(rounds):
            target.stop()
            target.start()
            times.append(target.startup_seconds)
            time.sleep(2)
            memory.append(resident_bytes(target.pid))
    table.put(side, "start to first answer", 1000 * statistics.median(times), "ms", goal="10x faster")
    table.put(side, "resident memory, idle", statistics.median(memory) / 2**20, "MB", goal="at most 1/8")


def measure_produce(
    target: Target, table: Table, options: argparse.Namespace, size: int, connections: int, depth: int
) -> None:
    topic = f"produce-{size}"
    create_topic(target.bootstrap_servers, topic, connections)
    batch = batch_of(size)
    lanes = []
    for partition in range(connections):
        data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
        topic_data = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
        request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topic_data)
        lanes.append(Lane(KafkaSocket(target.bootstrap_servers), request, PRODUCE_VERSION, check_produced))
    load = pump(lanes, depth=depth, warmup=options.warmup, seconds=options.seconds, pid=target.pid)
    for lane in lanes:
        lane.connection.close()
    put_load(table, target.side, f"Produce {size // 1024} KB", load, megabytes=load.requests * len(batch) / 2**20)


def measure_fetch(
    target: Target, table: Table, options: argparse.Namespace, size: int, connections: int, depth: int
) -> None:
    topic = f"fetch-{size}"
    create_topic(target.bootstrap_servers, topic, connections)
    fill_topic(target, topic, connections, total_bytes=4 * max(size, 1 << 20))
    check = partial(check_fetched, size=size)
    lanes = []
    for partition in range(connections):
        wanted = FetchRequest.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=size)
        topics = [FetchRequest.FetchTopic(topic=topic, partitions=[wanted])]
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=size, session_epoch=-1, topics=topics)
        lanes.append(Lane(KafkaSocket(target.bootstrap_servers), request, FETCH_VERSION, check))
    load = pump(lanes, depth=depth, warmup=options.warmup, seconds=options.seconds, pid=target.pid)
    for lane in lanes:
        lane.connection.close()
    name = f"Fetch {size // 1024} KB" if size < 1 << 20 else f"Fetch {size >> 20} MB"
    put_load(table, target.side, name, load, megabytes=load.received_bytes / 2**20)


def put_load(table: Table, side: str, name: str, load: Load, megabytes: float) -> None:
    table.put(side, name, load.requests_per_second, "requests/s", lower_is_better=False)
    table.put(side, name, load.cpu_us_per_request, "broker CPU us/request", goal="no more than Kafka")
    table.put(side, name, megabytes / load.seconds, "MB/s", lower_is_better=False)
    table.put(side, name, megabytes / max(load.cpu_seconds, 0.01), "MB per CPU second", lower_is_better=False)


def batch_of(size: int) -> bytes:
    """One uncompressed batch of exactly `size` bytes with one record, of today: retention must not take it."""
    value_size, now_ms = size, int(1000 * time.time())
    while (batch := build_batch([Record(0, now_ms, None, bytes(value_size), ())])) and len(batch) > size:
        value_size -= len(batch) - size
    assert len(batch) == size
    return batch


def create_topic(servers: str, name: str, partitions: int) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    with KafkaSocket(servers) as connection:
        answer = connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CREATE_TOPICS_VERSION)
        assert answer.topics[0].error_code == 0, answer
        for _ in range(300):
            request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
            found = connection.call(request, 9).topics[0]
            ready = [p for p in found.partitions if p.error_code == 0 and p.leader_id >= 0]
            if found.error_code == 0 and len(ready) == partitions and has_leaders(connection, name, partitions):
                return
            time.sleep(0.1)
    raise TimeoutError(f"topic {name} has no leaders")


def has_leaders(connection: KafkaSocket, name: str, partitions: int) -> bool:
    """Kafka announces a leader a moment before it leads."""
    wanted = [ListOffsetsRequest.ListOffsetsPartition(partition_index=p, timestamp=-1) for p in range(partitions)]
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=wanted)]
    answer = connection.call(ListOffsetsRequest(replica_id=-1, topics=topics), LIST_OFFSETS_VERSION)
    return all(p.error_code == 0 for topic in answer.topics for p in topic.partitions)


def fill_topic(target: Target, topic: str, partitions: int, total_bytes: int) -> None:
    batch = batch_of(STORED_BATCH_BYTES)
    with KafkaSocket(target.bootstrap_servers) as connection:
        for partition in range(partitions):
            for _ in range(total_bytes // len(batch)):
                data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
                topic_data = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
                request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topic_data)
                check_produced(connection.call(request, PRODUCE_VERSION))


def check_produced(answer: Any) -> None:
    code = answer.responses[0].partition_responses[0].error_code
    assert code == 0, f"Produce answered {code}"


def check_fetched(answer: Any, size: int) -> None:
    partition = answer.responses[0].partitions[0]
    assert partition.error_code == 0, f"Fetch answered {partition.error_code}"
    assert len(partition.records) == size, f"Fetch answered {len(partition.records)} bytes instead of {size}"
