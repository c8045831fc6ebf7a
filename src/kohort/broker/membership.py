"""A broker's place in a cluster: it registers, gives signs of life, follows the meta log, and loses its place.

        OUTSIDE -> JOINING -> MEMBER -> LEAVING -> OUTSIDE
                      ^          |
                      +- fenced -+

What it leads, and how partitions come and go, is leading.py's business. Time is an argument; the store is asked through
jobs of the core. Nothing here is needed by a broker that stands alone.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from kohort.broker.cluster_jobs import StoreJob, read_range
from kohort.broker.cluster_topics import ClusterCatalog
from kohort.broker.leading import Leading
from kohort.broker.peers import Peers
from kohort.broker.proposals import Asked, EnsureTopic, Homed, ProducerIds, Proposal, Register, TakeOver
from kohort.cluster import meta_log, names
from kohort.cluster.engine import Engine, Exists
from kohort.cluster.journal_writer import JournalWriter
from kohort.cluster.liveness import Liveness
from kohort.cluster.placing import chosen, is_orphan
from kohort.cluster.snapshots import Damaged, encode_state
from kohort.cluster.state import Change, ClusterState, PartitionState, Status, TopicState
from kohort.protocol.errors import KafkaError
from kohort.protocol.uuids import to_base64
from kohort.storage.cold_segment import BlockCache

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.table import Handler
    from kohort.broker.topics import Partition, Topic

logger = logging.getLogger("kohort.cluster")

CHANGING = frozenset(
    {
        "CreateTopics", "DeleteTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs", "Metadata",
        "FindCoordinator", "ElectLeaders", "AlterPartitionReassignments", "CreateAcls", "DeleteAcls",
        "AlterUserScramCredentials", "AlterClientQuotas",
    }
)  # fmt: skip
"""Requests that may change the cluster."""
PROPOSAL_TIMEOUT_MS = 30_000
RETRY_MS = 100
MAX_RETRY_MS = 1_000
PRODUCER_IDS_LOW = 500


class Life(Enum):
    OUTSIDE = "outside"
    JOINING = "joining"
    MEMBER = "member"
    LEAVING = "leaving"


LIVES: dict[Life, frozenset[Life]] = {
    Life.OUTSIDE: frozenset({Life.JOINING}),
    Life.JOINING: frozenset({Life.MEMBER, Life.OUTSIDE}),
    Life.MEMBER: frozenset({Life.JOINING, Life.LEAVING, Life.OUTSIDE}),
    Life.LEAVING: frozenset({Life.OUTSIDE}),
}


class Membership:
    def __init__(self, core: Core, engine: Engine, state: ClusterState) -> None:
        self.core = core
        self.engine = engine
        self.state = state
        self.node_id: int = core.node_id
        assert isinstance(core.topics, ClusterCatalog)
        self.catalog: ClusterCatalog = core.topics
        self.life = Life.OUTSIDE
        self.incarnation = 0
        self.member_since_ms = 0
        self.journal = JournalWriter(names.journal_id(self.node_id, 0))
        self.journal.is_open = False
        self.cache = BlockCache(core.config["kohort.cluster.cache.bytes"], partial(read_range, engine))
        self.leading = Leading(self)
        self.peers = Peers(core)
        self.catalog.documents_changed = self._documents_changed
        self.why_registering = "started"
        self.why_stopped: str | None = None
        self.ended: Callable[[], None] | None = None  # told when the broker cannot go on
        self.session_timeout_ms: int = core.config["broker.session.timeout.ms"]
        self.heartbeat_ms: int = min(core.config["broker.heartbeat.interval.ms"], self.session_timeout_ms // 3)
        self._liveness = Liveness(max(self.heartbeat_ms, 2 * engine.poll_ms))
        self._address: tuple[str, int, str | None] = ("", 0, None)
        self._proposals: deque[tuple[Proposal, int]] = deque()
        self._proposing: tuple[Proposal, int, list[Change], str] | None = None
        self._retry: int | None = None  # the version whose fate is not known
        self._wants_ids = False
        self._looking = self._look_again = self._renewing = False
        self._look_due_ms = self._renew_due_ms = self._propose_due_ms = 0
        self._renewed_ms = 0
        self._beat = 0
        self._now_ms = 0
        self._stale: list[str] = []
        for api in list(core.table.apis.values()):
            if api.name in CHANGING:
                core.table.apis[api.key] = api._replace(handler=partial(self._changing, api.function()))

    # ---- its life

    def become(self, life: Life) -> None:
        assert life in LIVES[self.life], f"{self.life} -> {life}"
        self.life = life

    @property
    def is_member(self) -> bool:
        return self.life is Life.MEMBER

    @property
    def has_its_place(self) -> bool:
        """Others count on it: it leads what the cluster says it leads."""
        return self.life in (Life.MEMBER, Life.LEAVING)

    @property
    def is_joining(self) -> bool:
        return self.life is Life.JOINING

    def join(self, host: str, port: int, now_ms: int) -> None:
        """Clients can reach this broker there: register."""
        self._address = (host, port, self.core.config["broker.rack"])
        self._now_ms = now_ms
        self.become(Life.JOINING)
        self._propose_first(Register(self, *self._address), now_ms)

    def registered(self, incarnation: int, producer_ids: int, now_ms: int) -> None:
        if self.life is not Life.JOINING:
            return
        if not self.state.is_current(self.node_id, incarnation):
            self._propose_first(Register(self, *self._address), now_ms)
            return
        self.incarnation = incarnation
        self.journal = JournalWriter(names.journal_id(self.node_id, incarnation))
        self.catalog.forget_producer_ids()
        self.catalog.use_producer_ids(producer_ids, 1000)
        self.become(Life.MEMBER)
        self.member_since_ms = now_ms
        self._renewed_ms, self._renew_due_ms, self._beat = now_ms, now_ms, 0
        logger.info(
            "broker %d is a member of cluster %s, in its life %d", self.node_id, self.state.cluster_id, incarnation
        )
        self.leading.reconcile(now_ms)

    def fenced(self, reason: str, now_ms: int) -> None:
        """Others may lead by now: nothing that is under way is acknowledged, and all begins anew."""
        if self.life is Life.LEAVING:
            self._end(now_ms)
            return
        if self.life is not Life.MEMBER:
            return
        logger.warning("broker %d has lost its place in the cluster: %s", self.node_id, reason)
        self.leading.give_up(now_ms)
        self.why_registering = f"was fenced: {reason}"
        self.become(Life.JOINING)
        self._propose_first(Register(self, *self._address), now_ms)

    def leave(self, now_ms: int) -> None:
        """Hand everything over, and go; `life` is OUTSIDE when that is done."""
        if self.life is Life.MEMBER:
            self.become(Life.LEAVING)
            self.leading.hand_over_all(now_ms)
        elif self.life is Life.JOINING:
            self.become(Life.OUTSIDE)

    def handed_over(self, given_up: list[tuple[str, int]], now_ms: int) -> None:
        self.leading.handed_over(given_up, now_ms)
        if self.life is Life.LEAVING:
            self._end(now_ms)

    def _end(self, now_ms: int) -> None:
        self.leading.give_up(now_ms)
        self.become(Life.OUTSIDE)

    def _replaced(self, host: str, port: int, now_ms: int) -> None:
        """Somebody else has this node id: the older of the two gives way, or both would fence each other for ever."""
        self._halt(
            f"another broker has registered with node.id {self.node_id}, at {host}:{port}: this one stops; "
            "give every broker an id of its own",
            now_ms,
        )

    def _halt(self, why: str, now_ms: int) -> None:
        """This process is of no use to the cluster any more: others take over what it leads."""
        self.why_stopped = why
        logger.error("%s", why)
        if self.life in (Life.MEMBER, Life.LEAVING):
            self._end(now_ms)
        else:
            self.life = Life.OUTSIDE
        if self.ended is not None:
            self.ended()

    # ---- requests that change the cluster

    def _changing(self, handler: Handler, core: Core, call: Call, request: Any, now_ms: int) -> Any:
        response, changes = self.catalog.plan(lambda: handler(core, call, request, now_ms))
        if not changes:
            return response
        self.propose(Asked(self, handler, call, request), now_ms)
        return None

    def _placed(self, partition: Partition) -> tuple[TopicState, PartitionState] | None:
        topic = self.state.topics.get(to_base64(partition.topic.topic_id))
        if topic is None or partition.index >= len(topic.partitions):
            return None
        return topic, topic.partitions[partition.index]

    def preferred(self, partition: Partition) -> int:
        """Who should lead it: whom an operator wants, else by its name alone; -1 for nobody."""
        found = self._placed(partition)
        live = self.state.eligible(self.state.live)
        return -1 if found is None else chosen(found[0], partition.index, found[1], live)

    def wanted(self, partition: Partition) -> int:
        """Whom an operator wants to lead it; -1 for nobody, or for one that does not live."""
        found = self._placed(partition)
        return -1 if found is None or found[1].wanted not in self.state.live else found[1].wanted

    def propose(self, proposal: Proposal, now_ms: int) -> None:
        self._proposals.append((proposal, now_ms))
        self._propose_next(now_ms)

    def ensure_topic(self, name: str, partitions: int, now_ms: int) -> None:
        """A topic of the broker's own; it is there after a while."""
        waiting = [proposal for proposal, _ in self._proposals] + [self._proposing[0] if self._proposing else None]
        if not any(isinstance(proposal, EnsureTopic) and proposal.name == name for proposal in waiting):
            self.propose(EnsureTopic(self, name, partitions), now_ms)

    def homed(self, topic: Topic, now_ms: int) -> None:
        """What the partitions of a grown topic had of others is where it belongs now."""
        waiting = [proposal for proposal, _ in self._proposals] + [self._proposing[0] if self._proposing else None]
        if not any(isinstance(proposal, Homed) for proposal in waiting):
            self.propose(Homed(topic), now_ms)

    def _propose_first(self, proposal: Proposal, now_ms: int) -> None:
        self._proposals.appendleft((proposal, now_ms))
        self._propose_next(now_ms)

    def _propose_next(self, now_ms: int) -> None:
        while self._proposals and self._proposing is None:
            proposal, since_ms = self._proposals.popleft()
            changes = proposal.changes(self.state, now_ms)
            if not changes:
                proposal.needless(now_ms)
                continue
            self._proposing = (proposal, since_ms, changes, self.nonce())
            self._ask_for(self.state.version + 1)

    def _ask_for(self, version: int) -> None:
        assert self._proposing is not None
        proposal, _, changes, nonce = self._proposing
        begins = isinstance(proposal, Register)
        self.ask(
            lambda: meta_log.propose(self.engine, version, changes, nonce, begins=begins),
            partial(self._proposed, proposal, version),
        )

    def _proposed(self, proposal: Proposal, version: int, is_ours: bool, error: Exception | None, now_ms: int) -> None:
        assert self._proposing is not None and self._proposing[0] is proposal
        _, since_ms, changes, _ = self._proposing
        if error is not None:
            # It may be in the log: the same is asked for again until that is known.
            if isinstance(proposal, Asked) and now_ms - since_ms > PROPOSAL_TIMEOUT_MS:
                proposal.timed_out(now_ms)
            logger.warning("the meta log cannot be written: %s", error)
            self._propose_due_ms = now_ms + RETRY_MS
            self._retry = version
            return
        self._proposing = None
        if is_ours:
            if version == self.state.version + 1:
                self._apply(version, changes, now_ms)
            proposal.committed(now_ms)
            self._propose_next(now_ms)
        else:
            self._proposals.appendleft((proposal, since_ms))
            self._look(now_ms)

    # ---- the meta log

    def _look(self, now_ms: int) -> None:
        if self._looking:
            return
        self._looking = True
        version, stale = self.state.version, self._stale

        def look() -> tuple[list[tuple[int, list[Change]]], list[str]]:
            if stale:
                self.engine.delete_all(stale)
            return meta_log.news(self.engine, version), self.engine.list("alive/")

        self._stale = []
        self.ask(look, self._looked)

    def _looked(self, found: Any, error: Exception | None, now_ms: int) -> None:
        self._looking = False
        self._look_due_ms = now_ms + (0 if self._look_again else self.engine.poll_ms)
        self._look_again = False
        if error is not None:
            if isinstance(error, Damaged):
                logger.error("%s", error)
            return
        news, beats = found
        for version, changes in news:
            if version == self.state.version + 1:
                self._apply(version, changes, now_ms)
        if self._proposing is None:
            self._propose_next(now_ms)
        self._watch(beats, now_ms)

    def _watch(self, beats: list[str], now_ms: int) -> None:
        live = [b.journal for b in self.state.brokers.values() if b.status is Status.LIVE]
        others = [journal for journal in live if names.node_of(journal) != self.node_id]
        self._stale = [name for name in beats if names.beat(name)[0] not in live]
        self._liveness.looked(beats, others, now_ms)
        if not self.is_member or any(isinstance(proposal, TakeOver) for proposal, _ in self._proposals):
            return
        silent = self._liveness.silent(self.session_timeout_ms)
        if silent or any(is_orphan(self.state, partition) for _, _, partition in self.state.partitions()):
            self.propose(TakeOver(self, silent), now_ms)

    def _apply(self, version: int, changes: list[Change], now_ms: int) -> None:
        """Whole, or not at all: a broker that knows half of a change set would serve what is not so."""
        if self.why_stopped is not None:
            return
        try:
            self._take_in(version, changes, now_ms)
        except Exception as error:
            logger.exception("a change of the cluster could not be applied")
            self._halt(
                f"change {version} of the cluster could not be applied ({error!r}): this broker stops, others take "
                "over what it led; start it again, and report this if it happens again",
                now_ms,
            )

    def _take_in(self, version: int, changes: list[Change], now_ms: int) -> None:
        self.state.apply(version, changes)
        self.catalog.now_ms = now_ms
        came: list[Topic] = []
        for change in changes:
            topic = self.catalog.applied(change)
            kind = change["kind"]
            if kind == "topic" and topic is not None:
                came.append(topic)
            elif kind == "delete_topic" and topic is not None:
                self._sweep(change["topic"], len(topic.partitions))
                self.core.changed(topic.partitions, now_ms)
                self.core.topics_deleted({topic.name: topic.topic_id}, now_ms)
            elif kind in ("grow", "homed") and topic is not None:
                came.append(topic)
            elif kind == "register" and change["node"] == self.node_id:
                self._own_registration(change, now_ms)
            elif kind in ("register", "stopped", "fence"):
                self.leading.members_changed(now_ms)
        if self.is_member and not self.state.is_current(self.node_id, self.incarnation):
            self.fenced(self._why_fenced(), now_ms)
        self.leading.reconcile(now_ms)
        for topic in came:
            self.core.topic_came(topic, now_ms)
        if version % meta_log.SNAPSHOT_EVERY == 0:
            data = encode_state(self.state)
            self.ask(lambda: meta_log.keep_snapshot(self.engine, version, data), lambda *_: None)

    def _documents_changed(self) -> None:
        """Users, access control entries and quotas are those of the meta log, also where a plan has tried others."""
        for kept in (self.core.users, self.core.access, self.core.quotas):
            try:
                kept.load()
            except KafkaError as error:
                logger.error("%s", error.message)

    def _sweep(self, topic_id: str, partitions: int) -> None:
        """What a deleted topic has outside of journals goes with it; one of the brokers sees to it."""
        if self.is_member and self.state.live[0] == self.node_id:
            prefixes = [
                prefix(topic_id, index) for index in range(partitions) for prefix in (names.manifests, names.segments)
            ]
            engine = self.engine
            self.ask(lambda: _delete_below(engine, prefixes), lambda *_: None)

    def _own_registration(self, change: Change, now_ms: int) -> None:
        """Of this process, unless it carries an address that is not its own."""
        if self.life is not Life.OUTSIDE and (change["host"], change["port"]) != self._address[:2]:
            self._replaced(change["host"], change["port"], now_ms)

    def _why_fenced(self) -> str:
        told = [news for news in self.state.news if news.node_id == self.node_id]
        return told[-1].reason if told else "the meta log says so"

    # ---- signs of life

    def _renew(self, now_ms: int) -> None:
        self._renewing = True
        self._beat += 1
        journal, beat = self.journal.journal, self._beat

        def renew() -> None:
            try:
                self.engine.create(names.alive(journal, beat), b"")
            except Exists:
                pass
            if beat > 1:
                self.engine.delete(names.alive(journal, beat - 1))

        self.ask(renew, partial(self._was_renewed, journal, now_ms))

    def _was_renewed(self, journal: str, began_ms: int, _: Any, error: Exception | None, now_ms: int) -> None:
        self._renewing = False
        if error is None and journal == self.journal.journal:
            self._renewed_ms = max(self._renewed_ms, began_ms)
            self._renew_due_ms = began_ms + self.heartbeat_ms
        else:
            self._renew_due_ms = now_ms + min(self.heartbeat_ms // 4, MAX_RETRY_MS)

    # ---- time

    def end_turn(self, now_ms: int) -> None:
        """The core has appended what the turn gathered: store it."""
        self.leading.write(now_ms)

    def on_time(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self.life is Life.OUTSIDE:
            return
        if self.life is not Life.JOINING and now_ms - self._renewed_ms > self.session_timeout_ms:
            self.fenced(f"no sign of life could be stored for {now_ms - self._renewed_ms} ms", now_ms)
        if now_ms >= self._look_due_ms:
            self._look(now_ms)
        if self.life is not Life.JOINING and now_ms >= self._renew_due_ms and not self._renewing:
            self._renew(now_ms)
        if self._retry is not None and now_ms >= self._propose_due_ms:
            version, self._retry = self._retry, None
            self._ask_for(version)
        if self.is_member and self.catalog.producer_ids_left < PRODUCER_IDS_LOW and not self._wants_ids:
            self._wants_ids = True
            self.propose(ProducerIds(self), now_ms)
        elif self.catalog.producer_ids_left >= PRODUCER_IDS_LOW:
            self._wants_ids = False
        self.leading.on_time(now_ms)
        self.peers.on_time(now_ms)

    def next_deadline(self) -> int | None:
        if self.life is Life.OUTSIDE:
            return None
        due = [self.leading.next_deadline(), self.peers.next_deadline()]
        due.append(None if self._looking else self._look_due_ms)
        if self.life is not Life.JOINING:
            due.append(self._renewed_ms + self.session_timeout_ms + 1)
            due.append(None if self._renewing else self._renew_due_ms)
        if self._retry is not None:
            due.append(self._propose_due_ms)
        return min(at_ms for at_ms in due if at_ms is not None) if any(at is not None for at in due) else None

    def look_soon(self, now_ms: int) -> None:
        """News may be there."""
        if self.life is Life.OUTSIDE:
            return
        if self._looking:
            self._look_again = True
        else:
            self._look(now_ms)

    # ---- the store

    def ask(self, question: Callable[[], Any], answered: Callable[[Any, Exception | None, int], None]) -> None:
        self.core.run_elsewhere(StoreJob(question, answered))

    def nonce(self) -> str:
        return self.core.random_bytes(12).hex()


def _delete_below(engine: Engine, prefixes: list[str]) -> None:
    found = engine.together([partial(engine.list, prefix) for prefix in prefixes])
    engine.delete_all([name for some in found for name in some])
