"""The records of a produced batch, read once before it is stored: their structure, offsets, timestamps and keys.

In the C kernel, without an object per record and without the interpreter's lock; in Python where it was not built, with
the same outcome. What a batch may look like around its records is in `validate.py`.
"""

import ctypes
from typing import NamedTuple

from kohort.records import kernel
from kohort.records.batch import LOG_APPEND_TIME, BatchHeader
from kohort.records.compression import Buffer
from kohort.records.errors import CorruptBatch
from kohort.records.varint import read_varint, read_varlong

MAX_FAULTS = 1000
NO_KEY, TIMESTAMP, CODEC = range(3)
_MIN_RECORD_SIZE = 7
_MAX_RECORDS = (2**31 - 1) // 4
_LONG = 2**63


class Rules(NamedTuple):
    """What the topic asks of every record."""

    earliest: int = -_LONG
    latest: int = _LONG - 1
    keys_needed: bool = False


class Walked(NamedTuple):
    max_timestamp: int
    faults: int
    """How many records break a rule."""
    listed: list[tuple[int, int]]
    """The first of them: index, and which rule."""


def walk(body: Buffer, header: BatchHeader, rules: Rules) -> Walked:
    """Read the inflated records; CorruptBatch where they are not what the header says."""
    loaded = kernel.load()
    if loaded is None or loaded.walk is None:
        return _walk_python(body, header, rules)
    state = _state(header, rules)
    with kernel.pinned(body) as address:
        result = loaded.walk(address, len(body), ctypes.byref(state))
        if result < 0:
            raise kernel.error(result)
        if not state.faults:
            return Walked(state.max_timestamp, 0, [])
        listed = (ctypes.c_int32 * min(state.faults, MAX_FAULTS))()
        again = _state(header, rules)
        again.capacity, again.fault = len(listed), ctypes.addressof(listed)
        loaded.walk(address, len(body), ctypes.byref(again))
    return Walked(state.max_timestamp, state.faults, [divmod(code, 4) for code in listed])


def _state(header: BatchHeader, rules: Rules) -> kernel.Walk:
    """By position, as that takes half the time."""
    earliest, latest, keys_needed = rules
    return kernel.Walk(
        header.record_count,
        header.base_timestamp,
        header.timestamp_type == LOG_APPEND_TIME,
        _long(earliest),
        _long(latest),
        keys_needed,
        header.compression != 0,
        header.max_timestamp,
    )


def _long(value: int) -> int:
    return max(-_LONG, min(value, _LONG - 1))


def _walk_python(body: Buffer, header: BatchHeader, rules: Rules) -> Walked:
    count, total = header.record_count, len(body)
    if not 0 <= count <= min(total // _MIN_RECORD_SIZE, _MAX_RECORDS):
        raise kernel.error(-6)
    data = bytes(body)
    listed: list[tuple[int, int]] = []
    latest, faults, pos = -1, 0, 0
    try:
        for index in range(count):
            pos, timestamp, has_key, codec = _record(data, pos, total, index, header)
            latest = max(latest, timestamp)
            fault = _fault(rules, header, timestamp, has_key, codec)
            if fault is not None:
                faults += 1
                if len(listed) < MAX_FAULTS:
                    listed.append((index, fault))
    except IndexError:
        raise kernel.error(-7) from None
    if pos != total:
        raise kernel.error(-8)
    return Walked(latest, faults, listed)


def _fault(rules: Rules, header: BatchHeader, timestamp: int, has_key: bool, codec: int) -> int | None:
    if header.compression and codec:
        return CODEC
    if rules.keys_needed and not has_key:
        return NO_KEY
    if timestamp != -1 and not rules.earliest <= timestamp <= rules.latest:
        return TIMESTAMP
    return None


def _record(data: bytes, pos: int, total: int, index: int, header: BatchHeader) -> tuple[int, int, bool, int]:
    """Where the next record begins; the timestamp, whether it has a key, and the codec it claims."""
    size, pos = read_varint(data, pos)
    end = pos + size
    if size < 1 or end > total:
        raise kernel.error(-7)
    codec = data[pos] & 7
    timestamp, pos = read_varlong(data, pos + 1)
    delta, pos = read_varint(data, pos)
    pos, key = _skip(data, pos, end)
    pos, _ = _skip(data, pos, end)
    headers, pos = read_varint(data, pos)
    if not 0 <= headers <= end - pos:
        raise kernel.error(-7)
    for _ in range(headers):
        pos, name = _skip(data, pos, end)
        if name < 0:
            raise kernel.error(-7)
        pos, _ = _skip(data, pos, end)
    if pos != end:
        raise kernel.error(-7)
    if delta != index:
        raise kernel.error(-10)
    if header.timestamp_type == LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    else:
        timestamp = (header.base_timestamp + timestamp + _LONG) % (2 * _LONG) - _LONG
    return pos, timestamp, key >= 0, codec


def _skip(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Past a length and its bytes; the length is negative for null."""
    length, pos = read_varint(data, pos)
    if length > end - pos:
        raise CorruptBatch("a field does not fit the bytes left in its record")
    return pos + max(length, 0), length
