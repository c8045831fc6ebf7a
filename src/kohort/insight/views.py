"""What the console shows, as plain JSON values made from a group's past: rows, timelines, one rebalance. Pure.

Everything is columns of numbers and tables of texts: no value in here is ever markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kohort.coordinator.causes import Who
from kohort.insight.detail import seen_bands, step_of
from kohort.insight.diagnosis import NOTE, PROBLEM, RECENT_MS, WARNING, Finding, Present, diagnose
from kohort.insight.group_past import GroupPast
from kohort.insight.lag_verdicts import LagVerdict, lag_verdict
from kohort.insight.lanes import OPEN, Lanes, Partition
from kohort.insight.log_ends import LogEnds
from kohort.insight.rebalances import History, Rebalance
from kohort.insight.telling import tell

Ends = Mapping[Partition, LogEnds]
MOST_SENT = 4_000
"""Bars and bands that are sent one and all; of more, those that can be seen (detail.py)."""
RANKS = {PROBLEM: 0, WARNING: 1, NOTE: 2}
_LAG_FINDINGS = {
    LagVerdict.STALLED: (
        PROBLEM,
        "its commits do not move though records wait",
        "Look at the reader of these partitions: it commits and does not get on. A record that it cannot handle?",
    ),
    LagVerdict.STOPPED: (
        PROBLEM,
        "has not committed for longer than usual though records wait",
        "Look whether the group's members are alive and poll; start them if there are none.",
    ),
    LagVerdict.REWOUND: (
        WARNING,
        "went back to an earlier offset",
        "Somebody reset the group, or its offset was out of range.",
    ),
    LagVerdict.RISING: (
        WARNING,
        "falls behind: its lag grows from commit to commit",
        "Add members (up to the number of partitions), or make the work on a record shorter.",
    ),
}


def known_ends(ends: Ends, partitions: Iterable[Partition]) -> dict[Partition, int]:
    found = {p: ends[p].last for p in partitions if p in ends}
    return {p: end for p, end in found.items() if end is not None}


# -- groups -----------------------------------------------------------------------------------------------------------


def group_row(past: GroupPast, ends: Ends, now_ms: int) -> dict[str, Any]:
    known = known_ends(ends, past.commits)
    history = past.history()
    recent = list(_since(history.rebalances, now_ms - RECENT_MS))
    findings = findings_of(past, ends, now_ms)
    worst = findings[0] if findings and findings[0].severity != NOTE else None
    return {
        "group": past.group_id,
        "state": past.state,
        "type": past.type,
        "protocol": past.protocol,
        "members": len(past.members),
        "lag": past.total_lag(known),
        "lag_ms": behind_ms(past, ends, now_ms),
        "trend": past.trend(),
        "rebalances_per_hour": len(recent),
        "standstill_ms_per_hour": sum(one.stood_still_ms or 0 for one in recent),
        "exact": past.exact,
        "verdict": worst.kind if worst else "ok",
        "severity": worst.severity if worst else "ok",
        "verdicts": [[one.kind, one.severity] for one in findings],
        "last_ms": past.last_ms,
        "score": _score(findings, recent, known, past),
    }


def _score(
    findings: Sequence[Finding], recent: Sequence[Rebalance], ends: Mapping[Partition, int], past: GroupPast
) -> list[int]:
    """The worst sorts first when these are compared."""
    rank = min((RANKS[one.severity] for one in findings), default=3)
    return [rank, -sum(one.stood_still_ms or 0 for one in recent), -len(recent), -(past.total_lag(ends) or 0)]


def _since(rebalances: Sequence[Rebalance], since_ms: int) -> Iterable[Rebalance]:
    """From the end backwards: a long past costs nothing."""
    for one in reversed(rebalances):
        if one.started_ms < since_ms:
            return
        yield one


def behind_ms(past: GroupPast, ends: Ends, now_ms: int) -> int | None:
    """The partition that is furthest behind, in time."""
    known = [ends[p].behind_ms(window[-1].offset, now_ms) for p, window in past.commits.items() if p in ends]
    return max((one for one in known if one is not None), default=None)


def findings_of(past: GroupPast, ends: Ends, now_ms: int) -> list[Finding]:
    known = known_ends(ends, past.commits)
    history = past.history()
    recent = list(_since(history.rebalances, now_ms - 2 * RECENT_MS))[::-1]
    short = History(history.source, recent, history.refusals[-1000:], history.first_ms, history.last_ms)
    found = diagnose(short, past.present(known), now_ms) + _lag_findings(past, known, now_ms)
    return sorted(found, key=lambda one: RANKS[one.severity])


def _lag_findings(past: GroupPast, ends: Mapping[Partition, int], now_ms: int) -> list[Finding]:
    by_verdict: dict[LagVerdict, list[Partition]] = {}
    for partition, lag in past.lags(ends).items():
        by_verdict.setdefault(lag_verdict(past.commits[partition], lag, now_ms), []).append(partition)
    found = []
    for verdict, (severity, text, advice) in _LAG_FINDINGS.items():
        if partitions := sorted(by_verdict.get(verdict, ())):
            names = ", ".join(f"{topic}-{number}" for topic, number in partitions[:3])
            more = f" and {len(partitions) - 3} more" if len(partitions) > 3 else ""
            found.append(Finding(verdict.value, severity, f"{names}{more}: {text}.", advice))
    return found


# -- a group ----------------------------------------------------------------------------------------------------------


def timeline(
    past: GroupPast, ends: Ends, from_ms: int, to_ms: int, now_ms: int, most: int = MOST_SENT
) -> dict[str, Any]:
    history = past.history()
    texts = _Texts()
    first = history.first_ms if history.first_ms is not None else past.last_ms or now_ms
    points = past.series.points(from_ms, to_ms)
    return {
        "group": past.group_id,
        "state": past.state,
        "type": past.type,
        "protocol": past.protocol,
        "exact": past.exact,
        "source": history.source.value,
        "first_ms": min(first, points[0].at_ms) if points else first,
        "now_ms": now_ms,
        "from_ms": from_ms,
        "to_ms": to_ms,
        "lanes": [_lane(who, past) for who in past.lanes.whos],
        "bars": _bars(past.lanes, partial(_exact_time, past), from_ms, to_ms, most),
        "targets": _bars(past.targets, lambda at_ms: at_ms, from_ms, to_ms, most) if past.targets.whos else None,
        "target_lanes": [who.member_id for who in past.targets.whos],
        "bands": _bands(past, history, from_ms, to_ms, texts, most),
        "refusals": _refusals(history, from_ms, to_ms, texts),
        "texts": texts.all,
        "series": {
            "step_ms": past.series.step_ms,
            "at": [p.at_ms for p in points],
            "commits": [p.commits for p in points],
            "lag": [p.lag for p in points],
        },
        "partitions": partition_rows(past, ends, now_ms),
        "findings": [one._asdict() for one in findings_of(past, ends, now_ms)],
    }


def _refusals(history: History, from_ms: int, to_ms: int, texts: _Texts) -> list[list[int]]:
    """[when, text]"""
    return [
        [one.at_ms, texts.add(f"{one.what} of {one.who} refused: {one.error}")]
        for one in history.refusals
        if from_ms <= one.at_ms < to_ms
    ]


class _Texts:
    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[str, int] = {}

    def add(self, text: str) -> int:
        place = self._places.setdefault(text, len(self.all))
        if place == len(self.all):
            self.all.append(text)
        return place


def _lane(who: Who, past: GroupPast) -> dict[str, Any]:
    return who._asdict() | {"name": str(who), "here": who.member_id in past.members}


def _exact_time(past: GroupPast, at_ms: int) -> int:
    """Of a stored generation: when its rebalance was completed, where the events tell."""
    return past.completed.get(past.generation_at.get(at_ms, -1), at_ms)


def _bars(lanes: Lanes, exact: Callable[[int], int], from_ms: int, to_ms: int, most: int) -> dict[str, Any]:
    below_ms = step_of(from_ms, to_ms) if lanes.count(from_ms, to_ms, most) > most else 0
    used: dict[int, int] = {}
    columns: dict[str, list[int]] = {"lane": [], "start": [], "end": [], "set": []}
    for bar in lanes.bars(from_ms, to_ms, below_ms):
        columns["lane"].append(bar.lane)
        columns["start"].append(exact(bar.start_ms))
        columns["end"].append(bar.end_ms if bar.end_ms == OPEN else exact(bar.end_ms))
        columns["set"].append(used.setdefault(bar.partitions, len(used)))
    sets = [by_topic(lanes.sets[number]) for number in used]
    return {**columns, "sets": sets, "left_out_below_ms": below_ms, "forgotten": lanes.forgotten}


def by_topic(partitions: Iterable[Partition]) -> list[list[Any]]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return [[topic, numbers] for topic, numbers in found.items()]


def _bands(
    past: GroupPast, history: History, from_ms: int, to_ms: int, texts: _Texts, most: int = MOST_SENT
) -> dict[str, Any]:
    names = ("id", "start", "end", "standstill", "generation", "members", "kind", "text", "exact", "moved")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    within = list(_within(history.rebalances, from_ms, to_ms))
    shown = [one for one, _, _ in within] if len(within) <= most else seen_bands(within, step_of(from_ms, to_ms))
    wanted = {one.generation for one in shown}
    moved = {n: past.moves[at].moved for at, n in past.generation_at.items() if n in wanted and at in past.moves}
    for one in shown:
        start, end = span_of(one)
        first = one.triggers[0] if one.triggers else None
        said = f"{first.who or ''} {first.text}".strip() if first else "no cause is known"
        more = len(one.triggers) - 1
        generation = -1 if one.generation is None else one.generation
        row = (
            one.started_ms, start, end, one.stood_still_ms, generation, one.members,
            texts.add(first.kind.value if first else "unknown"),
            texts.add(f"{said}; and {more} more" if more > 0 else said),
            past.is_exact(one), moved.get(generation),
        )  # fmt: skip
        for name, value in zip(names, row, strict=True):
            columns[name].append(value)
    return {**columns, "of": len(within)}


def _within(rebalances: Iterable[Rebalance], from_ms: int, to_ms: int) -> Iterable[tuple[Rebalance, int, int]]:
    for one in rebalances:
        start, end = span_of(one)
        if start < to_ms and (end == OPEN or end >= from_ms):
            yield one, start, end


def span_of(one: Rebalance) -> tuple[int, int]:
    """From when to when a rebalance is drawn; an estimated one ends with its generation."""
    if one.estimated_standstill_ms is not None:
        return one.started_ms - one.estimated_standstill_ms, one.started_ms
    return one.started_ms, OPEN if one.completed_ms is None else one.completed_ms


def partition_rows(past: GroupPast, ends: Ends, now_ms: int) -> list[dict[str, Any]]:
    held = {p: member_id for member_id, partitions in past.lanes.held_now().items() for p in partitions}
    members = past.members
    rows = []
    for partition in sorted({*past.commits, *held}):
        window = past.commits.get(partition)
        grown = ends.get(partition)
        end = grown.last if grown is not None else None
        offset = window[-1].offset if window else None
        lag = None if offset is None or end is None else max(0, end - offset)
        who = members.get(held.get(partition, ""))
        rows.append(
            {
                "topic": partition[0],
                "partition": partition[1],
                "offset": offset,
                "end": end,
                "lag": lag,
                "lag_ms": grown.behind_ms(offset, now_ms) if grown is not None and offset is not None else None,
                "reader": None if who is None else str(who),
                "verdict": lag_verdict(window or (), lag, now_ms).value,
            }
        )
    return rows


# -- a rebalance ------------------------------------------------------------------------------------------------------


def rebalance_detail(past: GroupPast, started_ms: int, now_ms: int) -> dict[str, Any] | None:
    history = past.history()
    one = next((r for r in reversed(history.rebalances) if r.started_ms == started_ms), None)
    if one is None:
        return None
    end_ms = one.completed_ms if one.completed_ms is not None else now_ms
    alone = History(history.source, [one], first_ms=history.first_ms, last_ms=end_ms)
    return {
        "id": one.started_ms,
        "start": span_of(one)[0],
        "end": span_of(one)[1],
        "generation": one.generation,
        "members": one.members,
        "protocol": one.protocol,
        "standstill_ms": one.stood_still_ms,
        "exact": past.is_exact(one),
        "text": tell(one, now_ms),
        "causes": [
            {"at": t.at_ms, "kind": t.kind.value, "who": None if t.who is None else str(t.who), "text": t.text}
            for t in one.triggers
        ],
        "advice": [f._asdict() for f in diagnose(alone, Present(past.state, one.protocol), end_ms)],
        "diff": diff(past, one, now_ms),
    }


def diff(past: GroupPast, one: Rebalance, now_ms: int) -> dict[str, Any]:
    """Partition by partition: who read it before, and who reads it after."""
    stored = [at for at, number in past.generation_at.items() if number == one.generation]
    settled_ms = max(stored) if stored else one.completed_ms if one.completed_ms is not None else now_ms
    before = past.lanes.held_at(min(span_of(one)[0], settled_ms) - 1)
    after = past.lanes.held_at(settled_ms)
    rows: dict[str, list[dict[str, Any]]] = {"moved": [], "lost": [], "came": []}
    kept = 0
    for partition in sorted({*before, *after}):
        old, new = before.get(partition), after.get(partition)
        if old is not None and new is not None and old.identity == new.identity:
            kept += 1
            continue
        kind = "moved" if old is not None and new is not None else "lost" if new is None else "came"
        rows[kind].append(
            {
                "partition": f"{partition[0]}-{partition[1]}",
                "from": None if old is None else str(old),
                "to": None if new is None else str(new),
            }
        )
    return {"kept": kept, **rows}
