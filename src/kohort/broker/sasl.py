"""SASL on the broker's side as generators: a message in, the answer out; they return who it is. No I/O.

The client's side is `client/sasl.py`; what both compute of SCRAM is in `protocol/scram.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import NamedTuple

from kohort.broker.bearer import Bearer, InvalidToken
from kohort.broker.users import Users
from kohort.protocol.scram import HASHES, ScramError, ScramServer

logger = logging.getLogger("kohort.security")

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, *HASHES)
"""Unless configured otherwise."""
_AUTH = "auth=Bearer "
_SEPARATOR = "\x01"


class AuthenticationFailed(Exception):
    """The message is for the client: it says nothing about which part was wrong."""


class Identity(NamedTuple):
    user: str
    last_message: bytes = b""
    """What the client still has to be told."""
    expires_ms: int | None = None
    """When it has to show who it is again."""


Exchange = Generator[bytes, bytes, Identity]
CheckToken = Callable[[str], Bearer]
"""Who a bearer token stands for; InvalidToken where that is nobody."""


def exchange(mechanism: str, users: Users, nonce: Callable[[], str], check: CheckToken, listener: str = "") -> Exchange:
    """One exchange at a listener, ready to be sent the first message of the client."""
    if mechanism == OAUTHBEARER:
        made = _bearer(check)
    else:
        made = _plain(users, listener) if mechanism == PLAIN else _scram(mechanism, users, nonce())
    next(made)
    return made


def _plain(users: Users, listener: str) -> Exchange:
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
    if not users.knows_password(user, parts[2], listener):
        raise AuthenticationFailed("Authentication failed: Invalid username or password")
    if authorization not in ("", user):
        raise AuthenticationFailed("Authentication failed: Client requested an authorization id that is different")
    return Identity(user)


def _bearer(check: CheckToken) -> Exchange:
    """RFC 7628: who is refused gets a reason, says that it has read it, and only then is told that it failed."""
    message = yield b""
    try:
        given = check(_token(message.decode()))
    except (UnicodeDecodeError, InvalidToken) as error:
        logger.info("a bearer token is refused: %s", error)
        yield b'{"status":"invalid_token"}'
        raise AuthenticationFailed("Authentication failed: the bearer token is not valid") from None
    return Identity(given.user, expires_ms=given.expires_ms)


def _token(message: str) -> str:
    head, *pairs = message.split(_SEPARATOR)
    found = [pair.removeprefix(_AUTH) for pair in pairs if pair.startswith(_AUTH)]
    if not head.startswith("n,") or len(found) != 1 or not message.endswith(_SEPARATOR * 2):
        raise InvalidToken("the message is not that of a client")
    return found[0].strip()


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
