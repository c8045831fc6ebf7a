"""What the broker must remember besides its logs: topics and their configs, its own configs, ids given out.

One small document, replaced as a whole and atomically (write aside, sync, rename): a crash leaves the old or the new.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Protocol

from kohort.storage.checkpoints import write_atomically

FILE_NAME = "kohort.state.json"
FORMAT = 1


class State(Protocol):
    """Where the document lives. The simulator and memory brokers keep it in memory."""

    def load(self) -> dict[str, Any] | None: ...

    def save(self, document: dict[str, Any]) -> None: ...


class MemoryState:
    """Keeps the document as text, so that nothing is shared by accident with the broker that saved it."""

    def __init__(self) -> None:
        self._text: str | None = None

    def load(self) -> dict[str, Any] | None:
        return None if self._text is None else json.loads(self._text)

    def save(self, document: dict[str, Any]) -> None:
        self._text = json.dumps(document)


class FileState:
    def __init__(self, data_dir: Path) -> None:
        self.path = Path(data_dir) / FILE_NAME

    def load(self) -> dict[str, Any] | None:
        try:
            document = json.loads(self.path.read_text())
        except FileNotFoundError:
            return None
        except ValueError:
            raise ValueError(f"{self.path} is damaged: restore it from a copy, or move the directory away") from None
        if document.get("format") != FORMAT:
            raise ValueError(f"{self.path} has format {document.get('format')}; this version reads format {FORMAT}")
        return document

    def save(self, document: dict[str, Any]) -> None:
        write_atomically(self.path, json.dumps(document | {"format": FORMAT}, indent=1).encode(), sync=True)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
