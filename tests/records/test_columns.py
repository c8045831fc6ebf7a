"""A fetch to Arrow: the kernel and the numpy fallback give the same columns, which are those of the records."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.records import kernel
from kohort.records.batch import LOG_APPEND_TIME, Compression, Record, build_batch
from kohort.records.columns import DEFAULT_COLUMNS, SCHEMA, decode_batches, select
from kohort.records.fetch import decode_records
from records.batches import NOW_MS, fetches, plain_records

needs_kernel = pytest.mark.skipif(kernel.load() is None, reason="no compiler was there to build the kernel")
both_paths = pytest.mark.parametrize("use_kernel", [pytest.param(True, marks=needs_kernel), False])


def table(fetch: bytes, *args: int, columns: tuple[str, ...] = tuple(SCHEMA.names), **options: Any) -> pa.Table:
    batches = list(decode_batches(fetch, *args, topic="orders", partition=3, columns=columns, **options))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema=select(columns)).combine_chunks()


def clamped(timestamp_ms: int) -> int:
    limit = (2**63 - 1) // 1000
    return max(-limit, min(limit, timestamp_ms)) * 1000


@both_paths
@given(fetch=fetches(), low=st.integers(0, 30_000), span=st.integers(0, 40_000))
def test_columns_hold_the_records(use_kernel: bool, fetch: bytes, low: int, span: int) -> None:
    records = decode_records(fetch, low, low + span, use_kernel=False)
    got = table(fetch, low, low + span, use_kernel=use_kernel)
    assert got.schema.equals(SCHEMA)
    assert got["offset"].to_pylist() == [record.offset for record in records]
    assert got["key"].to_pylist() == [record.key for record in records]
    assert got["value"].to_pylist() == [record.value for record in records]
    assert got["timestamp"].cast(pa.int64()).to_pylist() == [clamped(record.timestamp) for record in records]
    assert got["topic"].to_pylist() == ["orders"] * len(records)
    assert got["partition"].to_pylist() == [3] * len(records)
    headers = [[{"key": key, "value": value} for key, value in record.headers] or None for record in records]
    assert got["headers"].to_pylist() == headers


@needs_kernel
@given(fetches(), st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True).map(tuple))
def test_kernel_and_fallback_agree_on_any_choice_of_columns(fetch: bytes, columns: tuple[str, ...]) -> None:
    with_kernel = table(fetch, columns=columns)
    assert with_kernel.schema.names == list(columns)
    assert with_kernel.equals(table(fetch, columns=columns, use_kernel=False))


@needs_kernel
@given(fetches(), st.lists(st.tuples(st.sampled_from([7, 8]), st.integers(0, 40_000)), max_size=3))
def test_kernel_and_fallback_agree_on_aborted_transactions(fetch: bytes, aborted: list[tuple[int, int]]) -> None:
    assert table(fetch, aborted=aborted).equals(table(fetch, aborted=aborted, use_kernel=False))


@both_paths
def test_the_schema_is_that_of_sparks_kafka_source(use_kernel: bool) -> None:
    records = [Record(0, NOW_MS, b"k", b"v", (("trace", b"1"), ("none", None))), Record(1, NOW_MS, None, None)]
    [batch] = decode_batches(
        build_batch(records, timestamp_type=LOG_APPEND_TIME), topic="t", columns=SCHEMA.names, use_kernel=use_kernel
    )
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=NOW_MS)
    common = {"topic": "t", "partition": 0, "timestamp": when, "timestampType": 1}
    assert batch.to_pylist() == [
        common
        | {"key": b"k", "value": b"v", "offset": 0}
        | {"headers": [{"key": "trace", "value": b"1"}, {"key": "none", "value": None}]},
        common | {"key": None, "value": None, "offset": 1, "headers": None},
    ]
    assert [str(field.type) for field in batch.schema][:7] == [
        "binary", "binary", "string", "int32", "int64", "timestamp[us, tz=UTC]", "int32",
    ]  # fmt: skip
    assert "headers" not in DEFAULT_COLUMNS


@both_paths
@pytest.mark.parametrize("compression", Compression)
def test_batches_are_cut_to_size(use_kernel: bool, compression: Compression) -> None:
    fetch = b"".join(
        build_batch(plain_records(50, 50 * n), base_offset=50 * n, compression=compression) for n in range(30)
    )
    parts = list(decode_batches(fetch, 7, 1401, max_rows=40, use_kernel=use_kernel))
    assert max(part.num_rows for part in parts) == 40
    assert [offset for part in parts for offset in part["offset"].to_pylist()] == list(range(7, 1401))


@both_paths
def test_header_keys_that_are_no_utf8_are_repaired(use_kernel: bool) -> None:
    batch = bytearray(build_batch([Record(0, 0, b"k", b"v", (("abc", b"1"), ("def", None)))]))
    at = batch.index(b"abc")
    batch[at + 1] = 0xFF
    got = table(bytes(batch), check_crc=False, use_kernel=use_kernel)
    assert got["headers"].to_pylist() == [[{"key": "a\ufffdc", "value": b"1"}, {"key": "def", "value": None}]]


@both_paths
def test_an_empty_fetch_has_no_batches(use_kernel: bool) -> None:
    assert list(decode_batches(b"", use_kernel=use_kernel)) == []
    assert list(decode_batches(build_batch(plain_records(3)), 3, use_kernel=use_kernel)) == []


def test_unknown_columns_are_named() -> None:
    with pytest.raises(ValueError, match="'colour'"):
        next(decode_batches(b"", columns=["value", "colour"]))


def test_a_column_cannot_be_had_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        next(decode_batches(b"", columns=["timestamp", "value", "timestamp"]))


@both_paths
def test_constant_columns_of_any_length(use_kernel: bool) -> None:
    fetch = build_batch(plain_records(70_000, value=b""))
    for max_rows in (1000, 70_000):
        got = pa.Table.from_batches(
            decode_batches(
                fetch, topic="té", partition=9, columns=("topic", "partition"), max_rows=max_rows, use_kernel=use_kernel
            )
        )
        assert got.num_rows == 70_000
        assert got["topic"].unique().to_pylist() == ["té"]
        assert got["partition"].unique().to_pylist() == [9]
