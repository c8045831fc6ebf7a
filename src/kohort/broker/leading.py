"""What a broker of a cluster leads: partitions are taken over with all that was acknowledged, written, and handed over.

meta names this broker     the journals of those before it are sealed or known to be over, then read: it leads
an append                  goes to the journal with everything else of the turn; answered when it is stored
the journal holds a seal   another broker leads by now: nothing that waits was acknowledged
handed over                first nobody is served any more, then all is stored, then meta names another
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from kohort.broker.cluster_jobs import JournalJob
from kohort.broker.proposals import HandOver
from kohort.broker.tidying import Tidying
from kohort.cluster import loading
from kohort.cluster.journal import Gone, decode
from kohort.cluster.journal_writer import JournalWrite, JournalWriter
from kohort.cluster.placing import is_gathered, moves
from kohort.cluster.snapshots import Damaged
from kohort.cluster.state import NO_LEADER
from kohort.protocol.uuids import from_base64
from kohort.storage.journal_log import JournalLog, not_led
from kohort.storage.journal_store import JournalStore

if TYPE_CHECKING:
    from kohort.broker.membership import Membership
    from kohort.broker.topics import Partition, Topic

logger = logging.getLogger("kohort.cluster")

Place = tuple[str, int]
"""A topic id and a partition."""
Built = tuple[loading.Loaded, JournalLog | None]
"""What was read of a partition, and its log, unless the partition is gone."""
MOVES_AT_A_TIME = 20
RETRY_MS = 50
MAX_RETRY_MS = 1_000
LOAD_AGAIN_MS = 500
DAMAGED_AGAIN_MS = 5_000
GONE_TRIES = 3


class Leading:
    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._core = membership.core
        assert isinstance(membership.core.store, JournalStore)
        self._store: JournalStore = membership.core.store
        self._balance_delay_ms: int = membership.core.config["kohort.cluster.balance.delay.ms"]
        self._loading: dict[Place, int] = {}  # and the epoch that is loaded
        self._gone: dict[tuple[str, int, int], int] = {}  # how often something was not there for an epoch of a place
        self._draining: dict[Place, JournalLog] = {}
        self._given_up: set[Place] = set()
        self._leaving = False
        self._retries: list[tuple[int, JournalWrite]] = []
        self._look_again_ms: int | None = None
        self._balance_due_ms: int | None = None
        self.tidying = Tidying(membership)

    def logs(self) -> list[JournalLog]:
        """Of all that is led, and of what is about to be handed over."""
        partitions = (p for topic in self._core.topics.by_name.values() for p in topic.partitions if p.leads)
        led = [partition.log for partition in partitions if isinstance(partition.log, JournalLog)]
        return led + list(self._draining.values())

    @property
    def is_settled(self) -> bool:
        """Whether it serves all that it is to lead."""
        return not self._loading and not self._draining

    # ---- what the meta log says

    def reconcile(self, now_ms: int) -> None:
        """Lead what this broker is said to lead, and nothing else."""
        membership = self._membership
        own = membership.journal.journal if membership.is_member else None
        news: dict[Topic, None] = {}
        wanted: list[loading.Wanted] = []
        for state, index, row in membership.state.partitions():
            partition = self._partition((state.topic_id, index))
            if partition is None:
                continue
            place = (state.topic_id, index)
            is_own = own is not None and row.led_by(own)
            if partition.leads and not (is_own and partition.leader_epoch == row.epoch):
                self._stop(partition)
                news[partition.topic] = None
            given_up = place in self._given_up or place in self._draining
            is_there = is_own and not given_up if row.leader == membership.node_id else True
            leader = row.leader if is_there else NO_LEADER
            if not is_own:
                partition.damage = ""
            if partition.leader_id != leader or partition.leader_epoch != row.epoch:
                partition.leader_id, partition.leader_epoch = leader, row.epoch
                news[partition.topic] = None
            if is_own and not partition.leads and not given_up:
                if self._loading.get(place) != row.epoch:
                    self._loading[place] = row.epoch
                    wanted.append(loading.Wanted(state.topic_id, index, row.epoch, list(row.sources)))
            elif not is_own:
                self._given_up.discard(place)
                self._loading.pop(place, None)
        if wanted:
            self._load(wanted, now_ms)
        for topic in news:
            self._core.leaders_changed(topic, now_ms)
        self._plan_balance(now_ms)

    def _plan_balance(self, now_ms: int) -> None:
        delay_ms = self._delay_ms()
        if (self._balance_due_ms is None or not delay_ms) and self._has_moves():
            self._balance_due_ms = now_ms + delay_ms

    def members_changed(self, now_ms: int) -> None:
        """A broker has come or gone: wait for others before partitions move."""
        self._balance_due_ms = now_ms + self._balance_delay_ms

    def _partition(self, place: Place) -> Partition | None:
        topic = self._core.topics.by_id.get(from_base64(place[0]))
        return topic.partition(place[1]) if topic is not None else None

    def _stop(self, partition: Partition) -> None:
        partition.leads, partition.leader_id = False, NO_LEADER
        assert isinstance(partition.log, JournalLog)
        partition.log.give_up(not_led(partition.topic.name, partition.index))

    def give_up(self, now_ms: int) -> None:
        """The journal is over, or may be: whoever waits is told, everything is led elsewhere or loaded again."""
        self._membership.journal.close(not_led("what waits", 0))
        self.tidying.begin_life()
        self._loading.clear()
        self._gone.clear()
        self._draining.clear()
        self._given_up.clear()
        self._retries.clear()
        self._leaving = False
        news: dict[Topic, None] = {}
        for topic in self._core.topics.by_name.values():
            for partition in topic.partitions:
                if partition.leads:
                    self._stop(partition)
                    news[topic] = None
        for topic in news:
            self._core.leaders_changed(topic, now_ms)

    # ---- take over

    def _load(self, wanted: list[loading.Wanted], now_ms: int) -> None:
        membership = self._membership
        new = [one for one in wanted if one.is_new]
        old = [one for one in wanted if not one.is_new]
        if new:
            self._loaded(membership.journal, [loading.Loaded(one, [], 0) for one in new], None, now_ms)
        if old:
            nonce, engine, journal = membership.nonce(), membership.engine, membership.journal
            make = partial(self._build, now_ms)
            membership.ask(
                lambda: make(loading.load(engine, old, nonce)), partial(self._loaded_or_not, journal, old, now_ms)
            )

    def _build(self, now_ms: int, found: list[loading.Loaded | Damaged]) -> list[Built | Damaged]:
        """Logs of what was read; on another thread, since nobody else has them yet."""
        return [loaded if isinstance(loaded, Damaged) else (loaded, self._new_log(loaded, now_ms)) for loaded in found]

    def _new_log(self, loaded: loading.Loaded, now_ms: int) -> JournalLog | None:
        wanted = loaded.wanted
        partition = self._partition((wanted.topic_id, wanted.partition))
        if partition is None:
            return None
        topic = partition.topic
        log = JournalLog(
            topic.name, partition.index, topic.config, topic_id=wanted.topic_id, epoch=wanted.epoch, now_ms=now_ms
        )
        manifest = loaded.manifest
        log.restore_segments(
            manifest.segments,
            self._membership.cache,
            start_offset=manifest.start_offset,
            next_offset=manifest.next_offset,
            first_dirty_offset=manifest.first_dirty_offset,
            epochs=manifest.epochs,
            producers=manifest.producers,
        )
        for data in loaded.parts:
            log.restore(data)
        log.restore_start(loaded.start_offset)
        log.manifest = loaded.manifest
        log.is_settled = wanted.is_new
        log.producer_expiration_ms = self._core.config["producer.id.expiration.ms"]
        return log

    def _loaded_or_not(
        self,
        journal: JournalWriter,
        wanted: list[loading.Wanted],
        began_ms: int,
        found: Any,
        error: Exception | None,
        now_ms: int,
    ) -> None:
        if journal is not self._membership.journal:
            return
        if error is not None:
            self._not_loaded(wanted, error, now_ms)
            return
        built = [row for row in found if not isinstance(row, Damaged)]
        logger.info("%d partitions were read from the store in %d ms", len(built), now_ms - began_ms)
        self._loaded(journal, [row[0] for row in built], [row[1] for row in built], now_ms)
        damaged: dict[Damaged, list[loading.Wanted]] = {}
        for one, row in zip(wanted, found, strict=True):
            if isinstance(row, Damaged):
                damaged.setdefault(row, []).append(one)
        for reason, those in damaged.items():
            self._not_loaded(those, reason, now_ms)

    def _not_loaded(self, wanted: list[loading.Wanted], error: Exception, now_ms: int) -> None:
        """Again later."""
        wanted = [one for one in wanted if self._loading.get((one.topic_id, one.partition)) == one.epoch]
        if not wanted:
            return
        damaged = self._is_gone(wanted) if isinstance(error, Gone) else isinstance(error, Damaged)
        if not damaged:
            logger.warning("%d partitions cannot be taken over yet: %s", len(wanted), error)
        for one in wanted:
            del self._loading[one.topic_id, one.partition]
            if damaged:
                self._damaged(one, str(error), now_ms)
        wait_ms = DAMAGED_AGAIN_MS if damaged else LOAD_AGAIN_MS
        self._look_again_ms = min(self._look_again_ms or now_ms + wait_ms, now_ms + wait_ms)

    def _is_gone(self, wanted: list[loading.Wanted]) -> bool:
        """And not only until the meta log is read that says that others lead, and need it no more."""
        for one in wanted:
            key = (one.topic_id, one.partition, one.epoch)
            self._gone[key] = self._gone.get(key, 0) + 1
            if self._gone[key] < GONE_TRIES:
                return False
        return True

    def _damaged(self, wanted: loading.Wanted, reason: str, now_ms: int) -> None:
        """Whoever waits for it is told, once; it is looked at again now and then, since the store may be mended."""
        partition = self._partition((wanted.topic_id, wanted.partition))
        if partition is not None and not partition.leads and partition.damage != reason:
            partition.damage = reason
            logger.error("%s-%d cannot be led: %s", partition.topic.name, partition.index, reason)
            self._core.leaders_changed(partition.topic, now_ms)

    def _loaded(
        self, journal: JournalWriter, found: list[loading.Loaded], logs: list[JournalLog | None] | None, now_ms: int
    ) -> None:
        news: dict[Topic, None] = {}
        for number, loaded in enumerate(found):
            wanted = loaded.wanted
            place = (wanted.topic_id, wanted.partition)
            partition = self._partition(place)
            if self._loading.get(place) != wanted.epoch or partition is None:
                continue
            log = self._new_log(loaded, now_ms) if logs is None else logs[number]
            if log is None:
                continue
            del self._loading[place]
            log.configure(partition.topic.config)
            self._store.put(log)
            partition.log = log
            partition.leader_epoch = wanted.epoch
            partition.leads, partition.damage = True, ""
            log.lead(journal)
            news[partition.topic] = None
        for topic in news:
            self._core.leaders_changed(topic, now_ms)
        self._plan_balance(now_ms)

    # ---- write

    def write(self, now_ms: int) -> None:
        """As many objects as may be in flight."""
        membership = self._membership
        journal = membership.journal
        while journal.may_begin(now_ms, even_empty=self.tidying.has_word):
            self._send(journal, journal.next(membership.nonce(), now_ms))
        if self._draining:
            self._check_drained(now_ms)

    def _send(self, journal: JournalWriter, write: JournalWrite) -> None:
        if not write.tries:
            self.tidying.said(write.seq)
        engine = self._membership.engine
        self._core.run_elsewhere(JournalJob(engine, write, partial(self._written, journal, write)))

    def _written(
        self, journal: JournalWriter, write: JournalWrite, other: bytes | None, error: Exception | None, now_ms: int
    ) -> None:
        if not journal.is_open:
            return
        if error is not None:
            write.tries += 1
            wait_ms = min(RETRY_MS << min(write.tries, 6), MAX_RETRY_MS)
            logger.warning("the journal cannot be written, again in %d ms: %s", wait_ms, error)
            self._retries.append((now_ms + wait_ms, write))
        elif other is None:
            journal.stored(write, now_ms)
            self.tidying.stored(write.size, now_ms)
        else:
            self._membership.fenced(_why(write.name, other), now_ms)

    # ---- hand over

    def hand_over_all(self, now_ms: int) -> None:
        self._leaving = True
        places = [(state.topic_id, index) for state, index, _ in self._own()]
        self._drain(places, now_ms)
        self._check_drained(now_ms)

    def _own(self) -> list[Any]:
        return list(self._membership.state.led_by(self._membership.journal.journal))

    def _drain(self, places: list[Place], now_ms: int) -> None:
        """Nobody is served from these any more."""
        news: dict[Topic, None] = {}
        for place in places:
            partition = self._partition(place)
            if partition is None or place in self._draining or place in self._given_up:
                continue
            self._loading.pop(place, None)
            if partition.leads:
                assert isinstance(partition.log, JournalLog)
                partition.leads, partition.leader_id = False, NO_LEADER
                self._draining[place] = partition.log
                news[partition.topic] = None
            elif self._leaving:
                self._given_up.add(place)
        for topic in news:
            self._core.leaders_changed(topic, now_ms)

    def _check_drained(self, now_ms: int) -> None:
        """All of it is stored: another may lead it."""
        if any(log.durable_offset < log.end_offset for log in self._draining.values()):
            return
        if self.tidying.is_writing or (self._leaving and not self._membership.journal.is_idle):
            return
        places = list(self._draining)
        for place, log in self._draining.items():
            self.tidying.hand_over(place, log)
            log.give_up(not_led(log.topic, log.partition))
        self._draining.clear()
        self._given_up.update(places)
        until = self._membership.journal.stored_seq
        if self._leaving:
            places, self._leaving = list(self._given_up), False
            self._membership.propose(HandOver(self._membership, until, places, True), now_ms)
        elif places:
            self._membership.propose(HandOver(self._membership, until, places, False), now_ms)

    def handed_over(self, places: list[Place], now_ms: int) -> None:
        self._given_up.difference_update(places)
        self.reconcile(now_ms)

    def _has_moves(self) -> bool:
        membership = self._membership
        return membership.is_member and bool(moves(membership.state, membership.journal.journal, membership.node_id, 1))

    def _delay_ms(self) -> int:
        """None for what an operator wants, or what groups wait for."""
        membership = self._membership
        state, here = membership.state, (NO_LEADER, membership.node_id)
        is_wanted = membership.node_id in state.drained or any(
            row.wanted not in here or is_gathered(topic) for topic, _, row in self._own()
        )
        return 0 if is_wanted else self._balance_delay_ms

    def _balance(self, now_ms: int) -> None:
        membership = self._membership
        self._balance_due_ms = None
        if not membership.is_member:
            return
        found = moves(membership.state, membership.journal.journal, membership.node_id, MOVES_AT_A_TIME)
        places = [(state.topic_id, index) for state, index, _ in found]
        if places:
            logger.info("%d partitions move to where they belong", len(places))
            self._drain([place for place in places if place not in self._loading], now_ms)
            self._check_drained(now_ms)

    # ---- time

    def on_time(self, now_ms: int) -> None:
        due = [write for at_ms, write in self._retries if at_ms <= now_ms]
        self._retries = [row for row in self._retries if row[0] > now_ms]
        for write in due:
            self._send(self._membership.journal, write)
        self.write(now_ms)
        if self._look_again_ms is not None and now_ms >= self._look_again_ms:
            self._look_again_ms = None
            self.reconcile(now_ms)
        if self._balance_due_ms is not None and now_ms >= self._balance_due_ms:
            self._balance(now_ms)
        if self._draining or self._leaving:
            self._check_drained(now_ms)
        elif self._may_tidy and self.tidying.is_due(now_ms):
            self.tidying.on_time(now_ms, self.logs())

    def next_deadline(self) -> int | None:
        due = [at_ms for at_ms, _ in self._retries]
        others = (
            self._look_again_ms,
            self._balance_due_ms,
            self.tidying.next_deadline() if self._may_tidy else None,
            self._membership.journal.next_deadline(),
        )
        due += [at_ms for at_ms in others if at_ms is not None]
        return min(due, default=None)

    @property
    def _may_tidy(self) -> bool:
        return self._membership.is_member and not self._draining and not self._leaving


def _why(name: str, other: bytes) -> str:
    try:
        return "its journal is sealed" if decode(name, other).is_seal else f"{name} was written by somebody else"
    except Damaged as damaged:
        return str(damaged)
