"""A cluster's state and its change sets as bytes, both ways. Damage is told as what it is: nothing is guessed."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from kohort.cluster.state import (
    FORMAT,
    KINDS,
    BrokerState,
    Change,
    ClusterState,
    News,
    PartitionState,
    Source,
    Status,
    TopicState,
)


class Damaged(Exception):
    """An object is not what was written; the sentence says which one and what to do."""


def encode_changes(version: int, changes: list[Change], nonce: str) -> bytes:
    return json.dumps({"format": FORMAT, "version": version, "nonce": nonce, "changes": changes}).encode()


def decode_changes(name: str, data: bytes) -> list[Change]:
    document = _document(name, data)
    changes: list[Change] = document["changes"]
    unknown = {change.get("kind") for change in changes} - KINDS
    if unknown:
        raise Damaged(f"{name} has changes that this version of kohort does not know ({unknown}): upgrade this broker")
    return changes


def encode_state(state: ClusterState) -> bytes:
    document = {
        "format": FORMAT,
        "version": state.version,
        "cluster_id": state.cluster_id,
        "brokers": [asdict(broker) | {"status": broker.status.value} for broker in state.brokers.values()],
        "topics": [asdict(topic) for topic in state.topics.values()],
        "broker_configs": [[node, configs] for node, configs in state.broker_configs.items()],
        "cluster_configs": state.cluster_configs,
        "group_configs": state.group_configs,
        "documents": state.documents,
        "next_producer_id": state.next_producer_id,
        "news": [list(news) for news in state.news],
    }
    return json.dumps(document).encode()


def decode_state(name: str, data: bytes) -> ClusterState:
    document = _document(name, data, "delete it, the meta log has all that it says")
    state = ClusterState()
    state.version, state.cluster_id = document["version"], document["cluster_id"]
    for row in document["brokers"]:
        state.brokers[row["node_id"]] = BrokerState(**row | {"status": Status(row["status"])})
    for row in document["topics"]:
        partitions = [_partition(partition) for partition in row["partitions"]]
        topic = TopicState(row["name"], row["topic_id"], row["configs"], partitions, row.get("grown_from", []))
        state.topics[topic.topic_id] = topic
        state.names[topic.name] = topic.topic_id
    state.broker_configs = {node: configs for node, configs in document["broker_configs"]}
    state.cluster_configs, state.group_configs = document["cluster_configs"], document["group_configs"]
    state.documents = document.get("documents", {})
    state.next_producer_id = document["next_producer_id"]
    state.news.extend(News(*row) for row in document["news"])
    return state


def _partition(row: dict[str, Any]) -> PartitionState:
    return PartitionState(**row | {"sources": [Source(*source) for source in row["sources"]]})


def _document(
    name: str, data: bytes, advice: str = "restore it from a copy of the store; nothing else is lost"
) -> dict[str, Any]:
    try:
        document = json.loads(data)
        found = document["format"]
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"{name} is damaged: {advice}") from None
    if found != FORMAT:
        raise Damaged(
            f"{name} has format {found}, this version of kohort reads {FORMAT}: use the version that wrote it"
        )
    whole: dict[str, Any] = document
    return whole
