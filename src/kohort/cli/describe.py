"""`kohort groups describe`: a group's report as tables."""

from __future__ import annotations

from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.cli.failures import Failed
from kohort.cli.group_log import last_generation
from kohort.cli.group_report import CONSUMER, DEAD, GroupReport, compact, read_report
from kohort.cli.output import plural, print_table, printable

if TYPE_CHECKING:
    from kohort.cli.target import Target

OFFSET_COLUMNS = ("topic", "partition", "current-offset", "log-end-offset", "lag", "member")


class Parts(NamedTuple):
    state: bool
    members: bool
    offsets: bool


ALL_PARTS = Parts(True, True, True)


def read(target: Target, admin: Any, group_id: str, with_generation: bool = True) -> GroupReport:
    report = read_report(admin, group_id)
    if report.state == DEAD:
        raise Failed(f"group {printable(group_id)} does not exist; kohort groups list shows those that do")
    if with_generation and report.generation is None and report.protocol_type:
        report = replace(report, generation=last_generation(target, group_id))
    return report


def print_report(report: GroupReport, parts: Parts) -> None:
    if parts.state:
        print(headline(report))
    if parts.members:
        _gap(parts.state)
        print_table(*members_table(report), empty="no members")
    if parts.members and report.waits:
        _gap(True)
        print_table(*waits_table(report))
    if parts.offsets:
        _gap(parts.state or parts.members)
        print_table(*offsets_table(report), empty="nothing assigned and nothing committed")


def _gap(needed: bool) -> None:
    if needed:
        print()


def headline(report: GroupReport) -> str:
    lag = "-" if report.total_lag is None else report.total_lag
    at = f" ({report.coordinator_address})" if report.coordinator_address else ""
    return "\n".join(
        (
            f"group        {printable(report.group_id)}",
            f"state        {report.state}, {plural(len(report.members), 'member')}",
            _epoch_line(report) if report.is_modern else f"generation   {printable(report.generation)}",
            f"protocol     {printable(report.protocol)} ({report.type}, {printable(report.protocol_type)})",
            f"coordinator  broker {report.coordinator}{at}",
            f"total lag    {lag}",
        )
    )


def _epoch_line(report: GroupReport) -> str:
    """A group whose epoch is ahead of its target's has members that wait for a new target."""
    if report.generation == report.assignment_epoch:
        return f"epoch        {report.generation}, and so its target"
    return f"epoch        {report.generation}; the target is still that of epoch {report.assignment_epoch}"


def labels(report: GroupReport) -> dict[str, str]:
    """A short name for every member: instance or client id, and the head of the member id's own part where needed."""
    names = {m.member_id: m.instance_id or m.client_id or m.member_id for m in report.members}
    short = {}
    for member_id, name in names.items():
        own = member_id.removeprefix(f"{name}-")
        twice = sum(other == name for other in names.values()) > 1
        short[member_id] = f"{name}-{own[:8]}" if twice and own != member_id else member_id if twice else name
    return short


def members_table(report: GroupReport) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Without the columns that say nothing here: no static members, or client ids that the member ids begin with."""
    told = all(m.member_id.startswith(f"{m.client_id}-") for m in report.members)
    static = any(m.instance_id for m in report.members)
    modern = report.is_modern
    mixed = modern and any(m.protocol != CONSUMER for m in report.members)
    moving = any(m.target is not None and m.target != m.assignment for m in report.members)
    keep = [True, static, not told, True, mixed, modern, True, True, moving]
    columns = (
        "member-id", "instance-id", "client-id", "host", "protocol", "epoch", "partitions", "assignment", "target",
    )  # fmt: skip
    rows = [
        (
            m.member_id,
            m.instance_id,
            m.client_id,
            m.host,
            m.protocol,
            m.epoch,
            len(m.assignment),
            compact(m.assignment),
            compact(m.target or ()),
        )
        for m in report.members
    ]
    return tuple(compress(columns, keep)), [tuple(compress(row, keep)) for row in rows]


def waits_table(report: GroupReport) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Who still has what somebody waits for, and why."""
    names = labels(report)
    rows = [
        (
            f"{wait.partition[0]}-{wait.partition[1]}",
            names[wait.waiter.member_id],
            names[wait.holder.member_id] if wait.holder else None,
            wait.text,
        )
        for wait in report.waits
    ]
    return ("waited-for", "by", "held-by", "why"), rows


def offsets_table(report: GroupReport) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    names = labels(report)
    rows = [
        (r.topic, r.partition, r.current_offset, r.log_end_offset, r.lag, names.get(r.member_id or ""))
        for r in report.partitions
    ]
    return OFFSET_COLUMNS, rows
