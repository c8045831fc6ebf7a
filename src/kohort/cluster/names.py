"""The names of a cluster's objects, and what can be read from them.

meta/<n>                        one change set of the cluster
snapshot/<n>                    the cluster after change set n
journal/<broker>.<inc>/<seq>    one group commit of all partitions that the broker leads; a seal ends it
part/<topic id>.<p>/<epoch>.<n> a manifest: which segments a partition has, and where its journal goes on
seg/<topic id>.<p>/<name>       batches of a partition
alive/<broker>.<inc>.<n>        a sign of life
"""

from __future__ import annotations

WIDTH = 12


def meta(version: int) -> str:
    return f"meta/{version:0{WIDTH}d}"


def snapshot(version: int) -> str:
    return f"snapshot/{version:0{WIDTH}d}"


def journal_id(node_id: int, incarnation: int) -> str:
    return f"{node_id}.{incarnation}"


def node_of(journal: str) -> int:
    return int(journal.partition(".")[0])


def journal_prefix(journal: str) -> str:
    return f"journal/{journal}/"


def slot(journal: str, seq: int) -> str:
    return f"journal/{journal}/{seq:0{WIDTH}d}"


def alive(journal: str, beat: int) -> str:
    return f"alive/{journal}.{beat:0{WIDTH}d}"


def manifests(topic_id: str, partition: int) -> str:
    return f"part/{topic_id}.{partition}/"


def manifest(topic_id: str, partition: int, epoch: int, number: int) -> str:
    return f"{manifests(topic_id, partition)}{epoch:0{WIDTH}d}.{number:0{WIDTH}d}"


def segments(topic_id: str, partition: int) -> str:
    return f"seg/{topic_id}.{partition}/"


def segment(topic_id: str, partition: int, base_offset: int, epoch: int, nonce: str) -> str:
    return f"{segments(topic_id, partition)}{base_offset:020d}-{epoch}-{nonce}"


def number(name: str) -> int:
    """The number that a name ends in."""
    return int(name.rpartition("/")[2].rpartition(".")[2])


def beat(name: str) -> tuple[str, int]:
    """Whose sign of life it is, and which one."""
    journal, _, count = name.removeprefix("alive/").rpartition(".")
    return journal, int(count)
