"""Registered messages to values and back. Values are what JSON has, and bytes, dates, times and decimals.

A message is read with the schema it was written with, which its id names; Avro then turns it into the reader's schema.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from kohort.registry import protobuf, wire
from kohort.registry.client import Registry, Schema
from kohort.registry.errors import RegistryError

Decode = Callable[[bytes], Any]
Encode = Callable[[Any], bytes]


def decoder(registry: Registry, reader: Schema | None = None) -> Decode:
    """From messages to values, each by its own schema; Avro's in the shape of `reader` where it is given."""
    readers: dict[int, Decode] = {}

    def decode(message: bytes) -> Any:
        schema_id, payload = wire.unpack(message)
        if schema_id not in readers:
            readers[schema_id] = _reader(registry, registry.schema(schema_id), reader)
        return readers[schema_id](payload)

    return decode


def encoder(registry: Registry, schema: Schema) -> Encode:
    """From values to messages of one registered schema."""
    if not schema.id:
        raise RegistryError("a schema must be registered before messages can carry its id")
    if schema.kind == "AVRO":
        avro = _Avro(registry, schema)
        return lambda value: wire.pack(schema.id, avro.write(value))
    if schema.kind == "JSON":
        return lambda value: wire.pack(schema.id, json.dumps(value, separators=(",", ":"), default=_plain).encode())
    messages = protobuf.Messages(registry, schema)
    return lambda value: wire.pack(schema.id, wire.pack_indexes((0,)) + messages.write(value))


def _reader(registry: Registry, schema: Schema, reader: Schema | None) -> Decode:
    if reader is not None and reader.kind != schema.kind:
        raise RegistryError(f"schema {schema.id} is {schema.kind}, and {reader.kind} is expected")
    if schema.kind == "AVRO":
        return _Avro(registry, schema, reader).read
    if schema.kind == "JSON":
        return json.loads
    if schema.kind == "PROTOBUF":
        return protobuf.Messages(registry, schema).read
    raise RegistryError(f"schema {schema.id} is of the kind {schema.kind}, which is not known here")


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


class _Avro:
    def __init__(self, registry: Registry, schema: Schema, reader: Schema | None = None) -> None:
        try:
            import fastavro
        except ImportError:
            raise RegistryError("Avro needs: pip install 'kohort[registry]'") from None
        self._fastavro = fastavro
        self._schema = avro_schema(registry, schema)
        self._reader = None if reader is None or reader.text == schema.text else avro_schema(registry, reader)

    def read(self, payload: bytes) -> Any:
        return self._fastavro.schemaless_reader(io.BytesIO(payload), self._schema, self._reader)

    def write(self, value: Any) -> bytes:
        out = io.BytesIO()
        self._fastavro.schemaless_writer(out, self._schema, value)
        return out.getvalue()


def avro_schema(registry: Registry, schema: Schema) -> Any:
    """As fastavro has it, with what it refers to."""
    from fastavro.schema import SchemaParseException, parse_schema

    named: dict[str, Any] = {}
    _add_references(registry, schema, named)
    try:
        return parse_schema(json.loads(schema.text), named_schemas=named)
    except (SchemaParseException, ValueError) as error:
        raise RegistryError(f"schema {schema.id or schema.text} is not Avro's: {error}") from None


def _add_references(registry: Registry, schema: Schema, named: dict[str, Any]) -> None:
    from fastavro.schema import parse_schema

    for one in schema.references:
        other = registry.version(one.subject, one.version)
        _add_references(registry, other, named)
        parse_schema(json.loads(other.text), named_schemas=named)
