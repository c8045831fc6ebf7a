"""The columns of the source: those of Spark's own Kafka source, with their Spark and Arrow types. No data here."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kohort.spark.options import OptionError

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

COLUMNS = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}


def full_schema(include_headers: bool) -> StructType:
    names = [name for name in COLUMNS if name != "headers" or include_headers]
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def check_schema(schema: StructType) -> tuple[str, ...]:
    """The columns a user's `.schema(...)` asks for, in its order; an error that names what there is."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise OptionError(f"no column {field.name!r}: this source has {', '.join(COLUMNS)}")
        expected = COLUMNS[field.name]
        if field.dataType.simpleString() != expected.simpleString():
            raise OptionError(
                f"column {field.name} is {expected.simpleString()}, not {field.dataType.simpleString()}: "
                "read it as it is and cast it"
            )
    if not schema.fields:
        raise OptionError(f"the schema has no columns: this source has {', '.join(COLUMNS)}")
    return tuple(schema.fieldNames())
