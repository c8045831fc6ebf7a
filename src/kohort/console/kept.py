"""A kept history as a source: the tables of `kohort history ingest`, read with Arrow, round by round as they come.

Of commits only the last of every minute and partition is taken, with their count: tens of millions fit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kohort.console.feeding import Feeder
from kohort.console.source import Source
from kohort.coordinator.event_json import UnknownEvent, from_dict
from kohort.history.kept import NotAHistory, rounds
from kohort.history.kinds import CONSUMER
from kohort.history.stories import stored_generation
from kohort.insight.group_past import GroupPast

LOOK_EVERY_S = 5.0
TO_THE_MINUTE = "minute"


@dataclass(slots=True)
class KeptSource(Source):
    """`now_ms` is when the history ends: verdicts are those of that moment."""

    directory: Path = field(default_factory=Path)
    look_every_s: float = LOOK_EVERY_S
    _feeder: Feeder = field(init=False)
    _done: int = -1
    _last_ms: int = 0
    _names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.what = str(self.directory)
        self._feeder = Feeder(self.ledger)
        self.progress = 0.0

    def now_ms(self) -> int:
        return self._last_ms or Source.now_ms(self)

    async def run(self) -> None:
        while True:
            try:
                await self._news()
                self.notices.pop("history", None)
            except (NotAHistory, OSError, ValueError) as error:
                self.notice("history", "problem", f"{error}.", "What is shown is what could be read.")
            self.progress = None
            await asyncio.sleep(self.look_every_s)

    async def _news(self) -> None:
        new = [one for one in rounds(self.directory) if one.number > self._done]
        if not new:
            return
        files = [name for one in new for name in one.files]
        found = await asyncio.to_thread(_read, self.directory, files)
        for note in (note for one in new for note in one.notes):
            self.notice(f"note {note}", "note", note)
        self._done = new[-1].number
        self._last_ms = max(self._last_ms, new[-1].ended_ms)
        await self._feed(found)

    async def _feed(self, found: Found) -> None:
        for at_ms, ends in found.ends:
            self.ledger.grew(at_ms, ends)
        for number, feed in enumerate(_merged(self, found)):
            feed()
            if not number % 500:
                await asyncio.sleep(0)
        self.ledger.measure(self.now_ms())
        self.cluster = {"skipped_records": self._feeder.skipped + found.quarantined}

    # each of these is one row of a table

    def event(self, row: dict[str, Any]) -> None:
        event = from_dict(row)
        if isinstance(event, UnknownEvent) or not event.group_id:
            self._feeder.skipped += 1
        else:
            self.ledger.event(event)

    def generation(self, row: dict[str, Any]) -> None:
        if row["tombstone"]:
            self.ledger.group(row["group_id"]).gone(row["at_ms"])
        else:
            self.ledger.generation(row["group_id"], stored_generation(row), row["last_commit_ms"])

    def commit(self, row: dict[str, Any]) -> None:
        if row["offset"] is not None:
            partition = (row["topic"], row["partition"])
            self.ledger.commit(row["group_id"], partition, row["offset"], row["at_ms"], row["count"])
            self._lag_then(self.ledger.groups[row["group_id"]], row["at_ms"])

    def _lag_then(self, past: GroupPast, at_ms: int) -> None:
        ends = {p: self.ledger.ends[p].at(at_ms) for p in past.commits if p in self.ledger.ends}
        lag = past.total_lag({p: end for p, end in ends.items() if end is not None})
        if lag is not None:
            past.series.lag(at_ms, lag)

    def modern(self, row: dict[str, Any]) -> None:
        if row["family"] == CONSUMER and row["group_id"]:
            self._feeder.modern(row, row["at_ms"])


@dataclass(slots=True)
class Found:
    """What new files hold; rows have `at_ms`."""

    ends: list[tuple[int, list[tuple[tuple[str, int], int]]]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    generations: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    commits: list[dict[str, Any]] = field(default_factory=list)
    quarantined: int = 0


def _merged(source: KeptSource, found: Found) -> Iterator[Any]:
    """Everything in the order of time; of one time, in the order of the log."""
    steps: list[tuple[int, int, int, Any, dict[str, Any]]] = []
    for order, (rows, feed) in enumerate(
        (
            (found.commits, source.commit),
            (found.generations, source.generation),
            (found.records, source.modern),
            (found.events, source.event),
        )
    ):
        steps += [(row["at_ms"], order, row.get("record_offset") or 0, feed, row) for row in rows]
    steps.sort(key=lambda step: step[:3])
    for *_, feed, row in steps:
        yield lambda feed=feed, row=row: feed(row)


def _read(directory: Path, files: Iterable[str]) -> Found:
    by_table: dict[str, list[Path]] = {}
    for name in files:
        by_table.setdefault(name.split("/", 1)[0], []).append(directory / name)
    found = Found()
    if "log_ends" in by_table:
        found.ends = _ends(_table(by_table["log_ends"]))
    if "group_events" in by_table:
        found.events = _rows(_table(by_table["group_events"]))
    commits = _table(by_table["commits"], "commits") if "commits" in by_table else None
    if "generations" in by_table:
        found.generations = _with_last_commit(_rows(_table(by_table["generations"])), commits)
    if "group_records" in by_table:
        found.records = _rows(_table(by_table["group_records"]))
    if commits is not None:
        found.commits = _by_minute(commits)
    if "quarantine" in by_table:
        found.quarantined = _table(by_table["quarantine"]).num_rows
    return found


COMMIT_COLUMNS = ["time", "group_id", "topic", "partition", "offset"]


def _table(files: list[Path], table: str = "") -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = COMMIT_COLUMNS if table == "commits" else None
    # Parquet file by file: a folder's name holds the day, which nobody needs here.
    read = [pq.ParquetFile(file).read(columns=columns) for file in files]
    return pa.concat_tables(read)


def _millis(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.divide(pc.cast(pc.cast(column, pa.timestamp("us")), pa.int64()), 1000)


def _rows(table: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.append_column("at_ms", _millis(table["time"])).to_pylist()
    return rows


def _ends(table: Any) -> list[tuple[int, list[tuple[tuple[str, int], int]]]]:
    by_time: dict[int, list[tuple[tuple[str, int], int]]] = {}
    columns = (_millis(table["time"]), table["topic"], table["partition"], table["end_offset"])
    for at_ms, topic, partition, end in zip(*(column.to_pylist() for column in columns), strict=True):
        if end is not None:
            by_time.setdefault(at_ms, []).append(((topic, partition), end))
    return sorted(by_time.items())


def _by_minute(commits: Any) -> list[dict[str, Any]]:
    """The last commit of every minute and partition, and how many there were."""
    import pyarrow.compute as pc

    timed = commits.append_column("at_ms", _millis(commits["time"])).sort_by([("at_ms", "ascending")])
    timed = timed.append_column("minute", pc.floor_temporal(timed["time"], unit=TO_THE_MINUTE))
    keys = ["group_id", "topic", "partition", "minute"]
    wanted = [("offset", "last"), ("at_ms", "last"), ("at_ms", "count")]
    grouped = timed.group_by(keys, use_threads=False).aggregate(wanted)
    names = {"offset_last": "offset", "at_ms_last": "at_ms", "at_ms_count": "count"}
    renamed = grouped.rename_columns([names.get(name, name) for name in grouped.column_names])
    rows: list[dict[str, Any]] = renamed.sort_by([("at_ms", "ascending")]).to_pylist()
    return rows


def _with_last_commit(generations: list[dict[str, Any]], commits: Any) -> list[dict[str, Any]]:
    """When the group had last committed before each of them, exactly."""
    times = {} if commits is None else _times_by_group(commits)
    for row in generations:
        of_group = times.get(row["group_id"])
        place = -1 if of_group is None else int(of_group.searchsorted(row["at_ms"], side="right")) - 1
        row["last_commit_ms"] = int(of_group[place]) if of_group is not None and place >= 0 else None
    return generations


def _times_by_group(commits: Any) -> dict[str, Any]:
    import numpy as np

    coded = commits["group_id"].combine_chunks().dictionary_encode()
    codes = np.asarray(coded.indices)
    at_ms = _millis(commits["time"]).to_numpy()
    order = np.lexsort((at_ms, codes))
    codes, at_ms = codes[order], at_ms[order]
    bounds = np.searchsorted(codes, np.arange(len(coded.dictionary) + 1))
    return {
        name: at_ms[bounds[i] : bounds[i + 1]]
        for i, name in enumerate(coded.dictionary.to_pylist())
        if name is not None
    }
