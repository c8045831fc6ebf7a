"""Generated batches and fetches for the tests of kohort.records."""

from hypothesis import strategies as st

from kohort.records.batch import CREATE_TIME, LOG_APPEND_TIME, Compression, Record, build_batch
from kohort.records.control import ControlType, build_marker

NOW_MS = 1_700_000_000_000

maybe_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3).map(tuple)
sane_timestamps = st.integers(0, 2**41)
any_timestamps = sane_timestamps | st.sampled_from([-1, 0, 2**62, 2**63 - 1])


@st.composite
def record_lists(
    draw: st.DrawFn, base_offset: int = 0, timestamps: st.SearchStrategy[int] = any_timestamps
) -> list[Record]:
    gaps = draw(st.lists(st.integers(1, 300), min_size=1, max_size=8))
    records, offset = [], base_offset - 1 + draw(st.integers(0, 1))
    for gap in gaps:
        offset += gap
        records.append(
            Record(offset, draw(timestamps), draw(maybe_bytes), draw(maybe_bytes), draw(st.just(()) | headers))
        )
    return records


@st.composite
def batches(draw: st.DrawFn, base_offset: int = 0) -> bytes:
    """Data mostly, sometimes the marker that ends a transaction."""
    if draw(st.sampled_from([False, False, False, True])):
        return build_marker(
            draw(st.sampled_from([ControlType.ABORT, ControlType.COMMIT])),
            timestamp=NOW_MS,
            producer_id=draw(st.sampled_from([7, 8])),
            producer_epoch=0,
            coordinator_epoch=0,
            base_offset=base_offset,
        )
    return build_batch(
        draw(record_lists(base_offset)),
        base_offset=base_offset,
        compression=draw(st.sampled_from(Compression)),
        timestamp_type=draw(st.sampled_from([CREATE_TIME, LOG_APPEND_TIME])),
        producer_id=draw(st.sampled_from([-1, 7, 8])),
        transactional=draw(st.booleans()),
    )


@st.composite
def fetches(draw: st.DrawFn, max_batches: int = 4) -> bytes:
    count = draw(st.integers(0, max_batches))
    return b"".join(draw(batches(10_000 * number)) for number in range(count))


def plain_records(count: int, base_offset: int = 0, value: bytes = b"v" * 100) -> list[Record]:
    return [Record(base_offset + n, NOW_MS + n, b"k%d" % n, value) for n in range(count)]
