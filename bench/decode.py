"""How fast record batches become Arrow columns and Python records, on one core, checksums included.

python bench/decode.py [--rows N] [--value-bytes N] [--batch-rows N] [--rounds N]
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

from kafka.record import MemoryRecords
from rich.console import Console
from rich.table import Table

from kohort.records import kernel
from kohort.records.batch import Compression, Record, build_batch, check_crc, iter_batches, read_records
from kohort.records.columns import DEFAULT_COLUMNS, decode_batches
from kohort.records.fetch import decode_lists, decode_records

NOW_MS = 1_700_000_000_000
CODECS = (Compression.NONE, Compression.LZ4, Compression.ZSTD)
KAFKA_PYTHON = "kafka-python's decoder"
PYTHON_ROWS = 9_000  # a fetch of 1 MB, what a consumer gets per partition by default


def fetch_of(rows: int, value_bytes: int, batch_rows: int, compression: Compression) -> bytes:
    """Half-compressible values, no keys, timestamps that advance: a busy topic of small events."""
    parts = []
    for base in range(0, rows, batch_rows):
        records = []
        for n in range(base, min(base + batch_rows, rows)):
            noise = b"%016x" % (n * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
            value = (noise * (value_bytes // 32 + 1))[: value_bytes // 2] + b"x" * (value_bytes - value_bytes // 2)
            records.append(Record(n, NOW_MS + n // 10, None, value))
        parts.append(build_batch(records, base_offset=base, compression=compression))
    return b"".join(parts)


def cpu_seconds(decode: Callable[[bytes], int], fetch: bytes, rows: int) -> float:
    start = time.process_time()
    assert decode(fetch) == rows
    return time.process_time() - start


def arrow(fetch: bytes, columns: tuple[str, ...], use_kernel: bool) -> int:
    batches = decode_batches(fetch, topic="events", partition=1, columns=columns, use_kernel=use_kernel)
    return sum(batch.num_rows for batch in batches)


def python_loop(fetch: bytes) -> int:
    count = 0
    for pos, header in iter_batches(fetch):
        assert check_crc(fetch, pos, header)
        count += len(read_records(fetch, pos, header))
    return count


def kafka_python(fetch: bytes) -> int:
    count, records = 0, MemoryRecords(fetch)
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        count += sum(1 for _ in batch)
    return count


DECODERS: dict[str, Callable[[bytes], int]] = {
    "Arrow, C kernel": lambda fetch: arrow(fetch, DEFAULT_COLUMNS, True),
    "Arrow, C kernel, value only": lambda fetch: arrow(fetch, ("value",), True),
    "Arrow, numpy fallback": lambda fetch: arrow(fetch, DEFAULT_COLUMNS, False),
    "Arrow, numpy fallback, value only": lambda fetch: arrow(fetch, ("value",), False),
    "Python lists, C kernel": lambda fetch: len(decode_lists(fetch).offsets),
    "Python records, C kernel": lambda fetch: len(decode_records(fetch)),
    "Python records, no kernel": python_loop,
    KAFKA_PYTHON: kafka_python,
}


def measure(options: argparse.Namespace) -> dict[tuple[str, Compression], list[float]]:
    """Million rows per CPU second of every round. Decoders take turns, so that a busy moment hits all of them."""
    fetches = {
        (rows, codec): fetch_of(rows, options.value_bytes, options.batch_rows, codec)
        for rows in {options.rows, min(options.rows, PYTHON_ROWS)}
        for codec in CODECS
    }
    rates: dict[tuple[str, Compression], list[float]] = {}
    for _ in range(options.rounds):
        for name, decode in DECODERS.items():
            rows = options.rows if name.startswith("Arrow") else min(options.rows, PYTHON_ROWS)
            for codec in CODECS:
                if name != KAFKA_PYTHON or codec == Compression.NONE:
                    seconds = cpu_seconds(decode, fetches[rows, codec], rows)
                    rates.setdefault((name, codec), []).append(rows / seconds / 1e6)
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--batch-rows", type=int, default=145, help="145 rows of 100 bytes fill a batch of 16 KB")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    built = kernel.load()
    if built is None:
        raise SystemExit("the C kernel is not built: install a C compiler and run pip install -e . again")
    rates = measure(options)
    crc = "hardware" if built.has_hardware_crc() else "software"
    shape = f"{options.value_bytes}-byte values, {options.batch_rows} rows a batch"
    table = Table(
        title=f"million rows per CPU second, {shape}, {crc} CRC-32C",
        caption=f"median (best) of {options.rounds} rounds in turns",
    )
    table.add_column("decoder")
    for codec in CODECS:
        table.add_column("plain" if codec == Compression.NONE else codec.name.lower(), justify="right")
    for name in DECODERS:
        cells = [rates.get((name, codec)) for codec in CODECS]
        table.add_row(name, *(f"{median(cell):.2f} ({max(cell):.2f})" if cell else "-" for cell in cells))
    Console().print(table)


if __name__ == "__main__":
    main()
