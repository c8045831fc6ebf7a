"""Points in time and durations as people and Kafka's tools write them. Pure: `now_ms` is an argument."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from kohort.cli.failures import WrongInput
from kohort.insight.wording import human_ms as human_ms

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHORT = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_time_ms(text: str) -> int:
    """An ISO 8601 date or date and time, in UTC unless it says otherwise: what --to-datetime takes."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise WrongInput(
            f"{text!r} is not a time: write YYYY-MM-DDTHH:MM:SS.sss, in UTC or with an offset such as +02:00"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration_ms(text: str) -> int:
    """ISO 8601 (PT1H30M, P1D), as Kafka's tools, or short (90s, 15m, 2h, 1d)."""
    if match := _SHORT.fullmatch(text.strip()):
        return int(float(match.group(1)) * _UNITS_MS[match.group(2)])
    from kohort.client.config import parse_duration_ms as iso_8601

    try:
        return iso_8601(text)
    except ValueError:
        raise WrongInput(f"{text!r} is not a duration: write PT1H30M, P1D, or 90s, 15m, 2h, 1d") from None


def parse_moment_ms(text: str, now_ms: int) -> int:
    """A time, or how long ago."""
    try:
        return now_ms - parse_duration_ms(text)
    except WrongInput:
        return parse_time_ms(text)


def clock_time(at_ms: int) -> str:
    """To the second, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
