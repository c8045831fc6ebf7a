"""The reports of `kohort history` as one HTML file without scripts; every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kohort.cli.times import clock_time
from kohort.console.drawing import safe
from kohort.console.report import document, table

Section = tuple[str, Sequence[str], Sequence[Sequence[Any]]]


def page(of: str, now_ms: int, sections: Sequence[Section], most: int) -> str:
    """`sections` are a title, headings and rows; of more than `most` rows the page says so."""
    links = "".join(f'<li><a href="#r{i}">{safe(title)}</a></li>' for i, (title, _, _) in enumerate(sections))
    body = [
        "<h1>The history of groups</h1>",
        f'<p class="quiet">{safe(of)}, {safe(clock_time(now_ms))} UTC</p><ul>{links}</ul>',
        *(_section(i, section, most) for i, section in enumerate(sections)),
    ]
    return document("kohort: the history of groups", "".join(body))


def _section(number: int, section: Section, most: int) -> str:
    title, headings, rows = section
    numbers = [i for i in range(len(headings)) if any(_is_number(row[i]) for row in rows)]
    shown = table(headings, rows[:most], numbers) if rows else '<p class="quiet">nothing</p>'
    more = f'<p class="quiet">and more: these are the first {most}</p>' if len(rows) > most else ""
    return f'<h2 id="r{number}">{safe(title)}</h2>{shown}{more}'


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and value[:1].isdigit() and ":" not in value)
