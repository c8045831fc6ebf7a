"""Any number of take-overs, with a store that fails and brokers that stand still anywhere: nothing promised is lost."""

import pytest

from cluster.world import PARTITIONS, TOPIC, Violation, World
from kohort.broker import cluster_jobs, leading, membership, tidying
from kohort.broker.cluster_report import report
from kohort.broker.membership import Life
from kohort.broker.proposals import Wish
from kohort.cluster import journal, journal_writer, loading, manifests, names
from kohort.cluster.engine import Exists
from kohort.cluster.memory_engine import MemoryStore, Mishap
from kohort.protocol.uuids import to_base64


@pytest.fixture(autouse=True)
def tidy_all_the_time(monkeypatch):
    """And segments of a few batches, so that some are kept from one manifest to the next."""
    monkeypatch.setattr(manifests, "LARGE_SEGMENT", 200)
    monkeypatch.setattr(tidying, "AGAIN_MS", 50)


@pytest.mark.parametrize("seed", range(25))
def test_nothing_acknowledged_is_lost_and_nothing_read_changes(seed):
    world = World(seed)
    world.run()
    before = len(world.acknowledged)
    for node in world.nodes:
        for index in range(PARTITIONS):
            world.produce(node, index)
    world.settle(lambda: len(world.acknowledged) == before + PARTITIONS)
    world.settle(world.is_settled)
    world.check()


def test_most_runs_acknowledge_a_lot_and_move_leaders():
    world = World(5, trouble=0.02)
    world.run(steps=4000, nemesis=0.004)
    assert len(world.acknowledged) > 120
    assert max(partition.epoch for _, _, partition in world.nodes[0].membership.state.partitions()) > 1


# What the world found, or was made to show.


def test_tidying_goes_on_after_the_answer_about_a_manifest_was_lost():
    """The manifest is there, and its leader does not know: another of the same number would be refused for ever."""
    world = World(1, brokers=1, trouble=0)
    lost = []

    def mishap(verb, name):
        if verb == "create" and name.startswith("part/") and len(lost) < 3:
            lost.append(name)
            return Mishap.LOST_ANSWER
        return Mishap.NONE

    world.create_topic()
    world.nodes[0].engine.chance = mishap
    for _ in range(30):
        world.produce(world.nodes[0])
        world.settle(world.is_settled)
    world.settle(world.is_tidy)
    world.check()
    assert len(lost) == 3


def test_the_seal_of_a_journal_stays_when_an_earlier_one_came_late():
    """A seal may land on a slot that was written, and deleted, after the sealer had looked. It does not count, and the
    one that counts is not deleted for it: the owner of the journal could go on where it was."""
    engine = MemoryStore().engine()
    for seq in range(3, 6):
        engine.create(names.slot("1.1", seq), journal.encode(seq, "owner", trimmed=3))
    engine.create(names.slot("1.1", 1), journal.encode(1, "late", seal=True))
    seal = journal.seal(engine, "1.1", "new leader").last
    assert seal == 6
    tidying.empty(engine, "1.1", "tidy")
    with pytest.raises(Exists):
        engine.create(names.slot("1.1", seal), journal.encode(seal, "owner"))


def test_a_broker_that_cannot_apply_a_change_stops_and_others_take_over(monkeypatch):
    """Half of a change set would be served as if it were all."""
    world = World(1, trouble=0)
    world.create_topic()
    node = next(node for node in world.nodes if node.leads())
    led = {partition.index for partition in node.leads()}

    def applied(change):
        raise ValueError("a bug")

    monkeypatch.setattr(node.membership.catalog, "applied", applied)
    other = next(other for other in world.nodes if other is not node)
    wish = {"kind": "want", "topic": to_base64(other.core.topics.by_name[TOPIC].topic_id), "partition": 0}
    other.membership.propose(Wish([wish | {"leader": other.node_id}]), other.now_ms)
    stopped = node.membership
    world.settle(lambda: world.is_settled() and node.membership is not stopped)
    assert stopped.life is Life.OUTSIDE and "could not be applied (ValueError('a bug'))" in stopped.why_stopped
    assert led <= {index for each in world.nodes for index in [partition.index for partition in each.leads()]}


def test_a_replaced_leader_deletes_nothing_that_the_next_one_names():
    """It stands still, with its clock, when it has compacted segments and knows which of them to replace. Meanwhile
    another leads, from the manifest that was there; then it goes on, and hears of that only at its next write."""
    run_replaced_leader()


def run_replaced_leader():
    world = World(3, trouble=0)
    world.create_topic()
    world.calm = True
    old = next(node for node in world.nodes if node.leads())
    index = old.leads()[0].index
    for _ in range(12):
        world.produce(old, index)
        world.settle(world.is_settled)
    world.settle(world.is_tidy)
    log = old.core.topics.partition(TOPIC, index).log
    before = {row.name for row in log.manifest.segments}
    world.compact(index)
    old.ask()
    old.hear()
    assert log.was_compacted
    job = _begins_to_tidy(old, log)
    old.speed = 0
    world.settle(lambda: any(node.leads_place(index) for node in world.nodes if node is not old), but=old)
    world.settle(lambda: _covers(world, index), but=old)
    assert before & {row.name for row in _manifest(world, index).segments}
    job.run()
    old.core.job_done(job, None, old.now_ms)
    for late in old.core.take_jobs():  # what follows from that alone: nobody has told it anything yet
        late.run()
        old.core.job_done(late, None, old.now_ms)
    world.heal()
    world.settle(world.is_settled)
    world.check()


def _begins_to_tidy(node, log):
    """The question to the store with which what was compacted takes the place of what was there."""
    while log.was_compacted:
        tidying_of = node.membership.leading.tidying
        tidying_of.on_time(tidying_of.next_deadline(), [log])
        (job,) = node.core.take_jobs()
        if log.was_compacted:  # it was about something else
            job.run()
            node.core.job_done(job, None, node.now_ms)
    return job


def _manifest(world, index):
    return manifests.last(world.store.engine(), to_base64(world.nodes[0].core.topics.by_name[TOPIC].topic_id), index)


def _covers(world, index):
    return _manifest(world, index).epoch > 0


def test_a_slot_of_a_journal_that_is_gone_fails_its_partitions_alone_and_nobody_asks_for_ever(caplog):
    """Until it is back: then they are led with all that was acknowledged."""
    world = World(3, trouble=0, config={"kohort.cluster.journal.objects": 1_000_000})
    world.create_topic()
    world.calm = True
    dead = next(node for node in world.nodes if node.leads())
    lost = {partition.index for partition in dead.leads()}
    for _ in range(3):
        for index in range(PARTITIONS):
            world.produce(world.nodes[world.leaders(index)[0] - 1], index)
        world.settle(world.is_settled)
    name = names.slot(dead.membership.journal.journal, 1)
    dead.crash()
    slot = world.store.objects.pop(name)
    world.store.sorted_names.remove(name)
    others = [node for node in world.nodes if node is not dead]

    def damage():
        rows = [node.core.topics.partition(TOPIC, index) for node in others for index in range(PARTITIONS)]
        return {row.index: row.damage for row in rows if row.damage}

    world.settle(lambda: damage().keys() == lost, but=dead)
    assert set(damage().values()) == {
        f"{name} is gone from memory: restore it from a copy of the store before its partitions can be led"
    }
    assert all(len(world.leaders(index, others)) == (index not in lost) for index in range(PARTITIONS))
    (problem,) = report(world.store.engine(), others[0].membership.state)["problems"]
    assert problem.startswith(f"{name} is gone from memory: restore it from a copy; until then nobody can")
    told = len(caplog.records)
    for _ in range(100):
        world.settle(lambda: True, but=dead)
    assert len(caplog.records) == told
    others[0].engine.create(name, slot)
    world.settle(lambda: not damage(), but=dead)
    world.heal()
    world.settle(world.is_settled)
    assert report(world.store.engine(), others[0].membership.state)["problems"] == []
    world.check()


# Deliberate bugs: each must be caught by some seed, or the test above proves nothing.


def forget_the_seal(patch):
    def as_far_as_there_is(engine, name, nonce):
        first, stored = loading.kept(engine, name)
        taken = {journal.names.number(slot) for slot in engine.list(journal.names.journal_prefix(name))}
        end = first
        while end in taken:
            end += 1
        return journal.Extent(name, first, stored, end - 1)

    patch.setattr(loading, "seal", as_far_as_there_is)


def acknowledge_out_of_order(patch):
    def stored(self, write, now_ms):
        write.done = True
        if write in self.in_flight:
            self.in_flight.remove(write)
        for log, offset in write.logs:
            log.stored_to(offset, write.seq)

    patch.setattr(journal_writer.JournalWriter, "stored", stored)


def load_without_the_tail(patch):
    whole = loading.read
    patch.setattr(loading, "read", lambda *args: whole(*args)[:-1])


def take_an_unknown_end_for_success(patch):
    whole = leading.Leading._written

    def written(self, journal_, write, other, error, now_ms):
        whole(self, journal_, write, None, None, now_ms)

    patch.setattr(leading.Leading, "_written", written)


def skip_the_nonce(patch):
    def claim(engine, name, data):
        try:
            engine.create(name, data)
        except Exists:
            return None
        return None

    patch.setattr(cluster_jobs, "claim", claim)


def write_again_to_another_slot(patch):
    def send(self, writer, write):
        if write.tries:
            write.seq = writer.next_seq
            writer.next_seq += 1
            write.name = journal.names.slot(writer.journal, write.seq)
        whole(self, writer, write)

    whole = leading.Leading._send
    patch.setattr(leading.Leading, "_send", send)


def trust_the_clock(patch):
    """Who has given a sign of life in time takes its place for granted."""
    whole = leading.Leading._written

    def written(self, journal_, write, other, error, now_ms):
        if now_ms - self._membership._renewed_ms < self._membership.session_timeout_ms:
            other = None
        whole(self, journal_, write, other, error, now_ms)

    patch.setattr(leading.Leading, "_written", written)


def keep_serving_when_fenced(patch):
    """Behind the seal, where nobody reads."""
    whole = leading.Leading._written

    def written(self, journal_, write, other, error, now_ms):
        if other is not None and journal_.is_open:
            write.seq = journal_.next_seq
            journal_.next_seq += 1
            write.name = names.slot(journal_.journal, write.seq)
            self._send(journal_, write)
        else:
            whole(self, journal_, write, other, error, now_ms)

    patch.setattr(leading.Leading, "_written", written)


def keep_serving_without_signs_of_life(patch):
    whole = membership.Membership.fenced

    def fenced(self, reason, now_ms):
        if not reason.startswith("no sign of life could"):
            whole(self, reason, now_ms)

    patch.setattr(membership.Membership, "fenced", fenced)


def keep_serving_what_was_handed_over(patch):
    whole = leading.Leading._check_drained

    def check_drained(self, now_ms):
        logs = list(self._draining.values())
        whole(self, now_ms)
        for log in logs:
            if log.failure is not None and self._membership.journal.is_open:
                log.lead(self._membership.journal)
                self._partition((log.topic_id, log.partition)).leads = True

    patch.setattr(leading.Leading, "_check_drained", check_drained)


def delete_slots_before_the_journal_says_so(patch):
    whole = tidying.Tidying._delete

    def delete(self, now_ms):
        writer = self._membership.journal
        writer.said_trimmed = writer.trimmed
        whole(self, now_ms)

    patch.setattr(tidying.Tidying, "_delete", delete)
    trim = tidying.Tidying._trim

    def trimmed(self):
        trim(self)
        if not self.is_running:
            self._delete(0)

    patch.setattr(tidying.Tidying, "_trim", trimmed)


def delete_segments_before_others_are_named(patch):
    write = manifests.write

    def early(engine, draft, nonce, wrote=None):
        for name in draft.replaced():
            engine.delete(name)
        return write(engine, draft, nonce, wrote)

    patch.setattr(manifests, "write", early)


def delete_what_was_replaced_without_another_write(patch):
    whole = tidying.Tidying._written

    def written(self, *found):
        whole(self, *found)
        self._released.append((-1, self._replaced))
        self._replaced = []
        if not self.is_running:
            self._delete(0)

    patch.setattr(tidying.Tidying, "_written", written)


def delete_what_the_next_leader_needs(patch):
    patch.setattr(tidying.Tidying, "hand_over", lambda self, place, log: None)


OF_JOURNALS = [
    forget_the_seal,
    acknowledge_out_of_order,
    load_without_the_tail,
    take_an_unknown_end_for_success,
    skip_the_nonce,
    write_again_to_another_slot,
    trust_the_clock,
    keep_serving_when_fenced,
    keep_serving_without_signs_of_life,
]
OF_TIDYING = [
    skip_the_nonce,
    forget_the_seal,
    trust_the_clock,
    keep_serving_what_was_handed_over,
    delete_slots_before_the_journal_says_so,
    delete_segments_before_others_are_named,
    delete_what_the_next_leader_needs,
]


@pytest.mark.parametrize("bug", OF_JOURNALS)
def test_a_deliberate_bug_is_caught(bug, monkeypatch):
    hunt(bug, monkeypatch, objects=500)


@pytest.mark.parametrize("bug", OF_TIDYING)
def test_a_deliberate_bug_is_caught_where_journals_are_tidied_all_the_time(bug, monkeypatch):
    hunt(bug, monkeypatch, objects=3)


def test_a_replaced_leader_that_deletes_at_once_is_caught(monkeypatch):
    delete_what_was_replaced_without_another_write(monkeypatch)
    with pytest.raises(Violation, match="is gone from"):
        run_replaced_leader()


def hunt(bug, monkeypatch, objects):
    bug(monkeypatch)
    with pytest.raises(Violation):
        for seed in range(100):
            sharp(seed, objects).run(nemesis=0.015)


def sharp(seed, objects):
    return World(seed, trouble=0.05, config={"kohort.cluster.journal.objects": objects})
