"""The C kernel (_*.c) through ctypes: loading, its structs, its errors. No numpy and no pyarrow in here.

`load()` gives None where the library was not built; the caller then takes the pure Python or numpy path, which gives
the same output.
"""

import ctypes
import os.path
from collections.abc import Callable
from ctypes import POINTER, Structure, c_char_p, c_int64, c_void_p
from functools import cache
from typing import Any

from kohort.records.compression import Buffer
from kohort.records.errors import CorruptBatch, RecordsError, UnsupportedMagic

ABI_VERSION = 1
MAX_SOURCE = 2**31 - 1

_MESSAGES = {
    -1: "a batch length is less than its header needs",
    -3: "no record batch has this magic",
    -4: "a batch cannot start at this offset",
    -5: "a batch fails its checksum",
    -6: "a batch has a record count that its bytes cannot hold",
    -7: "a record does not parse",
    -8: "bytes follow the last record of a batch",
    -9: "a batch has more records or bytes than it says",
    -10: "the records of a batch do not count their offsets from 0",
}


def _fields(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class Batch(Structure):
    """A batch found by `scan`; data_pos and data_len say where its records are, once decompressed."""

    _fields_ = _fields(
        c_int64,
        "pos size data_pos data_len count attributes base_offset last_offset base_timestamp max_timestamp producer_id",
    )


class Scan(Structure):
    _fields_ = _fields(c_int64, "next_pos rows bytes attributes done")


class Index(Structure):
    """Where the fields of every record are, and the sums that say how large the columns will be."""

    _fields_ = _fields(
        c_int64,
        "capacity rows key_nulls key_bytes value_nulls value_bytes "
        "header_rows headers header_key_bytes header_value_bytes header_value_nulls",
    ) + _fields(
        c_void_p, "offset timestamp timestamp_type key_start key_end value_start value_end header_start header_count"
    )


class Walk(Structure):
    """One produced batch and the rules for its records; how many break them, and which."""

    _fields_ = _fields(
        c_int64,
        "count base_timestamp append_time earliest latest keys_needed inner_codec max_timestamp faults capacity",
    ) + _fields(c_void_p, "fault")


class Headers(Structure):
    """An Arrow list<struct<key, value>> being filled."""

    _fields_ = _fields(c_int64, "rows headers key_bytes value_bytes row header key_pos value_pos") + _fields(
        c_void_p, "list_offset list_valid key_offset key_data value_offset value_data value_valid"
    )


class Field(Structure):
    """An Arrow binary column; no offsets: every row is null."""

    _fields_ = [*_fields(c_void_p, "data offset valid"), ("bit", c_int64)]


class Columns(Structure):
    """Rows to be encoded."""

    _fields_ = [
        ("rows", c_int64),
        *_fields(Field, "key value"),
        *_fields(c_void_p, "timestamp partition header_start"),
        *_fields(Field, "header_key header_value"),
    ]


INDEX_COLUMNS = {
    name: "q" if name in ("offset", "timestamp") else "i" for name, kind in Index._fields_ if kind is c_void_p
}


def _typed(function: Any, *arguments: Any) -> Callable[..., int]:
    function.argtypes, function.restype = list(arguments), c_int64
    made: Callable[..., int] = function
    return made


class Kernel:
    """The functions of the loaded library."""

    init: Callable[..., int]
    has_hardware_crc: Callable[..., int]
    crc32c: Callable[..., int]
    scan: Callable[..., int]
    index: Callable[..., int]
    gather: Callable[..., int]
    gather_headers: Callable[..., int]
    walk: Callable[..., int] | None = None
    """None in a library that was built before there was one."""
    sound: Callable[..., int] | None = None
    """The same; its first argument is of type bytes, and it keeps the interpreter's lock: for what is small."""
    encode: Callable[..., int] | None = None
    partition: Callable[..., int]
    digest: Callable[..., int]
    """All three or none."""
    partition_of: Callable[..., int] | None = None
    """Of one key, of type bytes; it keeps the interpreter's lock."""

    def __init__(self, path: str, *, allow_hardware_crc: bool = True) -> None:
        library = ctypes.CDLL(path)
        int64, pointer = c_int64, c_void_p
        signatures: dict[str, list[Any]] = {
            "init": [int64],
            "has_hardware_crc": [],
            "crc32c": [pointer, int64],
            "scan": [pointer, int64, int64, int64, int64, int64, int64, int64, POINTER(Batch), int64, POINTER(Scan)],
            "index": [pointer, int64, pointer, int64, int64, int64, POINTER(Index)],
            "gather": [pointer, int64, pointer, pointer, int64, int64, pointer, pointer, int64, int64, pointer],
            "gather_headers": [pointer, int64, pointer, pointer, int64, POINTER(Headers)],
        }
        for name, argument_types in signatures.items():
            setattr(self, name, _typed(getattr(library, f"kohort_{name}"), *argument_types))
        if hasattr(library, "kohort_walk"):
            self.walk = _typed(library.kohort_walk, pointer, int64, POINTER(Walk))
        if hasattr(library, "kohort_digest"):
            columns = POINTER(Columns)
            self.partition, self.digest, self.encode = (
                _typed(library.kohort_partition, columns, int64, pointer),
                _typed(library.kohort_digest, columns, int64),
                _typed(library.kohort_encode, columns, pointer, int64, int64, int64, pointer, int64),
            )
        if hasattr(library, "kohort_partition_of"):
            self.partition_of = _typed(ctypes.PyDLL(str(path)).kohort_partition_of, c_char_p, int64, int64)
        if hasattr(library, "kohort_sound"):
            self.sound = _typed(ctypes.PyDLL(str(path)).kohort_sound, c_char_p, int64, int64, int64, int64, int64)
        if self.init(allow_hardware_crc) != ABI_VERSION:
            raise OSError(f"{path} is of another version")


class _PyBuffer(Structure):
    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", c_char_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


def _python_function(name: str, result: type | None, *arguments: type) -> Any:
    """Of the interpreter itself; None where it has no such thing, and `load` no kernel."""
    python = getattr(ctypes, "pythonapi", None)
    return None if python is None else ctypes.PYFUNCTYPE(result, *arguments)((name, python))


_get_buffer = _python_function("PyObject_GetBuffer", ctypes.c_int, ctypes.py_object, POINTER(_PyBuffer), ctypes.c_int)
_release_buffer = _python_function("PyBuffer_Release", None, POINTER(_PyBuffer))


class pinned:
    """The address of a contiguous buffer, read-only ones too, held in place for the duration."""

    __slots__ = ("_buf", "_view")

    def __init__(self, buf: Buffer) -> None:
        self._buf = buf
        self._view = _PyBuffer()

    def __enter__(self) -> int:
        _get_buffer(self._buf, self._view, 0)
        return self._view.buf or 0

    def __exit__(self, *exc: object) -> None:
        _release_buffer(self._view)


def error(code: int) -> RecordsError:
    """The exception for a negative result."""
    if code == -2:
        return UnsupportedMagic("message formats 0 and 1 are not supported: use a client of Kafka 0.11 or newer")
    return CorruptBatch(_MESSAGES.get(code, f"the decoder fails with {code}"))


@cache
def load() -> Kernel | None:
    """The kernel, if it was built and loads here."""
    path = os.path.join(os.path.dirname(__file__), "_decode.so")
    try:
        return Kernel(path) if os.path.exists(path) and hasattr(ctypes, "pythonapi") else None
    except (OSError, AttributeError):
        return None
