"""Where a group is set to: Kafka's eight modes as arithmetic, and the scope and file they take. Pure."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.cli.failures import WrongInput
from kohort.client.types import TopicPartition, partition_list


class Mode(NamedTuple):
    """`name` is Kafka's option without its dashes; `value` its number, or time in milliseconds."""

    name: str
    value: int = 0


TIMED = ("to-datetime", "by-duration")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the partitions: committed offsets, first and last offsets, offsets of the wanted time."""

    committed: Mapping[TopicPartition, int | None]
    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    at_time: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    from_file: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    offsets: dict[TopicPartition, int]
    remarks: list[str]


def plan(mode: Mode, partitions: Iterable[TopicPartition], facts: Facts) -> Plan:
    """The new offset of each partition, kept within its log as Kafka's tool does, with a remark where that mattered."""
    partitions = sorted(partitions)
    if mode.name == "shift-by" and (missing := [tp for tp in partitions if facts.committed.get(tp) is None]):
        raise WrongInput(
            f"nothing is committed for {partition_list(missing)}, so it cannot be shifted: "
            "leave it out with --topic, or use --to-earliest or --to-latest"
        )
    choose = _CHOICES[mode.name]
    made = Plan({}, [])
    for tp in partitions:
        wanted = choose(mode, tp, facts)
        kept = min(max(wanted, facts.begins[tp]), facts.ends[tp])
        if kept != wanted:
            which = "first" if kept > wanted else "last"
            made.remarks.append(f"{tp}: {wanted} is not in the log, so the {which} offset {kept} is used")
        made.offsets[tp] = kept
    return made


def _to_current(mode: Mode, tp: TopicPartition, facts: Facts) -> int:
    committed = facts.committed.get(tp)
    return facts.ends[tp] if committed is None else committed


def _to_time(mode: Mode, tp: TopicPartition, facts: Facts) -> int:
    found = facts.at_time.get(tp)
    return facts.ends[tp] if found is None else found


_CHOICES: dict[str, Callable[[Mode, TopicPartition, Facts], int]] = {
    "to-earliest": lambda mode, tp, facts: facts.begins[tp],
    "to-latest": lambda mode, tp, facts: facts.ends[tp],
    "to-current": _to_current,
    "to-offset": lambda mode, tp, facts: mode.value,
    "to-datetime": _to_time,
    "by-duration": _to_time,
    "shift-by": lambda mode, tp, facts: (facts.committed.get(tp) or 0) + mode.value,
    "from-file": lambda mode, tp, facts: facts.from_file[tp],
}


def parse_scope(text: str) -> tuple[str, tuple[int, ...]]:
    """`orders` or `orders:0,1`; no numbers stands for all partitions."""
    topic, colon, numbers = text.rpartition(":")
    if not colon:
        return text, ()
    try:
        return topic, tuple(int(number) for number in numbers.split(","))
    except ValueError:
        raise WrongInput(f"--topic takes TOPIC or TOPIC:0,1, not {text!r}") from None


def parse_file(text: str, group_id: str) -> dict[TopicPartition, int]:
    """CSV as Kafka's tool exports it: topic,partition,offset, or with the group in front."""
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) == 4 and cells[0] == group_id:
            cells = cells[1:]
        elif len(cells) == 4:
            continue  # another group's
        try:
            topic, partition, offset = cells
            found[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise WrongInput(
                f"line {number} of the file: give topic,partition,offset or group,topic,partition,offset"
            ) from None
    if not found:
        raise WrongInput(f"the file has no offsets for group {group_id}")
    return found
