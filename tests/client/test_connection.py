"""The sans-IO connection against scripted bytes: handshake, order, limits, and what is not Kafka's protocol."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import kohort
from kohort.client.blocking import BlockingTransport
from kohort.client.config import Config
from kohort.client.connection import PHASES, Connection, Phase
from kohort.client.errors import AuthenticationError, KafkaError, NotConnectedError
from kohort.client.renewal import Renewal
from kohort.client.sasl import Credentials
from kohort.protocol.apis import ApiKey
from kohort.protocol.errors import ErrorCode
from kohort.protocol.frames import FrameSplitter, encode_response, parse_request_header
from kohort.protocol.messages import (
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)

VERSIONS = {
    ApiKey.FETCH: (4, 12),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
}


class Peer:
    """The broker's end: requests as headers, answers as bytes."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._splitter = FrameSplitter()

    def requests(self) -> list[Any]:
        return [parse_request_header(frame) for frame in self._splitter.feed(self.connection.take_output())]

    def bytes(self, data: bytes) -> list[Any]:
        """Into the buffer, as much at a time as it takes."""
        answers = []
        while data:
            room = self.connection.get_buffer()
            assert len(room) > 0
            piece, data = data[: len(room)], data[len(room) :]
            room[: len(piece)] = piece
            answers += self.connection.received(len(piece))
        return answers

    def answer(self, header: Any, message: Any, version: int | None = None) -> list[Any]:
        return self.bytes(
            b"".join(
                encode_response(header.correlation_id, header.api_version if version is None else version, message)
            )
        )

    def agree(self) -> None:
        (header,) = self.requests()
        assert header.api_key == ApiKey.API_VERSIONS
        self.answer(header, api_versions())


def api_versions(error: ErrorCode = ErrorCode.NONE) -> ApiVersionsResponse:
    entry = ApiVersionsResponse.ApiVersion
    return ApiVersionsResponse(
        error_code=error,
        api_keys=[entry(api_key=int(key), min_version=low, max_version=high) for key, (low, high) in VERSIONS.items()],
    )


def started(credentials: Credentials | None = None, **options: Any) -> Peer:
    connection = Connection("broker:9092", "me", credentials, nonce="abc", **options)
    connection.start()
    return Peer(connection)


def ready(**options: Any) -> Peer:
    peer = started(**options)
    peer.agree()
    assert peer.connection.ready
    return peer


def test_versions_are_agreed_on_before_anything_is_sent() -> None:
    peer = started()
    with pytest.raises(NotConnectedError, match="asks for the broker's versions"):
        peer.connection.send(1, HeartbeatRequest())
    peer.agree()
    assert peer.connection.ready
    peer.connection.send(7, HeartbeatRequest(group_id="g"))
    (header,) = peer.requests()
    assert (header.api_key, header.api_version) == (ApiKey.HEARTBEAT, 4)
    assert peer.answer(header, HeartbeatResponse(error_code=27)) == [(7, HeartbeatResponse(error_code=27))]


def test_a_broker_too_old_for_our_api_versions_is_asked_again_in_its_own() -> None:
    peer = started()
    (header,) = peer.requests()
    peer.answer(header, api_versions(ErrorCode.UNSUPPORTED_VERSION), version=0)
    assert not peer.connection.ready
    (again,) = peer.requests()
    assert again.api_version == 0
    peer.answer(again, api_versions())
    assert peer.connection.ready


def test_a_version_that_is_needed_and_not_there_is_said() -> None:
    peer = ready()
    with pytest.raises(KafkaError, match="does not speak Fetch") as refused:
        peer.connection.send(1, FetchRequest(), min_version=13)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert peer.requests() == []


def test_answers_arrive_in_pieces_of_any_size() -> None:
    peer = ready()
    for token in range(3):
        peer.connection.send(token, HeartbeatRequest(group_id="g"))
    data = b"".join(
        b"".join(encode_response(header.correlation_id, 4, HeartbeatResponse(error_code=n)))
        for n, header in enumerate(peer.requests())
    )
    answers = [answer for i in range(len(data)) for answer in peer.bytes(data[i : i + 1])]
    assert [(answer.token, answer.response.error_code) for answer in answers] == [(0, 0), (1, 1), (2, 2)]
    assert peer.connection.in_flight == 0


def big_fetch(size: int, fill: bytes) -> FetchResponse:
    data = FetchResponse.PartitionData(partition_index=0, records=fill * size)
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])])


def records(answers: list[Any]) -> Any:
    return answers[0].response.responses[0].partitions[0].records


def test_large_answers_have_memory_of_their_own_unless_they_need_not_last() -> None:
    peer = ready()
    kept = []
    for fill in (b"a", b"b"):
        peer.connection.send(1, FetchRequest())
        kept.append(records(peer.answer(peer.requests()[0], big_fetch(300_000, fill))))
    assert [bytes(one[:1]) for one in kept] == [b"a", b"b"]
    passing = []
    for fill in (b"c", b"d"):
        peer.connection.send(1, FetchRequest(), lasting=False)
        passing.append(records(peer.answer(peer.requests()[0], big_fetch(300_000, fill))))
    assert [bytes(one[:1]) for one in passing] == [b"d", b"d"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46\x00", "security.protocol"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH-"),
        (b"\x7f\xff\xff\xff\x00\x00\x00\x01", "an answer of 2147483647 bytes"),
        (b"\xff\xff\xff\xff\x00\x00\x00\x01", "an answer of -1 bytes"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x63\x00\x00\x00\x00", "another question"),
    ],
)
def test_what_is_not_kafka_is_said_before_memory_is_taken(data: bytes, text: str) -> None:
    peer = started()
    peer.requests()
    with pytest.raises(NotConnectedError, match="not Kafka's protocol") as refused:
        peer.bytes(data)
    assert text in str(refused.value)
    assert peer.connection._frame is None


def test_an_answer_above_the_limit_is_refused() -> None:
    peer = ready(max_answer=100_000)
    peer.connection.send(1, FetchRequest())
    with pytest.raises(NotConnectedError, match=r"the limit is 100000 \(receive.message.max.bytes\)"):
        peer.answer(peer.requests()[0], big_fetch(200_000, b"x"))


def test_an_answer_that_nobody_asked_for() -> None:
    peer = ready()
    with pytest.raises(NotConnectedError, match="nobody asked for"):
        peer.bytes(b"\0\0\0\4\0\0\0\1")


def test_a_body_that_cannot_be_read() -> None:
    peer = ready()
    peer.connection.send(1, HeartbeatRequest())
    (header,) = peer.requests()
    with pytest.raises(NotConnectedError, match="not Kafka's protocol"):
        peer.bytes(b"\0\0\0\5" + header.correlation_id.to_bytes(4, "big") + b"\0")


# -- SASL --------------------------------------------------------------------------------------------------------------


def handshaken(mechanism: str, error: int = 0) -> Peer:
    peer = started(Credentials(mechanism, "alice", "secret"))
    peer.agree()
    (header,) = peer.requests()
    assert header.api_key == ApiKey.SASL_HANDSHAKE
    peer.answer(header, SaslHandshakeResponse(error_code=error, mechanisms=["PLAIN"]))
    return peer


def test_plain_is_one_message() -> None:
    peer = handshaken("PLAIN")
    assert not peer.connection.ready
    (header,) = peer.requests()
    peer.answer(header, SaslAuthenticateResponse())
    assert peer.connection.ready


def test_credentials_show_no_password() -> None:
    shown = Credentials("PLAIN", "alice", "hunter2")
    assert "alice" in repr(shown) and "hunter2" not in f"{shown!r} {shown}"


def test_a_mechanism_that_is_not_offered() -> None:
    with pytest.raises(AuthenticationError, match=r"does not offer sasl\.mechanism=SCRAM-SHA-256, only: PLAIN"):
        handshaken("SCRAM-SHA-256", 33)


def test_a_refused_user() -> None:
    peer = handshaken("PLAIN")
    (header,) = peer.requests()
    with pytest.raises(AuthenticationError, match=r"refused sasl\.username=alice: no"):
        peer.answer(header, SaslAuthenticateResponse(error_code=58, error_message="no"))


@pytest.mark.parametrize("answer", [b"", b"r=abc", b"r=abcdef,s=!,i=x", b"\xff", b"r=other,s=YQ==,i=4096"])
def test_nonsense_in_a_scram_exchange_is_an_authentication_error(answer: bytes) -> None:
    peer = handshaken("SCRAM-SHA-512")
    (header,) = peer.requests()
    with pytest.raises(AuthenticationError):
        peer.answer(header, SaslAuthenticateResponse(auth_bytes=answer))


def test_a_broker_that_cannot_prove_the_password() -> None:
    peer = handshaken("SCRAM-SHA-256")
    (header,) = peer.requests()
    peer.answer(header, SaslAuthenticateResponse(auth_bytes=b"r=abcdef,s=c2FsdA==,i=4096"))
    (header,) = peer.requests()
    with pytest.raises(AuthenticationError, match="does not know the password"):
        peer.answer(header, SaslAuthenticateResponse(auth_bytes=b"v=YWJj"))


def known(lifetime_ms: int = 60_000) -> Peer:
    peer = handshaken("PLAIN")
    (header,) = peer.requests()
    peer.answer(header, SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms))
    return peer


def test_a_session_is_renewed_and_requests_wait_for_it() -> None:
    peer = known()
    peer.connection.send(1, HeartbeatRequest(group_id="before"))
    peer.connection.hold()
    peer.connection.send(2, HeartbeatRequest(group_id="after"))
    assert peer.connection.ready and peer.connection.in_flight == 2
    (before,) = peer.requests()
    peer.connection.renew(Credentials("PLAIN", "alice", "another"))
    (handshake,) = peer.requests()
    assert (before.api_key, handshake.api_key) == (ApiKey.HEARTBEAT, ApiKey.SASL_HANDSHAKE)
    assert [answer.token for answer in peer.answer(before, HeartbeatResponse())] == [1]
    peer.answer(handshake, SaslHandshakeResponse(mechanisms=["PLAIN"]))
    (authenticate,) = peer.requests()
    peer.answer(authenticate, SaslAuthenticateResponse(session_lifetime_ms=30_000))
    assert (peer.connection.logins, peer.connection.session_lifetime_ms) == (2, 30_000)
    (after,) = peer.requests()
    assert [answer.token for answer in peer.answer(after, HeartbeatResponse())] == [2]


def test_a_session_that_cannot_be_renewed_is_told_with_the_reason() -> None:
    peer = known()
    peer.connection.renew(Credentials("PLAIN", "alice", "revoked"))
    (handshake,) = peer.requests()
    peer.answer(handshake, SaslHandshakeResponse(mechanisms=["PLAIN"]))
    (authenticate,) = peer.requests()
    with pytest.raises(AuthenticationError, match=r"refused sasl\.username=alice: gone"):
        peer.answer(authenticate, SaslAuthenticateResponse(error_code=58, error_message="gone"))


def test_when_a_session_is_renewed() -> None:
    peer = known(lifetime_ms=10_000)
    renewal = Renewal(peer.connection, 0.9)
    renewal.noticed(100.0)
    assert not renewal.is_due(108.9) and renewal.is_due(109.0)
    peer.connection.renew(Credentials("PLAIN", "alice", "secret"))
    assert not renewal.is_due(109.0), "it is under way"
    endless = known(lifetime_ms=0)
    renewal = Renewal(endless.connection, 0.9)
    renewal.noticed(100.0)
    assert not renewal.is_due(1e12)


# -- the table ---------------------------------------------------------------------------------------------------------


def test_phases_move_as_the_table_says() -> None:
    assert set(PHASES) == set(Phase)
    connection = Connection("b", "me")
    with pytest.raises(RuntimeError, match="NEW -> READY"):
        connection._enter(Phase.READY)
    connection.close("enough")
    connection.close("twice")
    assert connection.closed == "enough"


# -- over sockets ------------------------------------------------------------------------------------------------------


@contextmanager
def server(answer: bytes) -> Iterator[str]:
    """Answers whatever comes with the same bytes, then closes."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            with client:
                client.recv(4096)
                client.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        thread.join()
        listener.close()


def test_the_port_of_a_web_server_is_told_over_asyncio_and_blocking() -> None:
    with server(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") as servers:
        host, port = servers.split(":")
        with pytest.raises(NotConnectedError, match="HTTP"):
            BlockingTransport(host, int(port), Config({"bootstrap.servers": servers}))
        settings = {"default_api_timeout_ms": 500, "request_timeout_ms": 400}
        with (
            kohort.Admin(bootstrap_servers=servers, **settings) as admin,
            pytest.raises(KafkaError, match="HTTP"),
        ):
            admin.describe_cluster()
