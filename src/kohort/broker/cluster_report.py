"""A cluster as its store tells it, also where no broker runs: for people, and for tools as plain values."""

from __future__ import annotations

from typing import Any

from kohort.cluster import meta_log, names
from kohort.cluster.engine import Engine, EngineError
from kohort.cluster.open_engine import open_engine
from kohort.cluster.state import NO_LEADER, BrokerState, ClusterState, Status
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
        "news": [
            {"version": n.version, "at_ms": n.at_ms, "broker": n.node_id, "what": n.what, "reason": n.reason}
            for n in state.news
        ],
    }


def _node(node_id: int) -> int | None:
    return None if node_id == NO_LEADER else node_id


def _journal_objects(engine: Engine, broker: BrokerState) -> int:
    """Group commits that have not become segments yet: what another broker would have to read at a take-over."""
    found = len(engine.list(names.journal_prefix(broker.journal)))
    return found if broker.status is Status.LIVE else max(found - 1, 0)
