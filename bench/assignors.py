"""The assignors beside Kafka's own Java classes, in one run: from encoded subscriptions to encoded assignments.

`python bench/assignors.py` prints a table; Java is measured after its warm-up, both take the median of their runs.
Nothing is read from or written to a network; the Java side is tests/conformance/java/AssignorHarness.java.
"""

from __future__ import annotations

import argparse
import base64
import gc
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from apache_kafka import compile_java, java_command  # noqa: E402
from kohort.assignors import (  # noqa: E402
    BUILTIN,
    Assignment,
    ClusterMetadata,
    ConsumerGroupMetadata,
    Subscription,
    assign_group,
    decode_assignment,
    decode_group,
    encode_assignment,
    encode_subscription,
)

HEADER = """\
Milliseconds, median (best). Steps: first assignment of a group; a member leaves a group that is new, whose members have
alike partitions, or old, where no two have; members whose subscriptions differ.

assignor           step        members topics partitions          kohort     Kafka (Java)   ratio    best"""
JVM = ("-Xms512m", "-Xmx1g", "-XX:+UseSerialGC")


def topics_of(topic_count: int, partitions: int) -> dict[str, int]:
    return {f"topic-{i:04d}": partitions // topic_count for i in range(topic_count)}


def joining(name: str, counts: dict[str, int], members: int) -> dict[str, bytes]:
    """The subscriptions of members that have never been assigned anything."""
    topics = list(counts)
    user_data = BUILTIN[name]().subscription_user_data(topics)
    encoded = encode_subscription(Subscription(topics, user_data))
    return {f"consumer-group-1-{i:04d}-5f1a2f6e-35e1-4b8b-9a39-4f0a3e5a{i:04d}": encoded for i in range(members)}


def shuffled(counts: dict[str, int], members: Sequence[str]) -> dict[str, bytes]:
    """An assignment as after many rebalances: balanced, but no two members alike."""
    partitions = [(topic, number) for topic, count in counts.items() for number in range(count)]
    random.Random(1).shuffle(partitions)
    encoded = {}
    for i, member in enumerate(members):
        by_topic: dict[str, list[int]] = {}
        for topic, number in sorted(partitions[i :: len(members)]):
            by_topic.setdefault(topic, []).append(number)
        encoded[member] = encode_assignment(Assignment(by_topic))
    return encoded


def rejoining(name: str, counts: dict[str, int], assigned: dict[str, bytes]) -> dict[str, bytes]:
    """The subscriptions of the same members after that assignment, without the last one, which has left."""
    topics = list(counts)
    subscriptions = {}
    for member, data in list(assigned.items())[:-1]:
        assignor = BUILTIN[name]()
        assignment = decode_assignment(data)
        assignor.on_assignment(assignment, ConsumerGroupMetadata("g", 7, member))
        owned = assignment.partitions if name == "cooperative-sticky" else {}
        subscription = Subscription(topics, assignor.subscription_user_data(topics), owned, 7)
        subscriptions[member] = encode_subscription(subscription)
    return subscriptions


def differing(counts: dict[str, int], members: int) -> dict[str, bytes]:
    """Members that each subscribe to half of the topics."""
    topics, chance = list(counts), random.Random(2)
    half = max(1, len(topics) // 2)
    return {f"member-{i:04d}": encode_subscription(Subscription(chance.sample(topics, half))) for i in range(members)}


def ours(name: str, counts: dict[str, int], group: dict[str, bytes]) -> dict[str, bytes]:
    return assign_group(BUILTIN[name](), ClusterMetadata(counts), decode_group(group))


def measure(run: Callable[[], object], runs: int) -> list[float]:
    run()
    times = []
    for _ in range(runs):
        gc.collect()
        began = time.perf_counter()
        run()
        times.append((time.perf_counter() - began) * 1000)
    return times


class Java:
    """The harness in one JVM, so that it is as warm as it gets."""

    def __init__(self, runs: int) -> None:
        classes = compile_java(ROOT / "tests/conformance/java")
        command = java_command("AssignorHarness", "bench", str(runs), extra_class_path=[classes], jvm=JVM)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def times(self, name: str, counts: dict[str, int], group: dict[str, bytes]) -> list[float]:
        lines = [f"case {name}", *(f"topic {topic} {count}" for topic, count in counts.items())]
        lines += [f"member {member} - {base64.b64encode(data).decode()}" for member, data in group.items()]
        self._process.stdin.write("\n".join([*lines, "end\n"]))
        self._process.stdin.flush()
        return [float(word) for word in self._process.stdout.readline().split()]

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--topics", type=int, nargs="+", default=[1, 100])
    parser.add_argument("--assignors", nargs="+", default=list(BUILTIN))
    parser.add_argument(
        "--differing", type=int, nargs=3, default=[100, 20, 2000], metavar=("MEMBERS", "TOPICS", "PARTITIONS")
    )
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--without-java", action="store_true")
    args = parser.parse_args()
    java = None if args.without_java else Java(args.runs)
    print(HEADER)
    for topic_count in args.topics:
        for partitions in args.partitions:
            counts = topics_of(topic_count, partitions)
            for name in args.assignors:
                for step, group in steps_of(name, counts, args.members).items():
                    compare(java, args.runs, name, step, counts, group)
    if args.differing:
        members, topic_count, partitions = args.differing
        counts = topics_of(topic_count, partitions)
        for name in args.assignors:
            compare(java, args.runs, name, "differing", counts, differing(counts, members))
    if java:
        java.close()


def steps_of(name: str, counts: dict[str, int], members: int) -> dict[str, dict[str, bytes]]:
    first = joining(name, counts, members)
    if "sticky" not in name:
        return {"first": first}
    new, old = ours(name, counts, first), shuffled(counts, list(first))
    return {"first": first, "leaves new": rejoining(name, counts, new), "leaves old": rejoining(name, counts, old)}


def compare(
    java: Java | None, runs: int, name: str, step: str, counts: dict[str, int], group: dict[str, bytes]
) -> None:
    mine = measure(lambda: ours(name, counts, group), runs)
    theirs = java.times(name, counts, group) if java else [float("nan")]
    ours_ms, java_ms = statistics.median(mine), statistics.median(theirs)
    left = f"{ours_ms:.1f} ({min(mine):.1f})"
    right = f"{java_ms:.1f} ({min(theirs):.1f})"
    ratios = f"{ours_ms / java_ms:>8.2f}{min(mine) / min(theirs):>8.2f}"
    sizes = f"{len(group):>8}{len(counts):>7}{sum(counts.values()):>11}"
    print(f"{name:<19}{step:<11}{sizes}{left:>16}{right:>17}{ratios}", flush=True)


if __name__ == "__main__":
    main()
