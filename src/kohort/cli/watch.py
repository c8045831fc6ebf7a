"""`kohort groups watch`: a group redrawn every few seconds on a terminal, a line for every look in a pipe."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kohort.cli import describe
from kohort.cli.group_log import GenerationFollower
from kohort.cli.group_report import GroupReport, compact
from kohort.cli.output import is_terminal, plural, print_json_line, printable, rich_table
from kohort.cli.times import clock_time
from kohort.insight.waiting import told

if TYPE_CHECKING:
    from kohort.cli.target import Target

STATE_STYLES = {"Stable": "green", "Empty": "dim", "Dead": "red"}


class Trend:
    """Lag and committed offsets between two looks, as rates."""

    def __init__(self) -> None:
        self._before: tuple[float, GroupReport] | None = None
        self.rate: float | None = None
        self.events: list[str] = []

    def look(self, report: GroupReport, now_s: float) -> None:
        if self._before is not None:
            then_s, before = self._before
            old = {(r.topic, r.partition): r.current_offset for r in before.partitions}
            read = sum(
                max(0, r.current_offset - (old.get((r.topic, r.partition)) or r.current_offset))
                for r in report.partitions
                if r.current_offset is not None
            )
            self.rate = read / max(now_s - then_s, 0.001)
            self.events = (changes(before, report) + self.events)[:8]
        self._before = (now_s, report)


def changes(before: GroupReport, now: GroupReport) -> list[str]:
    """What a line of the log beneath the table says."""
    at = clock_time(int(time.time() * 1000))
    said = []
    if before.state != now.state:
        said.append(f"{at}  {before.state} -> {now.state}")
    if now.is_modern and before.generation != now.generation:
        said.append(f"{at}  epoch {before.generation} -> {now.generation}")
    old, new = ({m.member_id: m for m in report.members} for report in (before, now))
    said += [f"{at}  {printable(m.client_id)} at {m.host} is gone" for key, m in old.items() if key not in new]
    said += [f"{at}  {printable(m.client_id)} at {m.host} joined" for key, m in new.items() if key not in old]
    return said


def watch(target: Target, admin: Any, group_id: str, interval: float, count: int | None, json: bool) -> None:
    describe.read(target, admin, group_id, with_generation=False)
    with GenerationFollower(target, group_id) as generations:
        looks = _looks(target, admin, group_id, generations, interval, count)
        if is_terminal() and not json:
            _live(looks, interval, full_screen=count is None)
            return
        for report, trend in looks:
            if json:
                print_json_line({"at_ms": int(time.time() * 1000), **report.to_dict()})
            else:
                print(line(report, trend), flush=True)


def _looks(
    target: Target, admin: Any, group_id: str, generations: GenerationFollower, interval: float, count: int | None
) -> Iterator[tuple[GroupReport, Trend]]:
    trend, done = Trend(), 0
    while count is None or done < count:
        if done:
            time.sleep(interval)
        report = describe.read(target, admin, group_id, with_generation=False)
        if report.generation is None and report.protocol_type:
            report = replace(report, generation=generations.latest())
        trend.look(report, time.monotonic())
        yield report, trend
        done += 1


def line(report: GroupReport, trend: Trend) -> str:
    parts = [
        clock_time(int(time.time() * 1000)),
        printable(report.group_id),
        report.state,
        _epochs(report, "="),
        f"members={len(report.members)}",
        f"lag={printable(report.total_lag)}",
    ]
    if report.waits:
        parts.append(f"waited-for={len(report.waits)}")
    if trend.rate is not None:
        parts.append(f"rate={trend.rate:.1f}/s")
    return "  ".join(parts)


def _epochs(report: GroupReport, sign: str) -> str:
    if not report.is_modern:
        return f"generation{sign}{printable(report.generation)}"
    behind = "" if report.generation == report.assignment_epoch else f" target{sign}{report.assignment_epoch}"
    return f"epoch{sign}{report.generation}{behind}"


def _live(looks: Iterator[tuple[GroupReport, Trend]], interval: float, full_screen: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(highlight=False), screen=full_screen, auto_refresh=False) as live:
        for report, trend in looks:
            live.update(screen(report, trend, interval), refresh=True)


def screen(report: GroupReport, trend: Trend, interval: float) -> Any:
    """The group as one picture."""
    from rich.console import Group
    from rich.text import Text

    style = STATE_STYLES.get(report.state, "yellow")
    head = Text.assemble(
        (printable(report.group_id), "bold"),
        "  ",
        (report.state, f"bold {style}"),
        f"  {_epochs(report, ' ')}  {plural(len(report.members), 'member')}  "
        f"{printable(report.protocol)}  lag {printable(report.total_lag)}",
        f"  {trend.rate:.1f} records/s" if trend.rate is not None else "",
    )
    names = describe.labels(report)
    columns = ("member", "host", *(("epoch",) if report.is_modern else ()), "partitions", "lag", "assignment")
    rows = []
    for member in report.members:
        lags = [row.lag for row in report.partitions if row.member_id == member.member_id and row.lag is not None]
        held = compact(member.assignment)
        epoch = [printable(member.epoch)] if report.is_modern else []
        if member.target is not None and member.target != member.assignment:
            held = f"{held or '-'} -> {compact(member.target) or '-'}"
        numbers = [*epoch, str(len(member.assignment)), str(sum(lags))]
        rows.append([names[member.member_id], member.host, *numbers, held or "-"])
    offset_columns, offset_rows = describe.offsets_table(report)
    offsets = [[printable(cell) for cell in row] for row in offset_rows]
    parts: list[Any] = [head, Text()]
    if rows:
        parts += [rich_table(columns, [[printable(cell) for cell in row] for row in rows]), Text()]
    parts += [Text(printable(sentence)) for sentence in told(report.waits)[:8]]
    parts += [rich_table(offset_columns, offsets), Text(), *map(Text, trend.events)]
    parts.append(Text(f"every {interval:g} s; ctrl-C ends", style="dim"))
    return Group(*parts)
