"""SASL on the broker's side as generators: a message in, the answer out; they return who it is. No I/O.

The client's side is `client/sasl.py`; what both compute of SCRAM is in `protocol/scram.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

from kohort.broker.users import Users
from kohort.protocol.scram import HASHES, ScramError, ScramServer

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *HASHES)


class AuthenticationFailed(Exception):
    """The message is for the client: it says nothing about which part was wrong."""


class Identity(NamedTuple):
    user: str
    last_message: bytes = b""
    """What the client still has to be told."""


Exchange = Generator[bytes, bytes, Identity]


def exchange(mechanism: str, users: Users, nonce: Callable[[], str]) -> Exchange:
    """One exchange, ready to be sent the first message of the client."""
    made = _plain(users) if mechanism == PLAIN else _scram(mechanism, users, nonce())
    next(made)
    return made


def _plain(users: Users) -> Exchange:
    message = yield b""
    parts = message.split(b"\0")
    if len(parts) != 3:
        raise AuthenticationFailed("Invalid SASL/PLAIN response: expected 3 tokens")
    try:
        authorization, user = parts[0].decode(), parts[1].decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("Authentication failed: username is not UTF-8") from None
    if not user or not parts[2]:
        raise AuthenticationFailed("Authentication failed: username or password not specified")
    if not users.knows_password(user, parts[2]):
        raise AuthenticationFailed("Authentication failed: Invalid username or password")
    if authorization not in ("", user):
        raise AuthenticationFailed("Authentication failed: Client requested an authorization id that is different")
    return Identity(user)


def _scram(mechanism: str, users: Users, nonce: str) -> Exchange:
    refused = AuthenticationFailed(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
    server = ScramServer(mechanism, nonce)
    try:
        user = server.read_first((yield b""))
        keys = users.keys(user, mechanism)
        if keys is None:
            raise refused
        proof = yield server.first(keys)
        last = server.final(proof)
    except (ScramError, ValueError, KeyError):
        raise refused from None
    if last is None:
        raise refused
    return Identity(user, last)
