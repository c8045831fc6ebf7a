"""Offset commits from `__consumer_offsets` to Parquet tables: `kohort history ingest`, and what people do today.

With --connector: Spark's own connector with a decoder as a Python UDF.

    python bench/history.py [--records 4000000] [--side kohort|kafka] [--connector]

The topic has 50 partitions and batches of 50 commits of 600 groups, a month of them. Then twice as many, to see how
it grows, and the peak memory of a Python worker. Of several rounds the first does not count, and the median of the
others does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

from crc32c import crc32c

import kohort
import kohort.spark
from broker import PRODUCE_VERSION, create_topic
from kafka_socket import KafkaSocket
from kohort.coordinator.records import OFFSETS_TOPIC, OffsetAndMetadata, OffsetCommit, encode
from kohort.history import ingest
from kohort.protocol.messages import ProduceRequest
from kohort.records.batch import Record, build_batch
from spark import WorkerMemory
from spark_connector import connector_jars
from spark_topics import REQUESTS_IN_FLIGHT, check
from targets import running

GROUPS, PARTITIONS, PER_BATCH = 600, 50, 50
MARK = 0x7A7B7C7D7E7F
COPY = "copy-of-commits"  # Spark's connector reads no internal topics
MONTH_MS = 30 * 86_400_000
PARTITIONS_A_REQUEST = 25


class Template:
    """A batch of one group's commits, of which the time can be set."""

    def __init__(self, number: int, now_ms: int) -> None:
        group = f"payments-service-{number:04d}"
        records = []
        for i in range(PER_BATCH):
            value = OffsetAndMetadata(number * 1_000 + i, 3, "", MARK, -1, b"")
            key, stored = encode(OffsetCommit(group, f"orders-{group}", i % 10, value))
            records.append(Record(i, now_ms, key, stored))
        self._batch = bytearray(build_batch(records))
        mark, self._places, at = struct.pack(">q", MARK), [], -1
        while (at := self._batch.find(mark, at + 1)) >= 0:
            self._places.append(at)
        assert len(self._places) == PER_BATCH

    def at(self, at_ms: int) -> bytes:
        for i, place in enumerate(self._places):
            struct.pack_into(">q", self._batch, place, at_ms + i)
        struct.pack_into(">I", self._batch, 17, crc32c(memoryview(self._batch)[21:]))
        return bytes(self._batch)


def batches(rounds: int) -> Iterator[bytes]:
    """`rounds` for every partition; the time goes on from one to the next, through a month in all."""
    now_ms = int(time.time() * 1000)  # of the records: a segment that is a week old would be compacted meanwhile
    made = [Template(number, now_ms) for number in range(GROUPS)]
    source = cycle(made)
    for number in range(rounds):
        at_ms = now_ms - MONTH_MS + MONTH_MS * number // rounds
        for template in islice(source, PARTITIONS):
            yield template.at(at_ms)


def fill(servers: str, records: int, name: str = OFFSETS_TOPIC) -> int:
    if name != OFFSETS_TOPIC:
        create_topic(servers, name, PARTITIONS)
    with kohort.Consumer(bootstrap_servers=servers, group_id="first", enable_auto_commit=False) as consumer:
        consumer.assign([("nothing", 0)])
        consumer.committed([("nothing", 0)])  # which makes the topic
    rounds = -(-records // (PER_BATCH * PARTITIONS))
    source = batches(rounds)
    with KafkaSocket(servers, client_id="__admin_client") as connection:
        for _ in range(rounds):
            for first in range(0, PARTITIONS, PARTITIONS_A_REQUEST):
                data = [
                    ProduceRequest.PartitionProduceData(index=first + i, records=batch)
                    for i, batch in enumerate(islice(source, PARTITIONS_A_REQUEST))
                ]
                topic = ProduceRequest.TopicProduceData(name=name, partition_data=data)
                connection.send(ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[topic]), PRODUCE_VERSION)
                if len(connection.in_flight) >= REQUESTS_IN_FLIGHT:
                    check(connection)
        while connection.in_flight:
            check(connection)
    return rounds * PER_BATCH * PARTITIONS


def ingested(spark: Any, servers: str) -> tuple[float, int]:
    """Seconds, and commits in the table."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        rows = 0

        def told(done: Any) -> None:
            nonlocal rows
            rows += done.rows.get("commits", 0)

        ingest.Ingest(spark, servers, Path(folder)).run(told=told)
        return time.perf_counter() - began, rows


def rounds(spark: Any, servers: str, there: int, count: int) -> float:
    """The median of the seconds of all but the first, in which nothing has been read yet of so many."""
    took = []
    for number in range(count):
        seconds, rows = ingested(spark, servers)
        assert rows == there, (rows, there)
        what = "first" if not number else "warm"
        print(f"ingest, {what}: {rows:,} commits in {seconds:.2f} s, {rows / seconds:,.0f} a second", flush=True)
        took.append(seconds)
    return statistics.median(took[1:] or took)


def decoded(key: bytes, value: bytes) -> Any:
    """What one writes who knows Kafka's formats: `struct`, field by field."""
    if key is None or value is None or struct.unpack_from(">h", key)[0] not in (0, 1):
        return None
    (size,) = struct.unpack_from(">h", key, 2)
    group, at = key[4 : 4 + size].decode(), 4 + size
    (size,) = struct.unpack_from(">h", key, at)
    topic, at = key[at + 2 : at + 2 + size].decode(), at + 2 + size
    (partition,) = struct.unpack_from(">i", key, at)
    version, offset = struct.unpack_from(">hq", value)
    at, epoch = 10, None
    if version >= 3:
        (epoch,) = struct.unpack_from(">i", value, at)
        at += 4
    if version >= 4:  # a compact string, here shorter than 127 bytes
        size, at = value[at] - 1, at + 1
    else:
        (size,), at = struct.unpack_from(">h", value, at), at + 2
    metadata = value[at : at + size].decode()
    (at_ms,) = struct.unpack_from(">q", value, at + size)
    return group, topic, partition, offset, epoch, metadata, at_ms


def by_connector(spark: Any, servers: str) -> tuple[float, int]:
    from pyspark.sql import functions as f

    kind = "group_id string, topic string, partition int, offset bigint, epoch int, metadata string, at_ms bigint"
    decode = f.udf(decoded, kind)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
        raw = reader.option("subscribe", COPY).load().select("key", "value", "partition", "offset")
        rows = raw.select(
            decode("key", "value").alias("of"),
            f.col("partition").alias("record_partition"),
            f.col("offset").alias("record_offset"),
        )
        rows = rows.where("of IS NOT NULL").select("of.*", "record_partition", "record_offset")
        rows = rows.withColumn("day", f.to_date(f.timestamp_millis("at_ms")))
        rows.write.partitionBy("day").option("compression", "zstd").parquet(f"{folder}/commits")
        seconds = time.perf_counter() - began
        return seconds, spark.read.parquet(f"{folder}/commits").count()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--side", default="kohort", choices=("kohort", "kafka"), help="whose topic is read")
    parser.add_argument("--rounds", type=int, default=4, help="the first starts Spark and its workers")
    parser.add_argument("--connector", action="store_true", help="also Spark's own connector with a Python UDF")
    options = parser.parse_args()
    config = {"spark.driver.memory": "2g", "spark.log.level": "ERROR", "spark.sql.session.timeZone": "UTC"}
    if options.connector:
        config["spark.jars"] = ",".join(map(str, connector_jars()))
    with running(options.side, {"offsets.topic.num.partitions": PARTITIONS}) as broker:
        servers = broker.bootstrap_servers
        spark = kohort.spark.session("bench", "local[2]", config)
        try:
            there = fill(servers, options.records)
            seconds = rounds(spark, servers, there, options.rounds)
            if options.connector:
                fill(servers, options.records, COPY)
                took, rows = by_connector(spark, servers)
                assert rows == there, (rows, there)
                print(f"connector and Python UDF: {rows:,} commits in {took:.1f} s, {rows / took:,.0f} a second")
                print(f"kohort is {took / seconds:.1f} times as fast")
            there += fill(servers, options.records)
            with WorkerMemory(os.getpid()) as memory:
                twice = rounds(spark, servers, there, options.rounds)
            print(f"twice as many: {twice / seconds:.2f} times as long (goal: at most 2.1)")
            print(f"a Python worker used at most {memory.most_bytes / 2**20:.0f} MB")
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
