"""A directory that keeps tables, growing by rounds: what is committed, what is not, and who may write. Files alone.

    DIR/commits/day=2026-11-16/r00000003-...parquet      what readers see; names with a leading dot are hidden from them
    DIR/_rounds/00000003.json                            a round that is committed: how far it read, and its files

A round's files are written hidden, its manifest is put in place with one rename, and then the files are shown. A writer
that dies in between leaves hidden files: of a committed round they are shown at the next start, others are removed.
So whatever is killed and repeated, a record is in the tables once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROUNDS, LOCK = "_rounds", "_lock"
TABLES = ("commits", "generations", "group_records", "group_events", "quarantine", "log_ends")


class NotAHistory(Exception):
    """The directory cannot be used, and why."""


@dataclass(frozen=True, slots=True)
class Round:
    """`ends` and `ids` are by topic: how far each partition was read, and the id of the topic that was."""

    number: int
    ended_ms: int
    ends: dict[str, dict[str, int]]
    ids: dict[str, str]
    rows: dict[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()  # relative to the directory, as readers see them
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Round:
        try:
            plain: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return cls(**plain | {name: tuple(plain.get(name, ())) for name in ("files", "notes")})
        except (ValueError, TypeError, AttributeError) as error:
            raise NotAHistory(f"{path} is damaged ({error}): move the directory away and ingest anew") from error


def hidden(shown: Path) -> Path:
    return shown.with_name(f".{shown.name}")


class Kept:
    """The directory, for its one writer."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._rounds = directory / ROUNDS

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        try:
            self._rounds.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NotAHistory(f"{self.directory} cannot be written to: {error.strerror}") from error
        with (self.directory / LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise NotAHistory(f"another process is writing to {self.directory}") from None
            yield

    def last(self) -> Round | None:
        numbers = sorted(path for path in self._rounds.glob("*.json") if path.stem.isdigit())
        return Round.read(numbers[-1]) if numbers else None

    def recover(self) -> Round | None:
        """Shows what is committed, removes what is not; the last round."""
        last = self.last()
        if last is not None:
            self._show(last)
        for table in TABLES:
            for left in (self.directory / table).glob("day=*/.r*"):
                left.unlink()
        for left in self._rounds.glob(".*"):
            left.unlink()
        return last

    def commit(self, done: Round) -> None:
        path = self._rounds / f"{done.number:08d}.json"
        draft = hidden(path)
        with draft.open("w", encoding="utf-8") as file:
            json.dump(asdict(done), file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        _sync(self._rounds)
        self._show(done)

    def _show(self, done: Round) -> None:
        for name in done.files:
            shown = self.directory / name
            if hidden(shown).exists():
                hidden(shown).rename(shown)
            elif not shown.exists():
                raise NotAHistory(f"{shown} of round {done.number} is gone: move the directory away and ingest anew")


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def rounds(directory: Path) -> list[Round]:
    """For readers: the rounds that are committed, oldest first."""
    found = sorted(path for path in (directory / ROUNDS).glob("*.json") if path.stem.isdigit())
    if not found:
        raise NotAHistory(f"{directory} holds no history: kohort history ingest --to {directory} makes one")
    return [Round.read(path) for path in found]
