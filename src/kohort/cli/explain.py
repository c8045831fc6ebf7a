"""`kohort groups explain`: chooses the best source there is, has it diagnosed, and tells it in plain words."""

from __future__ import annotations

import textwrap
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kohort.cli import describe
from kohort.cli.group_log import read_epochs, read_events, read_generations
from kohort.cli.group_report import GroupReport
from kohort.cli.output import is_terminal, plural, printable
from kohort.cli.times import clock_time, human_ms
from kohort.coordinator.causes import Who
from kohort.insight.diagnosis import NOTE, Finding, Present, diagnose
from kohort.insight.generations import from_generations
from kohort.insight.rebalances import History, Rebalance, Source, from_events
from kohort.insight.samples import Sample, from_samples
from kohort.insight.telling import tell

if TYPE_CHECKING:
    from kohort.cli.target import Target

EVENTS_LIMIT = 5_000
GENERATIONS_LIMIT = 200
EPOCHS_LIMIT = 20_000
BUDGET_S = 5.0
SAMPLE_EVERY_S = 0.25
WIDTH = 80


@dataclass(frozen=True, slots=True)
class Explanation:
    report: GroupReport
    history: History
    findings: list[Finding]
    now_ms: int

    def to_dict(self, last: int) -> dict[str, Any]:
        return {
            "group": self.report.group_id,
            "state": self.report.state,
            "generation": self.report.generation,
            "assignment_epoch": self.report.assignment_epoch,
            "members": len(self.report.members),
            "total_lag": self.report.total_lag,
            "source": self.history.source.name.lower(),
            "source_text": self.history.source.value,
            "rebalances": [_rebalance_dict(one) for one in self.history.rebalances[-last:]],
            "findings": [finding._asdict() for finding in self.findings],
        }


def _rebalance_dict(one: Rebalance) -> dict[str, Any]:
    return {
        "started_ms": one.started_ms,
        "completed_ms": one.completed_ms,
        "generation": one.generation,
        "members": one.members,
        "protocol": one.protocol or None,
        "standstill_ms": one.standstill_ms,
        "initial_delay_ms": one.initial_delay_ms,
        "joined_after_ms": one.joined_after_ms,
        "last_back": one.last_back._asdict() if one.last_back else None,
        "causes": [
            {
                "kind": trigger.kind.value,
                "member": trigger.who._asdict() if trigger.who else None,
                "text": trigger.text,
                "after_ms": trigger.cause.timeout_ms,
            }
            for trigger in one.triggers
        ],
    }


def explain(target: Target, admin: Any, group_id: str, sample_s: float) -> Explanation:
    report = describe.read(target, admin, group_id)
    history = _history(target, admin, report, sample_s)
    if history.source is Source.SAMPLES:
        report = describe.read(target, admin, group_id)
    now_ms = int(time.time() * 1000)
    # A broker's clock may be ahead of ours, or advanced in a test.
    now_ms = max(now_ms, history.last_ms or 0)
    return Explanation(report, history, diagnose(history, present(report), now_ms), now_ms)


def _history(target: Target, admin: Any, report: GroupReport, sample_s: float) -> History:
    group_id = report.group_id
    if events := read_events(target, group_id, EVENTS_LIMIT, BUDGET_S):
        return from_events(events)
    if report.is_modern:
        if (past := read_epochs(target, admin, group_id, EPOCHS_LIMIT, BUDGET_S)) is not None:
            return past
        return from_samples(_samples(admin, group_id, sample_s))
    if generations := read_generations(target, group_id, GENERATIONS_LIMIT, BUDGET_S):
        return from_generations(generations)
    return from_samples(_samples(admin, group_id, sample_s))


def _samples(admin: Any, group_id: str, sample_s: float) -> list[Sample]:
    deadline = time.monotonic() + sample_s
    found: list[Sample] = []
    while not found or time.monotonic() < deadline:
        if found:
            time.sleep(SAMPLE_EVERY_S)
        group = admin.describe_groups([group_id])[group_id]
        members = tuple(Who(m.member_id, m.group_instance_id, m.client_id, m.client_host) for m in group.members)
        held = {m.member_id: frozenset((tp.topic, tp.partition) for tp in m.assignment) for m in group.members}
        found.append(Sample(int(time.time() * 1000), group.state, members, held, group.assignor))
    return found


def present(report: GroupReport) -> Present:
    members = {m.member_id: Who(m.member_id, m.instance_id, m.client_id, m.host) for m in report.members}
    stable = report.state == "Stable"
    return Present(
        report.state,
        report.protocol,
        members,
        {m.member_id: frozenset(m.topics) for m in report.members},
        {m.member_id: len(m.assignment) for m in report.members} if stable else {},
        {(r.topic, r.partition): r.lag for r in report.partitions if r.lag is not None},
        {(r.topic, r.partition): r.member_id for r in report.partitions if r.member_id is not None},
        report.waits,
    )


# -- in words ---------------------------------------------------------------------------------------------------------


def print_explanation(explanation: Explanation, last: int) -> None:
    text = "\n".join(words(explanation, last))
    if is_terminal():
        from rich.console import Console
        from rich.text import Text

        shown = Text(text)
        shown.highlight_regex(r"(?m)^(What (happened|is) .*|Nothing harmful.*)$", "bold")
        shown.highlight_regex(r"(?m)^  (problem|warning|note)\b", "bold yellow")
        Console(highlight=False).print(shown)
    else:
        print(text)


def words(explanation: Explanation, last: int) -> list[str]:
    report, history = explanation.report, explanation.history
    word = "epoch" if report.is_modern else "generation"
    generation = f" in {word} {report.generation}" if report.generation is not None else ""
    how = f" ({printable(report.protocol)})" if report.protocol else ""
    lag = "its lag is unknown" if report.total_lag is None else f"its lag is {plural(report.total_lag, 'record')}"
    said = _wrap(
        f"Group {printable(report.group_id)} is {report.state}{generation} with "
        f"{plural(len(report.members), 'member')}{how}; {lag}."
    )
    said += _wrap(f"What follows comes from {history.source.value}.{_limits(history)}")
    said += ["", "What happened last"]
    shown = history.rebalances[-last:]
    if not shown:
        said += _wrap(_quiet(history), "  ")
    for rebalance in reversed(shown):
        said += _wrap(tell(rebalance, explanation.now_ms), f"  {clock_time(rebalance.started_ms)}  ", " " * 4)
    return [*said, "", *_findings(explanation)]


def _limits(history: History) -> str:
    if history.source is Source.GENERATIONS:
        return " They do not say how somebody left, nor how long a rebalance took."
    if history.source is Source.EPOCHS:
        return " They do not say how somebody left."
    if history.source is Source.SAMPLES:
        return " Its past could not be read."
    return ""


def _quiet(history: History) -> str:
    if history.source is Source.SAMPLES and history.first_ms is not None and history.last_ms is not None:
        return f"No rebalance in the {human_ms(history.last_ms - history.first_ms)} of looking."
    return "No rebalance is recorded."


def _findings(explanation: Explanation) -> list[str]:
    history = explanation.history
    harmful = [finding for finding in explanation.findings if finding.severity != NOTE]
    if not explanation.findings:
        since = history.first_ms if history.first_ms is not None else explanation.now_ms
        span = human_ms(max(explanation.now_ms - since, 0))
        return [f"Nothing harmful was found ({plural(len(history.rebalances), 'rebalance')} in {span})."]
    said = ["What is wrong" if harmful else "What is worth knowing"]
    for finding in explanation.findings:
        said += _wrap(f"{finding.severity}: {finding.text}", "  ", "    ")
        said += _wrap(f"-> {finding.advice}", "    ", "       ")
    return said


def _wrap(text: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False) or [first]
