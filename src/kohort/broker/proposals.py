"""What a broker wants written to the meta log. A proposal is asked for its changes until the log has them.

Every attempt sees the state that it follows: where another broker was quicker, it is asked again, and may by then want
nothing any more.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from kohort.broker import error_answers
from kohort.cluster.placing import chosen, lead, take_over
from kohort.cluster.state import NO_LEADER, PRODUCER_ID_BLOCK, Change, ClusterState, Status
from kohort.protocol.errors import ErrorCode
from kohort.protocol.uuids import to_base64

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.membership import Membership
    from kohort.broker.table import Handler
    from kohort.broker.topics import Topic

logger = logging.getLogger("kohort.cluster")

ANSWERED_ANEW = frozenset({"Metadata", "FindCoordinator"})
"""Their answers show what was changed, so they are made again when it is there."""


class Proposal(Protocol):
    def changes(self, state: ClusterState, now_ms: int) -> list[Change]:
        """What is to follow this state; nothing where there is nothing left to do."""

    def committed(self, now_ms: int) -> None: ...

    def needless(self, now_ms: int) -> None:
        """It wanted nothing, or the broker has lost its place and does not try any longer."""


class Asked:
    """A request of a client that changes the cluster."""

    def __init__(self, membership: Membership, handler: Handler, call: Call, request: Any) -> None:
        self._membership = membership
        self._handler = handler
        self._call = call
        self._request = request
        self._response: Any = None

    def changes(self, state: ClusterState, now_ms: int) -> list[Change]:
        core = self._membership.core
        if self._call.connection.close_reason is not None:
            return []
        self._response, changes = self._membership.catalog.plan(
            lambda: self._handler(core, self._call, self._request, now_ms)
        )
        return changes

    def committed(self, now_ms: int) -> None:
        core = self._membership.core
        if self._call.entry.name in ANSWERED_ANEW:
            core.serve(self._call, self._request, now_ms)
        else:
            core.reply(self._call, self._response)

    def needless(self, now_ms: int) -> None:
        if self._response is not None:
            self._membership.core.reply(self._call, self._response)

    def timed_out(self, now_ms: int) -> None:
        core, call = self._membership.core, self._call
        answer = error_answers.entire(call.entry.name, call.version, self._request, ErrorCode.REQUEST_TIMED_OUT)
        if answer is None:
            core.disconnect(call.connection, f"{call.entry.name}: the store of the cluster does not answer")
        else:
            core.reply(call, answer)


class Wish:
    """Changes of a broker's own, without a client."""

    def __init__(self, changes: list[Change]) -> None:
        self._changes = changes

    def changes(self, state: ClusterState, now_ms: int) -> list[Change]:
        return [change for change in self._changes if change.get("topic") is None or change["topic"] in state.topics]

    def committed(self, now_ms: int) -> None:
        pass

    def needless(self, now_ms: int) -> None:
        pass


class Homed:
    """A topic that has grown has everything in its place again: others may lead its partitions."""

    def __init__(self, topic: Topic) -> None:
        self._topic_id = to_base64(topic.topic_id)
        self._partitions = topic.count

    def changes(self, state: ClusterState, now_ms: int) -> list[Change]:
        topic = state.topics.get(self._topic_id)
        if topic is None or not topic.grown_from or len(topic.partitions) != self._partitions:
            return []
        return [{"kind": "homed", "topic": self._topic_id, "partitions": self._partitions}]

    def committed(self, now_ms: int) -> None:
        pass

    def needless(self, now_ms: int) -> None:
        pass


class EnsureTopic:
    """A topic that the broker needs for itself, where nobody has made it yet."""

    def __init__(self, membership: Membership, name: str, partitions: int) -> None:
        self._membership = membership
        self.name = name
        self._partitions = partitions

    def changes(self, state: ClusterState, now_ms: int) -> list[Change]:
        if self.name in state.names:
            return []
        catalog = self._membership.catalog
        return catalog.plan(lambda: catalog.create(self.name, self._partitions))[1]

    def committed(self, now_ms: int) -> None:
        pass

    def needless(self, now_ms: int) -> None:
        pass


class Register:
    """Another life of this broker; what its last one led is led anew."""

    def __init__(self, membership: Membership, host: str, port: int, rack: str | None) -> None:
        self._membership = membership
        self._address: Change = {"host": host, "port": port, "rack": rack}
        self.incarnation = 0
        self.producer_ids = 0

    def changes(self, state: ClusterState, now_ms: int) -> list[Change]:
        if not self._membership.is_joining:
            return []
        node_id = self._membership.node_id
        known = state.brokers.get(node_id)
        self.incarnation = 1 if known is None else known.incarnation + 1
        self.producer_ids = state.next_producer_id
        live = sorted({*state.live, node_id})
        return [
            {
                "kind": "register",
                "node": node_id,
                "incarnation": self.incarnation,
                "at_ms": now_ms,
                "reason": self._membership.why_registering,
                **self._address,
            },
            {"kind": "producer_ids", "node": node_id, "start": self.producer_ids, "count": PRODUCER_ID_BLOCK},
            *take_over(state, set() if known is None else {known.journal}, live),
        ]

    def committed(self, now_ms: int) -> None:
        self._membership.registered(self.incarnation, self.producer_ids, now_ms)

    def needless(self, now_ms: int) -> None:
        pass


class ProducerIds:
    """Another block of producer ids for this broker."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._start = 0

    def changes(self, state: ClusterState, now_ms: int) -> list[Change]:
        self._start = state.next_producer_id
        node_id = self._membership.node_id
        return [{"kind": "producer_ids", "node": node_id, "start": self._start, "count": PRODUCER_ID_BLOCK}]

    def committed(self, now_ms: int) -> None:
        self._membership.catalog.use_producer_ids(self._start, PRODUCER_ID_BLOCK)

    def needless(self, now_ms: int) -> None:
        pass


class TakeOver:
    """Lives of brokers that were silent for too long are over, and what nobody leads gets a leader."""

    def __init__(self, membership: Membership, silent: dict[str, int]) -> None:
        self._membership = membership
        self._silent = silent

    def changes(self, state: ClusterState, now_ms: int) -> list[Change]:
        if not self._membership.is_member:
            return []
        gone = [b for b in state.brokers.values() if b.status is Status.LIVE and b.journal in self._silent]
        dead = {broker.node_id for broker in gone}
        live = [node_id for node_id in state.live if node_id not in dead]
        fences: list[Change] = [
            {
                "kind": "fence",
                "node": broker.node_id,
                "incarnation": broker.incarnation,
                "at_ms": now_ms,
                "reason": f"no sign of life for {self._silent[broker.journal]} ms, seen by {self._membership.node_id}",
            }
            for broker in gone
        ]
        for fence in fences:
            logger.warning("broker %d is taken for dead: %s", fence["node"], fence["reason"])
        return fences + take_over(state, {broker.journal for broker in gone}, live)

    def committed(self, now_ms: int) -> None:
        pass

    def needless(self, now_ms: int) -> None:
        pass


class HandOver:
    """Partitions that this broker has given up, with all they have stored, go to others; perhaps it goes as well."""

    def __init__(self, membership: Membership, until: int, given_up: list[tuple[str, int]], stops: bool) -> None:
        self._membership = membership
        self._journal = membership.journal.journal
        self._until = until
        self._given_up = given_up
        self._stops = stops

    def changes(self, state: ClusterState, now_ms: int) -> list[Change]:
        node_id = self._membership.node_id
        others = state.eligible([node for node in state.live if node != node_id] if self._stops else state.live)
        changes: list[Change] = []
        for topic, index, _ in list(state.led_by(self._journal)):
            if not self._stops and (topic.topic_id, index) not in self._given_up:
                continue
            # Whatever was given to a broker that stops, it has written nothing to it since.
            to = chosen(topic, index, topic.partitions[index], others) if others else NO_LEADER
            changes.append(lead(topic, index, to, self._until))
        me = state.brokers.get(node_id)
        if self._stops and me is not None and me.journal == self._journal and me.status is Status.LIVE:
            changes.append({"kind": "stopped", "node": node_id, "incarnation": me.incarnation, "at_ms": now_ms})
        return changes

    def committed(self, now_ms: int) -> None:
        self._membership.handed_over(self._given_up, now_ms)

    def needless(self, now_ms: int) -> None:
        self._membership.handed_over(self._given_up, now_ms)
