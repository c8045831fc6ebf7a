"""What a type checker knows of the public names. For `make lint`, never run; an unused `type: ignore` is an error."""

from __future__ import annotations

from typing import assert_type

import kohort
from kohort.client import AsyncConsumer, ConsumerRecord, OffsetAndMetadata, TopicPartition
from kohort.client.admin_types import GroupDescription


def blocking(broker: kohort.Broker, tp: TopicPartition) -> None:
    assert_type(broker.bootstrap_servers, str)
    with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        assert_type(consumer.poll(1.0), list[ConsumerRecord])
        assert_type(consumer.end_offsets([tp]), dict[TopicPartition, int])
        assert_type(consumer.committed([tp]), dict[TopicPartition, OffsetAndMetadata | None])
        consumer.seek(tp, "the end")  # type: ignore[arg-type]
        consumer.no_such_method()  # type: ignore[attr-defined]
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert_type(admin.list_topics(), list[str])
        assert_type(admin.describe_groups(["g"]), dict[str, GroupDescription])
    kohort.NoSuchName  # type: ignore[attr-defined]  # noqa: B018


async def asynchronous(consumer: AsyncConsumer, tp: TopicPartition) -> None:
    assert_type(await consumer.poll(1.0), list[ConsumerRecord])
    assert_type(await consumer.end_offsets([tp]), dict[TopicPartition, int])


def produced(producer: kohort.Producer) -> None:
    producer.send("orders", b"value")
    producer.send(7, b"value")  # type: ignore[arg-type]


def on_spark() -> None:
    from pyspark.sql import SparkSession

    import kohort.spark

    assert_type(kohort.spark.session(), SparkSession)
