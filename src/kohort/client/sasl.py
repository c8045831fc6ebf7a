"""SASL as generators: a message out, the answer in. PLAIN, SCRAM (RFC 5802), OAUTHBEARER (RFC 7628). No I/O.

The broker's side is `broker/sasl.py`; what both compute of SCRAM is in `protocol/scram.py`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from kohort.client.errors import AuthenticationError
from kohort.protocol.scram import ScramClient, ScramError

OAUTHBEARER = "OAUTHBEARER"


class Credentials(NamedTuple):
    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        """Tracebacks are no place for a password."""
        return f"Credentials({self.mechanism}, {self.username})"


def exchange(given: Credentials, nonce: str) -> Generator[bytes, bytes, None]:
    """Yields what to send, is sent what came back, ends when the broker has accepted and shown who it is."""
    if given.mechanism == "PLAIN":
        yield f"\0{given.username}\0{given.password}".encode()
        return
    if given.mechanism == OAUTHBEARER:
        refusal = yield f"n,,\x01auth=Bearer {given.password}\x01\x01".encode()
        if refusal:
            yield b"\x01"
            raise AuthenticationError(f"the broker refused the bearer token: {refusal.decode(errors='replace')}")
        return
    scram = ScramClient(given.mechanism, given.username, given.password, nonce)
    try:
        server_first = yield scram.first()
        server_final = yield scram.final(server_first)
        scram.check(server_final)
    except ScramError as error:
        raise AuthenticationError(str(error)) from None
