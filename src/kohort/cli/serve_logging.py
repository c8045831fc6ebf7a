"""How `kohort serve` logs: text or JSON lines on standard error; warnings that come too often are counted instead."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

LINES_A_WINDOW = 20
WINDOW_S = 10.0
_MOST_KINDS = 1000


class JsonFormatter(logging.Formatter):
    """One JSON object a line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        event = getattr(record, "event", None)
        if event is not None:
            line["event"] = event.to_dict()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _Kind:
    """Lines of one kind, whatever they are about, since a window began."""

    __slots__ = ("began", "count", "example")

    def __init__(self, began: float, example: logging.LogRecord) -> None:
        self.began = began
        self.count = 0
        self.example = example


class Flood(logging.Filter):
    """Lets the first lines of a kind through, then says how many more there were: a disk that is full, or a client
    that goes on connecting, must not fill the log. Only of warnings and errors."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or getattr(record, "counted", False):
            return True
        now = self._clock()
        self.flush(now - WINDOW_S)
        key = (record.name, str(record.msg))
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                return True
            kind = self._kinds[key] = _Kind(now, record)
        kind.count += 1
        return kind.count <= LINES_A_WINDOW

    def flush(self, before: float | None = None) -> None:
        """Say what was left out of windows that began until then, of all unless given."""
        over = [key for key, kind in self._kinds.items() if before is None or kind.began <= before]
        for key in over:
            kind = self._kinds.pop(key)
            left_out = kind.count - LINES_A_WINDOW
            if left_out > 0:
                logging.getLogger(kind.example.name).log(
                    kind.example.levelno,
                    "%d more like it within %d s: %s",
                    left_out,
                    WINDOW_S,
                    kind.example.getMessage(),
                    extra={"counted": True},
                )


def set_up_logging(level: str, form: str) -> Flood:
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    flood = Flood()
    handler.addFilter(flood)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    return flood
