"""The broker's assignors against Kafka's own classes: the same groups in, the same target assignments out.

Where Kafka depends on the order of its hashes (any topic ids), as balanced and no more moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import pack, unpack

import pytest

from apache_kafka import run_java
from kohort.assignors import GroupSpec, ServerAssignor, ServerRangeAssignor, UniformAssignor
from server_groups import Assigned, histories, moved, sizes

COUNT = 2500


def lines(assignor: str, spec: GroupSpec) -> str:
    made = [f"case {assignor} {'alike' if spec.alike else 'mixed'}"]
    made += [f"topic {_id(one)} {topic.partitions}" for one, topic in spec.topics.items()]
    for name, member in spec.members.items():
        topics = ",".join(map(_id, member.topic_ids)) or "-"
        assigned = ";".join(f"{_id(one)}={','.join(map(str, numbers))}" for one, numbers in member.assigned.items())
        made.append(f"member {name} {member.instance_id or '-'} {topics} {assigned or '-'}")
    return "\n".join([*made, "end\n"])


def _id(topic_id: bytes) -> str:
    return "{}:{}".format(*unpack(">qq", topic_id))


def ask_kafka(classes: Path, assignor: str, asked: Sequence[GroupSpec]) -> list[Assigned]:
    text = "".join(lines(assignor, spec) for spec in asked)
    out = run_java("ServerAssignorHarness", input=text, timeout=500, extra_class_path=[classes]).stdout.splitlines()
    assert len(out) == len(asked)
    answers = []
    for line in out:
        verdict, *words = line.split(" ")
        assert verdict == "ok", line
        answers.append({name: _read(text) for name, text in zip(words[::2], words[1::2], strict=True)})
    return answers


def _read(text: str) -> dict[bytes, frozenset[int]]:
    given = {}
    for part in text.split(";") if text != "-" else ():
        one, numbers = part.split("=")
        given[pack(">qq", *map(int, one.split(":")))] = frozenset(map(int, numbers.split(",")))
    return given


def filled(answer: Assigned) -> Assigned:
    return {name: dict(given) for name, given in answer.items() if given}


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "mixed"])
@pytest.mark.parametrize("assignor", [UniformAssignor(), ServerRangeAssignor()], ids=["uniform", "range"])
def test_the_same_as_kafkas(java_classes: Path, assignor: ServerAssignor, alike: bool) -> None:
    asked = list(histories(assignor, COUNT, seed=11, alike=alike))
    for spec, theirs in zip(asked, ask_kafka(java_classes, assignor.name, asked), strict=True):
        assert filled(assignor.assign(spec)) == filled(theirs), lines(assignor.name, spec)


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "mixed"])
def test_with_any_topic_ids_as_balanced_and_as_sticky(java_classes: Path, alike: bool) -> None:
    assignor = UniformAssignor()
    asked = list(histories(assignor, COUNT, seed=12, alike=alike, any_ids=True))
    for spec, theirs in zip(asked, ask_kafka(java_classes, "uniform", asked), strict=True):
        ours = assignor.assign(spec)
        assert sorted(sizes(ours)) == sorted(sizes(theirs)), lines("uniform", spec)
        assert moved(spec, ours) <= moved(spec, theirs), lines("uniform", spec)
