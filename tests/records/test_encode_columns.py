"""Columns to records: the C kernel, the Python path and the encoder of single records agree, on random rows too."""

import random

import numpy as np
import pyarrow as pa
import pytest

from kohort.client.partitioner import partition_for_key
from kohort.records.batch import Record, build_batch, check_crc, read_header, read_records
from kohort.records.columns import HEADERS_TYPE
from kohort.records.compression import Compression
from kohort.records.encode_columns import MOST_ROWS, Rows, pieces

NOW = 1_700_000_000_000
NAMES = ("key", "value", "headers", "timestamp", "partition")
TYPES = {
    "key": pa.binary(), "value": pa.binary(), "headers": HEADERS_TYPE, "timestamp": pa.timestamp("ms"),
    "partition": pa.int32(),
}  # fmt: skip


def batch_of(rows, types=TYPES):
    """rows: (key, value, headers, timestamp, partition)"""
    columns = list(zip(*rows, strict=True)) or [()] * len(NAMES)
    return pa.record_batch({n: pa.array(list(c), types[n]) for n, c in zip(NAMES, columns, strict=True)})


def record(place, row):
    key, value, headers, timestamp, _ = row
    pairs = tuple((h["key"], h["value"]) for h in headers or ())
    return Record(place, NOW if timestamp is None else timestamp, key, value, pairs)


def random_rows(chance):
    def some(make, share=0.2):
        return None if chance.random() < share else make()

    def content():
        return chance.randbytes(chance.choice([0, 1, 7, 63, 64, 150, 9000] if chance.random() < 0.1 else [0, 3, 20]))

    def headers():
        names = ["", "h", "ü" * 40]
        return [{"key": chance.choice(names), "value": some(content)} for _ in range(chance.randrange(4))]

    return [
        (
            some(content),
            some(content),
            some(headers, 0.5),
            some(lambda: chance.choice([0, NOW, NOW + chance.randrange(10**6), 2**62])),
            some(lambda: chance.randrange(10), 0.7),
        )
        for _ in range(chance.randrange(1, 200))
    ]


@pytest.mark.parametrize("seed", range(20))
def test_the_kernel_the_fallback_and_single_records_agree(seed):
    chance = random.Random(seed)
    rows = random_rows(chance)
    first = chance.randrange(len(rows))  # a slice begins anywhere in the bytes of a bitmap
    order = list(range(first, len(rows)))
    chance.shuffle(order)
    made = Rows(batch_of(rows).slice(first), NOW)
    places = np.array(order) - first
    encoded = made.encode(places)
    plain = made.encode(places, use_kernel=False)
    assert bytes(encoded.body) == bytes(plain.body)
    assert encoded[:4] == plain[:4]
    expected = [record(place, rows[row]) for place, row in enumerate(order)]
    assert encoded.framed(7, 2, 40, True) == build_batch(
        expected, producer_id=7, producer_epoch=2, base_sequence=40, transactional=True
    )
    assert encoded.records() == expected
    assert len(encoded.body) <= int(made.sizes[places].sum()) + 15 * len(places)
    assert made.digest("t") == made.digest("t", use_kernel=False)
    found = made.partitions(5, partition_for_key)
    assert found.tolist() == made.partitions(5, partition_for_key, use_kernel=False).tolist()
    for number, (key, _, _, _, partition) in zip(found.tolist(), rows[first:], strict=True):
        assert number == (partition if partition is not None else -1 if key is None else partition_for_key(key, 5))


@pytest.mark.parametrize("codec", Compression)
def test_a_compressed_batch_is_read_as_it_was(codec):
    rows = [(b"k%d" % n, b"v" * n, None, None, None) for n in range(200)]
    encoded = Rows(batch_of(rows), NOW).encode(np.arange(200)).compressed(codec)
    data = encoded.framed(-1, -1, -1, False)
    head = read_header(data)
    assert check_crc(data, 0, head) and head.compression == codec
    assert read_records(data, 0, head) == encoded.records() == [record(n, row) for n, row in enumerate(rows)]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.large_binary(), pa.binary(3), pa.dictionary(pa.int8(), pa.string()),
     pa.string_view(), pa.binary_view()],
)  # fmt: skip
def test_every_kind_of_bytes_and_text(kind):
    values = ["abc", None, "xyz", "abc"]
    array = pa.array(values, pa.string())
    array = array.dictionary_encode() if pa.types.is_dictionary(kind) else array.cast(pa.binary()).cast(kind)
    batch = pa.record_batch({"key": array, "value": array}).slice(1)
    found = [(r.key, r.value) for r in Rows(batch, NOW).encode(np.arange(3)).records()]
    assert found == [(None, None), (b"xyz", b"xyz"), (b"abc", b"abc")]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_milliseconds_whatever_they_were(unit):
    array = pa.array([NOW, None], pa.timestamp("ms")).cast(pa.timestamp(unit, "UTC"))
    rows = Rows(pa.record_batch({"value": pa.array([b"a", b"b"]), "timestamp": array}), 5)
    assert [r.timestamp for r in rows.encode(np.arange(2)).records()] == [NOW, 5]
    milliseconds = pa.record_batch({"value": pa.array([b"a"]), "timestamp": pa.array([17], pa.int64())})
    assert Rows(milliseconds, 5).timestamp.tolist() == [17]


def test_columns_that_are_all_null_or_not_there():
    rows = Rows(pa.record_batch({"value": pa.nulls(2), "partition": pa.nulls(2), "timestamp": pa.nulls(2)}), NOW)
    assert rows.encode(np.arange(2)).records() == [Record(n, NOW, None, None, ()) for n in range(2)]


@pytest.mark.parametrize(
    ("column", "array", "says"),
    [
        ("key", pa.array([1]), "column key must be binary or string, not int64: cast it"),
        ("headers", pa.array(["a"]), "column headers must be list<struct<key: string, value: binary>>, not string"),
        ("timestamp", pa.array(["now"]), "column timestamp must be a timestamp, or milliseconds as int64, not string"),
        ("partition", pa.array([1.5]), "column partition must be int32, not double: cast it"),
    ],
)
def test_a_column_of_the_wrong_type_says_what_to_do(column, array, says):
    with pytest.raises(TypeError) as caught:
        Rows(pa.record_batch({column: array}), NOW)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("column", "array", "says"),
    [
        ("headers", pa.array([[], [None]], HEADERS_TYPE), "row 1 has a null header"),
        ("headers", pa.array([None, [{"key": None, "value": b""}]], HEADERS_TYPE), "row 1 has a null header"),
        ("timestamp", pa.array([5, -5]), "row 1 has the timestamp -5, which is before 1970"),
        ("partition", pa.array([None, -1], pa.int32()), "row 1 names partition -1"),
        ("partition", pa.array([0, 2**31]), "row 1 names partition 2147483648"),
    ],
)
def test_a_row_that_cannot_be_a_record_is_named(column, array, says):
    with pytest.raises(ValueError, match=says):
        Rows(pa.record_batch({column: array}), NOW)


def test_header_keys_that_are_no_text_are_refused():
    kind = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    array = pa.array([[{"key": b"\xff", "value": b""}]], kind)
    with pytest.raises(ValueError, match="UTF-8"):
        Rows(pa.record_batch({"headers": array}), NOW)


def test_offsets_that_lead_outside_are_refused():
    offsets = pa.py_buffer(np.array([0, 5_000_000, 5], np.int32))
    broken = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"short")])
    with pytest.raises(pa.ArrowInvalid):
        Rows(pa.record_batch({"value": broken}), NOW)


def test_a_digest_is_a_sum_over_rows_whatever_their_order_and_time():
    rows = [(b"k%d" % n, b"v%d" % n, [{"key": "h", "value": None}], n, n % 3) for n in range(20)]
    whole = Rows(batch_of(rows), NOW).digest("t")
    parts = [Rows(batch_of(part), NOW).digest("t") for part in (rows[13:], rows[:13])]
    assert sum(parts) & (2**63 - 1) == whole
    assert Rows(batch_of([(*row[:3], 99, row[4]) for row in rows]), NOW).digest("t") == whole
    assert Rows(batch_of(rows), NOW).digest("u") != whole
    assert Rows(batch_of([(row[1], row[0], *row[2:]) for row in rows]), NOW).digest("t") != whole


def test_a_table_is_cut_into_pieces_and_small_ones_are_put_together():
    small = pa.table({"value": pa.chunked_array([pa.array([str(n)]) for n in range(50)])})
    (piece,) = pieces(small)
    assert piece.column("value").to_pylist() == [str(n) for n in range(50)]
    large = pa.table({"value": pa.array(range(MOST_ROWS + 5)).cast(pa.string())})
    assert [piece.num_rows for piece in pieces(large)] == [MOST_ROWS, 5]
    assert list(pieces(small.slice(0, 0))) == []
