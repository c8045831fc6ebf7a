"""The registry's client against a real registry, Apicurio's: Avro, references, JSON Schema, and columns of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import kohort.spark
from apicurio import Apicurio
from kohort.registry import Registry, RegistryError, Schema, decoder, encoder
from kohort.registry.client import Reference
from kohort.spark import from_registry, to_registry
from registry.test_registry import ORDER, PLACE, PROTO, VALUE
from spark.query import unique


@pytest.fixture(scope="module")
def url(jdk: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Apicurio(tmp_path_factory.mktemp("registry") / "apicurio.log") as running:
        yield running.url


def test_avro_messages_are_read_by_the_schema_they_were_written_with(url: str) -> None:
    registry, subject = Registry(url), unique("orders")
    first = registry.register(subject, Schema(json.dumps(ORDER)))
    assert registry.register(subject, Schema(json.dumps(ORDER))).id == first.id
    message = encoder(registry, first)(VALUE)
    grown = {**ORDER, "fields": [*ORDER["fields"], {"name": "paid", "type": "boolean", "default": False}]}
    second = registry.register(subject, Schema(json.dumps(grown)))
    newest = registry.latest(subject)
    assert newest.id == second.id != first.id == registry.version(subject, 1).id
    assert decoder(Registry(url))(message) == VALUE
    assert decoder(Registry(url), newest)(message) == {**VALUE, "paid": False}


def test_references(url: str) -> None:
    registry, address, person = Registry(url), unique("address"), unique("person")
    inner = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
    registry.register(address, Schema(json.dumps(inner)))
    outer = {"type": "record", "name": "Person", "fields": [{"name": "home", "type": "Address"}]}
    known = registry.register(person, Schema(json.dumps(outer), references=(Reference("Address", address, 1),)))
    value = {"home": {"city": "Ulm"}}
    assert decoder(Registry(url))(encoder(registry, known)(value)) == value


def test_json_schema(url: str) -> None:
    registry = Registry(url)
    text = json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"})
    known = registry.register(unique("events"), Schema(text, "JSON"))
    assert decoder(Registry(url))(encoder(registry, known)({"n": 1})) == {"n": 1}


def test_what_a_registry_does_not_have_or_give(url: str) -> None:
    registry = Registry(url)
    with pytest.raises(RegistryError, match="HTTP 404"):
        registry.schema(987654)
    with pytest.raises(RegistryError, match="HTTP 404"):
        registry.latest("no-such-subject")


def test_protobuf_is_compiled_here_where_the_registry_does_not(url: str) -> None:
    registry, place = Registry(url), unique("place")
    registry.register(place, Schema(PLACE, "PROTOBUF"))
    reference = Reference("shop/place.proto", place, 1)
    known = registry.register(unique("orders"), Schema(PROTO, "PROTOBUF", (reference,)))
    assert registry.descriptor(known.id) is None
    value = {"id": 7, "places": [{"city": "Ulm"}], "counts": {"x": 3}, "note": "a", "at": VALUE["at"]}
    assert decoder(Registry(url))(encoder(registry, known)(value)) == value


@pytest.fixture(scope="module")
def spark(jdk: None) -> Iterator[Any]:
    session = kohort.spark.session("tests", "local[2]", {"spark.driver.memory": "512m", "spark.log.level": "ERROR"})
    yield session
    session.stop()


def test_columns_of_spark(url: str, spark: Any) -> None:
    subject = unique("totals")
    schema = {
        "type": "record", "name": "Total",
        "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": ["null", "string"]}],
    }  # fmt: skip
    totals = spark.range(50).selectExpr("named_struct('id', id, 'customer', cast(id AS string)) AS total")
    written = totals.select(to_registry("total", url, subject, schema=json.dumps(schema)).alias("value"))
    read = written.select(from_registry("value", url, subject).alias("total")).select("total.*")
    assert read.schema.simpleString() == "struct<id:bigint,customer:string>"
    assert sorted((row.id, row.customer) for row in read.collect()) == [(n, str(n)) for n in range(50)]
