"""`kohort log dump`: what segment files hold, batch by batch and record by record, for people or as lines of JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kohort.cli.output import plural, print_json_line, printable
from kohort.cli.record_words import shown, told
from kohort.cli.times import clock_time
from kohort.records.batch import NO_TIMESTAMP, BatchHeader, Record
from kohort.records.compression import Compression
from kohort.records.errors import RecordsError
from kohort.storage.dump import DamagedBytes, DumpedBatch, dump, topic_of

_LARGEST_TIME_MS = 253_402_300_799_999


class Dump:
    """Which offsets, and how they are told. `is_sound` until something damaged was met."""

    def __init__(self, first: int, last: int | None, *, records: bool, json: bool, topic: str | None) -> None:
        self._first = first
        self._last = last
        self._records = records
        self._json = json
        self._topic = topic
        self.is_sound = True

    def print(self, segment: Path) -> None:
        topic = self._topic or topic_of(segment)
        if not self._json:
            print(printable(segment))
        for found in dump(segment):
            if isinstance(found, DamagedBytes):
                self._damage(segment, found)
            elif self._last is not None and found.header.base_offset > self._last:
                return
            elif found.header.last_offset >= self._first:
                self._batch(segment, topic, found)

    def _damage(self, segment: Path, found: DamagedBytes) -> None:
        self.is_sound = False
        if self._json:
            print_json_line({"file": str(segment), "damage": found._asdict()})
            return
        goes_on = "nothing readable follows" if found.next_offset is None else f"goes on at offset {found.next_offset}"
        print(f"  byte {found.position}: DAMAGED, {plural(found.size, 'byte')}: {printable(found.reason)}; {goes_on}")

    def _batch(self, segment: Path, topic: str, found: DumpedBatch) -> None:
        header = found.header
        row = {"file": str(segment), "batch": {"position": found.position, **_facts(header)}}
        if not self._json:
            print(f"  byte {found.position}: {_words(header)}")
        elif not self._records:
            print_json_line(row)
        if not self._records:
            return
        rows: list[dict[str, Any]] = []
        try:
            for record in found.records:
                if record.offset < self._first or (self._last is not None and record.offset > self._last):
                    continue
                says = told(topic, record, header.is_control)
                if self._json:
                    rows.append(_record(record, says))
                else:
                    print(f"    {record.offset}  {_time(record.timestamp)}  {says}")
        except RecordsError as error:
            self._damage(segment, DamagedBytes(found.position, header.size, error.message or "", header.next_offset))
        if self._json:
            print_json_line({**row, "records": rows})


def _record(record: Record, says: str) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": shown(record.key) if record.key is not None else None,
        "value": shown(record.value) if record.value is not None else None,
        "says": says,
    }


def _facts(header: BatchHeader) -> dict[str, Any]:
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "bytes": header.size,
        "codec": _codec(header),
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.timestamp_type else "CreateTime",
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "crc": header.crc,
    }


def _words(header: BatchHeader) -> str:
    facts = [
        f"offsets {header.base_offset} to {header.last_offset}",
        plural(header.record_count, "record"),
        plural(header.size, "byte"),
        _codec(header),
        f"{'appended' if header.timestamp_type else 'created'} until {_time(header.max_timestamp)}",
        f"leader epoch {header.partition_leader_epoch}",
    ]
    if header.has_producer_id:
        facts.append(
            f"producer {header.producer_id} epoch {header.producer_epoch} from sequence {header.base_sequence}"
        )
    facts += ["transactional"] * header.is_transactional + ["control"] * header.is_control
    if header.delete_horizon_ms is not None:
        facts.append(f"tombstones may go at {_time(header.delete_horizon_ms)}")
    return ", ".join(facts)


def _codec(header: BatchHeader) -> str:
    try:
        return Compression(header.compression).name.lower()
    except ValueError:
        return f"codec {header.compression}"


def _time(at_ms: int) -> str:
    if at_ms == NO_TIMESTAMP:
        return "no time"
    return clock_time(at_ms) if 0 <= at_ms <= _LARGEST_TIME_MS else f"{at_ms} ms"
