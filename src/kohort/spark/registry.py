"""Columns of registered messages: `from_registry(col("value"), url, subject)` and `to_registry`. Types are in here, the
messages in kohort.registry.

The column's type comes from the subject's newest schema when the query is planned; every message is read by the schema
it was written with.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from kohort.registry import Registry, RegistryError, Schema, decoder, encoder
from kohort.registry.codecs import avro_schema
from kohort.registry.protobuf import Messages, is_map

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

FAILFAST, PERMISSIVE = "FAILFAST", "PERMISSIVE"


def from_registry(
    column: Column | str, url: str, subject: str, *, auth: str | None = None, token: str | None = None,
    mode: str = FAILFAST,
) -> Column:  # fmt: skip
    """The values of binary messages, as the subject's newest schema has them (for a topic's values `<topic>-value`).

    `mode` PERMISSIVE makes a message that cannot be read null; FAILFAST fails the query with the reason.
    """
    if mode not in (FAILFAST, PERMISSIVE):
        raise RegistryError(f"mode={mode!r} must be {FAILFAST} or {PERMISSIVE}")
    registry = Registry(url, auth, token)
    reader = registry.latest(subject)
    kind = spark_type(registry, reader)

    def decode(array: pa.Array) -> pa.Array:
        one = _kept_decoder(registry, reader)
        return _arrow([None if raw is None else _tried(one, raw, mode) for raw in array.to_pylist()], kind)

    return _arrow_udf(decode, kind)(column)


def to_registry(
    column: Column | str, url: str, subject: str, *, schema: str | None = None, schema_type: str = "AVRO",
    auth: str | None = None, token: str | None = None,
) -> Column:  # fmt: skip
    """Binary messages of the values, by the subject's newest schema or by `schema`, which is registered there first."""
    registry = Registry(url, auth, token)
    known = registry.latest(subject) if schema is None else registry.register(subject, Schema(schema, schema_type))

    def encode(array: pa.Array) -> pa.Array:
        one = _kept_encoder(registry, known)
        return _arrow([None if value is None else one(value) for value in array.to_pylist()], t.BinaryType())

    return _arrow_udf(encode, t.BinaryType())(column)


def _arrow_udf(function: Callable[[pa.Array], pa.Array], kind: t.DataType) -> Callable[[Column | str], Column]:
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    # Spark tells the kind of function by its annotations, as objects.
    function.__annotations__ = {"array": pa.Array, "return": pa.Array}
    make: Any = arrow_udf
    made: Callable[[Column | str], Column] = make(function, kind)
    return made


@cache
def _kept_decoder(registry: Registry, reader: Schema) -> Callable[[bytes], Any]:
    """One for as long as a worker lives: schemas are asked for once."""
    return decoder(registry, reader)


@cache
def _kept_encoder(registry: Registry, schema: Schema) -> Callable[[Any], bytes]:
    return encoder(registry, schema)


def _tried(decode: Callable[[bytes], Any], message: bytes, mode: str) -> Any:
    try:
        return decode(message)
    except Exception:
        if mode == FAILFAST:
            raise
        return None


def _arrow(values: list[Any], kind: t.DataType) -> pa.Array:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    return pa.array(values, to_arrow_type(kind, timezone="UTC"))


# -- types -----------------------------------------------------------------------------------------------------------


def spark_type(registry: Registry, schema: Schema) -> t.DataType:
    if schema.kind == "AVRO":
        return _avro(avro_schema(registry, schema), {})
    if schema.kind == "JSON":
        return _json(json.loads(schema.text), "the schema")
    if schema.kind == "PROTOBUF":
        return _message(Messages(registry, schema).descriptor())
    raise RegistryError(f"schema {schema.id} is of the kind {schema.kind}, which is not known here")


_AVRO = {
    "boolean": t.BooleanType(), "int": t.IntegerType(), "long": t.LongType(), "float": t.FloatType(),
    "double": t.DoubleType(), "bytes": t.BinaryType(), "string": t.StringType(), "enum": t.StringType(),
    "fixed": t.BinaryType(), "null": t.NullType(),
}  # fmt: skip
_LOGICAL = {
    "date": t.DateType(), "timestamp-millis": t.TimestampType(), "timestamp-micros": t.TimestampType(),
    "uuid": t.StringType(),
}  # fmt: skip


def _avro(schema: Any, named: dict[str, t.DataType]) -> t.DataType:
    if isinstance(schema, list):
        some = [one for one in schema if one != "null"]
        if len(some) != 1:
            raise RegistryError(f"a union of {len(some)} types has no type in Spark: {schema}")
        return _avro(some[0], named)
    if isinstance(schema, str):
        found = _AVRO.get(schema) or named.get(schema)
        if found is None:
            raise RegistryError(f"{schema} refers to itself or to nothing: such types have no type in Spark")
        return found
    logical = schema.get("logicalType")
    if logical == "decimal":
        return t.DecimalType(schema["precision"], schema.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    return _avro_complex(schema, named)


def _avro_complex(schema: Any, named: dict[str, t.DataType]) -> t.DataType:
    kind = schema["type"]
    if kind == "array":
        return t.ArrayType(_avro(schema["items"], named))
    if kind == "map":
        return t.MapType(t.StringType(), _avro(schema["values"], named))
    if kind in ("record", "error"):
        made = t.StructType([t.StructField(one["name"], _avro(one["type"], named)) for one in schema["fields"]])
        named[schema["name"]] = made
        return made
    found = _avro(kind, named) if not isinstance(kind, str) else _AVRO[kind]
    if "name" in schema:
        named[schema["name"]] = found
    return found


_JSON = {
    "string": t.StringType(), "integer": t.LongType(), "number": t.DoubleType(), "boolean": t.BooleanType(),
    "null": t.NullType(),
}  # fmt: skip


def _json(schema: Any, where: str) -> t.DataType:
    for word in ("oneOf", "anyOf"):
        if word in schema:
            schema = {**schema, "type": None, "choices": schema[word]}
            some = [one for one in schema["choices"] if one.get("type") != "null"]
            if len(some) == 1:
                return _json(some[0], where)
            raise RegistryError(f"{where} may be of {len(some)} types, which has no type in Spark")
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        some = [one for one in kind if one != "null"]
        kind = some[0] if len(some) == 1 else None
    if kind == "array":
        return t.ArrayType(_json(schema.get("items", {}), f"an item of {where}"))
    if kind == "object" and "properties" in schema:
        fields = schema["properties"].items()
        return t.StructType([t.StructField(name, _json(one, name)) for name, one in fields])
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return t.MapType(t.StringType(), _json(schema["additionalProperties"], where))
    if kind not in _JSON:
        raise RegistryError(f"{where} has no type that Spark has: {json.dumps(schema)[:200]}")
    return _JSON[kind]


def _message(descriptor: Any, within: tuple[str, ...] = ()) -> t.StructType:
    if descriptor.full_name in within:
        raise RegistryError(f"{descriptor.full_name} holds itself: such types have no type in Spark")
    inside = (*within, descriptor.full_name)
    return t.StructType([t.StructField(field.name, _field(field, inside)) for field in descriptor.fields])


def _field(field: Any, within: tuple[str, ...]) -> t.DataType:
    if is_map(field):
        return t.MapType(t.StringType(), _single(field.message_type.fields_by_name["value"], within))
    single = _single(field, within)
    return t.ArrayType(single) if field.is_repeated else single


def _single(field: Any, within: tuple[str, ...]) -> t.DataType:
    if field.message_type is not None:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            return t.TimestampType()
        return _message(field.message_type, within)
    if field.enum_type is not None:
        return t.StringType()
    kinds = {
        field.CPPTYPE_INT32: t.IntegerType(), field.CPPTYPE_INT64: t.LongType(), field.CPPTYPE_UINT32: t.LongType(),
        field.CPPTYPE_UINT64: t.DecimalType(20, 0), field.CPPTYPE_DOUBLE: t.DoubleType(),
        field.CPPTYPE_FLOAT: t.FloatType(), field.CPPTYPE_BOOL: t.BooleanType(),
    }  # fmt: skip
    if field.cpp_type == field.CPPTYPE_STRING:
        return t.BinaryType() if field.type == field.TYPE_BYTES else t.StringType()
    return kinds[field.cpp_type]
