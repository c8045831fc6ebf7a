"""Any number of take-overs, with a store that fails and brokers that stand still anywhere: nothing promised is lost."""

import pytest

from cluster.world import Violation, World
from kohort.broker import leading
from kohort.cluster import journal, journal_writer, loading


@pytest.mark.parametrize("seed", range(40))
def test_nothing_acknowledged_is_lost_and_nothing_read_changes(seed):
    world = World(seed)
    world.run()
    assert world.acknowledged


def test_most_runs_acknowledge_a_lot_and_move_leaders():
    world = World(5, trouble=0.02)
    world.run(steps=4000, nemesis=0.004)
    assert len(world.acknowledged) > 150
    assert max(partition.epoch for _, _, partition in world.nodes[0].membership.state.partitions()) > 1


# Deliberate bugs: each must be caught by some seed, or the test above proves nothing.


def forget_the_seal(patch):
    patch.setattr(loading, "seal", lambda engine, name, nonce: None)
    whole = loading.read

    def as_far_as_there_is(engine, name, first, until):
        try:
            yield from whole(engine, name, first, until)
        except loading.Missing:
            return

    patch.setattr(loading, "read", as_far_as_there_is)


def acknowledge_out_of_order(patch):
    def stored(self, write):
        write.done = True
        if write in self.in_flight:
            self.in_flight.remove(write)
        for log, offset in write.logs:
            log.stored_to(offset, write.seq)

    patch.setattr(journal_writer.JournalWriter, "stored", stored)


def load_without_the_tail(patch):
    whole = loading.read
    patch.setattr(loading, "read", lambda *args: list(whole(*args))[:-1])


def take_an_unknown_end_for_success(patch):
    whole = leading.Leading._written

    def written(self, journal_, write, other, error, now_ms):
        whole(self, journal_, write, None, None, now_ms)

    patch.setattr(leading.Leading, "_written", written)


def skip_the_nonce(patch):
    def claim(engine, name, data):
        try:
            engine.create(name, data)
        except leading_exists:
            return None
        return None

    from kohort.cluster.engine import Exists as leading_exists

    patch.setattr(leading, "claim", claim)


def write_again_to_another_slot(patch):
    def send(self, writer, write):
        if write.tries:
            write.seq = writer.next_seq
            writer.next_seq += 1
            write.name = journal.names.slot(writer.journal, write.seq)
        whole(self, writer, write)

    whole = leading.Leading._send
    patch.setattr(leading.Leading, "_send", send)


@pytest.mark.parametrize(
    "bug",
    [
        forget_the_seal,
        acknowledge_out_of_order,
        load_without_the_tail,
        take_an_unknown_end_for_success,
        skip_the_nonce,
        write_again_to_another_slot,
    ],
)
def test_a_deliberate_bug_is_caught(bug, monkeypatch):
    bug(monkeypatch)
    with pytest.raises(Violation):
        for seed in range(200):
            for objects in (500, 3):  # a journal that is kept, and one that is tidied all the time
                world = World(seed, trouble=0.05, config={"kohort.cluster.journal.objects": objects})
                world.run(nemesis=0.02)
