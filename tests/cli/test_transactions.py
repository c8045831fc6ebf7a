"""`kohort transactions` through the command line."""

import itertools

import pytest

import kohort
from kohort.client.admin_types import HangingTransaction, ProducerState, TransactionDescription
from kohort.client.transaction_asks import hanging
from kohort.client.types import TopicPartition

_numbers = itertools.count()


@pytest.fixture
def open_transaction(broker, topic):
    """A transaction with one record in partition 1, by the id that is given out."""
    name = f"tx-{next(_numbers)}"
    producer = kohort.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name)
    producer.begin()
    producer.send(topic, "a", partition=1).result()
    yield name
    producer.close()


def hang(broker, topic, partition=0):
    """A transaction in a partition whose coordinator has never heard of it, as old brokers could leave them."""
    from kohort.broker.appends import Append
    from kohort.records.batch import build_key_values, read_header
    from kohort.storage.producers import COORDINATOR

    class Owner:
        def appended(self, append, now_ms):
            assert not append.error

    def write(running):
        found = running.core.topics.partition(topic, partition)
        data = build_key_values([(b"", b"hangs")], 1_600_000_000_000, producer=(4_711, 3))
        offset = found.log.end_offset
        running.core.append(Append(found, data, read_header(data), Owner(), None, COORDINATOR))
        running.core.flush(running.clock.now_ms())
        return offset

    return broker._call(write)


def test_list_and_describe(k, open_transaction, topic):
    rows = {row["transactional_id"]: row for row in k("transactions", "list", "--json").json()}
    assert rows[open_transaction]["state"] == "Ongoing"
    table = k("transactions", "list", "--state", "ongoing", "--match", f"{open_transaction}|none").rows()
    assert [row[:2] for row in table] == [[open_transaction, "Ongoing"]]
    assert k("transactions", "list", "--match", "none").out == "no transactional ids\n"
    (report,) = k("transactions", "describe", open_transaction, "--json").json()
    assert report["partitions"] == [{"topic": topic, "partition": 1}] and report["start_ms"] is not None
    shown = k("transactions", "describe", open_transaction).out
    assert shown.startswith(f"{open_transaction}: Ongoing, producer ") and "aborted by the broker after" in shown


def test_abort_of_an_id_fences_its_producer(k, broker, topic):
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="doomed") as producer:
        producer.begin()
        producer.send(topic, "a", partition=2).result()
        said = k("transactions", "abort", "doomed").out
        assert said.startswith("aborted the transaction of doomed in 1 partition; its producer ")
        with pytest.raises(kohort.ProducerFencedError):
            producer.commit()
    assert "doomed has no transaction open: it is " in k.refused("transactions", "abort", "doomed", code=1)


def test_one_that_hangs_is_found_named_and_aborted(k, broker, topic):
    offset = hang(broker, topic)
    table = k("transactions", "list", "--hanging", "--topic", topic).out
    assert table.splitlines()[1].split()[:5] == [topic, "0", str(offset), "4711", "3"]
    assert f"kohort transactions abort --topic {topic} --partition 0 --start-offset {offset}" in table
    (row,) = k("transactions", "list", "--hanging", "--topic", topic, "--json").json()
    assert row["why"] == "no coordinator knows its producer"
    place = ("--topic", topic, "--partition", "0", "--start-offset")
    wrong = k.refused("transactions", "abort", *place, "99999", code=1)
    assert wrong.endswith(f"those that are open begin at {offset}")
    assert (
        k("transactions", "abort", *place, str(offset)).out
        == f"aborted the transaction of producer 4711 in {topic}-0\n"
    )
    assert k("transactions", "list", "--hanging", "--topic", topic).out.startswith("no transaction hangs")
    assert k.refused("transactions", "abort", *place, str(offset), code=1).endswith("none is open there")


def test_what_does_not_hang_is_not_torn_apart(k, broker, open_transaction, topic):
    listed = k("transactions", "list", "--hanging", "--topic", topic, "--older-than", "0s").out
    assert listed.startswith("no transaction hangs")
    offset = broker._call(lambda running: running.core.topics.partition(topic, 1).log.producers.first_unstable_offset)
    said = k.refused(
        "transactions", "abort", "--topic", topic, "--partition", "1", "--start-offset", str(offset), code=1
    )
    assert said.endswith(f"kohort transactions abort {open_transaction} aborts that as a whole")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["describe", "never-was"], 1, "no such transactional id: never-was; kohort transactions list shows"),
        (["abort", "never-was"], 1, "no such transactional id: never-was"),
        (["abort"], 2, "give a transactional id, or --topic, --partition and --start-offset"),
        (["abort", "x", "--topic", "t"], 2, "give a transactional id, or --topic"),
        (["abort", "--topic", "t", "--partition", "0"], 2, "give a transactional id, or --topic"),
        (["abort", "--topic", "never-was", "--partition", "0", "--start-offset", "0"], 1, "does not exist"),
        (["list", "--state", "Open"], 2, "'Open' is no state of a transaction: there are Empty, Ongoing"),
        (["list", "--match", "("], 2, "is no regular expression"),
        (["list", "--hanging", "--state", "Ongoing"], 2, "--hanging takes neither --state nor --match"),
        (["list", "--older-than", "5m"], 2, "--topic and --older-than go with --hanging"),
        (["list", "--hanging", "--older-than", "soon"], 2, "'soon' is not a duration"),
        (["list", "--hanging", "--topic", "never-was"], 1, "no such topic: never-was"),
    ],
)
def test_clear_errors(k, arguments, code, says):
    assert says in k.refused("transactions", *arguments, code=code)


def test_what_makes_a_transaction_hang():
    tp, other = TopicPartition("t", 0), TopicPartition("t", 1)
    producer = ProducerState(tp, 7, 0, 0, 0, -1, 5)

    def judged(state="Ongoing", partitions=(tp,), producer_id=7, known=True):
        described = TransactionDescription("tx", 1, state, producer_id, 0, 60_000, 0, frozenset(partitions))
        found = hanging([producer], {7: "tx"} if known else {}, {"tx": described})
        return [one.why for one in found if isinstance(one, HangingTransaction)]

    assert judged() == [] and judged("PrepareAbort") == []
    assert judged(known=False) == ["no coordinator knows its producer"]
    assert judged(producer_id=8) == ["no coordinator knows its producer"]
    assert judged("CompleteCommit") == ["the transaction of tx is over (CompleteCommit)"]
    assert judged(partitions=[other]) == ["the transaction of tx does not hold the partition"]
