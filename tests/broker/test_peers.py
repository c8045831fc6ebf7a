"""Requests from broker to broker, without sockets: who is asked, and what becomes of whoever gets no answer."""

import pytest

from kohort.broker.find_coordinator import Endpoint
from kohort.broker.peers import LOOK_EVERY_MS, REQUEST_TIMEOUT_MS, Peers
from kohort.broker.transaction_peers import AskedElsewhere
from kohort.coordinator.transactions.asks import Enlist
from kohort.protocol.errors import ErrorCode
from kohort.protocol.frames import encode_response
from kohort.protocol.messages import (
    AddPartitionsToTxnResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class Core:
    node_id = 1

    def __init__(self):
        self.endpoints = {2: Endpoint(2, "two", 9092, None)}

    def endpoint(self, node_id):
        return self.endpoints.get(node_id)


class Asker:
    def __init__(self):
        self.answers = []

    def heard(self, answer, now_ms):
        self.answers.append(answer)


@pytest.fixture
def peers():
    return Peers(Core())


def ask(peers, now_ms=0, node_id=2):
    asker = Asker()
    peers.ask(node_id, WriteTxnMarkersRequest(markers=[]), 2, asker, now_ms)
    return asker


def answer(number):
    return b"".join(encode_response(number, 2, WriteTxnMarkersResponse()))


def test_answers_come_in_the_order_of_the_requests_however_they_arrive(peers):
    first, second = ask(peers), ask(peers)
    (link,) = peers.take()
    assert (link.host, link.port) == ("two", 9092) and link.take_output() and not link.take_output()
    data = answer(1) + answer(2)
    for byte in range(len(data)):
        peers.received(link, data[byte : byte + 1], 5)
    assert [type(found) for found in first.answers + second.answers] == [WriteTxnMarkersResponse] * 2
    assert peers.take() == [] and not link.closed


def test_a_broker_that_nobody_knows_is_not_asked(peers):
    assert ask(peers, node_id=7).answers == [None]
    assert peers.take() == []


@pytest.mark.parametrize("garbage", [answer(9), b"\x7f\xff\xff\xff", b"\x00\x00\x00\x05\x00\x00\x00\x01\x00"])
def test_what_is_no_answer_ends_the_connection_and_whoever_waits_is_told_once(peers, garbage):
    one, other = ask(peers), ask(peers)
    (link,) = peers.take()
    peers.received(link, garbage, 5)
    peers.received(link, answer(1), 5)
    peers.lost(link, 6)
    assert (one.answers, other.answers) == ([None], [None])
    assert peers.take() == [link] and link.closed
    ask(peers)
    assert peers.take() != [link]


def test_a_broker_that_is_silent_is_given_up_in_time(peers):
    asker = ask(peers, 0)
    peers.on_time(REQUEST_TIMEOUT_MS - 1)
    assert asker.answers == [] and peers.next_deadline() is not None
    peers.on_time(REQUEST_TIMEOUT_MS + LOOK_EVERY_MS)
    assert asker.answers == [None] and peers.next_deadline() is None


@pytest.mark.parametrize("now", [None, Endpoint(2, "two", 9999, None)], ids=["gone", "moved"])
def test_a_broker_that_is_gone_or_somewhere_else_is_not_waited_for(peers, now):
    asker = ask(peers, 0)
    peers._core.endpoints[2] = now
    peers.on_time(LOOK_EVERY_MS)
    assert asker.answers == [None]


def test_an_asker_that_fails_costs_the_others_nothing(peers):
    class Broken:
        def heard(self, answer, now_ms):
            raise ZeroDivisionError

    peers.ask(2, WriteTxnMarkersRequest(markers=[]), 2, Broken(), 0)
    fine = ask(peers)
    (link,) = peers.take()
    peers.received(link, answer(1) + answer(2), 5)
    assert len(fine.answers) == 1 and not link.closed


def test_a_coordinator_that_has_not_heard_of_a_topic_is_asked_again():
    class Told:
        def answered(self, errors, now_ms):
            self.errors = errors

    told, kind = Told(), AddPartitionsToTxnResponse
    new, old, refused = ("new", 0), ("old", 0), ("old", 1)
    rows = {
        new: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        old: ErrorCode.OPERATION_NOT_ATTEMPTED,
        refused: ErrorCode.TRANSACTION_ABORTABLE,
    }
    topics = [
        kind.AddPartitionsToTxnTopicResult(
            name=name,
            results_by_partition=[
                kind.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            ],
        )
        for (name, index), code in rows.items()
    ]
    result = kind.AddPartitionsToTxnResult(transactional_id="tx", topic_results=topics)
    AskedElsewhere(Enlist("tx", 1, 0, tuple(rows), True, 0), told).heard(kind(results_by_transaction=[result]), 0)
    again = ErrorCode.NETWORK_EXCEPTION
    assert told.errors == {new: again, old: again, refused: ErrorCode.TRANSACTION_ABORTABLE}
