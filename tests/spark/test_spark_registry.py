"""Registered messages as columns, on a real Spark."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import types as t

from kohort.registry import Registry, RegistryError, Schema, encoder
from kohort.spark import from_registry, to_registry
from kohort.spark.registry import spark_type
from registry.fake_registry import FakeRegistry
from registry.test_registry import ORDER, VALUE, proto_file
from spark.query import create, unique

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    running = FakeRegistry()
    yield running
    running.close()


def test_types_of_schemas(registry: FakeRegistry) -> None:
    client = Registry(registry.url)
    avro = spark_type(client, Schema(json.dumps(ORDER)))
    assert avro.simpleString() == (
        "struct<id:bigint,customer:string,price:decimal(9,2),at:timestamp,tags:array<string>>"
    )
    text = {"type": "object", "properties": {"n": {"type": ["integer", "null"]}, "m": {"oneOf": [{"type": "null"}, {
        "type": "object", "additionalProperties": {"type": "number"}}]}}}  # fmt: skip
    assert spark_type(client, Schema(json.dumps(text), "JSON")).simpleString() == (
        "struct<n:bigint,m:map<string,double>>"
    )
    known = client.register("p", Schema("text", "PROTOBUF"))
    registry.descriptors[known.id] = base64.b64encode(proto_file().SerializeToString()).decode()
    assert spark_type(client, known).simpleString() == (
        "struct<id:bigint,items:array<struct<name:string>>,counts:map<string,int>,note:string>"
    )
    with pytest.raises(RegistryError, match="a union of 2 types"):
        spark_type(client, Schema('["string", "long"]'))
    assert spark_type(client, Schema('"string"')) == t.StringType()


def test_values_to_a_topic_and_back(spark: Any, servers: str, registry: FakeRegistry) -> None:
    topic = unique("orders")
    create(servers, topic, 1)
    client = Registry(registry.url)
    client.register(f"{topic}-value", Schema(json.dumps(ORDER)))
    kind = spark_type(client, client.latest(f"{topic}-value"))
    rows = spark.createDataFrame([(VALUE,), (None,)], t.StructType([t.StructField("order", kind)]))
    written = rows.select(to_registry("order", registry.url, f"{topic}-value").alias("value"))
    written.write.format("kohort").option("kafka.bootstrap.servers", servers).option("topic", topic).mode(
        "append"
    ).save()
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    frame = (
        reader.load().select(from_registry("value", registry.url, f"{topic}-value").alias("order")).select("order.*")
    )
    found = [row.asDict() for row in frame.where("id is not null").collect()]
    assert [(row["id"], row["customer"], row["price"], row["tags"]) for row in found] == [
        (7, None, Decimal("12.50"), ["a", "b"])
    ]
    assert found[0]["at"].astimezone(datetime.UTC) == VALUE["at"]
    assert frame.count() == 2, "a null stays null"


def test_messages_that_cannot_be_read(spark: Any, registry: FakeRegistry) -> None:
    client = Registry(registry.url)
    known = client.register("s", Schema('"string"'))
    frame = spark.createDataFrame([(encoder(client, known)("yes"),), (b"no",)], "value binary")
    lenient = frame.select(from_registry("value", registry.url, "s", mode="PERMISSIVE").alias("text"))
    assert sorted(str(row.text) for row in lenient.collect()) == ["None", "yes"]
    with pytest.raises(Exception, match="a zero byte and the schema's id"):
        frame.select(from_registry("value", registry.url, "s")).collect()
