"""`kohort cluster move` and `drain`: what is asked of the brokers, what is checked before, and what is said after."""

from __future__ import annotations

import time
from typing import Any

from kohort.cli.failures import Failed, WrongInput
from kohort.cli.output import plural

DRAINED = "kohort.cluster.drained.brokers"
LOOK_EVERY_S = 0.1


def _check_node(admin: Any, node_id: int) -> dict[int, Any]:
    nodes: dict[int, Any] = admin.describe_cluster().nodes
    if node_id not in nodes:
        raise WrongInput(f"no broker {node_id} is there: {', '.join(map(str, sorted(nodes)))}")
    return nodes


def _partition(admin: Any, topic: str, partition: int) -> Any:
    known = admin.list_topics(internal=True)
    if topic not in known:
        raise WrongInput(f"there is no topic {topic}; kohort topics list shows them")
    partitions = {row.partition: row for row in admin.describe_topics([topic])[topic].partitions}
    if partition not in partitions:
        raise WrongInput(f"there is no partition {topic}-{partition}: {topic} has 0 to {max(partitions)}")
    return partitions[partition]


def move(admin: Any, topic: str, partition: int, to: int, timeout_s: float) -> dict[str, Any]:
    from kohort.client.types import TopicPartition

    row = _partition(admin, topic, partition)
    _check_node(admin, to)
    found = {"topic": topic, "partition": partition, "from": row.leader, "to": to}
    if row.leader == to:
        return found | {"done": True}
    replicas = list(row.replicas)
    if len(replicas) > 1 and to not in replicas:
        raise Failed(
            f"broker {to} has no replica of {topic}-{partition}, only {', '.join(map(str, replicas))} have: move its "
            "data with Kafka's kafka-reassign-partitions.sh"
        )
    place = TopicPartition(topic, partition)
    admin.alter_partition_reassignments({place: [to, *(node for node in replicas if node != to and len(replicas) > 1)]})
    if len(replicas) > 1:
        admin.elect_leaders([place])
    done = _until(lambda: _partition(admin, topic, partition).leader == to, timeout_s)
    if not done and timeout_s:
        raise Failed(f"{topic}-{partition} is still led by {_partition(admin, topic, partition).leader}: look again")
    return found | {"done": done}


def _until(is_done: Any, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not is_done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def said_of_move(found: dict[str, Any]) -> str:
    name = f"{found['topic']}-{found['partition']}"
    if found["from"] == found["to"]:
        return f"{name} is led by broker {found['to']} already"
    return f"{name} {'is led by' if found['done'] else 'goes to'} broker {found['to']}, was {found['from']}"


def drain(admin: Any, node_id: int, timeout_s: float) -> dict[str, Any]:
    from kohort.client.admin_types import Resource

    nodes = _check_node(admin, node_id)
    drained = _drained(admin, node_id)
    left = sorted(node for node in nodes if node != node_id and str(node) not in drained)
    if not left:
        raise Failed(f"broker {node_id} cannot be drained: no other broker is there that may lead")
    if str(node_id) not in drained:
        admin.edit_config_list(Resource.broker(""), DRAINED, add=[str(node_id)])
    done = _until(lambda: _leads(admin, node_id) == 0, timeout_s)
    leads = _leads(admin, node_id)
    if not done and timeout_s:
        raise Failed(
            f"broker {node_id} still leads {plural(leads, 'partition')}: look again with kohort cluster status"
        )
    return {"broker": node_id, "drained": True, "leads": leads}


def end_drain(admin: Any, node_id: int) -> dict[str, Any]:
    from kohort.client.admin_types import Resource

    some = next(iter(admin.describe_cluster().nodes))
    drained = _drained(admin, some)
    if str(node_id) not in drained:
        known = ", ".join(sorted(drained)) or "none is"
        raise WrongInput(f"broker {node_id} is not drained: {known}")
    admin.edit_config_list(Resource.broker(""), DRAINED, remove=[str(node_id)])
    return {"broker": node_id, "drained": False, "leads": _leads(admin, node_id)}


def _drained(admin: Any, node_id: int) -> set[str]:
    from kohort.client.admin_types import Resource

    resource = Resource.broker(node_id)
    entry = admin.describe_configs([resource])[resource].get(DRAINED)
    if entry is None:
        raise Failed("only clusters of kohort can be drained; Kafka's brokers hand over when they are stopped")
    return {node.strip() for node in (entry.value or "").split(",") if node.strip()}


def _leads(admin: Any, node_id: int) -> int:
    topics = admin.describe_topics(admin.list_topics(internal=True))
    return sum(row.leader == node_id for topic in topics.values() for row in topic.partitions)


def said_of_drain(found: dict[str, Any]) -> str:
    if found["drained"]:
        what = "leads nothing" if not found["leads"] else f"still leads {plural(found['leads'], 'partition')}"
        return (
            f"broker {found['broker']} is drained and {what}; kohort cluster drain {found['broker']} --end lets it lead"
        )
    return f"broker {found['broker']} may lead again; its share of partitions moves to it"
