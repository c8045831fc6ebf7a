"""The longest wait of an innocent member while somebody attacks: kohort and a real Kafka side by side.

The member is a process of its own that sends a heartbeat every 20 ms on a connection of its own; the attackers are
another (`hostile_attacks.py`). `make hostile` runs this alone, each attack for `--seconds`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hostile_attacks import ATTACKS, Wire, find_coordinator, frame, join
from hostile_rows import ACL_ATTACKS, ROW_ATTACKS
from kohort.protocol import messages as m
from process import resident_bytes
from tables import Table
from targets import Target, running

BEAT_S = 0.02
AT_ONCE = 500
PATIENCE_S = 60  # for an attack that waits for its last answer
PARTITIONS = 1000
GROUPS = 20_000
CONFIG = {
    "offsets.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
}
GUARDED = CONFIG | {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ENTRIES = 500
ASK_FOR_MUCH = (
    "512 Metadata(all) at once",
    "100 ListGroups of 20,000 groups at once",
    "240,000 names",
    "OffsetFetch of 20,000 groups",
    "Fetch of 100,000 partitions",
)
"""What an authorizer has to look at name by name."""
EVERY = ATTACKS | ROW_ATTACKS | ACL_ATTACKS
SLOW = ("SyncGroups of 1 MB", "OffsetFetch of 20,000 groups", "Fetch of 100,000 partitions")


def beat(address: str, group: str, stop: Any, result: Any) -> None:
    """Heartbeats until `stop`; then the longest wait."""
    wire = Wire(address)
    find_coordinator(wire, group)
    member_id, generation = join(wire, group)
    request = frame(m.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id), 3)
    longest = 0.0
    result.put("ready")
    while not stop.is_set():
        began = time.monotonic()
        wire.socket.sendall(request)
        wire.receive()
        longest = max(longest, time.monotonic() - began)
        time.sleep(BEAT_S)
    result.put(longest)
    wire.call(m.LeaveGroupRequest(group_id=group, member_id=member_id), 2)


def prepare(address: str) -> None:
    wire, kind = Wire(address), m.CreateTopicsRequest
    wanted = {
        "wide": (PARTITIONS, {}),
        "compacted": (1, {"cleanup.policy": "compact"}),
        "recompressed": (1, {"compression.type": "gzip"}),
    }
    topics = [
        kind.CreatableTopic(
            name=name,
            num_partitions=count,
            replication_factor=1,
            configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for name, (count, configs) in wanted.items()
    ]
    wire.call(kind(topics=topics, timeout_ms=60_000), 5)
    find_coordinator(wire, "innocent")
    commit = m.OffsetCommitRequest
    row = commit.OffsetCommitRequestTopic(
        name="wide", partitions=[commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
    )
    for start in range(0, GROUPS, AT_ONCE):
        for index in range(start, start + AT_ONCE):
            wire.send(commit(group_id=f"g{index}", topics=[row]), 7)
        for _ in range(AT_ONCE):
            wire.receive()


def add_entries(address: str) -> None:
    """About topics and groups of others: each name that is asked for is held against them."""
    kind = m.CreateAclsRequest
    rows = [
        kind.AclCreation(
            resource_type=resource, resource_name=f"team-{number}-", resource_pattern_type=4,
            principal=f"User:{number}", host="*", operation=3, permission_type=3,
        )
        for number in range(ENTRIES)
        for resource in (2, 3)
    ]  # fmt: skip
    answer = Wire(address).call(kind(creations=rows), 3)
    assert not any(row.error_code for row in answer.results), "the entries were not taken"


def attack_of(name: str, address: str, seconds: float, answers: Any) -> None:
    answers.put(EVERY[name](address, seconds))


def measured(name: str, target: Any, seconds: float) -> tuple[float, float, Counter[str]]:
    """The longest wait in milliseconds, by how many MB the broker grew, and what the attacker was answered."""
    context = multiprocessing.get_context("spawn")
    stop, result, answers = context.Event(), context.Queue(), context.Queue()
    group = f"innocent-{time.time_ns()}"
    innocent = context.Process(target=beat, args=(target.bootstrap_servers, group, stop, result))
    innocent.start()
    assert result.get(timeout=120) == "ready"
    before = most = resident_bytes(target.pid)
    attacker = context.Process(target=attack_of, args=(name, target.bootstrap_servers, seconds, answers))
    attacker.start()
    ends = time.monotonic() + seconds + PATIENCE_S
    while attacker.is_alive() and time.monotonic() < ends:
        most = max(most, resident_bytes(target.pid))
        attacker.join(0.05)
    said = answers.get(timeout=1) if attacker.exitcode == 0 else Counter({"not answered in time": 1})
    attacker.kill()
    stop.set()
    longest = result.get(timeout=300)
    innocent.join()
    return longest * 1000, (most - before) / 1e6, said


def run(options: argparse.Namespace) -> Iterator[Table]:
    waits = Table("The longest wait of an innocent member's heartbeat")
    memory = Table("What the broker grew by meanwhile")
    for side in options.sides:
        open_ones = [name for name in ATTACKS | ROW_ATTACKS if wanted(name, options)]
        if open_ones:
            with running(side, CONFIG) as target:
                prepare(target.bootstrap_servers)
                for name in open_ones:
                    attack(target, name, name, options.seconds, waits, memory)
        guarded = {name: f"{name}, with an authorizer" for name in (*ASK_FOR_MUCH, *ACL_ATTACKS)}
        guarded = {name: shown for name, shown in guarded.items() if wanted(shown, options)}
        if guarded:
            with running(side, GUARDED) as target:
                prepare(target.bootstrap_servers)
                add_entries(target.bootstrap_servers)
                for name, shown in guarded.items():
                    attack(target, name, shown, options.seconds, waits, memory)
    yield waits
    yield memory


def wanted(name: str, options: argparse.Namespace) -> bool:
    return not options.attacks or any(part.lower() in name.lower() for part in options.attacks)


def attack(target: Target, name: str, shown: str, seconds: float, waits: Table, memory: Table) -> None:
    longest_ms, grown_mb, said = measured(name, target, seconds)
    waits.put(target.side, shown, longest_ms, "ms", goal=f"below {300 if name in SLOW else 200} ms")
    memory.put(target.side, shown, grown_mb, "MB", goal="below 100 MB")
    told = ", ".join(f"{kind} {count}" for kind, count in sorted(said.items()))
    memory.notes.append(f"{target.side}: {shown}: {told or '-'}")
