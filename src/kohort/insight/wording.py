"""Numbers, durations and names from the wire as words for people. Pure."""

from __future__ import annotations

from typing import Any


def printable(value: Any) -> str:
    """Text from the wire without control characters, which a terminal would obey; None is a dash, as Kafka's tools."""
    if value is None or value == "":
        return "-"
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def human_ms(duration_ms: float) -> str:
    """`850 ms`, `3.2 s`, `4 min 10 s`, `2 h 5 min`, `3 d 2 h`."""
    if duration_ms < 1000:
        return f"{int(duration_ms)} ms"
    seconds = duration_ms / 1000
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for size, unit, below, lower in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit}" + (f" {rest} {lower}" if rest else "")
    return f"{whole} s"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {many or one + 's'}"
