"""The data source class Spark sees: checks options and hands out readers and writers. No work is done here."""

from __future__ import annotations

from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

import kohort
from kohort.spark import shipping
from kohort.spark.options import OptionError, includes_headers, parse_read_options, parse_write_options
from kohort.spark.schema import check_schema, full_schema


class KohortDataSource(DataSource):
    """Kafka topics as rows: bounded reads, streams that are members of a consumer group, sinks."""

    @classmethod
    def name(cls) -> str:
        return "kohort"

    def __reduce__(self) -> tuple[object, ...]:
        cloudpickle.register_pickle_by_value(shipping)
        return shipping.unpack, (str(Path(kohort.__file__).parents[1]), self.options)

    def schema(self) -> StructType:
        return full_schema(includes_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from kohort.spark.batch import BatchReader, FilteringReader

        options = parse_read_options(self.options, "batch")
        kind = FilteringReader if options.push_filters else BatchReader
        return kind(options, check_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from kohort.spark.stream import RefusingReader, StreamReader

        try:
            return StreamReader(parse_read_options(self.options, "stream"), check_schema(schema))
        except OptionError as error:
            return RefusingReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kohort.spark.sink import BatchWriter, check_columns

        options = parse_write_options(self.options)
        if options.exactly_once:
            raise OptionError(
                "delivery=exactly-once is for streams (writeStream): a job without checkpoint has no restart"
            )
        return BatchWriter(options, check_columns(schema, options, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from kohort.spark.sink import ExactlyOnceWriter, StreamWriter, check_columns, check_delivery, roll_forward

        options = parse_write_options(self.options)
        check_delivery(options)
        columns = check_columns(schema, options, overwrite)
        roll_forward(options)
        return (ExactlyOnceWriter if options.exactly_once else StreamWriter)(options, columns)
