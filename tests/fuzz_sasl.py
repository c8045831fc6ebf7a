"""SASL fuzzed from both ends: what a broker makes of any client's messages, and a client of any broker's.

The transcripts of sound exchanges are here as well, so that changed ones get far. See `fuzz_targets.py`.
"""

from __future__ import annotations

import random
from functools import cache

from kohort.broker.bearer import InvalidToken
from kohort.broker.sasl import AuthenticationFailed, exchange
from kohort.broker.users import Users
from kohort.client.connection import Connection, Phase
from kohort.client.sasl import Credentials
from kohort.client.sasl import exchange as client_exchange
from kohort.protocol.errors import KafkaError
from kohort.protocol.frames import encode_response
from kohort.protocol.messages import ApiVersionsResponse, SaslAuthenticateResponse, SaslHandshakeResponse
from kohort.storage.store import MemoryStore

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, PASSWORD, NONCE = "al=i,ce", "her secret", "abcdef"
MOST_MESSAGES = 4


@cache
def users() -> Users:
    made = Users(MemoryStore(), random.Random(1).randbytes)
    made.give({USER: PASSWORD})
    return made


def check_token(token: str) -> None:
    raise InvalidToken("nobody has one here")


def messages_of(data: bytes) -> tuple[str, list[bytes]]:
    """A mechanism, and messages with two bytes of length before each."""
    mechanism, found, at = MECHANISMS[(data[0] if data else 0) % len(MECHANISMS)], [], 1
    while at + 2 <= len(data) and len(found) < MOST_MESSAGES:
        size = int.from_bytes(data[at : at + 2], "big")
        found.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return mechanism, found


def framed(mechanism: str, said: list[bytes]) -> bytes:
    parts = (len(message).to_bytes(2, "big") + message for message in said)
    return bytes([MECHANISMS.index(mechanism)]) + b"".join(parts)


@cache
def transcript(mechanism: str) -> tuple[list[bytes], list[bytes]]:
    """What a client and a broker say to each other when all goes well (with a bearer token: when it does not)."""
    client = client_exchange(Credentials(mechanism, USER, PASSWORD), NONCE)
    broker = exchange(mechanism, users(), lambda: "server", check_token)  # type: ignore[arg-type]
    asked, answered, message = [], [], next(client)
    try:
        while True:
            asked.append(message)
            answered.append(broker.send(message))
            message = client.send(answered[-1])
    except StopIteration as end:
        if end.value is not None:
            answered.append(end.value.last_message)
    except AuthenticationFailed:
        pass
    return asked, answered


def sasl_messages_of_clients(data: bytes) -> None:
    """Whoever gets in is the user whose password was used; everybody else is refused, and told nothing of it."""
    mechanism, said = messages_of(data)
    made = exchange(mechanism, users(), lambda: "server", check_token)  # type: ignore[arg-type]
    try:
        for message in said:
            made.send(message)
    except AuthenticationFailed as error:
        assert PASSWORD not in str(error)
    except StopIteration as end:
        assert end.value.user == USER


def sasl_messages_of_brokers(data: bytes) -> None:
    """A client ends with an error of its own, or believes a broker that knows the password."""
    mechanism, said = messages_of(data)
    connection = Connection("broker", "fuzz", Credentials(mechanism, USER, PASSWORD), NONCE)
    connection.start()
    rows = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=1) for key in (17, 36)]
    answers = [encode_response(1, 3, ApiVersionsResponse(api_keys=rows))]
    answers.append(encode_response(2, 1, SaslHandshakeResponse(mechanisms=[mechanism])))
    for number, message in enumerate(said, 3):
        answers.append(encode_response(number, 1, SaslAuthenticateResponse(auth_bytes=message)))
    try:
        for answer in answers:
            give(connection, b"".join(map(bytes, answer)))
    except KafkaError as error:
        assert PASSWORD not in str(error)
    if connection.phase is Phase.READY and mechanism.startswith("SCRAM"):
        assert said[0] == transcript(mechanism)[1][0], "it believed somebody who does not know the password"


def give(connection: Connection, data: bytes) -> None:
    while data:
        room = connection.get_buffer()
        some, data = data[: len(room)], data[len(room) :]
        room[: len(some)] = some
        connection.received(len(some))
