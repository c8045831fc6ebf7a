"""`kohort groups reset-offsets`: reads the facts, plans with resetting.py, shows before and after, and executes."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kohort.cli import times
from kohort.cli.failures import Failed, WrongInput
from kohort.cli.group_report import existing_partitions
from kohort.cli.output import plural, print_json, print_table, printable
from kohort.cli.resetting import TIMED, Facts, Mode, parse_file, parse_scope, plan
from kohort.cli.target import warn
from kohort.client.types import TopicPartition

MODES = "--to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --by-duration, --shift-by, --from-file"
QUIET_STATES = ("Empty", "Dead")


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line, checked."""

    mode: Mode
    topics: list[str]
    all_topics: bool
    file: Path | None = None

    @classmethod
    def of(
        cls,
        flags: Mapping[str, bool],
        numbers: Mapping[str, int | None],
        others: Mapping[str, Any],
        topics: list[str],
        all_topics: bool,
    ) -> Asked:
        given = [name for name, on in flags.items() if on]
        given += [name for name, value in {**numbers, **others}.items() if value is not None]
        if len(given) != 1:
            raise WrongInput(f"say where to: exactly one of {MODES}")
        (name,) = given
        file = others["from-file"]
        if topics and all_topics:
            raise WrongInput("--topic and --all-topics exclude each other: choose one")
        if not topics and not all_topics and file is None:
            raise WrongInput("say what to reset: --topic TOPIC, --topic TOPIC:0,1 or --all-topics")
        value = numbers.get(name) or 0
        if name == "to-offset" and value < 0:
            raise WrongInput(f"--to-offset takes a number from 0, not {value}")
        if name == "to-datetime":
            value = times.parse_time_ms(others[name])
        elif name == "by-duration":
            value = int(time.time() * 1000) - times.parse_duration_ms(others[name])
        return cls(Mode(name, value), topics, all_topics, file)


@dataclass(frozen=True, slots=True)
class Outcome:
    group_id: str
    before: Mapping[TopicPartition, int | None]
    after: Mapping[TopicPartition, int]
    remarks: list[str]
    executed: bool


def in_scope(tp: TopicPartition, scopes: Iterable[str]) -> bool:
    for text in scopes:
        topic, numbers = parse_scope(text)
        if tp.topic == topic and (not numbers or tp.partition in numbers):
            return True
    return False


def reset(admin: Any, group_id: str, asked: Asked, execute: bool) -> Outcome:
    described = admin.describe_groups([group_id])[group_id]
    if described.state not in QUIET_STATES:
        raise Failed(_active(group_id, described))
    committed = {} if described.state == "Dead" else admin.group_offsets(group_id)
    before = {tp: place.offset for tp, place in committed.items() if place is not None and place.offset >= 0}
    from_file = _read_file(asked.file, group_id)
    partitions = _partitions(admin, group_id, asked, before, from_file)
    facts = Facts(before, *_ends(admin, partitions), _at_time(admin, partitions, asked.mode), from_file)
    made = plan(asked.mode, partitions, facts)
    if execute:
        admin.alter_group_offsets(group_id, made.offsets)
    return Outcome(group_id, {tp: before.get(tp) for tp in made.offsets}, made.offsets, made.remarks, execute)


def _active(group_id: str, described: Any) -> str:
    name = printable(group_id)
    return (
        f"group {name} is {described.state} with {plural(len(described.members), 'member')}, and members would go on "
        f"from where they are: stop its consumers first (see kohort groups describe {name} --members), then reset"
    )


def _read_file(file: Path | None, group_id: str) -> dict[TopicPartition, int]:
    if file is None:
        return {}
    try:
        return parse_file(file.read_text(encoding="utf-8"), group_id)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise WrongInput(f"{file} cannot be read: {reason}") from None


def _partitions(
    admin: Any,
    group_id: str,
    asked: Asked,
    before: Mapping[TopicPartition, int],
    from_file: Mapping[TopicPartition, int],
) -> list[TopicPartition]:
    if from_file and not asked.topics and not asked.all_topics:
        wanted, exact = set(from_file), True
    elif asked.all_topics:
        wanted, exact = set(before), False
        if not wanted:
            raise Failed(f"group {printable(group_id)} has committed nothing yet: name topics with --topic")
    else:
        wanted, exact = set(), True
    topics = {tp.topic for tp in wanted} | {parse_scope(text)[0] for text in asked.topics}
    existing = existing_partitions(admin, topics)
    for text in asked.topics:
        topic, numbers = parse_scope(text)
        wanted |= {TopicPartition(topic, number) for number in numbers} if numbers else set(existing.get(topic, ()))
        if topic not in existing:
            raise Failed(f"no such topic: {printable(topic)}; kohort topics list shows those that exist")
    if from_file and (asked.topics or asked.all_topics):
        wanted &= set(from_file)
    known = {tp for partitions in existing.values() for tp in partitions}
    if (missing := sorted(wanted - known)) and exact:
        raise Failed(f"no such partition: {', '.join(map(str, missing))}")
    return sorted(wanted & known)


def _ends(admin: Any, partitions: list[TopicPartition]) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    begins = admin.list_offsets(dict.fromkeys(partitions, "earliest"))
    ends = admin.list_offsets(dict.fromkeys(partitions, "latest"))
    return {tp: found.offset for tp, found in begins.items()}, {tp: found.offset for tp, found in ends.items()}


def _at_time(admin: Any, partitions: list[TopicPartition], mode: Mode) -> dict[TopicPartition, int | None]:
    if mode.name not in TIMED:
        return {}
    found = admin.list_offsets(dict.fromkeys(partitions, max(mode.value, 0)))
    return {tp: None if place is None else place.offset for tp, place in found.items()}


def print_outcome(outcome: Outcome, json: bool, export: bool) -> None:
    for remark in outcome.remarks:
        warn(remark)
    if export:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows((tp.topic, tp.partition, offset) for tp, offset in outcome.after.items())
        return
    rows = [(*tp, outcome.before[tp], offset) for tp, offset in outcome.after.items()]
    if json:
        keys = ("topic", "partition", "before", "after")
        offsets = [dict(zip(keys, row, strict=True)) for row in rows]
        print_json({"group": outcome.group_id, "executed": outcome.executed, "offsets": offsets})
        return
    table = [(*row, _change(row[2], row[3])) for row in rows]
    print_table(("topic", "partition", "before", "after", "change"), table, "nothing to reset")
    if not outcome.executed:
        warn("this was a dry run, nothing is changed; add --execute to do it")


def _change(before: int | None, after: int) -> str | None:
    return None if before is None else f"{after - before:+d}" if after != before else "0"
