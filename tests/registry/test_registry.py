"""Registered messages: the wire format, the client and its cache, and three kinds of schemas."""

from __future__ import annotations

import base64
import datetime
import importlib.util
import json
import pickle
import re
from collections.abc import Iterator
from decimal import Decimal

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from kohort.registry import Registry, RegistryError, Schema, decoder, encoder, wire
from kohort.registry.client import Reference
from registry.fake_registry import FakeRegistry

ORDER = {
    "type": "record", "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}  # fmt: skip
VALUE = {
    "id": 7, "customer": None, "price": Decimal("12.50"),
    "at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), "tags": ["a", "b"],
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    running = FakeRegistry()
    yield running
    running.close()


@given(st.integers(0, 2**31 - 1), st.binary(), st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5))
def test_the_wire_format_both_ways(schema_id: int, payload: bytes, indexes: list[int]) -> None:
    assert wire.unpack(wire.pack(schema_id, payload)) == (schema_id, payload)
    assert wire.unpack_indexes(wire.pack_indexes(tuple(indexes)) + payload) == (tuple(indexes), payload)


def test_the_wire_format_as_it_is_documented() -> None:
    assert wire.pack(1, b"x") == b"\0\0\0\0\1x"
    assert wire.pack_indexes((0,)) == b"\0"
    assert wire.pack_indexes((1, 0)) == b"\x04\x02\x00"
    for wrong in (b"", b"\0\0", b"\1\0\0\0\1x", b"plain text"):
        with pytest.raises(RegistryError, match="a zero byte and the schema's id"):
            wire.unpack(wrong)
    with pytest.raises(RegistryError, match="is this Protobuf"):
        wire.unpack_indexes(b"\xff")


def test_avro_messages_are_read_by_the_schema_they_were_written_with(server: FakeRegistry) -> None:
    registry = Registry(server.url)
    first = registry.register("orders-value", Schema(json.dumps(ORDER)))
    message = encoder(registry, first)(VALUE)
    grown = {**ORDER, "fields": [*ORDER["fields"], {"name": "paid", "type": "boolean", "default": False}]}
    registry.register("orders-value", Schema(json.dumps(grown)))
    newest = registry.latest("orders-value")
    assert (first.id, newest.id) == (1, 2)
    assert decoder(registry)(message) == VALUE
    read = decoder(registry, newest)
    assert [read(message), read(message)] == [{**VALUE, "paid": False}] * 2
    assert server.asked.count("/schemas/ids/1") == 1, "asked for once"


def test_references(server: FakeRegistry) -> None:
    registry = Registry(server.url)
    address = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
    registry.register("address", Schema(json.dumps(address)))
    person = {"type": "record", "name": "Person", "fields": [{"name": "home", "type": "Address"}]}
    known = registry.register("person", Schema(json.dumps(person), references=(Reference("Address", "address", 1),)))
    value = {"home": {"city": "Ulm"}}
    assert decoder(Registry(server.url))(encoder(registry, known)(value)) == value


def test_json_schema(server: FakeRegistry) -> None:
    registry = Registry(server.url)
    known = registry.register("events", Schema('{"type": "object"}', "JSON"))
    message = encoder(registry, known)({"n": 1})
    assert message == b'\0\0\0\0\1{"n":1}' and decoder(registry)(message) == {"n": 1}


def proto_file() -> descriptor_pb2.FileDescriptorProto:
    """Outer { int64 id = 1; repeated Inner items = 2; map<string, int32> counts = 3; optional string note = 4; }"""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="outer.proto", package="shop", syntax="proto3")
    outer = file.message_type.add(name="Outer")
    inner = outer.nested_type.add(name="Inner")
    inner.field.add(name="name", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    counts = outer.nested_type.add(name="CountsEntry")
    counts.options.map_entry = True
    counts.field.add(name="key", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    counts.field.add(name="value", number=2, type=kind.TYPE_INT32, label=kind.LABEL_OPTIONAL)
    repeated, message = kind.LABEL_REPEATED, kind.TYPE_MESSAGE
    outer.field.add(name="id", number=1, type=kind.TYPE_INT64, label=kind.LABEL_OPTIONAL)
    outer.field.add(name="items", number=2, type=message, type_name=".shop.Outer.Inner", label=repeated)
    outer.field.add(name="counts", number=3, type=message, type_name=".shop.Outer.CountsEntry", label=repeated)
    outer.oneof_decl.add(name="_note")
    outer.field.add(
        name="note", number=4, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL, proto3_optional=True, oneof_index=0
    )
    return file


def test_protobuf(server: FakeRegistry) -> None:
    registry = Registry(server.url)
    known = registry.register("orders", Schema("(the text of the file)", "PROTOBUF"))
    server.descriptors[known.id] = base64.b64encode(proto_file().SerializeToString()).decode()
    value = {"id": 2**40, "items": [{"name": "a"}, {"name": "b"}], "counts": {"x": 3}, "note": None}
    message = encoder(registry, known)(value)
    assert message[:6] == b"\0\0\0\0\1\0"
    assert decoder(registry)(message) == value
    inner = wire.pack(known.id, wire.pack_indexes((0, 0)) + b"\x0a\x01z")
    assert decoder(registry)(inner) == {"name": "z"}
    with pytest.raises(RegistryError, match="no field nonsense"):
        encoder(registry, known)({"nonsense": 1})


PROTO = """
syntax = "proto3";
package shop;
import "shop/place.proto";
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  repeated Place places = 2;
  map<string, int32> counts = 3;
  optional string note = 4;
  google.protobuf.Timestamp at = 5;
  message Line { string name = 1; }
}
"""
PLACE = 'syntax = "proto3"; package shop; message Place { string city = 1; }'


def test_protobuf_of_a_registry_that_gives_text_is_compiled_here(server: FakeRegistry) -> None:
    registry = Registry(server.url)
    registry.register("place", Schema(PLACE, "PROTOBUF"))
    reference = Reference("shop/place.proto", "place", 1)
    known = registry.register("orders", Schema(PROTO, "PROTOBUF", (reference,)))
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    value = {"id": 2**40, "places": [{"city": "Ulm"}], "counts": {"x": 3}, "note": None, "at": at}
    assert decoder(Registry(server.url))(encoder(registry, known)(value)) == value
    line = wire.pack(known.id, wire.pack_indexes((0, 0)) + b"\x0a\x01z")
    assert decoder(registry)(line) == {"name": "z"}


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ('syntax = "proto3"; message A { int6 id = 1; }', "", 'schema-2.proto:1:32: "int6" is not defined'),
        ('syntax = "proto3"; import "no/such.proto";', "", "no/such.proto: File not found"),
        (PROTO, "../../outside.proto", "not the name of a .proto file"),
        (PROTO, "/tmp/outside.proto", "not the name of a .proto file"),
    ],
)
def test_protobuf_text_that_cannot_be_compiled_says_why(server: FakeRegistry, text: str, name: str, says: str) -> None:
    registry = Registry(server.url)
    registry.register("place", Schema(PLACE, "PROTOBUF"))
    references = (Reference(name, "place", 1),) if name else ()
    known = registry.register("orders", Schema(text, "PROTOBUF", references))
    with pytest.raises(RegistryError, match=re.escape(says)):
        encoder(registry, known)


def test_protobuf_text_without_the_compiler_says_what_to_install(
    server: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(server.url)
    known = registry.register("place", Schema(PLACE, "PROTOBUF"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RegistryError, match=r"gives Protobuf schemas as text only.*pip install 'kohort\[protobuf\]'"):
        encoder(registry, known)


def test_a_registry_that_refuses_or_is_not_there_says_so(server: FakeRegistry) -> None:
    with pytest.raises(RegistryError, match="HTTP 404"):
        Registry(server.url).latest("no such subject")
    server.auth = "Basic " + base64.b64encode(b"me:secret").decode()
    server.add("s", {"schema": '"string"'})
    with pytest.raises(RegistryError, match="who are you"):
        Registry(server.url).latest("s")
    known = Registry(f"http://127.0.0.1:1,{server.url}", auth="me:secret")
    assert known.latest("s").text == '"string"', "the first url does not answer, the second does"
    again = pickle.loads(pickle.dumps(known))
    assert again == known and hash(again) == hash(known) and again.latest("s").id == 1
    with pytest.raises(RegistryError, match="refused"):
        Registry("http://127.0.0.1:1").latest("s")
