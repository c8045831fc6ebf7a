"""A cluster as its store tells it, also where no broker runs: for people, and for tools as plain values."""

from __future__ import annotations

from typing import Any

from kohort.cluster import meta_log, names
from kohort.cluster.engine import Engine, EngineError
from kohort.cluster.journal import first_kept
from kohort.cluster.open_engine import open_engine
from kohort.cluster.state import NO_LEADER, BrokerState, ClusterState, Source, Status
from kohort.coordinator.records import OFFSETS_TOPIC

Report = dict[str, Any]


def read_report(url: str) -> Report:
    """EngineError or Damaged say what is wrong with the store; nothing is written to it."""
    engine = open_engine(url, create=False)
    try:
        state = meta_log.load(engine)
        if not state.cluster_id:
            raise EngineError(f"there is no cluster in {url}: is it the place that kohort serve --cluster was given?")
        return report(engine, state)
    finally:
        engine.close()


def report(engine: Engine, state: ClusterState) -> Report:
    leads: dict[int, int] = {}
    coordinates: dict[int, int] = {}
    partitions = []
    for topic, index, partition in state.partitions():
        leads[partition.leader] = leads.get(partition.leader, 0) + 1
        if topic.name == OFFSETS_TOPIC:
            coordinates[partition.leader] = coordinates.get(partition.leader, 0) + 1
        row = {"topic": topic.name, "partition": index, "leader": _node(partition.leader), "epoch": partition.epoch}
        partitions.append(row | {"wanted": _node(partition.wanted)})
    beats: dict[str, int] = {}
    for journal, beat in map(names.beat, engine.list("alive/")):
        beats[journal] = max(beat, beats.get(journal, 0))
    return {
        "cluster_id": state.cluster_id,
        "version": state.version,
        "brokers": [
            {
                "id": broker.node_id,
                "incarnation": broker.incarnation,
                "status": broker.status.value,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "drained": broker.node_id in state.drained,
                "leads": leads.get(broker.node_id, 0),
                "coordinates": coordinates.get(broker.node_id, 0),
                "journal_objects": _journal_objects(engine, broker),
                "signs_of_life": beats.get(broker.journal, 0),
            }
            for _, broker in sorted(state.brokers.items())
        ],
        "partitions": sorted(partitions, key=lambda row: (row["topic"], row["partition"])),
        "leaderless": leads.get(NO_LEADER, 0),
        "problems": _problems(engine, state),
        "news": [
            {"version": n.version, "at_ms": n.at_ms, "broker": n.node_id, "what": n.what, "reason": n.reason}
            for n in state.news
        ],
    }


def _problems(engine: Engine, state: ClusterState) -> list[str]:
    """What is gone from journals of those who lead no more, and is needed to lead what they led."""
    needed: dict[Source, list[str]] = {}
    for topic, index, partition in state.partitions():
        for source in partition.sources:
            if source.until is not None or source.epoch < partition.epoch:
                needed.setdefault(source._replace(epoch=0), []).append(f"{topic.name}-{index}")
    found = []
    for source, places in needed.items():
        seqs = {names.number(name) for name in engine.list(names.journal_prefix(source.journal))}
        last = max(seqs, default=-1) if source.until is None else source.until
        lost = [seq for seq in range(first_kept(engine, source.journal), last + 1) if seq not in seqs]
        if lost:
            found.append(
                f"{names.slot(source.journal, lost[0])} is gone from {engine.name}: restore it from a copy; "
                f"until then nobody can lead {', '.join(places[:3])}{' and others' if len(places) > 3 else ''}"
            )
    return found


def _node(node_id: int) -> int | None:
    return None if node_id == NO_LEADER else node_id


def _journal_objects(engine: Engine, broker: BrokerState) -> int:
    """Group commits that have not become segments yet: what another broker would have to read at a take-over."""
    found = len(engine.list(names.journal_prefix(broker.journal)))
    return found if broker.status is Status.LIVE else max(found - 1, 0)
