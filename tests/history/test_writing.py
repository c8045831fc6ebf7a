"""Rows to files, a file a day, whatever the order of their times; without Spark."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kohort.history import writing

DAY_US = writing.DAY_MS * 1000


def rows(days):
    """Rows of log_ends: a day each, and their number as the end."""
    columns = {
        "time": pa.array(np.array(days, np.int64) * DAY_US + 1).view(writing._TIME),
        "topic": pa.array(["orders"] * len(days)),
        "partition": pa.array([0] * len(days), pa.int32()),
        "end_offset": pa.array(range(len(days)), pa.int64()),
    }
    schema = writing.SCHEMAS["log_ends"]
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


@pytest.mark.parametrize(
    "days",
    [[5], [5, 5, 5], [1, 1, 2, 3], list(range(40)), [3, 1, 2, 1, 3], [2, 1] * 20, [7] * 5 + [6], list(range(30)) * 3],
)
def test_a_file_a_day_with_its_rows_in_their_order(tmp_path, days):
    writer = writing.Writer(tmp_path, "r1")
    writer.add("log_ends", rows(days))
    written = writer.close()
    assert written.rows == {"log_ends": len(days)} and len(written.files) == len(set(days))
    found = {}
    for file in tmp_path.rglob(".*.parquet"):
        day = int(np.datetime64(file.parent.name.removeprefix("day=")).astype("datetime64[D]").astype(int))
        found[day] = pq.ParquetFile(file).read()["end_offset"].to_pylist()
    assert found == {day: [i for i, one in enumerate(days) if one == day] for day in set(days)}
